"""From a host structure (edge list, networkx graph, SciPy or NumPy matrix) to a `Graph`, and back to networkx.

Everything here is NumPy on the host; the arrays reach JAX in `table`, the last step.

The rules for the mixing matrix W, with deg the number of neighbours of a node:

    metropolis   W_ij = 1 / (1 + max(deg_i, deg_j))     symmetric, doubly stochastic
    laplacian    W = I - L / (1 + max_i deg_i)          symmetric, doubly stochastic; the maximum-degree rule
    uniform      W_ij = 1 / (1 + deg_i)                 rows sum to one; the average over itself and its neighbours
    out-degree   W_ij = 1 / (1 + out_j)                 columns sum to one; a node's row in equal parts, for push-sum

deg_i counts the nodes that i hears, out_j those that hear j; links that run one way tell them apart. Without a choice
(None) a network whose links all run both ways has metropolis weights, a directed one uniform weights. Of the rules here
a directed network can have these and out-degree.

Sources: L. Xiao, S. Boyd, "Fast linear iterations for distributed averaging", 2004 (maximum degree); L. Xiao, S. Boyd,
S. Lall, "A scheme for robust distributed sensor fusion based on average consensus", 2005 (Metropolis); D. Kempe,
A. Dobra, J. Gehrke, "Gossip-based computation of aggregate information", 2003 (push-sum).
"""

from typing import Any, Literal, cast, get_args

import jax
import jax.numpy as jnp
import networkx as nx
import numpy as np
import scipy.sparse as sp

from jdfl import checks
from jdfl.arguments import checked
from jdfl.network.arcs import Arcs, arcs, arcs_of, components, graph_of
from jdfl.network.graph import Format, Graph, Network, Static
from jdfl.network.sums import bucket_widths, group

Weights = Literal["metropolis", "uniform", "laplacian", "out-degree"]
FormatChoice = Literal["auto", "padded", "dense", "bcoo", "buckets"]

DENSE_FROM = {"cpu": 0.5}  # density of W from which one matrix product beats the gathers, per backend
DENSE_FROM_ACCELERATOR = 0.04
DENSE_UP_TO = 8192  # nodes: W is built again in each round, 256 MiB at this size
BUCKETS_FROM = 2.5  # times the work of buckets that the padded table must be for them to win, beside the reordering
MOST_SLOTS = 2**31  # of a table: 19 GB
SUM_TOLERANCE = 1e-5  # of a row or column of W that a person gives, in float32

_ACCEPT = "or connected=False to accept the network as it is"


def _connected(links: Arcs, remedy: str) -> None:
    count, largest = components(links)
    if count > 1:
        kind = "connected" if links.symmetric else "strongly connected"
        found = f"{count} components, the largest with {largest} of {links.m} nodes"
        raise ValueError(f"Expected a {kind} network, got {found}. {remedy}")


def _mixing(links: Arcs, weights: Weights) -> np.ndarray:
    """The weight [e] of every arc, by the rules at the top of this file."""
    degree = np.bincount(links.receiver, minlength=links.m)
    if weights == "uniform":
        return 1 / (1 + degree[links.receiver])
    if weights == "out-degree":
        return 1 / (1 + np.bincount(links.sender, minlength=links.m)[links.sender])
    if not links.symmetric:
        raise ValueError(
            f"Expected weights = 'out-degree' or 'uniform' for a directed network, got weights = {weights!r}, which "
            "needs every link to run both ways. Pass one of these two, or an undirected graph."
        )
    if weights == "metropolis":
        return 1 / (1 + np.maximum(degree[links.receiver], degree[links.sender]))
    return np.full(links.sender.size, 1 / (1 + degree.max()))


def _format(links: Arcs, choice: FormatChoice) -> Format:
    """How `mix` multiplies: the choice, or for "auto" by density, size, backend and how much the table is padded."""
    if choice != "auto":
        return choice
    density = (links.sender.size + links.m) / links.m**2
    enough = DENSE_FROM.get(jax.default_backend(), DENSE_FROM_ACCELERATOR)
    if links.m <= DENSE_UP_TO and density > enough:
        return "dense"
    degree = np.bincount(links.receiver, minlength=links.m)
    d = max(1, int(degree.max()))
    slots = int(bucket_widths(degree, d).sum())
    return "buckets" if links.m * d > BUCKETS_FROM * (slots + links.m) else "padded"


def table(
    links: Arcs,
    weight: np.ndarray,
    self_weight: np.ndarray | None,
    format: FormatChoice = "auto",
    *,
    columns: bool = False,
) -> Graph:
    """The padded table with the weights [e] of the arcs.

    Without `self_weight` [m] the diagonal is what the float32 weights of a row, or with `columns` of a column, leave to
    one, so that their rounding does not add up over the rounds. Raises `ValueError` for a table too large for any
    machine's memory.
    """
    m, receiver, sender = links
    weight = weight.astype(np.float32)
    if self_weight is None:
        self_weight = 1 - np.bincount(sender if columns else receiver, weights=weight, minlength=m)
    degree = np.bincount(receiver, minlength=m)
    slot = np.arange(receiver.size) - (np.cumsum(degree) - degree)[receiver]
    d = max(1, int(degree.max()))
    if m * d > MOST_SLOTS:
        raise ValueError(
            f"Expected a table of at most 2^31 slots, got m = {m} rows of {d}, the largest number of neighbours: "
            f"{9e-9 * m * d:.0f} GB. Take fewer nodes, or a network without such hubs."
        )
    form = _format(links, format)
    senders = np.repeat(np.arange(m, dtype=np.int32)[:, None], d, axis=1)
    senders[receiver, slot] = sender
    weights = np.zeros((m, d), np.float32)
    weights[receiver, slot] = weight
    return Graph(
        senders=jnp.asarray(senders),
        mask=jnp.asarray(np.arange(d) < degree[:, None]),
        weight=jnp.asarray(weights),
        self_weight=jnp.asarray(self_weight, jnp.float32),
        out_degree=jnp.asarray(np.bincount(sender, minlength=m), jnp.int32),
        format=form,
        buckets=group(degree, d) if form == "buckets" else None,
    )


def build(
    links: Arcs, weights: Weights | None, format: FormatChoice, name: str, *, connected: bool = True, remedy: str = ""
) -> Static:
    """Check the choices and the connectivity (unless `connected` is False), weigh the arcs, fill the table."""
    checks.one_of([*get_args(Weights), None], weights=weights)
    checks.one_of(get_args(FormatChoice), format=format)
    if connected:
        _connected(links, remedy or f"Pass a connected graph, {_ACCEPT}.")
    rule = weights or ("metropolis" if links.symmetric else "uniform")
    return Static(table(links, _mixing(links, rule), None, format, columns=rule == "out-degree"), name, rule)


@checked
def from_edges(
    edges: Any,
    m: int | None = None,
    *,
    weights: Weights | None = None,
    directed: bool = False,
    format: FormatChoice = "auto",
    name: str = "network",
    connected: bool = True,
) -> Static:
    """The network of a list of `edges`: integers [e, 2], nodes 0 .. m-1.

    An edge (u, v) joins u and v; if `directed`, v hears u and not the reverse. Repeats count once, loops are
    dropped. Without `m` the largest id sets it. With `connected=False` a network in several parts is accepted.

    Raises `ValueError` for ids that are not whole numbers in 0 .. m-1, a network that is not connected, or weights
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
    checks.whole(most=np.iinfo(np.int32).max, remedy="Pass m, the number of nodes.", m=m)
    outside = np.flatnonzero(((pairs < 0) | (pairs >= m)).any(axis=1))
    if outside.size:
        first = tuple(int(i) for i in pairs[outside[0]])
        raise ValueError(
            f"Expected node ids from 0 to {m - 1} (m = {m}), got edges[{outside[0]}] = {first} "
            f"({outside.size} such edges). Raise m, or number the nodes 0 .. m-1."
        )
    sender, receiver = pairs.astype(np.int64).T
    if not directed:
        sender, receiver = np.concatenate([sender, receiver]), np.concatenate([receiver, sender])
    return build(arcs(receiver, sender, int(m)), weights, format, name, connected=connected)


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
    count once. A rule named by `weights` takes the links alone. `summary` says which weights are used. The name is the
    graph's own, unless given.

    Raises `ValueError` for what is no networkx graph, a `weight` that is no number, weights of some edges only or of
    parallel edges, and as `from_edges` and `from_scipy`.
    """
    checks.able(("nodes", "edges", "is_directed"), "a networkx graph", "networkx.Graph(edges) makes one.", graph=graph)
    checks.one_of([*get_args(Weights), "given", None], weights=weights)
    index = {node: i for i, node in enumerate(graph.nodes)}
    with_weight = cast(Any, graph).edges(data="weight")
    edges: list[tuple[int, int, Any]] = [(index[u], index[v], value) for u, v, value in with_weight]
    called = name or graph.name or "network"
    if weights == "given" or (weights is None and _carry(edges)):
        matrix = _carried(edges, len(index), directed=graph.is_directed())
        return from_scipy(matrix, weights="given", format=format, name=called, connected=connected)
    return from_edges(
        [(u, v) for u, v, _ in edges],
        len(index),
        weights=weights,
        directed=graph.is_directed(),
        format=format,
        name=called,
        connected=connected,
    )


def _carry(edges: list[tuple[int, int, Any]]) -> bool:
    """Whether edges (u, v, weight) have weights to be kept: some have one, and not all of them the number 1."""
    return any(value is not None for *_, value in edges) and not all(_is_number(one) and one == 1 for *_, one in edges)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)


def _carried(edges: list[tuple[int, int, Any]], m: int, *, directed: bool) -> sp.csr_array:
    """W [m, m] of edges (u, v, weight); without loops the diagonal is what the rows leave to one."""
    found: dict[tuple[int, int], float] = {}
    for u, v, value in edges:
        if value is None:
            raise ValueError(
                f"Expected the attribute `weight` on every edge or on none, got none on the edge ({u}, {v}). "
                f"{_OTHER_WEIGHTS}"
            )
        if not _is_number(value):
            raise ValueError(
                f"Expected numbers as `weight` of the edges, got {value!r} on ({u}, {v}). {_OTHER_WEIGHTS}"
            )
        for place in {(v, u)} if directed else {(v, u), (u, v)}:
            if place in found:
                raise ValueError(f"Expected one edge ({u}, {v}) with a weight, got parallel ones. {_OTHER_WEIGHTS}")
            found[place] = float(value)
    if not any(i == j for i, j in found):
        own = np.ones(m)
        for (i, _), value in found.items():
            own[i] -= value
        found |= {(i, i): float(own[i]) for i in range(m)}
    receiver, sender = np.array(list(found), np.int64).reshape(-1, 2).T
    return sp.csr_array((np.array(list(found.values()), float), (receiver, sender)), shape=(m, m))


_OTHER_WEIGHTS = "Or choose weights='metropolis', which takes the links alone."


@checked
def from_scipy(
    adjacency: Any,
    *,
    weights: Weights | Literal["given"] | None = None,
    format: FormatChoice = "auto",
    name: str = "network",
    connected: bool = True,
) -> Static:
    """The network of a square matrix A [m, m], SciPy sparse or dense: A[i, j] != 0 means that i hears j.

    Without a choice of `weights` a matrix with other entries than 0 and 1 is the mixing matrix itself, diagonal
    included, and is kept; its rows or columns sum to one (within 1e-5). One of zeros and ones, diagonal included, is
    an adjacency matrix, weighed as for `from_edges`; who hears itself does not count. `weights="given"` keeps any
    matrix; a named rule takes the links alone, whatever the values. `summary` says which weights are used.

    Raises `ValueError` for a matrix that is not square, not real or not finite or that is masked, for given values
    whose rows and columns do not sum to one, and as `from_edges`.
    """
    checks.one_of([*get_args(Weights), "given", None], weights=weights)
    checks.one_of(get_args(FormatChoice), format=format)
    if not sp.issparse(adjacency):
        checks.plain_array("Pass a matrix of numbers.", adjacency=adjacency)
    sparse = adjacency if sp.issparse(adjacency) else np.asarray(adjacency)
    checks.real("Pass a matrix of real numbers.", adjacency=sparse)
    m = sparse.shape[0] if sparse.ndim else 0
    checks.shape((m, m), "Pass a square matrix with one row per node.", adjacency=sparse)
    checks.whole(most=np.iinfo(np.int32).max, remedy="Pass at least one node.", m=m)
    matrix = sp.csr_array(sparse, dtype=np.float64)
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    checks.finite(adjacency_values=matrix.data)
    entries = matrix.tocoo()
    receiver, sender = (np.asarray(axis, np.int64) for axis in entries.coords)
    links = arcs(receiver, sender, m)
    if weights != "given" and (weights is not None or bool(np.all(matrix.data == 1))):
        return build(links, weights, format, name, connected=connected)
    if not np.all(np.abs(np.asarray(matrix.sum(axis=0)) - 1) <= SUM_TOLERANCE):
        sum_to_one(np.asarray(matrix.sum(axis=1)), f"Divide each row or column by its sum. {_OTHER_WEIGHTS}")
    if connected:
        _connected(links, f"Pass a connected graph, {_ACCEPT}.")
    return Static(table(links, entries.data[receiver != sender], matrix.diagonal(), format), name, "given")


def sum_to_one(total: np.ndarray, remedy: str, line: str = "row") -> None:
    """Raise `ValueError` unless the sum [m] of every row (or what `line` says) is one, within 1e-5."""
    bad = np.flatnonzero(~(np.abs(total - 1) <= SUM_TOLERANCE))
    if bad.size:
        raise ValueError(
            f"Expected {line}s of the mixing matrix that sum to 1, got {float(total[bad[0]]):.6g} in {line} {bad[0]} "
            f"({bad.size} such {line}s). {remedy}"
        )


@checked
def to_networkx(network: Graph | Network) -> "nx.Graph[int]":
    """The network as a networkx graph on nodes 0 .. m-1, without weights: a DiGraph if a link runs one way only."""
    links = arcs_of(graph_of(network))
    result: nx.Graph[int] = nx.Graph() if links.symmetric else nx.DiGraph()
    result.add_nodes_from(range(links.m))
    result.add_edges_from(zip(links.sender.tolist(), links.receiver.tolist()))
    return result
