"""A network on the host: its arcs and mixing matrix, and checks and transformations of a padded table.

A list of arcs (receiver, sender), sorted by receiver and then by sender, without repeats or loops, is the intermediate
form between the user's input and the table.

Axes: m nodes, d slots of the table, e arcs.
"""

from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp
from jax import Array
from scipy.sparse import csgraph

from jdfl.base import checks
from jdfl.base.arguments import checked
from jdfl.base.names import NodeNames, names_of
from jdfl.network.graph import Graph, Network, Static
from jdfl.network.sums import group

TOLERANCE = 1e-5  # for float32 weights and the sums of their rows and columns
_ROWS = (
    "Set self_weight to 1 minus the sum of the row's weights; use weights='metropolis' on undirected links, or "
    "weights='out-degree' and a push-sum algorithm such as jdfl.SGP."
)
_COLUMNS = "Set self_weight to 1 minus the sum of the column's other weights, or build it with weights='out-degree'."
_DTYPES = {"senders": "int32", "mask": "bool", "weight": "float32", "self_weight": "float32", "out_degree": "int32"}


class Arcs(NamedTuple):
    """The arcs of a network: node receiver[e] receives from node sender[e]."""

    m: int
    receiver: np.ndarray  # [e] int64, ascending
    sender: np.ndarray  # [e] int64, ascending for each receiver

    @property
    def symmetric(self) -> bool:
        """Whether every arc also runs the other way."""
        return np.array_equal(np.sort(self.sender * self.m + self.receiver), self.receiver * self.m + self.sender)


def arcs(receiver: np.ndarray, sender: np.ndarray, m: int) -> Arcs:
    """Sort the arcs [e], and drop repeats and loops (every node has its own row anyway)."""
    keep = receiver != sender
    code = np.sort(receiver[keep].astype(np.int64) * m + sender[keep])
    code = code[np.diff(code, prepend=-1) > 0]
    return Arcs(m, code // m, code % m)


def linked(u: np.ndarray, v: np.ndarray, m: int, directed: bool = False) -> Arcs:
    """Convert edges to arcs, sorted, without repeats or loops."""
    return arcs(v, u, m) if directed else arcs(np.concatenate([u, v]), np.concatenate([v, u]), m)


def all_arcs(m: int) -> Arcs:
    """The arcs of a complete network."""
    return arcs(*np.divmod(np.arange(m * m), m), m)


def arcs_of(graph: Graph) -> Arcs:
    """The arcs of a table; in a synchronised round, those of the complete network."""
    if synchronised_now(graph):
        return all_arcs(graph.m)
    receiver, slot = np.nonzero(np.asarray(graph.mask))
    return arcs(receiver, np.asarray(graph.senders)[receiver, slot], graph.m)


def components(links: Arcs) -> tuple[int, int]:
    """The number of connected components (strongly connected, if directed), and the size of the largest."""
    matrix = sp.csr_array((np.ones(links.sender.size, np.int8), (links.receiver, links.sender)), shape=(links.m,) * 2)
    count, label = csgraph.connected_components(matrix, directed=not links.symmetric, connection="strong")
    return int(count), int(np.bincount(label).max())


def check_connected(links: Arcs, remedy: str) -> None:
    """Raise ValueError for a network in several parts."""
    count, largest = components(links)
    if count > 1:
        kind = "connected" if links.symmetric else "strongly connected"
        found = f"{count} components, the largest with {largest} of {links.m} nodes"
        raise ValueError(f"Expected a {kind} network, got {found}. {remedy}")


def graph_of(network: Graph | Network) -> Graph:
    """The graph of a fixed network; ValueError for a network that changes from round to round."""
    if isinstance(network, Graph | Static):
        return network.graph if isinstance(network, Static) else network
    raise ValueError(
        f"Expected a Graph or a Static network, got {type(network).__name__}, whose graph may differ in every round. "
        "Pass the graph of one round, network.at(k, key)."
    )


def called(network: Graph | Network) -> str:
    """A network's name, for messages."""
    return getattr(network, "name", "graph")


def synchronised_now(graph: Graph) -> bool:
    """Whether this is the graph of a synchronised round (on the host)."""
    return graph.synchronised is not None and bool(graph.synchronised)


def kind_of(network: Graph | Network) -> Graph:
    """The structure of a network's graphs, with shapes and dtypes in place of arrays."""
    return network if isinstance(network, Graph) else jax.eval_shape(network.at, jnp.int32(0), jax.random.key(0))


@checked
def refuse_synchronised(network: Graph | Network, method: str) -> None:
    """Refuse a network with synchronised rounds, in which all nodes take the global mean: no neighbour table shows
    them.

    Args:
        network: The network or the graph of one round.
        method: The method that reads the tables of neighbours, as named in the message.

    Raises:
        ValueError: It names the method, the network, and what to use.
    """
    if kind_of(network).synchronised is not None:
        raise ValueError(
            f"Expected a network without synchronised rounds for {method}, which reads the table of neighbours, got "
            f"{called(network)}. Use the network inside it; jdfl.network.synchronised goes around other networks, last."
        )


def stochastic(W: Any, axis: int) -> bool:
    """Whether all rows (axis 1) or all columns (axis 0) of a sparse matrix [m, m] sum to one."""
    return bool(np.all(np.abs(np.asarray(W.sum(axis=axis)) - 1) <= TOLERANCE))


def is_symmetric(W: Any) -> bool:
    """Whether a sparse matrix [m, m] is symmetric up to rounding in float64."""
    return bool(abs(W - W.T).max() < 1e-9)


def sum_to_one(total: np.ndarray, remedy: str, line: str = "row") -> None:
    """Raise `ValueError` unless the sums [m] of all rows (or what `line` says) are one, within 1e-5."""
    bad = np.flatnonzero(~(np.abs(total - 1) <= TOLERANCE))
    if bad.size:
        raise ValueError(
            f"Expected {line}s of the mixing matrix W that sum to 1, got {float(total[bad[0]]):.6g} in {line} {bad[0]} "
            f"({bad.size} such {line}s). {remedy}"
        )


@checked
def to_scipy(network: Graph | Network) -> sp.csr_array:
    """The mixing matrix W [m, m] of a fixed network, sparse float64, with its diagonal and without padded slots.

    `from_matrix(to_scipy(graph), connected=False)` restores the graph, with its slots sorted by sender.

    Args:
        network: A fixed network, or the graph of one round.
    """
    graph = graph_of(network)
    if synchronised_now(graph):
        return sp.csr_array(np.full((graph.m, graph.m), np.float32(1 / graph.m), np.float64))
    used, node = np.nonzero(np.asarray(graph.mask)), np.arange(graph.m)
    row = np.concatenate([used[0], node])
    column = np.concatenate([np.asarray(graph.senders)[used], node])
    value = np.concatenate([np.asarray(graph.weight)[used], np.asarray(graph.self_weight)])
    return sp.csr_array((value.astype(np.float64), (row, column)), shape=(graph.m, graph.m))


@checked
def pad(graph: Graph, d: int) -> Graph:
    """The same graph in a wider table; new slots hold the node itself with weight 0.

    Args:
        d: Number of slots, at least the current number; otherwise `ValueError`.
    """
    m, width = graph.senders.shape
    most = max(width, (2**31 - 1) // max(1, m))
    checks.integer(width, most, f"The table already has {width} slots, and all nodes may have 2^31 in total.", d=d)
    if d == width:
        return graph
    own = np.repeat(np.arange(m, dtype=graph.senders.dtype)[:, None], d - width, axis=1)
    mask, weight = (np.pad(np.asarray(part), ((0, 0), (0, d - width))) for part in (graph.mask, graph.weight))
    senders = np.concatenate([np.asarray(graph.senders), own], axis=1)
    return replace(graph, **jax.device_put({"senders": senders, "mask": mask, "weight": weight}))


@checked
def bucketed(graph: Graph) -> Graph:
    """The same graph in the format "buckets", for which the cost of `mix` is proportional to the number of links.

    Args:
        graph: The graph. Its table is unchanged and the buckets refer to it: weights may change later and neighbours
            may be masked, but a row may not use more slots than it does now.
    """
    return replace(graph, format="buckets", buckets=group(_used(graph), graph.senders.shape[1]))


def _used(graph: Graph) -> np.ndarray:
    """The number of slots [m] up to the last one that is not padding."""
    mask = np.asarray(graph.mask)
    return np.max(mask * np.arange(1, int(mask.shape[1]) + 1), axis=1)


@checked
def relabel(graph: Graph, order: Any) -> Graph:
    """The same graph with its nodes reordered; each row keeps the order of its slots.

    Mixing commutes with it: mix(relabel(graph, order), x[order]) = mix(graph, x)[order]. SciPy has an order in which
    neighbours lie close together, `scipy.sparse.csgraph.reverse_cuthill_mckee`, of the matrix `to_scipy(graph)`.

    Args:
        order: [m] a permutation of 0 .. m-1, otherwise `ValueError`: the new node r is the old node order[r].
    """
    checks.plain_array(order=order)
    checks.shape((graph.m,), "Pass one old node id per node.", order=order)
    order = np.asarray(order)
    new_id = np.argsort(order).astype(np.int32)
    if not np.array_equal(order[new_id], np.arange(graph.m)):
        raise ValueError(f"Expected order to name every node from 0 to {graph.m - 1} once, got {order}.")
    own = graph.names.names
    names = graph.names if own is None else NodeNames(names_of("names", [own[i] for i in order]))
    return replace(_relabelled(graph, order.astype(np.int32), new_id), names=names)


@jax.jit
def _relabelled(graph: Graph, order: Array, new_id: Array) -> Graph:
    moved = {name: getattr(graph, name)[order] for name in ("mask", "weight", "self_weight", "out_degree")}
    buckets = graph.buckets
    if buckets is not None:
        rows = tuple(new_id[part] for part in buckets.rows)
        buckets = replace(buckets, rows=rows, place=buckets.place[order])
    return replace(graph, senders=new_id[graph.senders[order]], buckets=buckets, **moved)


@checked
def check_graph(graph: Graph, *, columns: bool = False) -> None:
    """Check a hand-built graph; connectivity is not required (`summary` reports it).

    Args:
        columns: Require columns of W that sum to one, as push-sum needs, instead of rows.

    Raises:
        ValueError: Unless shapes and dtypes are those of `Graph`, ids are in range, and weights are finite. No slot may
            hold the node itself or a neighbour twice; padded slots hold the node itself with weight 0. Every row
            (column) of W sums to one (within 1e-5). `out_degree` counts the arcs (in a lossy graph, the lost ones too).
            Buckets, if any, contain every row in full. In a synchronised round `self_weight` is 1 / m and `out_degree`
            m - 1.
    """
    senders, mask, weight, own, sent = (np.asarray(getattr(graph, name)) for name in _DTYPES)
    checks.shape((None, None), "Rows are nodes, columns are slots.", senders=senders)
    m, d = senders.shape
    checks.integer(remedy="Pass at least one node, and one slot even without neighbours.", m=m, d=d)
    checks.shape((m, d), mask=mask, weight=weight)
    checks.shape((m,), self_weight=own, out_degree=sent)
    for (name, dtype), part in zip(_DTYPES.items(), (senders, mask, weight, own, sent)):
        if part.dtype != dtype:
            raise ValueError(f"Expected {name} of dtype {dtype}, got {part.dtype}.")
    node = np.arange(len(senders))[:, None]
    _refuse_slots((senders < 0) | (senders >= m), senders, f"node ids from 0 to {m - 1}")
    _refuse_slots(mask & (senders == node), senders, "no node among its own neighbours; its weight is self_weight")
    _refuse_slots(~mask & (senders != node), senders, "padded slots to hold the node itself")
    _refuse_slots(~mask & (weight != 0), weight, "padded slots of weight 0", "weight")
    checks.finite(weight=weight, self_weight=own)
    neighbour = np.sort(np.where(mask, senders, m + np.arange(int(d))), axis=1)  # makes padding distinct
    _refuse_slots(np.diff(neighbour, axis=1) == 0, neighbour, "each neighbour once per row", "sorted senders")
    if graph.synchronised is not None:
        checks.shape((), "It is one bool for all nodes.", synchronised=graph.synchronised)
    together = synchronised_now(graph)
    if together:
        sum_to_one(m * own.astype(np.float64), "In a synchronised round every self_weight must be 1 / m.")
    else:
        others = np.bincount(senders[mask], weight[mask], m) if columns else weight.sum(axis=1, dtype=np.float64)
        sum_to_one(own + others, *((_COLUMNS, "column") if columns else (_ROWS, "row")))
    heard = np.full(m, m - 1) if together else np.bincount(senders[mask], minlength=m)
    wrong = np.flatnonzero((heard > sent) | (sent >= m) if graph.lossy else heard != sent)
    if wrong.size:
        i = wrong[0]
        expected = f"from {heard[i]} to {m - 1}, at least" if graph.lossy else f"= {heard[i]},"
        raise ValueError(
            f"Expected out_degree[{i}] {expected} the number of nodes that receive from node {i}, got {sent[i]} "
            f"({wrong.size} such nodes)."
        )
    if graph.format == "buckets" or graph.buckets is not None:
        _check_buckets(graph)


def _check_buckets(graph: Graph) -> None:
    remedy = "Pass the graph through jdfl.network.bucketed."
    if graph.buckets is None:
        raise ValueError(f"Expected buckets in a graph with format = 'buckets', got buckets = None. {remedy}")
    rows = np.concatenate([np.zeros(0, np.int32), *map(np.asarray, graph.buckets.rows)])
    place = np.asarray(graph.buckets.place)
    if rows.size != graph.m or not np.array_equal(rows.take(place, mode="clip"), np.arange(graph.m)):
        raise ValueError(f"Expected every row from 0 to {graph.m - 1} once, in place, in buckets.rows. {remedy}")
    width = np.repeat(graph.buckets.widths, [part.shape[0] for part in graph.buckets.rows])
    used = _used(graph)[rows]
    narrow = np.flatnonzero(used > width)
    if narrow.size:
        e = narrow[0]
        raise ValueError(
            f"Expected a bucket with at least {used[e]} slots for row {rows[e]}, got width {width[e]} "
            f"({narrow.size} such rows). {remedy}"
        )


def _refuse_slots(bad: np.ndarray, table: np.ndarray, expected: str, name: str = "senders") -> None:
    if bad.any():
        i, j = (int(axis) for axis in np.argwhere(bad)[0])
        raise ValueError(f"Expected {expected}, got {name}[{i}, {j}] = {table[i, j]} ({int(bad.sum())} such slots).")
