"""The laws that every network keeps.

Axes: m nodes, d slots of the table.
"""
# pyright: reportUnusedFunction=false

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.sparse import csgraph, csr_array

from jdfl.base import checks
from jdfl.network import Graph, Network, check_graph, mix, to_scipy
from jdfl.network.graph import round_of
from jdfl.network.tables import synchronised_now
from jdfl.testing.law import close, hold, laws_in, leaves_equal, require, same

_ROUNDS = 5
_MANY = 200  # rounds whose links together connect the nodes
_SUMS = 1e-5  # rounding of sums of weights


_mix = jax.jit(mix)


@dataclass(frozen=True)
class _NetworkCase:
    """A network, and the graphs of its first rounds."""

    network: Network
    connected: bool = True

    @cached_property
    def graphs(self) -> list[Graph]:
        """The graphs of five rounds, each with its own key."""
        return [round_of(self.network, k) for k in range(_ROUNDS)]

    def tables(self) -> Iterator[tuple[int, Graph]]:
        """The rounds that are not synchronised, whose table is all there is."""
        for k, graph in enumerate(self.graphs):
            if not synchronised_now(graph):
                yield k, graph


def _graphs_are_well_formed(case: _NetworkCase) -> None:
    """Shapes and types are those of `Graph`, ids are in range, no slot repeats a neighbour or holds the node itself."""
    for k, graph in enumerate(case.graphs):
        same(f"nodes in round {k}", graph.m, case.network.m)
        try:
            check_graph(graph)
        except ValueError as rows:
            try:
                check_graph(graph, columns=True)
            except ValueError:
                raise AssertionError(f"round {k}: {rows}") from rows


def _rows_or_columns_sum_to_one(case: _NetworkCase) -> None:
    """In every round all rows of W sum to one, or all columns, as push-sum needs; the same in every round."""
    sums = np.ones(2, bool)
    worst = ""
    for k, graph in case.tables():
        W: Any = to_scipy(graph)
        for i, axis in enumerate((1, 0)):
            off = np.abs(np.asarray(W.sum(axis=axis)) - 1)
            if off.max() > _SUMS:
                sums[i] = False
                line = ("row", "column")[i]
                total = float(np.asarray(W.sum(axis=axis))[off.argmax()])
                worst += f" {total:.6g} in {line} {int(off.argmax())} of round {k};"
    require(sums.any(), f"sums of 1: expected in all rows or in all columns, got{worst}")


def _mixing_multiplies_by_the_matrix(case: _NetworkCase) -> None:
    """`mix` is W x in the graph's format and in all others, whatever the padding holds."""
    x = np.random.default_rng(0).standard_normal((case.network.m, 3)).astype(np.float32)
    for k, graph in enumerate(case.graphs):
        expected = to_scipy(graph) @ x
        for form in sorted({graph.format, "padded", "dense"}):
            found = _mix(replace(graph, format=form), x)
            close(f"W x in round {k}, format {form}", found, expected, rtol=1e-5, atol=1e-5)


def _out_degrees_count_the_receivers(case: _NetworkCase) -> None:
    """A node's out-degree is the number of nodes that receive from it; in a lossy graph lost messages count too."""
    for k, graph in case.tables():
        senders, mask = np.asarray(graph.senders), np.asarray(graph.mask)
        receivers = np.bincount(senders[mask], minlength=graph.m)
        sent = np.asarray(graph.out_degree)
        wrong = np.flatnonzero(sent < receivers if graph.lossy else sent != receivers)
        if wrong.size:
            i = int(wrong[0])
            raise AssertionError(f"out-degree of node {i} in round {k}: expected {receivers[i]}, got {sent[i]}")
        most = getattr(case.network, "largest_out_degree", None)
        if most is not None:
            require(sent.max() <= most, f"largest_out_degree: expected at least {sent.max()} (round {k}), got {most}")


def _counts_agree_with_the_table(case: _NetworkCase) -> None:
    """In-degrees count the slots that are used, and asking all of them asks every sender once for each receiver."""
    for k, graph in case.tables():
        close(f"in-degree in round {k}", graph.in_degree, np.asarray(graph.mask).sum(axis=1))
        receivers = np.bincount(np.asarray(graph.senders)[np.asarray(graph.mask)], minlength=graph.m)
        close(f"messages asked for in round {k}", graph.asked(graph.mask), receivers)


def _rounds_follow_from_their_key(case: _NetworkCase) -> None:
    """The same round with the same key is the same graph: a network has neither state nor its own randomness."""
    for k, graph in enumerate(case.graphs):
        again = round_of(case.network, k)
        leaves_equal(f"round {k} a second time", jax.tree.leaves(again), jax.tree.leaves(graph))


def _traced_rounds_are_the_same(case: _NetworkCase) -> None:
    """Rounds that are drawn inside a compiled scan, with a traced number and key, equal those that are drawn alone."""
    keys = jax.vmap(jax.random.key)(jnp.arange(_ROUNDS))
    draw = jax.jit(lambda net, keys: jax.lax.scan(lambda k, key: (k + 1, net.at(k, key)), jnp.int32(0), keys)[1])
    stacked = draw(case.network, keys)
    for k, graph in enumerate(case.graphs):
        found = [leaf[k] for leaf in jax.tree.leaves(stacked)]
        same(f"arrays of round {k}", len(found), len(jax.tree.leaves(graph)))
        for one, other in zip(found, jax.tree.leaves(graph)):
            close(f"round {k} inside a scan", one, other, rtol=1e-5, atol=1e-6)


def _nodes_are_connected(case: _NetworkCase) -> None:
    """The links of many rounds together lead from every node to every other one."""
    if not case.connected:
        return
    m = case.network.m
    links, label = np.zeros((m, m), bool), np.arange(m)
    for k in range(_MANY):
        graph = round_of(case.network, k)
        if synchronised_now(graph):
            return
        receiver, slot = np.nonzero(np.asarray(graph.mask))
        links[receiver, np.asarray(graph.senders)[receiver, slot]] = True
        count, label = csgraph.connected_components(csr_array(links), directed=True, connection="strong")
        if count == 1:
            return
    sizes = sorted(np.bincount(label).tolist(), reverse=True)
    raise AssertionError(f"connected nodes: expected one component after {_MANY} rounds, got sizes {sizes}")


NETWORK_LAWS = laws_in(globals())
"""The laws of networks by their names."""


def check_network(network: Network, law: str | None = None, *, connected: bool = True) -> None:
    """Try one law, or all of them, on a network.

    Args:
        network: An object with `m` and `at(k, key)`, fixed or changing from round to round.
        law: A name in `NETWORK_LAWS`; None: all, one after another.
        connected: False for a network that is meant to have several parts.

    Raises:
        LawBrokenError: For the first law that does not hold.
        ValueError: For an unknown law, and an object without `m` and `at`.
    """
    remedy = "jdfl.network builds one; one of your own has m and at(k, key)."
    checks.able(("m", "at"), "a network", remedy, network=network)
    checks.integer(1, m=network.m)
    leaves = jax.tree.leaves(network)
    if any(leaf is network for leaf in leaves):
        raise ValueError(
            f"Expected {type(network).__name__} to be a jdfl.base.struct.dataclass, got a plain class. JAX has to see "
            "its arrays."
        )
    hold(NETWORK_LAWS, _NetworkCase(network, connected), network, law)
