"""Simulated time: how long nodes compute and messages travel, and who is waited for.

    response of node j to node i  =  compute_j + latency_ij + bits / bandwidth

A node starts a round when it has done the one before. It is done when it has computed and has heard those that it
combines in this round (`advanced`). Nobody waits for messages that are lost, or for nodes that are away; there are no
timeouts. In a synchronised round all wait for all, as long as the slowest message takes on any link. Compute times are
those of one gradient, and a node that evaluates more, or none, takes as much longer, or no time. Response times decide
who is first to respond, as if all had started together.

Axes: m nodes, d slots of the table.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Self

import jax
import jax.numpy as jnp
from jax import Array

from jdfl.base import struct
from jdfl.base.arguments import checked, settings
from jdfl.base.settings import Bound, NotNegative, Positive
from jdfl.base.streams import Stream
from jdfl.devices import nodes
from jdfl.network.graph import Graph, Network, Timing
from jdfl.network.links import INNER, Lasting, around, ids, link_keys

_COMPUTE = Stream("network.compute time", "network")
_LATENCY = Stream("network.latency", "network")
_SLOW = Stream("network.slowness", "network")


class Times(ABC):
    """A distribution of times, or of factors of them: a dataclass of its settings, and how it draws."""

    @abstractmethod
    def draw(self, key: Array) -> Array:
        """One number [] float32 > 0 from a key []."""

    def check(self, name: str) -> None:
        """Refuse settings out of range: ValueError, in which `name` is what the times are."""
        settings(self, f"{name}.")


@struct.dataclass
class FixedTime(Times):
    """The same number of seconds always."""

    seconds: NotNegative = 1.0
    """The time, from 0, in seconds."""

    def draw(self, key: Array) -> Array:
        """The time [], whatever the key []."""
        return jnp.float32(self.seconds)


@struct.dataclass
class ExponentialTime(Times):
    """Exponential times: mean and standard deviation are the same."""

    mean: Positive = 1.0
    """Their mean, above 0, in seconds."""

    def draw(self, key: Array) -> Array:
        """One time [] from a key []."""
        return self.mean * jax.random.exponential(key, (), jnp.float32)


@struct.dataclass
class LogNormalTime(Times):
    """Times whose logarithm is normal: median exp(N(0, sigma^2))."""

    median: Positive = 1.0
    """Their median, above 0, in seconds."""
    sigma: Positive = 1.0
    """Standard deviation of their logarithm, above 0."""

    def draw(self, key: Array) -> Array:
        """One time [] from a key []."""
        return self.median * jnp.exp(self.sigma * jax.random.normal(key, (), jnp.float32))


@struct.dataclass
class ParetoTime(Times):
    """Times with a heavy tail, P(T > t) = (least / t)^shape for t >= least; no mean for a shape <= 1."""

    least: Positive = 1.0
    """The shortest of them, above 0, in seconds."""
    shape: Positive = 2.0
    """The exponent of the tail, above 0; the smaller, the heavier."""

    def draw(self, key: Array) -> Array:
        """One time [] from a key []."""
        return self.least * jnp.exp(jax.random.exponential(key, (), jnp.float32) / self.shape)


@struct.dataclass
class Timed(Lasting):
    """A network whose nodes and messages take time."""

    compute: Times  # of one gradient
    latency: Times  # of one message, whatever its size
    bandwidth: Array  # float32 [] bits per second, of one message
    slowness: Times | None  # factor of a node's compute times in a run
    first: bool = struct.field(pytree_node=False)
    bits: int = struct.field(pytree_node=False, default=0)  # of a message

    def in_run(self, key: Array, bits: int) -> Self:
        """The network in a run, from whose key follows who is slow.

        Args:
            key ([]): Key of the run.
            bits: Size of one message of the run, in bits, which take their time at the network's bandwidth.
        """
        return replace(super().in_run(key, bits), bits=bits)

    def at(self, k: Array, key: Array) -> Graph:
        """The network's graph with the times of round k []."""
        graph = self.base.at(k, INNER.of(key))
        compute = jax.vmap(self.compute.draw)(_COMPUTE.keys(key, ids(self.m))) * self.slow()
        keys = link_keys(key, _LATENCY, graph, directed=True)
        travel = jax.vmap(jax.vmap(self.latency.draw))(keys) + jnp.float32(self.bits) / self.bandwidth
        return replace(graph, timing=Timing(compute, travel, compute[graph.senders] + travel, self.first))

    def slow(self) -> Array:
        """By how much every node is slower than the others, in all rounds: [m]."""
        if self.slowness is None:
            return jnp.ones((self.m,), jnp.float32)
        return jax.vmap(self.slowness.draw)(_SLOW.keys(self.lasting, ids(self.m)))


@checked
def timed(
    base: Network,
    compute: Times = ExponentialTime(),  # noqa: B008 (frozen)
    *,
    latency: Times = FixedTime(0.0),  # noqa: B008 (frozen)
    bandwidth: Annotated[float, Bound("(0, inf)")] | None = None,
    slowness: Times | None = None,
    first: bool = False,
) -> Timed:
    """Nodes and messages of a network take time, which the run adds up: it then records `network_seconds`.

    Distributions are `FixedTime`, `ExponentialTime`, `LogNormalTime` and `ParetoTime`.

    Args:
        base: The network whose times they are.
        compute: Seconds of one gradient, drawn anew in every round.
        latency: Seconds of a message, beside its bits, drawn anew in every round.
        bandwidth: Bits per second of a message, above 0; None: its size takes no time.
        slowness: How many times as long a node computes, drawn once for all rounds; None: all alike.
        first: Who combines some of its neighbours, such as CEPS and `partial_communication` around this network, takes
            the first that respond instead of a random few; it has then asked all of them, and all answers count as
            sent.

    Raises:
        ValueError: For settings of the distributions and a bandwidth out of range; for a base that is synchronised.
    """
    for what, times in (("compute", compute), ("latency", latency), ("slowness", slowness)):
        if times is not None:
            times.check(what)
    slow = "" if slowness is None else f", slowness={type(slowness).__name__}"
    inside, name = around(base, f"timed({type(compute).__name__}{slow}{', first' if first else ''})")
    speed = jnp.float32(jnp.inf if bandwidth is None else bandwidth)
    return Timed(inside, compute, latency, speed, slowness, first, name=name)


Seconds = tuple[Array, Array]  # floats, and what rounding has left out of each of them


def added(time: Seconds, more: Array) -> Seconds:
    """A sum of two times [...], with an error that does not grow with the number of sums.

    A float32 that grows by .1 at a time is wrong by percents after some million sums. What rounding leaves out of a sum
    (Knuth's TwoSum) is carried along in a second float here. XLA keeps the order of sums of floats.

    Args:
        time: Floats [...], and what rounding has left out of each of them [...].
        more ([...]): What is added, in the same unit.

    Returns:
        The sum, as two floats like `time`.
    """
    whole, rest = time
    total = whole + more
    back = total - whole
    rest = rest + ((whole - (total - back)) + (more - back))
    new = total + rest
    return new, rest - (new - total)


def _later(one: Seconds, other: Seconds) -> Seconds:
    """The later of two times [...]."""
    after = (other[0] > one[0]) | ((other[0] == one[0]) & (other[1] > one[1]))
    return jnp.where(after, other[0], one[0]), jnp.where(after, other[1], one[1])


def _last(time: Seconds, most: Callable[[Array], Array]) -> Seconds:
    """The latest of times by `most`, which gives the largest of floats in the shape of a factor of theirs."""
    whole = most(time[0])
    return whole, most(jnp.where(time[0] == whole, time[1], -jnp.inf))


def advanced(graph: Graph, clock: Seconds, grads: Array, waits: Array) -> Seconds:
    """The times at which nodes are done with a round, [m] twice, as `added` has them.

    Args:
        graph: The graph of the round, with its timing.
        clock: When they were done with the round before: seconds [m], and what rounding has left out of them [m].
        grads: grads [m], how many gradients a node evaluates.
        waits: waits [m, d] bool, the slots that a node waits for.
    """
    assert graph.timing is not None
    dtype = clock[0].dtype
    done = added(clock, graph.timing.compute.astype(dtype) * grads.astype(dtype))
    travel = graph.timing.travel.astype(dtype)
    sent = graph.gathered(done[0])[graph.senders], graph.gathered(done[1])[graph.senders]
    whole, rest = added(sent, travel)
    last = _last((jnp.where(waits & graph.mask, whole, -jnp.inf), rest), lambda x: jnp.max(x, axis=1, keepdims=True))
    heard = _later(done, (last[0][:, 0], last[1][:, 0]))
    if graph.synchronised is None:
        return heard
    everybody = _last(added(done, jnp.max(travel, axis=1)), nodes.largest)
    together = graph.synchronised
    return jnp.where(together, everybody[0], heard[0]), jnp.where(together, everybody[1], heard[1])
