"""Networks of edge lists, networkx graphs and matrices, and back to networkx. NumPy on the host."""

from typing import Any, Literal, cast

import networkx as nx
import numpy as np
import scipy.sparse as sp

from jdfl.base import checks
from jdfl.base.arguments import checked
from jdfl.base.settings import Count
from jdfl.network.graph import Graph, Network, Static
from jdfl.network.tables import arcs, arcs_of, graph_of, linked, stochastic, sum_to_one
from jdfl.network.weights import FormatChoice, Weights, build, refuse_parts, table

_OTHER_WEIGHTS = "Or choose weights='metropolis', which takes the links alone."


@checked
def from_edges(
    edges: Any,
    m: Count | None = None,
    *,
    weights: Weights | None = None,
    directed: bool = False,
    format: FormatChoice = "auto",
    name: str = "network",
    connected: bool = True,
) -> Static:
    """The network of a list of edges. Repeats count once, loops are dropped.

    Args:
        edges: Whole numbers [e, 2], ids of nodes from 0 to m - 1; a row (u, v) joins u and v.
        m: The number of nodes; None: one more than the largest id.
        weights: Rule for the mixing weights; None: metropolis, or uniform if directed. out-degree is for push-sum.
        directed: v hears u, and u does not hear v.
        format: How sums over neighbours are computed; auto looks at density, degrees and backend.
        name: What messages and reports call the network.
        connected: Refuse a network in several parts.

    Raises:
        ValueError: For ids that are not whole numbers from 0 to m - 1, a network that is not connected, or weights
            that a directed network cannot have.
    """
    checks.plain_array(edges=edges)
    pairs = np.asarray(edges)
    if pairs.size == 0:
        pairs = np.zeros((0, 2), np.int64)
    checks.shape((None, 2), "Pass one row (u, v) per edge.", edges=pairs)
    if not np.issubdtype(pairs.dtype, np.integer):
        raise ValueError(f"Expected edges of whole numbers, got dtype {pairs.dtype}. Number the nodes 0 .. m-1.")
    if m is None:
        m = int(pairs.max()) + 1 if pairs.size else 0
    checks.whole(remedy="Pass m, the number of nodes.", m=m)
    outside = np.flatnonzero(((pairs < 0) | (pairs >= m)).any(axis=1))
    if outside.size:
        first = tuple(int(i) for i in pairs[outside[0]])
        raise ValueError(
            f"Expected node ids from 0 to {m - 1} (m = {m}), got edges[{outside[0]}] = {first} "
            f"({outside.size} such edges). Raise m, or number the nodes 0 .. m-1."
        )
    u, v = pairs.astype(np.int64).T
    return build(linked(u, v, m, directed), weights, format, name, connected=connected)


@checked
def from_networkx(
    graph: "nx.Graph[Any]",
    *,
    weights: Weights | Literal["given"] | None = None,
    format: FormatChoice = "auto",
    name: str | None = None,
    connected: bool = True,
) -> Static:
    """The network of a networkx graph; node i is the i-th of `graph.nodes`, whatever its label.

    An edge u -> v of a DiGraph means that v hears u. Where the edges carry the attribute `weight`, that of u -> v is
    W_vu, kept as by `from_scipy`; a node's loop is its own weight, and without any loop every node keeps what its row
    leaves to one. All `weight` = 1 and none at all mean a plain graph, whose loops are ignored and whose parallel edges
    count once. `summary` says which weights are used.

    Args:
        graph: A Graph, DiGraph, MultiGraph or MultiDiGraph of networkx.
        weights: "given" keeps the edges' own, a rule takes the links alone; None: the edges' own, if they carry some.
        format: How sums over neighbours are computed; auto looks at density, degrees and backend.
        name: What messages and reports call the network; None: the graph's own name.
        connected: Refuse a network in several parts.

    Raises:
        ValueError: For what is no networkx graph, a `weight` that is no number, weights of some edges only or of
            parallel edges, and as `from_edges` and `from_scipy`.
    """
    checks.able(("nodes", "edges", "is_directed"), "a networkx graph", "networkx.Graph(edges) makes one.", graph=graph)
    options: Any = {"format": format, "name": name or graph.name or "network", "connected": connected}
    values = [value for *_, value in cast(Any, graph).edges(data="weight")]
    plain = all(value is None for value in values) or all(_is_number(value) and value == 1 for value in values)
    if weights == "given" or (weights is None and not plain):
        return from_scipy(_weighted(graph), weights="given", **options)
    place = {node: i for i, node in enumerate(graph)}
    edges = [(place[u], place[v]) for u, v in graph.edges()]
    return from_edges(edges, len(graph), weights=weights, directed=graph.is_directed(), **options)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)


def _weighted(graph: "nx.Graph[Any]") -> Any:
    """W [m, m] of a graph whose edges u -> v weigh W_vu; without loops the diagonal is what the rows leave to one."""
    for u, v, value in cast(Any, graph).edges(data="weight"):
        if not _is_number(value):
            found = "none" if value is None else repr(value)
            raise ValueError(
                f"Expected numbers as `weight` on every edge or on none, got {found} on the edge {(u, v)}. "
                f"{_OTHER_WEIGHTS}"
            )
        if graph.number_of_edges(u, v) > 1:
            raise ValueError(f"Expected one edge {(u, v)} with a weight, got parallel ones. {_OTHER_WEIGHTS}")
    if len(graph) == 0:
        return np.zeros((0, 0))
    W: Any = cast(Any, nx).to_scipy_sparse_array(graph, dtype=np.float64).T
    return W if nx.number_of_selfloops(graph) else W + sp.diags_array(1 - np.asarray(W.sum(axis=1)))


@checked
def from_scipy(
    adjacency: Any,
    *,
    weights: Weights | Literal["given"] | None = None,
    format: FormatChoice = "auto",
    name: str = "network",
    connected: bool = True,
) -> Static:
    """The network of a square matrix A [m, m]: A[i, j] != 0 means that i hears j.

    Without a choice of weights a matrix with other entries than 0 and 1 is the mixing matrix itself, diagonal included,
    and is kept; its rows or columns sum to one (within 1e-5). One of zeros and ones, diagonal included, is an adjacency
    matrix, weighed as for `from_edges`; who hears itself does not count. `summary` says which weights are used.

    Args:
        adjacency: The matrix [m, m] of real numbers, SciPy sparse or dense.
        weights: "given" keeps any matrix, a rule takes the links alone, whatever the values; None: see above.
        format: How sums over neighbours are computed; auto looks at density, degrees and backend.
        name: What messages and reports call the network.
        connected: Refuse a network in several parts.

    Raises:
        ValueError: For a matrix that is not square, not real or not finite or that is masked, for given values whose
            rows and columns do not sum to one, and as `from_edges`.
    """
    if not sp.issparse(adjacency):
        checks.plain_array("Pass a matrix of numbers.", adjacency=adjacency)
    sparse = adjacency if sp.issparse(adjacency) else np.asarray(adjacency)
    checks.real("Pass a matrix of real numbers.", adjacency=sparse)
    m = sparse.shape[0] if sparse.ndim else 0
    checks.shape((m, m), "Pass a square matrix with one row per node.", adjacency=sparse)
    checks.whole(remedy="Pass at least one node.", m=m)
    matrix = sp.csr_array(sparse, dtype=np.float64)
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    checks.finite(adjacency_values=matrix.data)
    entries = matrix.tocoo()
    receiver, sender = (np.asarray(axis, np.int64) for axis in entries.coords)
    links = arcs(receiver, sender, m)
    if weights != "given" and (weights is not None or bool(np.all(matrix.data == 1))):
        return build(links, weights, format, name, connected=connected)
    if not stochastic(matrix, 0):
        sum_to_one(np.asarray(matrix.sum(axis=1)), f"Divide each row or column by its sum. {_OTHER_WEIGHTS}")
    if connected:
        refuse_parts(links)
    return Static(table(links, entries.data[receiver != sender], matrix.diagonal(), format), name, "given")


@checked
def to_networkx(network: Graph | Network) -> "nx.Graph[int]":
    """The links of a fixed network as a networkx graph on nodes 0 .. m-1, without weights.

    Args:
        network: A fixed network, or the graph of one round.

    Returns:
        A Graph, or a DiGraph with an edge u -> v where v hears u, if a link runs one way only.
    """
    links = arcs_of(graph_of(network))
    result: nx.Graph[int] = nx.Graph() if links.symmetric else nx.DiGraph()
    result.add_nodes_from(range(links.m))
    result.add_edges_from(zip(links.sender.tolist(), links.receiver.tolist()))
    return result
