"""Networks that follow from the labels at the nodes, so that neighbourhoods have the classes of all nodes together.

NumPy and SciPy on the host. Axes: m nodes, c classes.
"""

import itertools
from typing import Annotated, Any, Literal

import numpy as np
import scipy
import scipy.sparse as sp

from jdfl.base import checks
from jdfl.base.arguments import checked
from jdfl.base.names import names_in
from jdfl.base.settings import Bound, Count, Natural, Seed
from jdfl.network.conversions import from_matrix
from jdfl.network.graph import Static
from jdfl.network.tables import linked
from jdfl.network.weights import FormatChoice, WeightRule, build

Between = Literal["complete", "ring", "small-world"]


def _shares(counts: Any) -> np.ndarray:
    """The share of every class at every node [m, c]; ValueError for counts that are none."""
    checks.plain_array(counts=counts)
    found = np.asarray(counts)
    if found.ndim != 2 or not found.size or found.dtype.kind not in "iuf":
        raise ValueError(f"Expected counts [m, c], a row of numbers for every node, got {checks.text(counts)}.")
    found = found.astype(np.float64)
    checks.not_negative(counts=found)
    total = found.sum(axis=1, keepdims=True)
    if not np.all((total > 0) & np.isfinite(total)):
        raise ValueError("Expected counts with an example at every node, got a row without. Leave that node out.")
    return found / total


@checked
def d_cliques(
    counts: Any,
    size: Count = 10,
    *,
    between: Between = "ring",
    swaps: Natural = 1000,
    seed: Seed = 0,
    weights: WeightRule = None,
    format: FormatChoice = "auto",
) -> Static:
    """D-Cliques: cliques whose nodes together have the classes of all nodes, and single links between cliques.

    A. Bellet, A.-M. Kermarrec, E. Lavoie, "D-Cliques: compensating for data heterogeneity with topology in
    decentralized federated learning", 2022. Greedy-Swap: from random cliques, two random ones exchange the pair of
    nodes, drawn among all pairs that help, after which their skews are smaller in sum. The skew of a clique is the sum
    over classes of | its share - the share in all cliques |. Links between cliques end at the nodes that have fewest.
    The distances of "small-world" on the ring of cliques are powers of two here.

    Args:
        counts: Examples of every class at every node, counts [m, c]; shares serve, too. The index of a DataFrame names
            the nodes.
        size: The most nodes of a clique.
        between: The links between cliques: complete, ring, or ring with links to cliques 2, 4, 8, ... places on.
        swaps: How often two cliques are tried.
        seed: Seed of cliques and swaps.

    Raises:
        ValueError: For counts that are not [m, c] numbers from 0, or a node without examples.
    """
    shares, rng = _shares(counts), np.random.default_rng(seed)
    m = len(shares)
    cliques = [list(one) for one in np.array_split(rng.permutation(m), -(-m // size))]
    everyone = shares.mean(axis=0)
    for _ in range(swaps if len(cliques) > 1 else 0):
        one, other = (cliques[c] for c in rng.choice(len(cliques), 2, replace=False))
        _swap(one, other, shares, everyone, rng)
    edges = [pair for clique in cliques for pair in itertools.combinations(clique, 2)]
    spare = np.zeros(m, int)  # links between cliques that a node has
    count = len(cliques)
    distances = {"complete": range(1, count), "ring": [1], "small-world": [2**t for t in range(count.bit_length())]}
    pairs = {tuple(sorted((c, (c + far) % count))) for c in range(count) for far in distances[between]}
    for c, d in sorted(pair for pair in pairs if pair[0] != pair[1]):
        ends = [min(cliques[which], key=lambda i: (spare[i], i)) for which in (c, d)]
        spare[ends] += 1
        edges.append((ends[0], ends[1]))
    u, v = np.array(edges, np.int64).reshape(-1, 2).T
    name = f"D-Cliques(m={m}, size={size}, {between})"
    return build(linked(u, v, m), weights, format, name).named(names_in("counts", counts))


def _swap(one: list[int], other: list[int], shares: np.ndarray, everyone: np.ndarray, rng: Any) -> None:
    """Exchange a random pair of nodes of two cliques among those that reduce their skews, if there is one."""
    sums = [shares[clique].sum(axis=0) for clique in (one, other)]
    change = shares[other][None] - shares[one][:, None]  # [a, b, c] to the first clique

    def skew(total: np.ndarray, clique: list[int]) -> np.ndarray:
        return np.abs(total / len(clique) - everyone).sum(axis=-1)

    after = skew(sums[0] + change, one) + skew(sums[1] - change, other)
    better = np.argwhere(after < skew(sums[0], one) + skew(sums[1], other) - 1e-12)
    if len(better):
        a, b = better[rng.integers(len(better))]
        one[a], other[b] = other[b], one[a]


@checked
def stl_fw(
    counts: Any,
    budget: Count | None = None,
    *,
    variance: Annotated[float, Bound("(0, inf)")] = 0.1,
    format: FormatChoice = "auto",
) -> Static:
    """STL-FW: a sparse doubly stochastic W learned from the classes at the nodes, by Frank and Wolfe's algorithm.

    B. Le Bars, A. Bellet, M. Tommasi, E. Lavoie, A.-M. Kermarrec, "Refined convergence and topology learning for
    decentralized SGD with heterogeneous data", 2023. With P [m, c] the shares of classes it minimises

        (|| W P - J P ||^2 + variance || W - J ||^2) / m,    J = 1 1' / m

    over doubly stochastic matrices, in the Frobenius norm. A step moves from W, at first I, towards the permutation
    with the least sum of gradient entries, with exact line search, so that it adds at most one in-neighbour and one
    receiver to a node. Links run one way. It takes m^3 operations a step.

    Args:
        counts: Examples of every class at every node, counts [m, c]; shares serve, too. The index of a DataFrame names
            the nodes.
        budget: Number of steps, and so the most in-neighbours of a node; None: c. More may be needed until the links
            connect all nodes.
        variance: Weight of the second term (lambda of the paper), above 0.

    Raises:
        ValueError: For counts that are not [m, c] numbers from 0, a node without examples, and a budget with which the
            nodes are not connected.
    """
    P = _shares(counts)
    m, c = P.shape
    centred, W = P - P.mean(axis=0), np.eye(m)
    K = centred @ centred.T + variance * np.eye(m)  # W P - J P = (W - J) centred, so the gradient is (W - J) K
    for _ in range(c if budget is None else budget):
        gradient = (W - 1 / m) @ K
        rows, columns = scipy.optimize.linear_sum_assignment(gradient)
        towards = sp.coo_array((np.ones(m), (rows, columns)), shape=(m, m)).toarray() - W
        curvature = np.sum((towards @ K) * towards)
        if curvature <= 0:
            break
        W = W + np.clip(-np.sum(gradient * towards) / curvature, 0, 1) * towards
    name = f"STL-FW(m={m}, budget={c if budget is None else budget})"
    return from_matrix(W, format=format, name=name).named(names_in("counts", counts))
