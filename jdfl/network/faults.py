"""Networks in which something is missing: lost messages, silent nodes. Any network in, a network out.

What a node does not hear in a round is made up for by its own row, so that rows of W still sum to one, and W stays
symmetric where it was and both ways of a link are missing together. A wrapper and the network in it draw with different
keys, and so do wrappers in one another.

Axes: m nodes, d slots of the table.
"""

from dataclasses import is_dataclass, replace
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
from jax import Array

from jdfl import checks, ops, struct
from jdfl.network.arcs import called, refuse_synchronised
from jdfl.network.graph import Graph, Network
from jdfl.network.links import link_uniform, without

_LOST, _ACTIVE, INNER = 6, 7, 8  # purposes of the keys; INNER: the wrapped network's
Missing = Literal["own", "rescale"]


@struct.dataclass
class LinkLoss:
    """A network whose messages are lost with one probability."""

    base: Network
    p: Array  # float32 [] probability that a message is lost
    directed: bool = struct.field(pytree_node=False)  # whether the two ways of a link are lost apart
    weights: Missing = struct.field(pytree_node=False)
    name: str = struct.field(pytree_node=False, default="network")

    @property
    def m(self) -> int:
        """The number of nodes."""
        return self.base.m

    def at(self, k: Array, key: Array) -> Graph:
        """What arrives, as a lossy graph: `out_degree` still counts what was lost, since it was sent."""
        graph = self.base.at(k, jax.random.fold_in(key, INNER))
        up = link_uniform(key, _LOST, graph, directed=self.directed) >= self.p
        left = replace(without(graph, up), lossy=True)
        if self.weights == "own":
            return left
        rest = jnp.sum(left.weight, axis=1) + graph.self_weight
        heard = rest > 0  # else all that a node gives weight to is lost
        weight = left.weight / jnp.where(heard, rest, 1)[:, None]
        return replace(left, weight=weight, self_weight=1 - jnp.sum(weight, axis=1))

    @property
    def largest_out_degree(self) -> int:
        """The most messages that a node sends in a round."""
        return largest_out_degree(self.base)


@struct.dataclass
class NodeParticipation:
    """A network of which only some nodes take part in a round."""

    base: Network
    p: Any  # float32 [] probability that a node takes part; None: a number of them
    count: Any  # int32 [] how many take part; None: a probability
    name: str = struct.field(pytree_node=False, default="network")

    @property
    def m(self) -> int:
        """The number of nodes."""
        return self.base.m

    def at(self, k: Array, key: Array) -> Graph:
        """The links between nodes that take part."""
        graph = self.base.at(k, jax.random.fold_in(key, INNER))
        active = self.active(key)
        left = without(graph, active[:, None] & active[graph.senders])
        away = (graph.mask & ~left.mask).astype(jnp.int32)
        sent = graph.out_degree.at[graph.senders].add(-away)
        return replace(left, out_degree=jnp.where(active, sent, 0))

    def active(self, key: Array) -> Array:
        """Who takes part in the round of this key: bool [m]."""
        keys = ops.node_keys(key, _ACTIVE, jnp.arange(self.m, dtype=jnp.int32))
        if self.p is not None:
            draw = jax.vmap(lambda one: jax.random.uniform(one, (), jnp.float32))(keys)
            return draw < self.p
        bits = jax.vmap(lambda one: jax.random.bits(one, (2,), jnp.uint32))(keys)
        order = jnp.lexsort((bits[:, 0], bits[:, 1]))
        return jnp.zeros((self.m,), jnp.bool_).at[order].set(jnp.arange(self.m) < self.count)

    @property
    def largest_out_degree(self) -> int:
        """The most nodes that can hear one node in a round."""
        return largest_out_degree(self.base)


def largest_out_degree(network: Network) -> int:
    """The network's own figure, or where it has none, all others."""
    return getattr(network, "largest_out_degree", network.m - 1)


def base_is_network(base: Network) -> None:
    """Refuse what is not a network, and synchronised ones, of which the tables of neighbours are not all."""
    if isinstance(base, type) or not (hasattr(base, "m") and hasattr(base, "at")):
        found = base.__name__ if isinstance(base, type) else type(base).__name__
        raise ValueError(
            f"Expected base to be a network, got base = {found}. Take one from jdfl.network; Static(graph) makes one "
            "of a Graph."
        )
    refuse_synchronised(base, "a network around it")


def wrapped(base: Network) -> Network:
    """The network without its name, which is static: networks that differ in it only are compiled once."""
    return replace(base, name="") if is_dataclass(base) and hasattr(base, "name") else base


def link_loss(base: Network, p: Any, *, directed: bool = False, weights: Missing = "own") -> LinkLoss:
    """Every link of `base` is cut with probability `p`, drawn anew in every round and for every link.

    Both ways of a link are lost together; if `directed`, every message is lost apart from the others. The weight of
    what is missing goes to the node's own row ("own"), or all weights that are left are scaled up to sum to one
    ("rescale"; a node that is left without any keeps its row). With "own" and links lost both ways, symmetric doubly
    stochastic weights stay so; the other choices leave rows that sum to one only. Columns of "out-degree" weights no
    longer sum to one, and push-sum refuses such a network. A lost message has been sent, so `out_degree` counts it, and
    with it the bits of a run; algorithms that ask for messages count what they ask for, which is what can be heard. Put
    link loss around other wrappers, not into them.

    Raises `ValueError` for p outside [0, 1) and an unknown rule for the weights.
    """
    base_is_network(base)
    checks.not_negative(p=p)
    checks.shape((), "It is one number for all links.", p=p)
    if p >= 1:
        raise ValueError(f"Expected p in [0, 1), got p = {p!r}. It is the probability that a message is lost.")
    checks.one_of((False, True), directed=directed)
    checks.one_of(get_args(Missing), weights=weights)
    each = "each way, " if directed else ""
    name = f"link loss({each}p={float(p):g}) of {called(base)}"
    return LinkLoss(wrapped(base), jnp.float32(p), directed, weights, name)


def node_participation(base: Network, p: Any = None, *, count: int | None = None) -> NodeParticipation:
    """Only some nodes of `base` take part in a round: each with probability `p`, or `count` of them at random.

    A node that does not take part is neither heard nor hears; nothing is sent over its links. It goes on with its own
    row: it has self_weight 1, and what its algorithm does alone it still does. Symmetric doubly stochastic weights
    stay so; columns of "out-degree" weights no longer sum to one. Raises `ValueError` unless exactly one of p in (0, 1]
    and count from 1 to m is given.
    """
    base_is_network(base)
    if (p is None) == (count is None):
        raise ValueError(f"Expected either p or count, got p = {p!r} and count = {count!r}. Give one of them.")
    if count is not None:
        checks.whole(most=base.m, remedy=f"The network has m = {base.m} nodes.", count=count)
        name = f"participation(count={count}) of {called(base)}"
        return NodeParticipation(wrapped(base), None, jnp.int32(count), name)
    checks.fraction("It is the probability that a node takes part.", p=p)
    checks.shape((), "It is one number for all nodes.", p=p)
    return NodeParticipation(wrapped(base), jnp.float32(p), None, f"participation(p={float(p):g}) of {called(base)}")
