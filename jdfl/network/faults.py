"""Networks whose messages are lost, one by one or in bursts, and whose nodes are silent, fail for a while, join, leave.

Whose message a node lacks it replaces by its own row (`weights="own"`); or all that is left is scaled up ("rescale"; a
node that is left without any keeps its row): rows of W still sum to one. Or the sender, who gets no receipt, keeps what
did not arrive ("sender"): columns sum to one, as push-sum needs. With "own" W stays symmetric and doubly stochastic
where it was and both ways of a link are missing together. A lost message has been sent, and counts; who is missing
sends nothing.

Axes: m nodes, d slots of the table.
"""

from dataclasses import replace
from typing import Annotated, Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from jdfl.base import checks, struct
from jdfl.base.arguments import checked
from jdfl.base.settings import As, Bound
from jdfl.base.streams import Stream
from jdfl.network import chain
from jdfl.network.graph import Graph, Network, Share
from jdfl.network.links import (
    INNER,
    Around,
    Lasting,
    Missing,
    around,
    between,
    ids,
    link_keys,
    shuffled,
    uniform,
    without,
)

_LOST, _BURST = Stream("network.lost", "network"), Stream("network.burst", "network")
_ACTIVE, _OUTAGE = Stream("network.taking part", "network"), Stream("network.outage", "network")
_Loss = Annotated[float, Bound("[0, 1]")]
_Rounds = Annotated[Any, As(tuple[int, ...] | None, lambda given: given[0] if given and len(given) == 1 else given)]


@struct.dataclass
class LinkLoss(Around):
    """A network whose messages are lost with one probability."""

    p: Array  # float32 [] probability that a message is lost
    directed: bool = struct.field(pytree_node=False)  # whether the two ways of a link are lost apart
    weights: Missing = struct.field(pytree_node=False)

    def at(self, k: Array, key: Array) -> Graph:
        """What arrives in round k [], as a lossy graph: `out_degree` still counts what was lost, since it was sent."""
        return _lossy(self, self.base.at(k, INNER.of(key)), key, self.p)


@struct.dataclass
class BurstyLoss(Lasting):
    """A network whose links are good or bad for a while (Gilbert and Elliott)."""

    to_bad: Array  # float32 [] probability that a good link is bad in the next round
    to_good: Array  # float32 [] and that a bad one is good
    loss: Array  # float32 [2] probability that a message is lost on a good link, and on a bad one
    levels: int = struct.field(pytree_node=False)  # of `chain.state`
    directed: bool = struct.field(pytree_node=False)  # both ways of a link are good or bad on their own
    weights: Missing = struct.field(pytree_node=False)

    def at(self, k: Array, key: Array) -> Graph:
        """What arrives in round k [], as a lossy graph: `out_degree` still counts what was lost, since it was sent."""
        graph = self.base.at(k, INNER.of(key))
        return _lossy(self, graph, key, jnp.where(self.bad(k, graph), self.loss[1], self.loss[0]))

    def bad(self, k: Array, graph: Graph) -> Array:
        """Which slots [m, d] of the graph inside have a bad link in round k []."""
        keys = link_keys(self.lasting, _BURST, graph, directed=self.directed)
        return chain.state(keys, k, self.to_bad, self.to_good, self.levels)


def _lossy(network: LinkLoss | BurstyLoss, graph: Graph, key: Array, p: Array) -> Graph:
    """The graph without the messages that this round loses, each with probability p ([] or [m, d])."""
    up = uniform(link_keys(key, _LOST, graph, directed=network.directed)) >= p
    return replace(without(graph, up, network.weights), lossy=True)


@struct.dataclass
class NodeParticipation(Around):
    """A network of which only some nodes take part in a round."""

    p: Any  # float32 [] probability that a node takes part; None: a number of them
    count: Any  # int32 [] how many take part; None: a probability
    weights: Missing = struct.field(pytree_node=False)

    def at(self, k: Array, key: Array) -> Graph:
        """The links between nodes that take part in round k []."""
        return between(self.base.at(k, INNER.of(key)), self.active(key), self.weights)

    def active(self, key: Array) -> Array:
        """Who takes part in the round of this key []: bool [m]."""
        keys = _ACTIVE.keys(key, ids(self.m))
        if self.p is not None:
            return uniform(keys) < self.p
        return jnp.zeros((self.m,), jnp.bool_).at[shuffled(keys)].set(jnp.arange(self.m) < self.count)


@struct.dataclass
class Outages(Lasting):
    """A network whose nodes are down for a while, and come back."""

    down: Array  # float32 [] probability that a node is down in the next round
    up: Array  # float32 [] and that one that is down comes back
    levels: int = struct.field(pytree_node=False)  # of `chain.state`
    weights: Missing = struct.field(pytree_node=False)

    def at(self, k: Array, key: Array) -> Graph:
        """The links between nodes that are up in round k []; the others are `away`."""
        return _absent(self.base.at(k, INNER.of(key)), self.away(k), self.weights)

    def away(self, k: Array) -> Array:
        """Who is down in round k []: bool [m]."""
        return chain.state(_OUTAGE.keys(self.lasting, ids(self.m)), k, self.down, self.up, self.levels)


@struct.dataclass
class Membership(Around):
    """A network that nodes join and leave in given rounds."""

    joins: Array  # [m] int32 the first round of every node
    leaves: Array  # [m] int32 the first round without it
    weights: Missing = struct.field(pytree_node=False)

    def at(self, k: Array, key: Array) -> Graph:
        """The links between nodes that are there in round k []; the others are `away`."""
        away = (k < self.joins) | (k >= self.leaves)
        return _absent(self.base.at(k, INNER.of(key)), away, self.weights)


def _absent(graph: Graph, away: Array, weights: Missing) -> Graph:
    """The graph without nodes that are `away` [m]."""
    both = away if graph.away is None else away | graph.away
    return replace(between(graph, ~away, weights), away=both)


@checked
def link_loss(
    base: Network, p: Annotated[float, Bound("[0, 1)")], *, directed: bool = False, weights: Missing = "own"
) -> LinkLoss:
    """Messages are lost with probability p, drawn anew in every round and for every link of a network.

    A lost message has been sent, so `out_degree` and the bits of a run count it; algorithms that ask for messages count
    what they ask for, which is what can be heard. Put link loss around other wrappers, not into them.

    Args:
        base: The network whose messages they are.
        p: Probability that a message is lost, in [0, 1).
        directed: Lose the two ways of a link apart.
        weights: What is missing goes to the receiver's own weight ("own"), or all that is left is scaled up to sum to
            one ("rescale"), or the sender keeps it ("sender", for push-sum).

    Raises:
        ValueError: For p out of range, and for a base that is synchronised.
    """
    inside, name = around(base, f"link loss({_each(directed)}p={p:g})")
    return LinkLoss(inside, jnp.float32(p), directed, weights, name=name)


@checked
def bursty_loss(
    base: Network,
    to_bad: Share,
    to_good: Share,
    *,
    good: _Loss = 0.0,
    bad: _Loss = 1.0,
    directed: bool = False,
    weights: Missing = "own",
) -> BurstyLoss:
    """Messages are lost in bursts: every link of a network is good or bad for a while, a Gilbert-Elliott channel.

    Bad times last 1 / to_good rounds in the mean, and links are bad for a share to_bad / (to_bad + to_good) of all
    rounds, the first round included. Everything else is as in `link_loss`. E. Gilbert, "Capacity of a Burst-Noise
    Channel", 1960; E. Elliott, "Estimates of Error Rates for Codes on Burst-Noise Channels", 1963.

    Args:
        base: The network whose messages they are.
        to_bad: Probability that a good link is bad in the next round, in (0, 1].
        to_good: Probability that a bad link is good in the next round, in (0, 1]; not both are 1.
        good: Probability that a message is lost on a good link, in [0, 1].
        bad: Probability that a message is lost on a bad link, in [0, 1].
        directed: Let the two ways of a link have states of their own, and losses.
        weights: Where the weight of what is missing goes, as for `link_loss`.

    Raises:
        ValueError: For probabilities out of range, and for a base that is synchronised.
    """
    levels = chain.check(to_bad=to_bad, to_good=to_good)
    inside, name = around(base, f"bursty loss({_each(directed)}to_bad={to_bad:g}, to_good={to_good:g})")
    loss = jnp.asarray([good, bad], jnp.float32)
    return BurstyLoss(inside, jnp.float32(to_bad), jnp.float32(to_good), loss, levels, directed, weights, name=name)


def _each(directed: bool) -> str:
    return "each way, " if directed else ""


@checked
def node_participation(
    base: Network, p: Share | None = None, *, count: int | None = None, weights: Missing = "own"
) -> NodeParticipation:
    """Only some nodes of a network take part in a round, drawn anew: each with probability p, or count of them.

    A node that does not is neither heard nor hears; nothing is sent over its links. It has self_weight 1, and what its
    algorithm does alone it still does.

    Args:
        base: The network whose nodes they are.
        p: Probability that a node takes part, in (0, 1]; give it or count.
        count: How many nodes take part, from 1 to m; give it or p.
        weights: Where the weight of what is missing goes, as for `link_loss`.

    Raises:
        ValueError: Unless one of p and count is given, in range; for a base that is synchronised or late.
    """
    if (p is None) == (count is None):
        raise ValueError(f"Expected either p or count, got p = {p!r} and count = {count!r}. Give one of them.")
    if count is not None:
        checks.whole(most=base.m, remedy=f"The network has m = {base.m} nodes.", count=count)
    shown = f"count={count}" if p is None else f"p={p:g}"
    inside, name = around(base, f"participation({shown})", on_time="node_participation")
    chance, number = None if p is None else jnp.float32(p), None if count is None else jnp.int32(count)
    return NodeParticipation(inside, chance, number, weights, name=name)


@checked
def outages(base: Network, down: Share, up: Share, *, weights: Missing = "own") -> Outages:
    """Nodes of a network fail for a while and come back with what they had.

    A node is down for 1 / up rounds in the mean, and goes on from the state that it had; a share down / (down + up) of
    the nodes is down in the mean, in round 0 too. Meanwhile it computes, sends, hears, releases and counts nothing.

    Args:
        base: The network whose nodes they are.
        down: Probability that a node is down in the next round, in (0, 1].
        up: Probability that one that is down comes back in the next round, in (0, 1]; not both are 1.
        weights: Where the weight of what is missing goes, as for `link_loss`.

    Raises:
        ValueError: For probabilities out of range; for a base that is synchronised or whose messages are late.
    """
    levels = chain.check(down=down, up=up)
    inside, name = around(base, f"outages(down={down:g}, up={up:g})", on_time="outages")
    return Outages(inside, jnp.float32(down), jnp.float32(up), levels, weights, name=name)


@checked
def membership(base: Network, *, joins: _Rounds = None, leaves: _Rounds = None, weights: Missing = "own") -> Membership:
    """Nodes join a network and leave it in given rounds.

    Before and after, a node does nothing at all, as in an outage: it joins with the state that it had at the start.

    Args:
        base: The network of all nodes that are ever there.
        joins: [m] the first round of every node, from 0, or one for all; None: from the start.
        leaves: [m] the first round without every node, or one for all; None: to the end. Give joins or leaves.
        weights: Where the weight of what is missing goes, as for `link_loss`.

    Raises:
        ValueError: For other numbers, nodes that would leave before they join, and a base that is synchronised or late.
    """
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
    shown = f"membership({int(np.sum(first > 0))} join, {int(np.sum(last < end))} leave)"
    inside, name = around(base, shown, on_time="membership")
    return Membership(inside, jnp.asarray(first, jnp.int32), jnp.asarray(last, jnp.int32), weights, name=name)


def _rounds(m: int, name: str, given: Any, otherwise: int) -> np.ndarray:
    """Rounds [m] as a person gave them, checked."""
    if given is None:
        return np.full((m,), otherwise)
    checks.plain_array(**{name: given})
    checks.shape((m,) if np.ndim(given) else (), "One round for every node, or for all.", **{name: given})
    if not np.issubdtype(np.asarray(given).dtype, np.integer) or np.min(np.asarray(given)) < 0:
        checks.refuse(f"whole numbers {name} >= 0", name, given, "They are rounds.")
    return np.broadcast_to(np.asarray(given), (m,))
