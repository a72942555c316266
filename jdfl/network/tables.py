"""A `Graph` on the host: read it as a matrix, check it, widen it, group its rows, renumber its nodes.

Axes: m nodes, d slots of the table.
"""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp

from jdfl.base import checks
from jdfl.base.arguments import checked
from jdfl.network.arcs import graph_of, synchronised_now
from jdfl.network.graph import Graph, Network
from jdfl.network.sums import group
from jdfl.network.weights import sum_to_one

_ROWS = (
    "Set self_weight to 1 minus the sum of the row's weights; take weights='uniform' or 'metropolis', or a push-sum "
    "algorithm such as jdfl.SGP."
)
_COLUMNS = "Set self_weight to 1 minus the sum of the column's other weights; the networks take weights='out-degree'."
_DTYPES = {"senders": "int32", "mask": "bool", "weight": "float32", "self_weight": "float32", "out_degree": "int32"}


@checked
def to_scipy(network: Graph | Network) -> sp.csr_array:
    """The mixing matrix W [m, m] of a fixed network, float64, its diagonal included; none of padded slots is stored.

    `from_scipy(to_scipy(graph), weights="given")` gives the graph back, its slots sorted by sender.

    Args:
        network: A fixed network, or the graph of one round.
    """
    graph = graph_of(network)
    if synchronised_now(graph):
        return sp.csr_array(np.full((graph.m, graph.m), np.float32(1 / graph.m), np.float64))
    receiver, slot = np.nonzero(np.asarray(graph.mask))
    node = np.arange(graph.m)
    row = np.concatenate([receiver, node])
    column = np.concatenate([np.asarray(graph.senders)[receiver, slot], node])
    value = np.concatenate([np.asarray(graph.weight)[receiver, slot], np.asarray(graph.self_weight)])
    return sp.csr_array((value.astype(np.float64), (row, column)), shape=(graph.m, graph.m))


@checked
def pad(graph: Graph, d: int) -> Graph:
    """The same graph in a wider table; new slots hold the node itself with weight 0.

    Args:
        graph: The graph.
        d: Slots of the table, from as many as it has; otherwise `ValueError`.
    """
    width = graph.senders.shape[1]
    most = max(width, (2**31 - 1) // max(1, graph.m))
    checks.whole(width, most, f"The table has {width} slots already, and 2^31 of all nodes are too many.", d=d)
    node = jnp.arange(graph.m, dtype=graph.senders.dtype)[:, None]
    more = ((0, 0), (0, d - width))
    return replace(
        graph,
        senders=jnp.concatenate([graph.senders, jnp.broadcast_to(node, (graph.m, d - width))], axis=1),
        mask=jnp.pad(graph.mask, more),
        weight=jnp.pad(graph.weight, more),
    )


@checked
def bucketed(graph: Graph) -> Graph:
    """The same graph in the format "buckets", in which `mix` costs about the number of links.

    Args:
        graph: The graph. Its table stays as it is, and the buckets read it: weights may change afterwards and
            neighbours may be masked, but no slot may come into use beyond the last one that a row uses now.
    """
    return replace(graph, format="buckets", buckets=group(_used(graph), graph.senders.shape[1]))


def _used(graph: Graph) -> np.ndarray:
    """The number of slots [m] up to the last one that is not padding."""
    mask = np.asarray(graph.mask)
    return np.max(mask * np.arange(1, int(mask.shape[1]) + 1), axis=1)


@checked
def relabel(graph: Graph, order: Any) -> Graph:
    """The same graph with its nodes in another order; slots stay in place.

    Mixing commutes with it: mix(relabel(graph, order), x[order]) = mix(graph, x)[order].

    Args:
        graph: The graph.
        order: [m] a permutation of 0 .. m-1, otherwise `ValueError`: the new node r is the old node order[r].
    """
    checks.plain_array(order=order)
    order = np.asarray(order)
    checks.shape((graph.m,), "Pass one old node id per node.", order=order)
    new_id = np.argsort(order).astype(np.int32)
    if not np.array_equal(order[new_id], np.arange(graph.m)):
        raise ValueError(f"Expected order to name every node from 0 to {graph.m - 1} once, got {order}.")
    buckets = graph.buckets
    if buckets is not None:
        rows = jax.tree.map(lambda part: jnp.asarray(new_id)[part], buckets.rows)
        buckets = replace(buckets, rows=rows, place=buckets.place[order])
    return replace(
        graph,
        senders=jnp.asarray(new_id)[graph.senders[order]],
        mask=graph.mask[order],
        weight=graph.weight[order],
        self_weight=graph.self_weight[order],
        out_degree=graph.out_degree[order],
        buckets=buckets,
    )


@checked
def check_graph(graph: Graph, *, columns: bool = False) -> None:
    """Check a graph that was put together by hand; connectivity is not asked for (`summary` tells it).

    Args:
        graph: The graph.
        columns: Ask that columns of W sum to one, as push-sum needs, and not rows.

    Raises:
        ValueError: Unless shapes and dtypes are those of `Graph`, ids lie in range, no slot holds the node itself or a
            neighbour twice, padded slots hold the node itself with weight 0, weights are finite, every row (column) of
            W sums to one (within 1e-5), `out_degree` counts the arcs (in a lossy graph, the lost ones too), and
            buckets, where there are some, hold every row in full. In a synchronised round `self_weight` is to be 1 / m
            and `out_degree` m - 1.
    """
    senders, mask, weight = (np.asarray(part) for part in (graph.senders, graph.mask, graph.weight))
    checks.shape((None, None), "Rows are nodes, columns are slots.", senders=senders)
    m, d = senders.shape
    checks.whole(remedy="Pass at least one node, and one slot even without neighbours.", m=m, d=d)
    checks.shape((m, d), mask=mask, weight=weight)
    checks.shape((m,), self_weight=graph.self_weight, out_degree=graph.out_degree)
    for name, dtype in _DTYPES.items():
        found = np.asarray(getattr(graph, name)).dtype
        if found != dtype:
            raise ValueError(f"Expected {name} of dtype {dtype}, got {found}.")
    _refuse_slots((senders < 0) | (senders >= m), senders, f"node ids from 0 to {m - 1}")
    node = np.arange(len(senders))[:, None]
    _refuse_slots(mask & (senders == node), senders, "no node among its own neighbours; its weight is self_weight")
    _refuse_slots(~mask & (senders != node), senders, "padded slots to hold the node itself")
    _refuse_slots(~mask & (weight != 0), weight, "padded slots of weight 0", "weight")
    checks.finite(weight=weight, self_weight=graph.self_weight)
    neighbour = np.sort(np.where(mask, senders, m + np.arange(int(d))), axis=1)  # padding made distinct
    _refuse_slots(np.diff(neighbour, axis=1) == 0, neighbour, "every neighbour once in its row", "sorted senders")
    if graph.synchronised is not None:
        checks.shape((), "It is one bool for all nodes.", synchronised=graph.synchronised)
    together = synchronised_now(graph)
    if together:
        sum_to_one(m * np.asarray(graph.self_weight, np.float64), "In a synchronised round every self_weight is 1 / m.")
    elif columns:
        sum_to_one(np.asarray(to_scipy(graph).sum(axis=0)), _COLUMNS, "column")
    else:
        sum_to_one(np.asarray(to_scipy(graph).sum(axis=1)), _ROWS)
    heard = np.full(m, m - 1) if together else np.bincount(senders[mask], minlength=m)
    sent = np.asarray(graph.out_degree)
    wrong = np.flatnonzero((heard > sent) | (sent >= m) if graph.lossy else heard != sent)
    if wrong.size:
        i = wrong[0]
        expected = f"from {heard[i]} to {m - 1}, at least" if graph.lossy else f"= {heard[i]},"
        raise ValueError(
            f"Expected out_degree[{i}] {expected} the number of nodes that hear node {i}, got {sent[i]} "
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
        raise ValueError(f"Expected every row from 0 to {graph.m - 1} once, at its place, in buckets.rows. {remedy}")
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
