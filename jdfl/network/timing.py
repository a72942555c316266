"""Simulated time: distributions of times, how long nodes compute and messages travel, and which messages a node awaits.

    response of node j to node i  =  compute_j + latency_ij + bits / bandwidth

A node starts a round when it has finished the previous one. It finishes when it has computed and has received the
messages that it combines in this round (`advanced`). Nodes do not wait for lost messages or for nodes that are away;
there are no timeouts. In a synchronised round all nodes wait for all others, and for the slowest message on any link.
Compute times are those of one gradient; a node that evaluates several gradients takes that many times as long, and one
that evaluates none takes no time. Response times decide which neighbour responds first, as if all nodes had started
together.

Axes: m nodes, d slots of the table, K measured times of a node.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jdfl.base import checks, struct
from jdfl.base.arguments import checked, settings
from jdfl.base.names import NodeNames, names_in, order_of
from jdfl.base.settings import Bound, NotNegative, Positive
from jdfl.base.streams import Stream
from jdfl.devices import nodes
from jdfl.network.graph import Graph, Network, Timing, round_of
from jdfl.network.links import INNER, Lasting, Sizes, around, ids, link_keys, node_names, per_node
from jdfl.network.tables import called, kind_of

_COMPUTE = Stream("network.compute time", "network")
_LATENCY = Stream("network.latency", "network")
_SLOW = Stream("network.slowness", "network")


class Times(ABC):
    """A distribution of times, or of factors of times: a dataclass of settings that can be sampled."""

    @abstractmethod
    def draw(self, key: Array) -> Array:
        """One positive float32 number [] drawn with a key []."""

    def of_node(self, key: Array, node: Array, count: Array) -> Array:
        """The time [] number `count` [] of a node []: one that is drawn with a key [], unless it is known."""
        return self.draw(key)

    def of_link(self, key: Array, receiver: Array, sender: Array) -> Array:
        """The time [] of a message from sender [] to receiver []: one that is drawn with a key [], unless known."""
        return self.draw(key)

    def table(self, keys: Array, senders: Array) -> Array:
        """The times [m, d] of the messages in the slots of a table senders [m, d], which have the keys [m, d]."""
        return jax.vmap(jax.vmap(self.of_link, (0, None, 0)))(keys, ids(len(senders)), senders)

    def check(self, name: str) -> None:
        """Check the settings; `name` says what the times are. Raises ValueError for settings out of range."""
        settings(self, f"{name}.")


@struct.dataclass
class FixedTime(Times):
    """A constant time, in seconds."""

    seconds: NotNegative = 1.0
    """The time, from 0, in seconds."""

    def draw(self, key: Array) -> Array:
        return jnp.float32(self.seconds)


@struct.dataclass
class ExponentialTime(Times):
    """Exponentially distributed times: mean and standard deviation are equal."""

    mean: Positive = 1.0
    """Mean, above 0, in seconds."""

    def draw(self, key: Array) -> Array:
        return self.mean * jax.random.exponential(key, (), jnp.float32)


@struct.dataclass
class LogNormalTime(Times):
    """Log-normal times: the median times exp(N(0, sigma^2))."""

    median: Positive = 1.0
    """Median, above 0, in seconds."""
    sigma: Positive = 1.0
    """Standard deviation of the logarithm, above 0."""

    def draw(self, key: Array) -> Array:
        return self.median * jnp.exp(self.sigma * jax.random.normal(key, (), jnp.float32))


@struct.dataclass
class ParetoTime(Times):
    """Pareto (heavy-tailed) times: P(T > t) = (least / t)^shape for t >= least; the mean is infinite for shape <= 1."""

    least: Positive = 1.0
    """Shortest time, above 0, in seconds."""
    shape: Positive = 2.0
    """Tail exponent, above 0; smaller means heavier."""

    def draw(self, key: Array) -> Array:
        return self.least * jnp.exp(jax.random.exponential(key, (), jnp.float32) / self.shape)


@struct.dataclass
class TimeTrace(Times):
    """Times that were measured: those of node i's gradients, one after another. `time_trace` builds it."""

    seconds: Any = struct.field(per_node=True)  # [m, K], on the host: float32 would not have the decimals given
    names: NodeNames = struct.field(pytree_node=False, default=NodeNames())  # of the rows
    cycle: bool = struct.field(pytree_node=False, default=False)
    """Whether the first time follows the last one."""

    def draw(self, key: Array) -> Array:
        raise ValueError(
            "Expected times that can be drawn, got a TimeTrace, which has those of gradients only. Use it as compute, "
            "and with methods whose nodes compute one gradient after another."
        )

    def of_node(self, key: Array, node: Array, count: Array) -> Array:
        """The time [] number `count` [] of a node []; after the last one the first follows."""
        return jnp.asarray(self.seconds, jnp.float32)[node, count % self.seconds.shape[1]]

    def check(self, name: str) -> None:
        """Refuse it as anything but compute times, by the `name` of what the times are; raises ValueError."""
        if name != "compute":
            raise ValueError(f"Expected a distribution for {name}, got a TimeTrace, which is for compute. Use others.")


@struct.dataclass
class LinkTimes(Times):
    """Known times of messages, one for every link, such as `Topology.latency` has."""

    node: Any = struct.field(per_node=True)  # [m] int32, the numbers of nodes in `other`
    other: Any = struct.field(per_node=True)  # [m, d] int32, the nodes that each one receives from, increasing
    seconds: Any = struct.field(per_node=True)  # [m, d] the times of their messages
    names: NodeNames = struct.field(pytree_node=False, default=NodeNames())  # of the rows

    def draw(self, key: Array) -> Array:
        raise ValueError(
            "Expected times that do not depend on the link, got LinkTimes, which are for methods with rounds. "
            "Use another latency, such as FixedTime(float(times.seconds.max()))."
        )

    def of_link(self, key: Array, receiver: Array, sender: Array) -> Array:
        """The time [] of a message from sender [] to receiver []; 0 if they are one node, infinite if none is known."""
        row, wanted = jnp.asarray(self.other)[receiver], jnp.asarray(self.node)[sender]
        slot = jnp.minimum(jnp.searchsorted(row, wanted), row.shape[0] - 1)
        known = jnp.where(row[slot] == wanted, jnp.asarray(self.seconds, jnp.float32)[receiver, slot], jnp.inf)
        return jnp.where(receiver == sender, 0, known)

    def check(self, name: str) -> None:
        """Refuse it as anything but latency, by the `name` of what the times are; raises ValueError."""
        if name != "latency":
            raise ValueError(f"Expected a distribution for {name}, got LinkTimes, which is for latency. Use others.")

    def fitted(self, base: Network) -> Self:
        """The times in the order of a network's nodes; ValueError for other nodes, and links without a time."""
        if len(self.node) != base.m:
            raise ValueError(f"Expected a latency of the links of m = {base.m} nodes, got one of {len(self.node)}.")
        own, wanted = self.names.names, node_names(base)
        order = None if own is None or wanted is None else order_of(wanted, own, ("network", "latency"))
        found = self if order is None else struct.each_row(lambda x: x[order], self)
        graph = round_of(base, 0)
        times = np.asarray(found.table(link_keys(jax.random.key(0), _LATENCY, graph, directed=True), graph.senders))
        if (unknown := np.argwhere(np.asarray(graph.mask) & np.isinf(times))).size:
            i, j = (int(one) for one in unknown[0])
            raise ValueError(
                f"Expected a latency of every link, got none from node {int(graph.senders[i, j])} to node {i} and of "
                f"{len(unknown)} links in all. Use it with the network that it is of."
            )
        return found


@checked
def time_trace(
    seconds: Array | np.ndarray | Sequence[Sequence[float]] | Mapping[Any, Sequence[float]], *, cycle: bool = False
) -> TimeTrace:
    """Times of gradients that were measured, for `timed(compute=...)`.

    In round k a node takes time number k; in asynchronous methods its gradients take one after another.

    Args:
        seconds ([m, K]): The times of every node, above 0, in seconds, in the order of the nodes; a dict or a DataFrame
            has the names of nodes as keys or index, and the times in the order of its columns.
        cycle: Whether the first time follows the last one; otherwise a run that needs more is refused.

    Raises:
        ValueError: For times that are not positive and finite, and for another shape.
    """
    names = NodeNames(names_in("seconds", seconds))
    rows: Any = list(seconds.values()) if isinstance(seconds, Mapping) else seconds
    if np.ndim(rows) != 2 or 0 in np.shape(rows):
        raise ValueError(f"Expected seconds of the shape (m, K), got {np.shape(rows)}. Give a row for every node.")
    checks.positive(seconds=rows)
    return TimeTrace(floats(rows), names, cycle)


def floats(given: Any) -> np.ndarray:
    """A copy on the host that has the decimals that were given: float32 stays, all else is float64."""
    return np.array(given, np.float32 if getattr(given, "dtype", None) == np.float32 else np.float64)


@struct.dataclass
class Timed(Lasting):
    """A network whose nodes and messages take simulated time."""

    compute: Times  # of one gradient
    latency: Times  # of one message, whatever its size
    bandwidth: float  # bits per second per message
    slowness: Times | np.ndarray | None = struct.field(per_node=True)  # of compute times; or each node's factor [m]
    first: bool = struct.field(pytree_node=False)
    bits: int | Sizes = struct.field(pytree_node=False, default=0)  # size of a message

    def in_run(self, key: Array, bits: int | Sizes) -> Self:
        """The network in a run, whose key [] determines which nodes are slow, with the bits of a message."""
        return replace(super().in_run(key, bits), bits=bits)

    def at(self, k: Array, key: Array) -> Graph:
        graph = self.base.at(k, INNER.of(key))
        node = ids(self.m)
        compute = jax.vmap(self.compute.of_node, (0, 0, None))(_COMPUTE.keys(key, node), node, k) * self.slow()
        keys = link_keys(key, _LATENCY, graph, directed=True)
        bits = self.bits.table(graph.senders) if isinstance(self.bits, Sizes) else jnp.float32(self.bits)
        travel = self.latency.table(keys, graph.senders) + bits / self.bandwidth
        return replace(graph, timing=Timing(compute, travel, compute[graph.senders] + travel, self.first))

    def slow(self) -> Array:
        """The slowness factor of each node, the same in all rounds: [m]."""
        if self.slowness is None:
            return jnp.ones((self.m,), jnp.float32)
        if not isinstance(self.slowness, Times):
            return jnp.asarray(self.slowness, jnp.float32)[ids(self.m)]
        return jax.vmap(self.slowness.draw)(_SLOW.keys(self.lasting, ids(self.m)))


@checked
def timed(
    base: Network,
    compute: Times = ExponentialTime(),  # noqa: B008 (frozen)
    *,
    latency: Times = FixedTime(0.0),  # noqa: B008 (frozen)
    bandwidth: Annotated[float, Bound("(0, inf)")] | None = None,
    slowness: Times | Array | np.ndarray | Sequence[float] | Mapping[Any, float] | None = None,
    first: bool = False,
) -> Timed:
    """Nodes and messages take simulated time, which the run adds up and records as `network_seconds`.

    The distributions are `FixedTime`, `ExponentialTime`, `LogNormalTime` and `ParetoTime`; `time_trace` has measured
    times.

    Args:
        base: The network whose nodes and messages take time.
        compute: Seconds per gradient, redrawn in each round.
        latency: Seconds per message on top of its transmission time, redrawn in each round.
        bandwidth: Bits per second per message, above 0; None: transmission takes no time.
        slowness ([m]): Factor on each node's compute times, drawn once for all rounds from a distribution, or all
            factors themselves, above 0, in the order of the nodes or by their names; None: all nodes are equal.
        first: A node that combines only some of its neighbours, as in CEPS and in `partial_communication` around this
            network, takes the first to respond instead of a random subset. It then requests all messages, and all
            responses count as sent.

    Raises:
        ValueError: For settings of the distributions and a bandwidth out of range; for a trace of other nodes or that
            is not for `compute`; for a base that is synchronised or has times.
    """
    slow = ""
    slowness = per_node("slowness", slowness, base)
    factors: Any = slowness
    if isinstance(slowness, Times):
        slow = f", slowness={type(slowness).__name__}"
    elif slowness is not None:
        checks.shape((base.m,), "Give one factor for every node.", slowness=slowness)
        checks.positive(slowness=slowness)
        slow, factors = ", slowness=own", floats(slowness)
    for what, times in (("compute", compute), ("latency", latency), ("slowness", slowness)):
        if isinstance(times, Times):
            times.check(what)
    if isinstance(latency, LinkTimes):
        latency = latency.fitted(base)
    if isinstance(compute, TimeTrace) and len(compute.seconds) != base.m:
        raise ValueError(
            f"Expected a trace of m = {base.m} nodes, got {len(compute.seconds)}. Give one row for every node."
        )
    if isinstance(compute, TimeTrace) and compute.names.names is not None:
        order = order_of(node_names(base) or range(base.m), compute.names.names, ("network", "trace"))
        compute = compute if order is None else replace(compute, seconds=compute.seconds[order])
    inside, name = around(base, f"timed({type(compute).__name__}{slow}{', first' if first else ''})")
    if kind_of(base).timing is not None:
        raise ValueError(
            f"Expected a base without times, got base = {called(base)}, whose times would be replaced. Give all times "
            "to one timed(...), with compute, latency, bandwidth and slowness."
        )
    return Timed(inside, compute, latency, np.inf if bandwidth is None else 1.0 * bandwidth, factors, first, name=name)


def check_traces(network: Any, rounds: int) -> None:
    """Refuse a network whose traces have times for fewer rounds than a run has; ValueError."""
    while network is not None:
        trace = network.compute if isinstance(network, Timed) else None
        if isinstance(trace, TimeTrace) and not trace.cycle and trace.seconds.shape[1] < rounds:
            raise ValueError(
                f"Expected a trace with at least {rounds} times of every node for {rounds} rounds, got "
                f"{trace.seconds.shape[1]}. Give more, or cycle = True, which begins again."
            )
        network = getattr(network, "base", None)


Seconds = tuple[Array, Array]  # floats, and the rounding error of each


def added(time: Seconds, more: Array) -> Seconds:
    """The sum of two times [...], with a rounding error that does not grow with the number of additions."""
    # A float32 that grows by 0.1 at a time is off by percents after some million additions. The rounding error of each
    # sum (Knuth's TwoSum) is carried along in a second float. XLA preserves the order of floating-point additions.
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
    """The times [m] at which nodes finish a round, from those at which they finished the previous one.

    Nodes evaluate grads [m] gradients and wait for the messages in the slots waits [m, d].
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
