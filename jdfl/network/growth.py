"""Whether repeated mixing brings nodes together: spectral radii and mean growth factors, on the host before a run.

The disagreement of rows x is x - J x, where all entries of J are 1 / m. Where rows of W sum to one, a round multiplies
its expected square by at most || E[W^T (I - J) W] ||, as in "MATCHA" (see `activation`). Rounds known in advance repeat
after p of them; over one period x - J x is multiplied by prod_k (I - J) W_k.

Axes: m nodes.
"""

from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import Any, NamedTuple, cast

import numpy as np
import scipy.linalg as la
import scipy.sparse.linalg as spla

from jdfl.network.activation import mean_square, moments
from jdfl.network.combining import PartialCommunication
from jdfl.network.graph import Graph, Network, round_of
from jdfl.network.matching import Matchings
from jdfl.network.sequences import RandomChoice, graphs_of, inmost, period_of
from jdfl.network.tables import TOLERANCE, called, is_symmetric, to_scipy
from jdfl.network.timing import Timed

EXACT_UP_TO = 300  # nodes up to which all eigenvalues are computed
_PRODUCTS = 200  # with the matrix, of Lanczos's method and of the power method
_UNDECIDED = 0.5  # growth in these products from which the spectral radius may be one
_RESTARTS = 10  # of Arnoldi's method
_DRAWN = 200  # rounds from which a mean is estimated, half of them to find the direction of fastest growth
_LEAST_DRAWN = 8  # rounds of a large network
_STORED = 2**26  # entries of the matrices of these rounds, 800 MB
_TOWARDS = 30  # products of the power method that finds that direction
_SURE = 3.0  # standard errors


def centred(x: Any) -> np.ndarray:
    """Rows [m] or [m, n] minus their mean."""
    rows: np.ndarray = np.asarray(x)
    return rows - rows.mean(axis=0)


def spectral_radius(graphs: Sequence[Graph]) -> float:
    """The spectral radius of the product of (I - J) W over the graphs in turn, as `largest_modulus` finds it."""
    matrices: list[Any] = [to_scipy(graph) for graph in graphs]
    symmetric = len(matrices) == 1 and is_symmetric(matrices[0])
    return largest_modulus(lambda x: reduce(lambda y, W: centred(W @ y), matrices, x), graphs[0].m, symmetric=symmetric)


def largest_modulus(product: Callable[[np.ndarray], np.ndarray], m: int, *, symmetric: bool) -> float:
    """The spectral radius on centred vectors of a matrix [m, m], given as a function that multiplies by it.

    It is exact up to 300 nodes. Larger matrices cost some 200 products: Lanczos's method gives a lower bound for a
    symmetric one, too small by 1e-4 for a ring. For others it is the mean growth of a vector in the last
    100 of 200 products, a lower bound where the matrix is normal; where that is between 0.5 and 1, Arnoldi's method is
    tried as well.
    """
    if m == 1:
        return 0.0
    if m <= EXACT_UP_TO:
        dense = product(centred(np.eye(m)))
        return float(np.max(np.abs(la.eigvalsh(dense) if symmetric else la.eigvals(dense))))
    return _lanczos(product, m) if symmetric else _arnoldi(product, m)


def _lanczos(product: Callable[[np.ndarray], np.ndarray], m: int) -> float:
    """The largest modulus of a Ritz value of a symmetric matrix, a lower bound for its spectral radius."""
    diagonal, beside = list[float](), list[float]()
    before, v, norm = np.zeros(m), _start(m), 0.0
    for _ in range(_PRODUCTS):
        w = product(v) - norm * before
        diagonal.append(float(v @ w))
        w -= diagonal[-1] * v
        norm = float(np.linalg.norm(w))
        if norm < 1e-12 * abs(diagonal[0]) + 1e-300:  # v spans an invariant space with those before
            break
        beside.append(norm)
        before, v = v, w / norm
    return float(np.max(np.abs(la.eigvalsh_tridiagonal(diagonal, beside[: len(diagonal) - 1]))))


def _arnoldi(product: Callable[[np.ndarray], np.ndarray], m: int) -> float:
    """The mean growth of a vector where it decides; otherwise the spectral radius, if Arnoldi's method converges."""
    v, grown = _start(m), list[float]()
    for _ in range(_PRODUCTS):
        w = product(v)
        grown.append(float(np.linalg.norm(w)))
        if grown[-1] == 0:
            return 0.0
        v = w / grown[-1]
    growth = float(np.exp(np.mean(np.log(grown[_PRODUCTS // 2 :]))))
    if not _UNDECIDED < growth <= 1:
        return growth
    linear: Any = cast(Any, spla).LinearOperator((m, m), matvec=product, matmat=product, dtype=np.float64)
    try:
        found = cast(Any, spla).eigs(linear, k=1, v0=_start(m), maxiter=_RESTARTS, tol=1e-6, return_eigenvectors=False)
    except spla.ArpackError:
        return growth
    return float(np.abs(found).max())


def _start(m: int) -> np.ndarray:
    """The start vector of the Krylov methods, centred and of norm one."""
    v = centred(np.random.default_rng(0).standard_normal(m))
    return v / np.linalg.norm(v)


class Growth(NamedTuple):
    """The factor by which a round changes the squared disagreement, in expectation."""

    most: float  # over all disagreements, by `largest_modulus`; or an estimate for the one that grows fastest
    error: float | None  # its standard error; None: it is no estimate

    @property
    def too_large(self) -> bool:
        """Whether the factor is one or more: exactly, or beyond the uncertainty of the estimate."""
        return not (self.most - _SURE * self.error <= 1 if self.error is not None else self.most < 1)


def mean_growth(network: Network) -> Growth:
    """The expected growth of the squared disagreement in a round, or in a period of a periodic network inside wrappers.

    || E[W^T (I - J) W] ||, exact for matchings, by `largest_modulus` for random choices, and estimated for other
    networks: the disagreement with the largest mean growth is found on one half of the rounds, and its growth measured
    on the other half.
    """
    while isinstance(network, Timed):  # which has the weights of its base
        network = network.base
    if isinstance(network, Matchings):  # a periodic one as in the round in which its matchings are active
        p = np.asarray(network.p if network.period is None else np.ones(network.p.shape), np.float64)
        return Growth(mean_square(float(network.alpha), *moments(p, np.asarray(network.partner))), None)
    if isinstance(network, RandomChoice):
        chance = np.asarray(network.probability, np.float64)
        chosen = [(p / chance.sum(), to_scipy(network.turn(j))) for j, p in enumerate(chance.tolist()) if p > 0]
        return Growth(largest_modulus(partial(_squared, chosen), network.m, symmetric=True), None)
    period = period_of(inmost(network, PartialCommunication)) or 1
    drawn, entries = list[Any](), 0
    for k in range(0, _DRAWN * period, period):
        rounds: list[Any] = [to_scipy(round_of(network, t)) for t in range(k, k + period)]
        drawn.append(reduce(lambda earlier, W: W @ earlier, rounds))
        entries += drawn[-1].nnz
        if entries > _STORED and len(drawn) >= _LEAST_DRAWN:
            break
    v = centred(np.random.default_rng(0).standard_normal(network.m))
    for _ in range(_TOWARDS):
        v = _squared([(1.0, W) for W in drawn[::2]], v / (np.linalg.norm(v) or 1.0))
    v = v / (np.linalg.norm(v) or 1.0)
    found = np.array([np.sum(centred(W @ v) ** 2) for W in drawn[1::2]])
    return Growth(float(found.mean()), float(found.std(ddof=1) / np.sqrt(found.size)))


def _squared(matrices: list[tuple[float, Any]], x: np.ndarray) -> np.ndarray:
    """(I - J) sum_c p_c W_c^T (I - J) W_c x for probabilities p_c and matrices W_c."""
    return centred(sum(chance * (W.T @ centred(W @ x)) for chance, W in matrices))


def refuse_expanding(network: Network, method: str, lowest: float) -> None:
    """Refuse a fixed or periodic network in which differences between nodes grow: ValueError with the factor."""
    graphs = [graph for _, graph in graphs_of(network, 1)]
    radius = spectral_radius(graphs)
    if not radius <= 1 + TOLERANCE:
        p = len(graphs)
        what, often = ("W", "round") if p == 1 else (f"the product of W over its {p} rounds", "period")
        raise ValueError(
            f"Expected mixing for {method} that does not expand, with every eigenvalue of {what} at most 1 in modulus, "
            f"got {radius:.6g} in {called(network)}, whose lowest weight is {lowest:.6g}: differences between nodes "
            f"would grow by that factor in each {often}. Use weights >= 0, or weights='metropolis' on undirected links."
        )


def refuse_growing(network: Network, method: str, lowest: float) -> None:
    """Refuse a random network in which differences between nodes grow on average: ValueError with the factor."""
    growth = mean_growth(network)
    if growth.too_large:
        about = "" if growth.error is None else f" (estimated, +- {growth.error:.2g})"
        raise ValueError(
            f"Expected a network for {method} whose rounds contract on average, || E[W^T W] - J || < 1, got "
            f"{growth.most:.6g}{about} in {called(network)}, with weights down to {lowest:.6g}: squared differences "
            "between nodes would change by that factor in a round. Use weights >= 0, or jdfl.network.matcha(base, "
            "budget), which chooses its alpha so that they shrink."
        )
