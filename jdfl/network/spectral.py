"""Properties of a network, computed on the host: its spectral gap, and a summary for display."""

from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
import scipy.sparse.linalg as spla

from jdfl.base.arguments import checked
from jdfl.network.graph import Format, Graph, Network, Static
from jdfl.network.tables import (
    TOLERANCE,
    Arcs,
    arcs_of,
    called,
    components,
    graph_of,
    is_symmetric,
    stochastic,
    synchronised_now,
    to_scipy,
)
from jdfl.network.weights import table

Stochastic = Literal["doubly", "row", "column", "neither"]

DENSE_UP_TO = 1500  # nodes; up to here all eigenvalues of a dense matrix are computed
DIAMETER_UP_TO = 2000  # nodes
_RESTARTS = 30  # of the Krylov methods


@checked
def spectral_gap(network: Graph | Network) -> float:
    """The spectral gap of W, one minus its second largest eigenvalue in modulus: larger means faster consensus.

    A single node has gap 1, a disconnected network gap 0.

    Args:
        network: A fixed network, or the graph of one round, with W [m, m].

    Returns:
        A dimensionless number from 0, where nodes never agree, to 1, where they agree in one round; negative if W
        expands.

    Raises:
        ValueError: For a network that changes from round to round.
        ArithmeticError: If the iteration for a large asymmetric W does not converge.
    """
    stored: Any = to_scipy(graph_of(network))
    m = int(stored.shape[0])
    if m == 1:
        return 1.0
    rows_sum = stochastic(stored, 1)
    # The float32 rounding of the diagonal would hide small gaps.
    W = stored + sp.diags_array(1 - np.asarray(stored.sum(axis=1))) if rows_sum else stored
    symmetric = is_symmetric(W)
    if m <= DENSE_UP_TO:
        dense: np.ndarray = W.toarray()
        values = np.linalg.eigvalsh(dense) if symmetric else np.linalg.eigvals(dense)
        second = np.sort(np.abs(values))[-2]
    else:
        second = _second_symmetric(W) if symmetric and rows_sum else _second(W)
    return float(1 - second)


def _start(m: int) -> np.ndarray:
    """The start vector of the Krylov methods."""
    return np.random.default_rng(0).standard_normal(m)


def _second_symmetric(W: Any) -> float:
    """The second eigenvalue in modulus of a symmetric W whose rows sum to one, so that W 1 = 1 can be deflated."""
    m = int(W.shape[0])
    start, one = _start(m), np.ones((m, 1))
    rest = spla.aslinearoperator(W) - spla.aslinearoperator(one) @ spla.aslinearoperator(one.T / m)
    try:
        return float(abs(spla.eigsh(rest, k=1, v0=start, maxiter=_RESTARTS, return_eigenvectors=False)[0]))
    except spla.ArpackNoConvergence:
        # Slow convergence means a small gap, hence a network with small cuts, whose factorisation has little fill-in.
        near: Any = partial(spla.eigsh, W, v0=start, return_eigenvectors=False)
        top, bottom = near(k=2, sigma=1 + 1e-9), near(k=1, sigma=-1 - 1e-9, tol=1e-3)
        return float(max(abs(top.min()), abs(bottom[0])))


def _second(W: Any) -> float:
    try:
        values = spla.eigs(W, k=2, v0=_start(int(W.shape[0])), ncv=40, maxiter=_RESTARTS, return_eigenvectors=False)
    except spla.ArpackNoConvergence as error:
        raise ArithmeticError(
            f"The second eigenvalue of the asymmetric mixing matrix (m = {W.shape[0]}) did not converge in {_RESTARTS} "
            "restarts; its spectral gap is probably very small."
        ) from error
    return float(np.abs(values).min())


def sums_of(W: Any) -> Stochastic:
    """Which sums of a sparse matrix [m, m] are one: of rows and columns (doubly), of one of them, or of neither."""
    row, column = stochastic(W, 1), stochastic(W, 0)
    return "doubly" if row and column else "row" if row else "column" if column else "neither"


def _diameter(links: Arcs) -> int:
    """The diameter of a connected network.

    Doubles powers of I + A, then bisects: about 2 log2(diameter) products of 0/1 matrices, independent of the density.
    """

    def times(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return (a @ b > 0).astype(np.float32)

    if links.m == 1:
        return 0
    reach = np.eye(links.m, dtype=np.float32)
    reach[links.receiver, links.sender] = 1
    powers = [reach]  # powers[k]: reachable within 2^k steps
    while not powers[-1].all():
        powers.append(times(powers[-1], powers[-1]))
    length, within = 0, np.eye(links.m, dtype=np.float32)  # the longest walk length that does not reach every node
    for k in reversed(range(len(powers) - 1)):
        further = times(within, powers[k])
        if not further.all():
            length, within = length + 2**k, further
    return length + 1


@dataclass(frozen=True)
class Summary:
    """The result of `summary`; `str` formats it in a few lines."""

    name: str
    nodes: int  # m
    edges: int  # undirected links, or arcs if directed
    directed: bool
    degree_min: int  # in-degree, excluding the node itself
    degree_mean: float  # average in-degree
    degree_max: int  # largest in-degree
    density: float  # arcs / (m (m - 1))
    padding_ratio: float  # share of the table's slots that are padding
    connected: bool  # strongly, if directed
    diameter: int | None  # None: not connected, or too large to compute
    stochastic: Stochastic  # whether rows, columns, both or neither of W sum to one
    symmetric: bool  # whether W = W^T
    spectral_gap: float | None  # None: did not converge
    rule: str | None  # name of the weights, or "given" for those of a given matrix or edge list; None: unknown
    format: Format
    mix_slots: int  # slots that one `mix` in this format reads

    def __str__(self) -> str:
        if self.diameter is None:
            diameter = f"not computed above {DIAMETER_UP_TO} nodes" if self.connected else "infinite"
        else:
            diameter = str(self.diameter)
        stochastic = "not stochastic" if self.stochastic == "neither" else f"{self.stochastic}-stochastic"
        stochastic = stochastic.replace("doubly-", "doubly ")
        gap = "not computed (no convergence)" if self.spectral_gap is None else f"{self.spectral_gap:.4g}"
        stochastic = stochastic if self.symmetric else f"{stochastic}, not symmetric"
        rule = "" if self.rule is None else f"{self.rule}, "
        links = "directed arcs" if self.directed else "links"
        slots = f"\n{'':13}mixing reads {self.mix_slots:,} slots" if self.format == "buckets" else ""
        return (
            f"{self.name}\n"
            f"  nodes      {self.nodes:,}\n"
            f"  edges      {self.edges:,} {links} (density {self.density:.3g})\n"
            f"  degree     min {self.degree_min}, mean {self.degree_mean:.4g}, max {self.degree_max}\n"
            f"  connected  {'yes' if self.connected else 'NO'}, diameter {diameter}\n"
            f"  weights    {rule}{stochastic}, spectral gap {gap}\n"
            f"  format     {self.format}, {self.padding_ratio:.1%} of the table is padding{slots}"
        )


@checked
def summary(network: Graph | Network) -> Summary:
    """Size, degrees, connectivity, mixing weights with their spectral gap, and storage of a fixed network.

    The diameter is computed up to 2000 nodes.

    Args:
        network: A fixed network, or the graph of one round; `ValueError` for one that changes from round to round.

    Returns:
        Counts of nodes, links, neighbours and slots, shares in [0, 1], and the result of `spectral_gap`.
    """
    graph = graph_of(network)
    links = arcs_of(graph)
    if synchronised_now(graph):
        graph = table(links, np.full(links.sender.size, 1 / graph.m), None, "padded")
    degree = np.bincount(links.receiver, minlength=graph.m)
    directed, connected = not links.symmetric, components(links)[0] == 1
    try:
        gap = spectral_gap(graph)
    except ArithmeticError:
        gap = None
    arcs = links.sender.size
    W: Any = to_scipy(graph)
    slots = graph.m**2 if graph.format == "dense" else graph.senders.size
    if graph.format == "buckets" and graph.buckets is not None:
        slots = graph.buckets.slots
    return Summary(
        name=called(network),
        nodes=graph.m,
        edges=arcs if directed else arcs // 2,
        directed=directed,
        degree_min=int(degree.min()),
        degree_mean=float(degree.mean()),
        degree_max=int(degree.max()),
        density=arcs / max(1, graph.m * (graph.m - 1)),
        padding_ratio=1 - arcs / graph.senders.size,
        connected=connected,
        diameter=_diameter(links) if connected and graph.m <= DIAMETER_UP_TO else None,
        stochastic=sums_of(W),
        symmetric=bool(abs(W - W.T).max() <= TOLERANCE),
        spectral_gap=gap,
        rule=network.rule if isinstance(network, Static) else None,
        format=graph.format,
        mix_slots=slots,
    )
