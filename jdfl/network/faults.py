"""Fault models: independent or bursty message loss, partial node participation, outages, and joining or leaving nodes.

The weight of a missing message is handled in one of three ways. The receiver substitutes its own row (`weights="own"`),
or rescales its remaining weights ("rescale"; a node with none left keeps its row): rows of W still sum to one. Or the
sender keeps what was not delivered, as if it had no receipt ("sender"): columns sum to one, as push-sum needs. With
"own", a symmetric or doubly stochastic W stays so while both directions of a link fail together. A lost message has
been sent and counts as traffic; an absent node sends nothing.

What lasts is a two-state Markov chain for every link or node, whose state in any round is a function of its key and the
round alone. No state is carried from round to round, so a resumed run, or a query of any single round, sees the same
states. With a the probability of a transition to state 1 and b that of a transition back, states h rounds apart are
related by

    P(1 after h | x) = pi + l^h (x - pi),   pi = a / (a + b),   l = 1 - a - b.

States in rounds that are multiples of 2^L are independent, where |l|^(2^L) is below the resolution of the random
numbers. A state midway between two known ones is drawn conditionally on both, recursively down to the requested round.
The random number that decides a round's state is used for that round only. All states have the stationary distribution.

Axes: m nodes, d slots of the table.
"""

import math
from dataclasses import replace
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jdfl.base import checks, struct
from jdfl.base.arguments import checked
from jdfl.base.settings import As, Bound
from jdfl.base.streams import Stream
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
    per_node,
    shuffled,
    uniform,
    without,
)

_LOST, _BURST = Stream("network.lost", "network"), Stream("network.burst", "network")
_ACTIVE, _OUTAGE = Stream("network.taking part", "network"), Stream("network.outage", "network")
_RESOLUTION = 2.0**-25  # of uniform float32 numbers
_MOST = 28  # levels; a run has at most 2^30 rounds
_RAREST = 2.0**-30  # smallest transition probability: one transition in the longest possible run
_Loss = Annotated[float, Bound("[0, 1]")]
_Rounds = Annotated[Any, As(tuple[int, ...] | None, lambda given: given[0] if given and len(given) == 1 else given)]


@struct.dataclass
class LinkLoss(Around):
    """A network whose messages are lost independently with a given probability."""

    p: Array  # float32 [] probability that a message is lost
    directed: bool = struct.field(pytree_node=False)  # whether the two directions of a link are lost independently
    weights: Missing = struct.field(pytree_node=False)

    def at(self, k: Array, key: Array) -> Graph:
        return _lossy(self, self.base.at(k, INNER.of(key)), key, self.p)


@struct.dataclass
class BurstyLoss(Lasting):
    """A network whose links alternate between good and bad periods (Gilbert-Elliott channel)."""

    to_bad: Array  # float32 [] probability that a good link is bad in the next round
    to_good: Array  # float32 [] probability that a bad link is good in the next round
    loss: Array  # float32 [2] loss probability on a good link, and on a bad one
    levels: int = struct.field(pytree_node=False)  # of `state`
    directed: bool = struct.field(pytree_node=False)  # whether each direction of a link has its own state
    weights: Missing = struct.field(pytree_node=False)

    def at(self, k: Array, key: Array) -> Graph:
        graph = self.base.at(k, INNER.of(key))
        return _lossy(self, graph, key, jnp.where(self.bad(k, graph), self.loss[1], self.loss[0]))

    def bad(self, k: Array, graph: Graph) -> Array:
        """The slots [m, d] of the base's graph whose link is bad in round k []."""
        keys = link_keys(self.lasting, _BURST, graph, directed=self.directed)
        return state(keys, k, self.to_bad, self.to_good, self.levels)


def _lossy(network: LinkLoss | BurstyLoss, graph: Graph, key: Array, p: Array) -> Graph:
    """The graph without the messages lost in this round, each with probability p ([] or [m, d])."""
    up = uniform(link_keys(key, _LOST, graph, directed=network.directed)) >= p
    return replace(without(graph, up, network.weights), lossy=True)


@struct.dataclass
class NodeParticipation(Around):
    """A network in which only some nodes participate in each round."""

    p: Any  # float32 [] probability that a node participates; None: `count` is given
    count: Any  # int32 [] number of participating nodes; None: `p` is given
    weights: Missing = struct.field(pytree_node=False)

    def at(self, k: Array, key: Array) -> Graph:
        return between(self.base.at(k, INNER.of(key)), self.active(key), self.weights)

    def active(self, key: Array) -> Array:
        """The nodes that participate in the round with this key []: bool [m]."""
        keys = _ACTIVE.keys(key, ids(self.m))
        if self.p is not None:
            return uniform(keys) < self.p
        return jnp.zeros((self.m,), jnp.bool_).at[shuffled(keys)].set(jnp.arange(self.m) < self.count)


@struct.dataclass
class Outages(Lasting):
    """A network whose nodes go down for a while and come back."""

    down: Array  # float32 [] probability that a running node is down in the next round
    up: Array  # float32 [] probability that a node that is down comes back in the next round
    levels: int = struct.field(pytree_node=False)  # of `state`
    weights: Missing = struct.field(pytree_node=False)

    def at(self, k: Array, key: Array) -> Graph:
        return _absent(self.base.at(k, INNER.of(key)), self.away(k), self.weights)

    def away(self, k: Array) -> Array:
        """The nodes that are down in round k []: bool [m]."""
        return state(_OUTAGE.keys(self.lasting, ids(self.m)), k, self.down, self.up, self.levels)


@struct.dataclass
class Membership(Around):
    """A network whose nodes join and leave in given rounds."""

    joins: Array = struct.field(per_node=True)  # [m] int32 first round of each node
    leaves: Array = struct.field(per_node=True)  # [m] int32 first round without the node
    weights: Missing = struct.field(pytree_node=False)

    def at(self, k: Array, key: Array) -> Graph:
        return _absent(self.base.at(k, INNER.of(key)), self.away(k), self.weights)

    def away(self, k: Array) -> Array:
        """The nodes that are absent in round k []: bool [m]."""
        return (k < self.joins) | (k >= self.leaves)


def _absent(graph: Graph, away: Array, weights: Missing) -> Graph:
    """The graph without the nodes that are `away` [m]."""
    both = away if graph.away is None else away | graph.away
    return replace(between(graph, ~away, weights), away=both)


@checked
def link_loss(
    base: Network, p: Annotated[float, Bound("[0, 1)")], *, directed: bool = False, weights: Missing = "own"
) -> LinkLoss:
    """Each message is lost with probability p, drawn independently per link and round.

    A lost message has been sent, so it counts in `out_degree` and in the traffic of a run. Algorithms that request
    messages count the requests that can be answered. Put link loss around other wrappers, not inside them.

    Args:
        base: The network whose messages are lost.
        p: Probability that a message is lost, in [0, 1).
        directed: Lose the two directions of a link independently.

    Raises:
        ValueError: For p out of range, and for a base that is synchronised.
    """
    inside, name = around(base, f"link loss({'each way, ' if directed else ''}p={p:g})")
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
    """Messages are lost in bursts: each link alternates between good and bad periods (a Gilbert-Elliott channel).

    Bad periods last 1 / to_good rounds on average, and a link is bad in a share to_bad / (to_bad + to_good) of all
    rounds, the first round included. Everything else is as in `link_loss`. E. Gilbert, "Capacity of a Burst-Noise
    Channel", 1960; E. Elliott, "Estimates of Error Rates for Codes on Burst-Noise Channels", 1963.

    Args:
        base: The network whose messages are lost.
        to_bad: Probability that a good link is bad in the next round, in (0, 1].
        to_good: Probability that a bad link is good in the next round, in (0, 1]; not both may be 1.
        good: Probability that a message is lost on a good link, in [0, 1].
        bad: Probability that a message is lost on a bad link, in [0, 1].
        directed: Give each direction of a link its own state and losses.

    Raises:
        ValueError: For probabilities out of range, and for a base that is synchronised.
    """
    levels = _levels_of(to_bad=to_bad, to_good=to_good)
    each = "each way, " if directed else ""
    inside, name = around(base, f"bursty loss({each}to_bad={to_bad:g}, to_good={to_good:g})")
    loss = jnp.asarray([good, bad], jnp.float32)
    return BurstyLoss(inside, jnp.float32(to_bad), jnp.float32(to_good), loss, levels, directed, weights, name=name)


@checked
def node_participation(
    base: Network, p: Share | None = None, *, count: int | None = None, weights: Missing = "own"
) -> NodeParticipation:
    """Only some nodes participate in each round: each independently with probability p, or a random set of `count`.

    A node that does not participate neither sends nor receives, and nothing is sent over its links. Its self_weight is
    1, and it still does its local computation.

    Args:
        base: The network whose nodes participate.
        p: Probability that a node participates, in (0, 1]; give either p or count.
        count: Number of participating nodes, from 1 to m; give either p or count.

    Raises:
        ValueError: Unless one of p and count is given, in range; for a base that is synchronised, late, or loses
            messages.
    """
    if (p is None) == (count is None):
        raise ValueError(f"Expected either p or count, got p = {p!r} and count = {count!r}. Give one of them.")
    if count is not None:
        checks.integer(most=base.m, remedy=f"The network has m = {base.m} nodes.", count=count)
    shown = f"count={count}" if p is None else f"p={p:g}"
    inside, name = around(base, f"participation({shown})", on_time="node_participation", lossless="node_participation")
    chance, number = None if p is None else jnp.float32(p), None if count is None else jnp.int32(count)
    return NodeParticipation(inside, chance, number, weights, name=name)


@checked
def outages(base: Network, down: Share, up: Share, *, weights: Missing = "own") -> Outages:
    """Nodes fail for a while and resume from the state they had.

    A node is down for 1 / up rounds on average, then continues from its last state; on average a share
    down / (down + up) of the nodes is down, in round 0 too. A node that is down does not compute, send, receive or
    release anything, and counts nothing.

    Args:
        base: The network whose nodes fail.
        down: Probability that a running node is down in the next round, in (0, 1].
        up: Probability that a node that is down comes back in the next round, in (0, 1]; not both may be 1.

    Raises:
        ValueError: For probabilities out of range; for a base that is synchronised or whose messages are late or lost.
    """
    levels = _levels_of(down=down, up=up)
    inside, name = around(base, f"outages(down={down:g}, up={up:g})", on_time="outages", lossless="outages")
    return Outages(inside, jnp.float32(down), jnp.float32(up), levels, weights, name=name)


@checked
def membership(base: Network, *, joins: _Rounds = None, leaves: _Rounds = None, weights: Missing = "own") -> Membership:
    """Nodes join and leave the network in given rounds.

    Outside these rounds a node does nothing at all, as in an outage: it joins with its initial state.

    Args:
        base: The network of all nodes that are ever present.
        joins: [m] first round of each node, from 0, or one round for all; a dict or a Series has it by the nodes' names
            or numbers, and the other nodes are there from the start; None: from the start.
        leaves: [m] first round without each node, or one round for all, or by name as joins; None: to the end. Give
            joins or leaves.

    Raises:
        ValueError: For invalid rounds, nodes that would leave before they join, and a base that is synchronised, late,
            or loses messages.
    """
    if joins is None and leaves is None:
        raise ValueError("Expected joins or leaves, got neither. Give one of them, or use the base network itself.")
    end = np.iinfo(np.int32).max
    first, last = _rounds(base, "joins", joins, 0), _rounds(base, "leaves", leaves, end)
    if np.any(first > last):
        node = int(np.argmax(first > last))
        raise ValueError(
            f"Expected nodes to join before they leave, got joins = {first[node]} and leaves = {last[node]} for node "
            f"{node}. Give a later round in leaves."
        )
    shown = f"membership({int(np.sum(first > 0))} join, {int(np.sum(last < end))} leave)"
    inside, name = around(base, shown, on_time="membership", lossless="membership")
    return Membership(inside, jnp.asarray(first, jnp.int32), jnp.asarray(last, jnp.int32), weights, name=name)


def _rounds(base: Network, name: str, given: Any, otherwise: int) -> np.ndarray:
    """The given rounds as an array [m], checked."""
    m = base.m
    if given is None:
        return np.full((m,), otherwise)
    given = per_node(name, given, base, otherwise)
    checks.plain_array(**{name: given})
    checks.shape((m,) if np.ndim(given) else (), "One round per node, or one for all.", **{name: given})
    if not np.issubdtype(np.asarray(given).dtype, np.integer) or np.min(np.asarray(given)) < 0:
        checks.refuse(f"whole numbers {name} >= 0", name, given, "They are rounds.")
    return np.broadcast_to(np.asarray(given), (m,))


def _levels_of(**named: float) -> int:
    """The `levels` of a pair of transition probabilities; ValueError if no run or no round would see a change."""
    for name, p in named.items():
        if p < _RAREST:
            raise ValueError(
                f"Expected {name} >= {_RAREST:g}, got {name} = {p!r}: no run is long enough to see such a change. Use "
                "link_loss or node_participation, whose rounds are independent."
            )
    (one, p), (other, q) = named.items()
    if p == 1 and q == 1:
        raise ValueError(f"Expected {one} or {other} below 1, got both 1: states would only alternate. Lower one.")
    return levels(float(p), float(q))


def levels(a: float, b: float) -> int:
    """The number of times the interval between two independent states is halved: an integer from 0 to 28."""
    kept = abs(1 - a - b)
    if kept in (0, 1):
        return 0 if kept == 0 else _MOST
    needed = math.log(_RESOLUTION) / math.log(kept)
    return min(_MOST, max(0, math.ceil(math.log2(max(needed, 1)))))


def state(keys: Array, k: Array, a: Array, b: Array, levels: int) -> Array:
    """Whether each chain is in state 1 in a given round: bool [...]."""
    share = a / (a + b)
    kept = [1 - a - b]  # l^(2^i)
    for _ in range(levels):
        kept.append(kept[-1] * kept[-1])

    def drawn(time: Array) -> Array:
        at = jax.vmap(jax.random.fold_in, (0, None))(keys.reshape(-1), time)
        return uniform(at).reshape(keys.shape)

    def halved(carry: tuple[Array, Array, Array], at: tuple[Array, Array]) -> tuple[tuple[Array, Array, Array], None]:
        """The half of the interval starting at `begin` that contains k, and the states at its ends."""
        (begin, left, right), (level, kept) = carry, at

        def after(x: Array) -> Array:
            """The probability of state 1 half an interval after state x."""
            return share + kept * (x - share)

        middle = begin + (1 << level)
        x, one, zero = left.astype(jnp.float32), after(jnp.float32(1)), after(jnp.float32(0))
        to_one = after(x) * jnp.where(right, one, 1 - one)
        to_zero = (1 - after(x)) * jnp.where(right, zero, 1 - zero)
        between = drawn(middle) * (to_one + to_zero) < to_one
        later = k >= middle
        begin = jnp.where(later, middle, begin)
        return (begin, jnp.where(later, between, left), jnp.where(later, right, between)), None

    begin = (k >> levels) << levels
    ends = begin, drawn(begin) < share, drawn(begin + (1 << levels)) < share
    half = jnp.arange(levels, dtype=jnp.int32)[::-1], jnp.stack(jnp.broadcast_arrays(*kept))[:levels][::-1]
    return lax.scan(halved, ends, half)[0][1]
