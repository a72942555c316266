"""What happens when, and to which nodes: the events of a run by their times, decided before anything is computed.

Clocks, partners and paths never depend on parameters, so that they are drawn on the host first. A time or a partner
follows from the key, the node and the number of its events so far: a longer run begins like a shorter one.

Axes: E events, C columns of rows, m nodes, d slots of the table of in-neighbours.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jdfl.base.streams import Stream
from jdfl.network import FixedTime, Timed, Times

_WAIT = Stream("events.time between events", "network")
_TRAVEL = Stream("events.time of a message", "network")
MOST = 2**31 - 1  # events that int32 counts
_AT_ONCE = 16  # times that are drawn for a node at a time
_COLUMNS = ("time", "kind", "actor", "count", "rows", "data")


@dataclass(frozen=True)
class Events:
    """Events, sorted by time; of equal times by kind, actor and count, so that the order is total."""

    time: np.ndarray  # float64 [E] simulated seconds
    kind: np.ndarray  # int32 [E] place in the kinds of the method
    actor: np.ndarray  # int32 [E] the node whose event it is
    count: np.ndarray  # int32 [E] how many events of this kind the actor has had before
    rows: np.ndarray  # int32 [E, C] the row of every touch of the kind; -1: there is none
    data: np.ndarray  # int32 [E] a number for the handler, such as the age of what it applies
    sizes: Mapping[str, int] = field(default_factory=dict)  # the number of rows of tables of messages

    def __len__(self) -> int:
        """The number of events."""
        return len(self.time)

    def __getitem__(self, some: Any) -> "Events":
        """The events of a slice, or of places [k]."""
        return replace(self, **{name: getattr(self, name)[some] for name in _COLUMNS})

    def until(self, second: float) -> int:
        """How many of them happen until a time in seconds, `second` included."""
        return int(np.searchsorted(self.time, second, side="right"))


def in_order(
    time: np.ndarray,
    actor: np.ndarray,
    count: np.ndarray,
    *,
    kind: np.ndarray | int = 0,
    rows: np.ndarray | None = None,
    data: np.ndarray | int = 0,
    sizes: Mapping[str, int] | None = None,
) -> Events:
    """Events in the order in which they happen.

    Args:
        time: When they happen, in seconds, time [E].
        actor: The nodes whose events they are, actor [E].
        count: How many events of its kind the actor has had before, count [E].
        kind: The place of their kinds among the method's, kind [E] or [].
        rows: The rows that they touch, rows [E, C], -1 where there is none; None: they touch none.
        data: Numbers for the handler, data [E] or [].
        sizes: The number of rows of tables of messages.
    """
    size, whole = len(time), np.int32
    rows = np.zeros((size, 0), whole) if rows is None else rows
    given = Events(
        time,
        np.broadcast_to(np.asarray(kind, whole), (size,)),
        actor.astype(whole),
        count.astype(whole),
        rows.astype(whole),
        np.broadcast_to(np.asarray(data, whole), (size,)),
        sizes or {},
    )
    return given[order_of(given.time, given.kind, given.actor, given.count)]


def order_of(time: np.ndarray, kind: np.ndarray, actor: np.ndarray, count: np.ndarray) -> np.ndarray:
    """The places [E] of events in the order in which they happen."""
    order = np.argsort(time)
    same = np.diff(time[order]) == 0
    tied = np.flatnonzero(np.append(same, False) | np.append(False, same))
    some = order[tied]  # few of them, where clocks are random: sorting all by four columns takes three times as long
    order[tied] = some[np.lexsort((count[some], actor[some], kind[some], time[some]))]
    return order


def sent_in(network: Timed) -> np.ndarray:
    """The seconds [m] that a message of every node takes for its bits."""
    bits = network.bits
    sizes = np.full(network.m, bits) if isinstance(bits, int) else np.asarray(bits.bits)
    return sizes / float(network.bandwidth)


def wakes(network: Timed, key: Array, seconds: float, *, gradients: int = 1, messages: bool = True) -> Events:
    """The times at which nodes finish one thing after another, until a time; the events touch nothing yet.

    Args:
        network: The network in a run, with the times of a gradient and of a message.
        key: The key [] of the run's network.
        seconds: The last time, included.
        gradients: How many gradients a node computes each time, one after another.
        messages: Whether it also waits for a message each time.

    Raises:
        ValueError: For times that are not positive and finite, and for more events than int32 counts.
    """
    m, slow = network.m, gradients * np.asarray(network.slow(), np.float64)
    fixed = sent_in(network) if messages else np.zeros(m)
    parts, last, going, first = list[tuple[np.ndarray, ...]](), np.zeros(m), np.arange(m, dtype=np.int32), 0
    while len(going):
        counts = np.full(len(going), first, np.int32)
        waits = drawn(network.compute, _WAIT.of(key), going, counts, _AT_ONCE) * slow[going, None]
        if messages:
            waits = waits + drawn(network.latency, _TRAVEL.of(key), going, counts, _AT_ONCE) + fixed[going, None]
        check_times(waits, network.compute)
        ends = last[going, None] + np.cumsum(waits, axis=1)
        node, turn = np.nonzero(ends <= seconds)
        parts.append((ends[node, turn], going[node], first + turn))
        check_number(sum(len(one[0]) for one in parts), seconds)
        last[going] = ends[:, -1]
        going, first = going[ends[:, -1] <= seconds], first + _AT_ONCE
    return in_order(*(np.concatenate(columns) for columns in zip(*parts)))


def check_times(waits: np.ndarray, times: Times) -> None:
    """Raise ValueError for waits [k, t] of k nodes below zero or not finite, and for nodes that never wait.

    A single wait may be zero: a float32 that is drawn from an exponential distribution is, once in eight million times.
    """
    bad = waits[~(np.isfinite(waits) & (waits >= 0))]
    if bad.size or (waits.sum(axis=1) <= 0).any():
        found = bad[0] if bad.size else 0.0
        raise ValueError(f"Expected times above 0 and finite, got {found:g} from {times!r}. Use another distribution.")


def check_number(events: int, seconds: float) -> None:
    """Raise ValueError for more events than int32 counts."""
    if events > MOST:
        raise ValueError(f"Expected at most {MOST:,} events, got more until {seconds:g} s. Use fewer seconds.")


def travels(network: Timed, key: Array, sender: np.ndarray, count: np.ndarray) -> np.ndarray:
    """The seconds [E] that messages take that nodes send in their events.

    Args:
        network: The network in a run.
        key: The key [] of the run's network.
        sender: The nodes, sender [E].
        count: The numbers of their events, count [E].

    Raises:
        ValueError: For times below zero or not finite.
    """
    taken = drawn(network.latency, _TRAVEL.of(key), sender, count)[:, 0] + sent_in(network)[sender]
    if not (np.isfinite(taken).all() and (taken >= 0).all()):
        raise ValueError(f"Expected times from 0 and finite, got {network.latency!r}. Use another distribution.")
    return taken


def drawn(times: Times, key: Array, node: np.ndarray, count: np.ndarray, size: int = 1) -> np.ndarray:
    """Times [k, size] float64 of nodes [k]: those with the numbers count [k], count + 1, ..."""
    if isinstance(times, FixedTime):
        return np.full((len(node), size), np.float32(times.seconds), np.float64)
    parts = _in_blocks(partial(_drawn, times, key, size=size), node, count)
    return np.concatenate([np.zeros((0, size)), *parts]).astype(np.float64)


def shares(key: Array, node: np.ndarray, count: np.ndarray) -> np.ndarray:
    """Numbers [k] in [0, 1), one for every node [k] and count [k]."""
    return np.concatenate([np.zeros(0, np.float32), *_in_blocks(partial(_share, key), node, count)])


def _in_blocks(
    draw: Callable[[Array, Array], Array], node: np.ndarray, count: np.ndarray, block: int = 2**16
) -> Iterator[np.ndarray]:
    """Draws for nodes [k] and counts [k] in blocks whose sizes are powers of two, so that few programs serve all."""
    for start in range(0, len(node), block):
        some = node[start : start + block], count[start : start + block]
        size = 1 << max(6, (len(some[0]) - 1).bit_length())
        yield np.asarray(draw(*(jax.device_put(np.resize(one, size).astype(np.int32)) for one in some)))[: len(some[0])]


@partial(jax.jit, static_argnames=("size",))
def _drawn(times: Times, key: Array, node: Array, count: Array, *, size: int) -> Array:
    def of(node: Array, count: Array) -> Array:
        return times.draw(jax.random.fold_in(jax.random.fold_in(key, node), count))

    counts = count[:, None] + jnp.arange(size, dtype=jnp.int32)[None]
    return jax.vmap(jax.vmap(of, (None, 0)))(node, counts)


@jax.jit
def _share(key: Array, node: Array, count: Array) -> Array:
    def of(node: Array, count: Array) -> Array:
        return jax.random.uniform(jax.random.fold_in(jax.random.fold_in(key, node), count), (), jnp.float32)

    return jax.vmap(of)(node, count)
