"""Networks in which something is missing: lost messages, silent nodes. Any network in, a network out.

Whose message a node lacks it replaces by its own row, so that rows of W still sum to one (`weights="own"`); or all that
is left is scaled up ("rescale"); or the sender, who gets no receipt, keeps what did not arrive, so that it is columns
that sum to one, as push-sum needs ("sender"). W stays symmetric where it was and both ways of a link are missing
together. A lost message has been sent, and counts; who is silent sends nothing. A wrapper and the network in it draw
with different keys, and so do wrappers in one another.

Axes: m nodes, d slots of the table.
"""

from dataclasses import replace
from typing import Any, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jdfl import checks, ops, struct
from jdfl.network import chain
from jdfl.network.arcs import called
from jdfl.network.graph import Graph, Network
from jdfl.network.links import Missing, between, link_keys, link_uniform, without
from jdfl.network.wrapping import INNER, UNBOUND, base_is_network, inside, largest_out_degree, refuse_late, wrapped

_LOST, _ACTIVE, _BURST, _OUTAGE = 6, 7, 9, 10  # purposes of the keys
_RAREST = 2.0**-30  # probability of a change, one in as many rounds as a run may have


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
        return replace(without(graph, up, self.weights), lossy=True)

    @property
    def largest_out_degree(self) -> int:
        """The most messages that a node sends in a round."""
        return largest_out_degree(self.base)


@struct.dataclass
class BurstyLoss:
    """A network whose links are good or bad for a while (Gilbert and Elliott)."""

    base: Network
    to_bad: Array  # float32 [] probability that a good link is bad in the next round
    to_good: Array  # float32 [] and that a bad one is good
    loss: Array  # float32 [2] probability that a message is lost on a good link, and on a bad one
    levels: int = struct.field(pytree_node=False)  # of `chain.state`
    directed: bool = struct.field(pytree_node=False)
    weights: Missing = struct.field(pytree_node=False)
    run: Array | None = None  # what links' states are drawn from in all rounds
    name: str = struct.field(pytree_node=False, default="network")

    @property
    def m(self) -> int:
        """The number of nodes."""
        return self.base.m

    def in_run(self, key: Array, bits: int) -> "BurstyLoss":
        """With the key of a run, from which the states of all its rounds follow."""
        return replace(inside(self, key, bits), run=key)

    def at(self, k: Array, key: Array) -> Graph:
        """What arrives, as a lossy graph: `out_degree` still counts what was lost, since it was sent."""
        graph = self.base.at(k, jax.random.fold_in(key, INNER))
        bad = self.bad(k, graph)
        up = link_uniform(key, _LOST, graph, directed=self.directed) >= jnp.where(bad, self.loss[1], self.loss[0])
        return replace(without(graph, up, self.weights), lossy=True)

    def bad(self, k: Array, graph: Graph) -> Array:
        """Which slots [m, d] have a bad link in round k."""
        keys = link_keys(_long(self.run), _BURST, graph, directed=self.directed)
        return chain.state(keys, k, self.to_bad, self.to_good, self.levels)

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
    weights: Missing = struct.field(pytree_node=False)
    name: str = struct.field(pytree_node=False, default="network")

    @property
    def m(self) -> int:
        """The number of nodes."""
        return self.base.m

    def at(self, k: Array, key: Array) -> Graph:
        """The links between nodes that take part."""
        graph = self.base.at(k, jax.random.fold_in(key, INNER))
        return between(graph, self.active(key), self.weights)

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


@struct.dataclass
class Outages:
    """A network whose nodes are down for a while, and come back."""

    base: Network
    down: Array  # float32 [] probability that a node is down in the next round
    up: Array  # float32 [] and that one that is down comes back
    levels: int = struct.field(pytree_node=False)  # of `chain.state`
    weights: Missing = struct.field(pytree_node=False)
    run: Array | None = None  # what nodes' states are drawn from in all rounds
    name: str = struct.field(pytree_node=False, default="network")

    @property
    def m(self) -> int:
        """The number of nodes."""
        return self.base.m

    def in_run(self, key: Array, bits: int) -> "Outages":
        """With the key of a run, from which the states of all its rounds follow."""
        return replace(inside(self, key, bits), run=key)

    def at(self, k: Array, key: Array) -> Graph:
        """The links between nodes that are up; the others are `away`."""
        return _absent(self.base.at(k, jax.random.fold_in(key, INNER)), self.away(k), self.weights)

    def away(self, k: Array) -> Array:
        """Who is down in round k: bool [m]."""
        keys = ops.node_keys(_long(self.run), _OUTAGE, jnp.arange(self.m, dtype=jnp.int32))
        return chain.state(keys, k, self.down, self.up, self.levels)

    @property
    def largest_out_degree(self) -> int:
        """The most nodes that can hear one node in a round."""
        return largest_out_degree(self.base)


@struct.dataclass
class Membership:
    """A network that nodes join and leave in given rounds."""

    base: Network
    joins: Array  # [m] int32 the first round of every node
    leaves: Array  # [m] int32 the first round without it
    weights: Missing = struct.field(pytree_node=False)
    name: str = struct.field(pytree_node=False, default="network")

    @property
    def m(self) -> int:
        """The number of nodes that are ever there."""
        return self.base.m

    def at(self, k: Array, key: Array) -> Graph:
        """The links between nodes that are there; the others are `away`."""
        away = (k < self.joins) | (k >= self.leaves)
        return _absent(self.base.at(k, jax.random.fold_in(key, INNER)), away, self.weights)

    @property
    def largest_out_degree(self) -> int:
        """The most nodes that can hear one node in a round."""
        return largest_out_degree(self.base)


def _absent(graph: Graph, away: Array, weights: Missing) -> Graph:
    """The graph without nodes that are `away` [m]."""
    both = away if graph.away is None else away | graph.away
    return replace(between(graph, ~away, weights), away=both)


def _long(run: Array | None) -> Array:
    """The key of what lasts, outside a run a fixed one."""
    return jax.random.key(UNBOUND) if run is None else run


def link_loss(base: Network, p: Any, *, directed: bool = False, weights: Missing = "own") -> LinkLoss:
    """Every link of `base` is cut with probability `p`, drawn anew in every round and for every link.

    Both ways of a link are lost together; if `directed`, every message is lost apart from the others. The weight of
    what is missing goes to the receiver's own row ("own"), or all weights that are left are scaled up to sum to one
    ("rescale"; a node that is left without any keeps its row), or the sender keeps it ("sender", for push-sum, whose
    columns of weights then still sum to one). With "own" and links lost both ways, symmetric doubly stochastic weights
    stay so; the other choices leave rows or columns only. A lost message has been sent, so `out_degree` counts it, and
    with it the bits of a run; algorithms that ask for messages count what they ask for, which is what can be heard. Put
    link loss around other wrappers, not into them.

    Raises `ValueError` for p outside [0, 1) and an unknown rule for the weights.
    """
    base_is_network(base)
    _check_loss(p=p)
    checks.one_of((False, True), directed=directed)
    checks.one_of(get_args(Missing), weights=weights)
    each = "each way, " if directed else ""
    name = f"link loss({each}p={float(p):g}) of {called(base)}"
    return LinkLoss(wrapped(base), jnp.float32(p), directed, weights, name)


def bursty_loss(
    base: Network,
    to_bad: Any,
    to_good: Any,
    *,
    good: Any = 0.0,
    bad: Any = 1.0,
    directed: bool = False,
    weights: Missing = "own",
) -> BurstyLoss:
    """Messages are lost in bursts: every link of `base` is a Gilbert-Elliott channel.

    A good link turns bad from one round to the next with probability `to_bad`, a bad one good with `to_good`, so that
    bad times last 1 / to_good rounds in the mean, and links are bad for a share to_bad / (to_bad + to_good) of all
    rounds, the first round included. A message is lost with probability `good` on good links and `bad` on bad ones. The
    two ways of a link share its state and its losses, unless `directed`. Everything else is as in `link_loss`. E.
    Gilbert, "Capacity of a Burst-Noise Channel", 1960; E. Elliott, "Estimates of Error Rates for Codes on Burst-Noise
    Channels", 1963.

    Raises `ValueError` for to_bad and to_good outside (0, 1] or both 1, and good and bad outside [0, 1].
    """
    base_is_network(base)
    levels = _check_chain(to_bad=to_bad, to_good=to_good)
    for name, value in (("good", good), ("bad", bad)):
        _check_loss(most=1.0, **{name: value})
    checks.one_of((False, True), directed=directed)
    checks.one_of(get_args(Missing), weights=weights)
    each = "each way, " if directed else ""
    name = f"bursty loss({each}to_bad={float(to_bad):g}, to_good={float(to_good):g}) of {called(base)}"
    loss = jnp.asarray([good, bad], jnp.float32)
    return BurstyLoss(
        wrapped(base), jnp.float32(to_bad), jnp.float32(to_good), loss, levels, directed, weights, name=name
    )


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


def outages(base: Network, down: Any, up: Any, *, weights: Missing = "own") -> Outages:
    """Nodes of `base` fail and come back: one that is up is down in the next round with probability `down`.

    One that is down comes back with probability `up`, after 1 / up rounds in the mean, and goes on from the state that
    it had; a share down / (down + up) of the nodes is down in the mean, in round 0 too. While it is down a node does
    nothing at all: it computes, sends, hears, releases and counts nothing. Others go on without it, its `weights` as in
    `link_loss`. Raises `ValueError` for probabilities outside (0, 1] or both 1.
    """
    base_is_network(base)
    refuse_late(base, "outages")
    levels = _check_chain(down=down, up=up)
    checks.one_of(get_args(Missing), weights=weights)
    name = f"outages(down={float(down):g}, up={float(up):g}) of {called(base)}"
    return Outages(wrapped(base), jnp.float32(down), jnp.float32(up), levels, weights, name=name)


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
    first, last = (_rounds(base.m, value, name, other) for name, value, other in _ends(joins, leaves, end))
    if np.any(first > last):
        node = int(np.argmax(first > last))
        raise ValueError(
            f"Expected nodes to join before they leave, got joins = {first[node]} and leaves = {last[node]} of node "
            f"{node}. Give a later round in leaves."
        )
    name = f"membership({int(np.sum(first > 0))} join, {int(np.sum(last < end))} leave) of {called(base)}"
    return Membership(wrapped(base), jnp.asarray(first, jnp.int32), jnp.asarray(last, jnp.int32), weights, name)


def _ends(joins: Any, leaves: Any, end: int) -> tuple[tuple[str, Any, int], ...]:
    return ("joins", joins, 0), ("leaves", leaves, end)


def _rounds(m: int, given: Any, name: str, otherwise: int) -> np.ndarray:
    """Rounds [m] as a person gave them, checked."""
    if given is None:
        return np.full((m,), otherwise)
    checks.shape((m,) if np.ndim(given) else (), "One round for every node, or for all.", **{name: given})
    if not np.issubdtype(np.asarray(given).dtype, np.integer) or np.min(np.asarray(given)) < 0:
        raise ValueError(f"Expected whole numbers {name} >= 0, got {name} = {given!r}. They are rounds.")
    return np.broadcast_to(np.asarray(given), (m,))


def _check_loss(most: float = np.nextafter(1.0, 0.0), **named: Any) -> None:
    """Refuse what is no probability that a message is lost."""
    for name, p in named.items():
        checks.not_negative(**{name: p})
        checks.shape((), "It is one number for all links.", **{name: p})
        if p > most:
            above = "[0, 1]" if most == 1 else "[0, 1)"
            raise ValueError(
                f"Expected {name} in {above}, got {name} = {p!r}. It is the probability that a message is lost."
            )


def _check_chain(**named: Any) -> int:
    """Refuse what are no probabilities of a change between two states; returns the levels of `chain.state`."""
    for name, p in named.items():
        checks.shape((), "It is one number for all.", **{name: p})
        checks.fraction("It is the probability of a change from one round to the next.", **{name: p})
        if p < _RAREST:
            raise ValueError(
                f"Expected {name} >= {_RAREST:g}, got {name} = {p!r}: no run is long enough for such a change. Use "
                "link_loss or node_participation, whose rounds do not depend on one another."
            )
    (one, p), (other, q) = named.items()
    if p == 1 and q == 1:
        raise ValueError(f"Expected {one} or {other} below 1, got both 1: states would only take turns. Lower one.")
    return chain.levels(float(p), float(q))
