"""Simulated time: how long nodes compute, how long messages travel, and which messages a node waits for.

    response of node j to node i  =  compute_j + latency_ij + bits / bandwidth

A node starts a round when it has finished the previous one. It finishes when it has computed and has received the
messages that it combines in this round (`advanced`). Nodes do not wait for lost messages or for nodes that are away;
there are no timeouts. In a synchronised round all nodes wait for all others, and for the slowest message on any link.
Compute times are those of one gradient; a node that evaluates several gradients takes that many times as long, and one
that evaluates none takes no time. Response times decide which neighbour responds first, as if all nodes had started
together.

Axes: m nodes, d slots of the table.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Annotated, Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jdfl.base import checks, struct
from jdfl.base.arguments import checked, settings
from jdfl.base.settings import Bound, NotNegative, Positive
from jdfl.base.streams import Stream
from jdfl.devices import nodes
from jdfl.network.graph import Graph, Network, Timing
from jdfl.network.links import INNER, Lasting, Sizes, around, ids, link_keys

_COMPUTE = Stream("network.compute time", "network")
_LATENCY = Stream("network.latency", "network")
_SLOW = Stream("network.slowness", "network")


class Times(ABC):
    """A distribution of times, or of factors of times: a dataclass of settings that can be sampled."""

    @abstractmethod
    def draw(self, key: Array) -> Array:
        """One positive float32 number [] drawn with a key []."""

    def check(self, name: str) -> None:
        """Check the settings; `name` says what the times are. Raises ValueError for settings out of range."""
        settings(self, f"{name}.")


@struct.dataclass
class FixedTime(Times):
    """A constant time, in seconds."""

    seconds: NotNegative = 1.0
    """The time, from 0, in seconds."""

    def draw(self, key: Array) -> Array:
        """The constant time [], whatever the key []."""
        return jnp.float32(self.seconds)


@struct.dataclass
class ExponentialTime(Times):
    """Exponentially distributed times: mean and standard deviation are equal."""

    mean: Positive = 1.0
    """Mean, above 0, in seconds."""

    def draw(self, key: Array) -> Array:
        """One time [] drawn with a key []."""
        return self.mean * jax.random.exponential(key, (), jnp.float32)


@struct.dataclass
class LogNormalTime(Times):
    """Log-normal times: the median times exp(N(0, sigma^2))."""

    median: Positive = 1.0
    """Median, above 0, in seconds."""
    sigma: Positive = 1.0
    """Standard deviation of the logarithm, above 0."""

    def draw(self, key: Array) -> Array:
        """One time [] drawn with a key []."""
        return self.median * jnp.exp(self.sigma * jax.random.normal(key, (), jnp.float32))


@struct.dataclass
class ParetoTime(Times):
    """Pareto (heavy-tailed) times: P(T > t) = (least / t)^shape for t >= least; the mean is infinite for shape <= 1."""

    least: Positive = 1.0
    """Shortest time, above 0, in seconds."""
    shape: Positive = 2.0
    """Tail exponent, above 0; smaller means heavier."""

    def draw(self, key: Array) -> Array:
        """One time [] drawn with a key []."""
        return self.least * jnp.exp(jax.random.exponential(key, (), jnp.float32) / self.shape)


@struct.dataclass
class Timed(Lasting):
    """A network whose nodes and messages take simulated time."""

    compute: Times  # of one gradient
    latency: Times  # of one message, whatever its size
    bandwidth: Array  # float32 [] bits per second per message
    slowness: Times | Array | None  # factor on a node's compute times, constant within a run; or all of them [m]
    first: bool = struct.field(pytree_node=False)
    bits: int | Sizes = struct.field(pytree_node=False, default=0)  # size of a message

    def in_run(self, key: Array, bits: int | Sizes) -> Self:
        """The network in a run, whose key determines which nodes are slow.

        Args:
            key ([]): Key of the run.
            bits: Size of one message of the run, in bits, or the `Sizes` of the nodes; divided by the bandwidth it
                gives a transmission time.
        """
        return replace(super().in_run(key, bits), bits=bits)

    def at(self, k: Array, key: Array) -> Graph:
        """The base's graph with the times of round k []."""
        graph = self.base.at(k, INNER.of(key))
        compute = jax.vmap(self.compute.draw)(_COMPUTE.keys(key, ids(self.m))) * self.slow()
        keys = link_keys(key, _LATENCY, graph, directed=True)
        bits = self.bits.table(graph.senders) if isinstance(self.bits, Sizes) else jnp.float32(self.bits)
        travel = jax.vmap(jax.vmap(self.latency.draw))(keys) + bits / self.bandwidth
        return replace(graph, timing=Timing(compute, travel, compute[graph.senders] + travel, self.first))

    def slow(self) -> Array:
        """The slowness factor of each node, the same in all rounds: [m]."""
        if self.slowness is None:
            return jnp.ones((self.m,), jnp.float32)
        if not isinstance(self.slowness, Times):
            return self.slowness[ids(self.m)]
        return jax.vmap(self.slowness.draw)(_SLOW.keys(self.lasting, ids(self.m)))


@checked
def timed(
    base: Network,
    compute: Times = ExponentialTime(),  # noqa: B008 (frozen)
    *,
    latency: Times = FixedTime(0.0),  # noqa: B008 (frozen)
    bandwidth: Annotated[float, Bound("(0, inf)")] | None = None,
    slowness: Times | Array | np.ndarray | Sequence[float] | None = None,
    first: bool = False,
) -> Timed:
    """Nodes and messages take simulated time, which the run adds up and records as `network_seconds`.

    The distributions are `FixedTime`, `ExponentialTime`, `LogNormalTime` and `ParetoTime`.

    Args:
        base: The network whose nodes and messages take time.
        compute: Seconds per gradient, redrawn in each round.
        latency: Seconds per message on top of its transmission time, redrawn in each round.
        bandwidth: Bits per second per message, above 0; None: transmission takes no time.
        slowness ([m]): Factor on each node's compute times, drawn once for all rounds from a distribution, or all
            factors themselves, above 0; None: all nodes are equal.
        first: A node that combines only some of its neighbours, as in CEPS and in `partial_communication` around this
            network, takes the first to respond instead of a random subset. It then requests all messages, and all
            responses count as sent.

    Raises:
        ValueError: For settings of the distributions and a bandwidth out of range; for a base that is synchronised.
    """
    slow = ""
    factors: Any = slowness
    if isinstance(slowness, Times):
        slow = f", slowness={type(slowness).__name__}"
    elif slowness is not None:
        checks.shape((base.m,), "Give one factor for every node.", slowness=slowness)
        checks.positive(slowness=slowness)
        slow, factors = ", slowness=own", jax.device_put(np.array(slowness, np.float32))
    for what, times in (("compute", compute), ("latency", latency), ("slowness", slowness)):
        if isinstance(times, Times):
            times.check(what)
    inside, name = around(base, f"timed({type(compute).__name__}{slow}{', first' if first else ''})")
    speed = jnp.float32(jnp.inf if bandwidth is None else bandwidth)
    return Timed(inside, compute, latency, speed, factors, first, name=name)


Seconds = tuple[Array, Array]  # floats, and the rounding error of each


def added(time: Seconds, more: Array) -> Seconds:
    """The sum of two times [...], with a rounding error that does not grow with the number of additions.

    A float32 that grows by 0.1 at a time is off by percents after some million additions. Here the rounding error of
    each sum (Knuth's TwoSum) is carried along in a second float. XLA preserves the order of floating-point additions.

    Args:
        time: Floats [...] and their rounding errors [...].
        more ([...]): What to add, in the same unit.

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
    """The latest of several times; `most` takes the maximum of floats, in a shape that broadcasts against them."""
    whole = most(time[0])
    return whole, most(jnp.where(time[0] == whole, time[1], -jnp.inf))


def advanced(graph: Graph, clock: Seconds, grads: Array, waits: Array) -> Seconds:
    """The times at which nodes finish a round, [m] twice, in the form of `added`.

    Args:
        graph: The graph of the round, with its timing.
        clock: When the nodes finished the previous round: seconds [m] and their rounding errors [m].
        grads: grads [m], number of gradients that each node evaluates.
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
