"""Networks of which some nodes are silent, fail for a while, join or leave. Any network in, a network out.

The weight of who is missing goes where `weights` says, as for lost messages (`faults`); who is missing sends nothing. A
silent node goes on with its own row, and one that is away does nothing at all.

Axes: m nodes, d slots of the table.
"""

from dataclasses import replace
from typing import Any, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jdfl import checks, struct
from jdfl.arguments import checked
from jdfl.network import chain
from jdfl.network.arcs import called
from jdfl.network.graph import Graph, Network
from jdfl.network.links import Missing, between
from jdfl.network.wrapping import INNER, Around, Lasting, base_is_network, lasting, refuse_late, wrapped
from jdfl.streams import Stream

_ACTIVE, _OUTAGE = Stream("network.taking part", "network"), Stream("network.outage", "network")


@struct.dataclass
class NodeParticipation(Around):
    """A network of which only some nodes take part in a round."""

    base: Network
    p: Any  # float32 [] probability that a node takes part; None: a number of them
    count: Any  # int32 [] how many take part; None: a probability
    weights: Missing = struct.field(pytree_node=False)
    name: str = struct.field(pytree_node=False, default="network")

    def at(self, k: Array, key: Array) -> Graph:
        """The links between nodes that take part."""
        graph = self.base.at(k, INNER.of(key))
        return between(graph, self.active(key), self.weights)

    def active(self, key: Array) -> Array:
        """Who takes part in the round of this key: bool [m]."""
        keys = _ACTIVE.keys(key, jnp.arange(self.m, dtype=jnp.int32))
        if self.p is not None:
            draw = jax.vmap(lambda one: jax.random.uniform(one, (), jnp.float32))(keys)
            return draw < self.p
        bits = jax.vmap(lambda one: jax.random.bits(one, (2,), jnp.uint32))(keys)
        order = jnp.lexsort((bits[:, 0], bits[:, 1]))
        return jnp.zeros((self.m,), jnp.bool_).at[order].set(jnp.arange(self.m) < self.count)


@struct.dataclass
class Outages(Lasting):
    """A network whose nodes are down for a while, and come back."""

    base: Network
    down: Array  # float32 [] probability that a node is down in the next round
    up: Array  # float32 [] and that one that is down comes back
    levels: int = struct.field(pytree_node=False)  # of `chain.state`
    weights: Missing = struct.field(pytree_node=False)
    run: Array | None = None  # what nodes' states are drawn from in all rounds
    name: str = struct.field(pytree_node=False, default="network")

    def at(self, k: Array, key: Array) -> Graph:
        """The links between nodes that are up; the others are `away`."""
        return _absent(self.base.at(k, INNER.of(key)), self.away(k), self.weights)

    def away(self, k: Array) -> Array:
        """Who is down in round k: bool [m]."""
        keys = _OUTAGE.keys(lasting(self.run), jnp.arange(self.m, dtype=jnp.int32))
        return chain.state(keys, k, self.down, self.up, self.levels)


@struct.dataclass
class Membership(Around):
    """A network that nodes join and leave in given rounds."""

    base: Network
    joins: Array  # [m] int32 the first round of every node
    leaves: Array  # [m] int32 the first round without it
    weights: Missing = struct.field(pytree_node=False)
    name: str = struct.field(pytree_node=False, default="network")

    def at(self, k: Array, key: Array) -> Graph:
        """The links between nodes that are there; the others are `away`."""
        away = (k < self.joins) | (k >= self.leaves)
        return _absent(self.base.at(k, INNER.of(key)), away, self.weights)


def _absent(graph: Graph, away: Array, weights: Missing) -> Graph:
    """The graph without nodes that are `away` [m]."""
    both = away if graph.away is None else away | graph.away
    return replace(between(graph, ~away, weights), away=both)


@checked
def node_participation(
    base: Network, p: Any = None, *, count: int | None = None, weights: Missing = "own"
) -> NodeParticipation:
    """Only some nodes of `base` take part in a round: each with probability `p`, or `count` of them at random.

    A node that does not take part is neither heard nor hears; nothing is sent over its links. It goes on with its own
    row: it has self_weight 1, and what its algorithm does alone it still does. Symmetric doubly stochastic weights
    stay so; `weights` says whose row the missing weight goes to, as in `link_loss`. Raises `ValueError` unless exactly
    one of p in (0, 1] and count from 1 to m is given.
    """
    base_is_network(base)
    refuse_late(base, "node_participation")
    checks.one_of(get_args(Missing), weights=weights)
    if (p is None) == (count is None):
        raise ValueError(f"Expected either p or count, got p = {p!r} and count = {count!r}. Give one of them.")
    if count is not None:
        checks.whole(most=base.m, remedy=f"The network has m = {base.m} nodes.", count=count)
        name = f"participation(count={count}) of {called(base)}"
        return NodeParticipation(wrapped(base), None, jnp.int32(count), weights, name)
    checks.fraction("It is the probability that a node takes part.", p=p)
    checks.shape((), "It is one number for all nodes.", p=p)
    name = f"participation(p={float(p):g}) of {called(base)}"
    return NodeParticipation(wrapped(base), jnp.float32(p), None, weights, name)


@checked
def outages(base: Network, down: Any, up: Any, *, weights: Missing = "own") -> Outages:
    """Nodes of `base` fail and come back: one that is up is down in the next round with probability `down`.

    One that is down comes back with probability `up`, after 1 / up rounds in the mean, and goes on from the state that
    it had; a share down / (down + up) of the nodes is down in the mean, in round 0 too. While it is down a node does
    nothing at all: it computes, sends, hears, releases and counts nothing. Others go on without it, its `weights` as in
    `link_loss`. Raises `ValueError` for probabilities outside (0, 1] or both 1.
    """
    base_is_network(base)
    refuse_late(base, "outages")
    levels = chain.check(down=down, up=up)
    checks.one_of(get_args(Missing), weights=weights)
    name = f"outages(down={float(down):g}, up={float(up):g}) of {called(base)}"
    return Outages(wrapped(base), jnp.float32(down), jnp.float32(up), levels, weights, name=name)


@checked
def membership(base: Network, *, joins: Any = None, leaves: Any = None, weights: Missing = "own") -> Membership:
    """Nodes of `base` join it before round `joins` and are gone from round `leaves` on: [m] whole numbers, or one.

    Before and after, a node does nothing at all, as in an outage: it joins with the state that it had at the start, and
    the one it had last stays where it was. None: all are there from the start, or to the end. Raises `ValueError` for
    numbers below 0, nodes that would leave before they join, and neither of the two.
    """
    base_is_network(base)
    refuse_late(base, "membership")
    checks.one_of(get_args(Missing), weights=weights)
    if joins is None and leaves is None:
        raise ValueError("Expected joins or leaves, got neither. Without them the network is its base.")
    end = np.iinfo(np.int32).max
    first, last = _rounds(base.m, "joins", joins, 0), _rounds(base.m, "leaves", leaves, end)
    if np.any(first > last):
        node = int(np.argmax(first > last))
        raise ValueError(
            f"Expected nodes to join before they leave, got joins = {first[node]} and leaves = {last[node]} of node "
            f"{node}. Give a later round in leaves."
        )
    name = f"membership({int(np.sum(first > 0))} join, {int(np.sum(last < end))} leave) of {called(base)}"
    return Membership(wrapped(base), jnp.asarray(first, jnp.int32), jnp.asarray(last, jnp.int32), weights, name)


def _rounds(m: int, name: str, given: Any, otherwise: int) -> np.ndarray:
    """Rounds [m] as a person gave them, checked."""
    if given is None:
        return np.full((m,), otherwise)
    checks.plain_array(**{name: given})
    checks.shape((m,) if np.ndim(given) else (), "One round for every node, or for all.", **{name: given})
    if not np.issubdtype(np.asarray(given).dtype, np.integer) or np.min(np.asarray(given)) < 0:
        checks.refuse(f"whole numbers {name} >= 0", name, given, "They are rounds.")
    return np.broadcast_to(np.asarray(given), (m,))
