"""What happens when, and to which nodes: the events of a run by their times, decided before anything is computed.

Clocks and partners never depend on parameters, so that they are drawn on the host first. A time or a partner follows
from the key, the node and the number of its events so far: a longer run begins like a shorter one.

Axes: E events, C columns of rows, m nodes, d slots of the table of in-neighbours.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jdfl.base.streams import Stream
from jdfl.network import Graph, Timed, Times

_WAIT, _PARTNER = Stream("events.time between events", "network"), Stream("events.partner", "network")
_MOST = 2**31 - 1  # events that int32 counts
_AT_ONCE = 16  # times that are drawn for a node at a time


@dataclass(frozen=True)
class Events:
    """Events, sorted by time; of equal times by kind, actor and count, so that the order is total."""

    time: np.ndarray  # float64 [E] simulated seconds
    kind: np.ndarray  # int32 [E] place in the kinds of the method
    actor: np.ndarray  # int32 [E] the node whose event it is
    count: np.ndarray  # int32 [E] how many events of this kind the actor has had before
    rows: np.ndarray  # int32 [E, C] the row of every touch of the kind; -1: there is none

    def __len__(self) -> int:
        """The number of events."""
        return len(self.time)

    def __getitem__(self, some: Any) -> "Events":
        """The events of a slice, or of places [k]."""
        return Events(self.time[some], self.kind[some], self.actor[some], self.count[some], self.rows[some])

    def sorted(self) -> "Events":
        """The events in the order in which they happen."""
        return self[np.lexsort((self.count, self.actor, self.kind, self.time))]

    def until(self, second: float) -> int:
        """How many of them happen until a time, that time included."""
        return int(np.searchsorted(self.time, second, side="right"))


def wakes(times: Times, slow: np.ndarray, key: Array, seconds: float) -> Events:
    """The times at which nodes finish one thing after another, until a time; without rows.

    Args:
        times: How long one thing takes.
        slow: The factor of every node, slow [m].
        key: The key [] of the run's network.
        seconds: The last time, included.

    Raises:
        ValueError: For times that are not positive and finite, and for more events than int32 counts.
    """
    stream, m = _WAIT.of(key), len(slow)
    parts, last, going, count = list[tuple[np.ndarray, ...]](), np.zeros(m), np.arange(m, dtype=np.int32), 0
    while len(going):
        waits = np.asarray(_waits(times, stream, _padded(going), count), np.float64)[: len(going)] * slow[going, None]
        if not (np.isfinite(waits).all() and (waits > 0).all()):
            bad = waits[~(np.isfinite(waits) & (waits > 0))][0]
            raise ValueError(
                f"Expected times above 0 and finite, got {bad:g} from {times!r}. Use another distribution."
            )
        ends = last[going, None] + np.cumsum(waits, axis=1)
        node, turn = np.nonzero(ends <= seconds)
        parts.append((ends[node, turn], going[node], (count + turn).astype(np.int32)))
        if sum(len(one[0]) for one in parts) > _MOST:
            raise ValueError(f"Expected at most {_MOST:,} events, got more until {seconds:g} s. Use fewer seconds.")
        last[going] = ends[:, -1]
        going, count = going[ends[:, -1] <= seconds], count + _AT_ONCE
    time, actor, turn = (np.concatenate(columns) for columns in zip(*parts))
    nothing = np.zeros((len(time), 0), np.int32)
    return Events(time, np.zeros(len(time), np.int32), actor.astype(np.int32), turn, nothing).sorted()


def partners(graph: Graph, events: Events, key: Array) -> np.ndarray:
    """One in-neighbour of every event's actor [E] int32, uniformly at random; -1 for actors without any."""
    senders, mask = np.asarray(graph.senders), np.asarray(graph.mask)
    order = np.argsort(~mask, axis=1, kind="stable")  # slots with a neighbour first
    neighbour, degree = np.take_along_axis(senders, order, axis=1), mask.sum(axis=1)
    share = np.concatenate([np.zeros(0, np.float32), *_shares(_PARTNER.of(key), events.actor, events.count)])
    slot = np.minimum((share * degree[events.actor]).astype(np.int32), np.maximum(degree[events.actor] - 1, 0))
    return np.where(degree[events.actor] > 0, neighbour[events.actor, slot], -1).astype(np.int32)


def meetings(graph: Graph, clock: Timed, key: Array, seconds: float, columns: int) -> Events:
    """Events of nodes that wake with their clocks and meet a random in-neighbour, whose row is in the last column."""
    found = wakes(clock.compute, np.asarray(clock.slow()), key, seconds)
    rows = np.repeat(found.actor[:, None], columns, axis=1)
    rows[:, -1] = partners(graph, found, key)
    return Events(found.time, found.kind, found.actor, found.count, rows)


def _padded(nodes: np.ndarray) -> np.ndarray:
    """The nodes, repeated up to a power of two, so that few programs serve all numbers."""
    return np.resize(nodes, 1 << max(6, (len(nodes) - 1).bit_length()))


@jax.jit
def _waits(times: Times, key: Array, node: Array, first: Array) -> Array:
    """Times [k, `_AT_ONCE`] of nodes [k], from the one with the number `first` [] on."""

    def of(node: Array, count: Array) -> Array:
        return times.draw(jax.random.fold_in(jax.random.fold_in(key, node), count))

    counts = first + jnp.arange(_AT_ONCE, dtype=jnp.int32)
    return jax.vmap(jax.vmap(of, (None, 0)), (0, None))(node, counts)


def _shares(key: Array, actor: np.ndarray, count: np.ndarray, block: int = 2**16) -> Iterator[np.ndarray]:
    for start in range(0, len(actor), block):
        some = slice(start, start + block)
        yield np.asarray(_share(key, _padded(actor[some]), _padded(count[some])))[: len(actor[some])]


@jax.jit
def _share(key: Array, actor: Array, count: Array) -> Array:
    """Numbers [k] in [0, 1), one for every actor [k] and count [k]."""

    def of(actor: Array, count: Array) -> Array:
        return jax.random.uniform(jax.random.fold_in(jax.random.fold_in(key, actor), count))

    return jax.vmap(of)(actor, count)
