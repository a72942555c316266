"""What happens when, and to which nodes: the events of a run, and the rows of tables that they read and write.

Clocks, partners and paths never depend on parameters, so that they are decided on the host before a run computes. A
time or a partner follows from the key, the node and the number of its events so far: a longer run begins like a shorter
one.

Axes: E events, C columns of rows, m nodes, d slots of the table of in-neighbours.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any, Literal, NamedTuple

import numpy as np
from jax import Array

from jdfl.base.streams import Stream
from jdfl.devices import memory
from jdfl.events import times
from jdfl.events.faults import Absences, absences, links, lost
from jdfl.events.times import sample_times, shares
from jdfl.network import Graph, Timed, Times, TimeTrace

_PARTNER = Stream("events.partner", "network")
_WAIT = Stream("events.time between events", "network")
_TRAVEL = Stream("events.time of a message", "network")
MOST = 2**31 - 1  # events that int32 counts
BYTES = 57  # of an event that meets a neighbour, while events are drawn; of others their methods say it
_AT_ONCE = 16  # times that are drawn for a node at a time
_NODES = 2**14  # nodes that are drawn for at a time, so that what is drawn stays in the caches
_BLOCK = 2**17  # events that are checked at a time
NOTHING = ""  # the table of a column whose rows are nodes that take part without a row of theirs
_COLUMNS = ("time", "kind", "actor", "count", "rows", "data")


class Touch(NamedTuple):
    """A row of a table that an event reads, writes, or both."""

    table: str
    mode: Literal["r", "w", "rw"]
    own: bool = False
    """Whether the row is the actor's own, which no other node ever sees, and every event that touches it writes the
    actor's row of another table: it orders nothing. Rows of all other touches count as sent."""
    many: bool = False
    """Whether it is one row for every in-neighbour of the actor, in the order of the table of in-neighbours; such a
    touch is the last of its kind, and read only."""


class Kind(NamedTuple):
    """A kind of event: its name, and what it touches, column by column of the rows."""

    name: str
    touches: tuple[Touch, ...]
    costly: bool = True
    """Whether it takes long, as gradients do. Where kinds differ in this, as many costly events as can be run at once,
    and the others between them."""

    @property
    def single(self) -> int:
        """The number of columns before those of the in-neighbours."""
        return sum(not touch.many for touch in self.touches)


def by_column(kind: Kind, columns: int) -> list[Touch]:
    """The touch of every column of a kind; one of in-neighbours has all columns from its own on."""
    last = kind.touches[-1]
    return [*kind.touches, *[last] * (columns - len(kind.touches) if last.many else 0)]


@dataclass(frozen=True)
class Events:
    """Events, sorted by time; of equal times by kind, actor and count, so that the order is total."""

    time: np.ndarray  # float64 [E] simulated seconds
    kind: np.ndarray  # int32 [E] place in the kinds of the method
    actor: np.ndarray  # int32 [E] the node whose event it is
    count: np.ndarray  # int32 [E] how many events of this kind the actor has had before
    rows: np.ndarray  # int32 [E, C] the row of every touch of the kind; -1: none; -2 - r: row r, but it is lost
    data: np.ndarray  # int32 [E] a number for the handler, such as the age of what it applies
    sizes: Mapping[str, int] = field(default_factory=dict)  # the number of rows of tables of messages

    def __len__(self) -> int:
        """The number of events."""
        return len(self.time)

    def __getitem__(self, some: Any) -> "Events":
        """The events of a slice, or of places [k]."""
        return replace(self, **{name: getattr(self, name)[some] for name in _COLUMNS})

    def blocks(self, size: int) -> Iterator[tuple[int, "Events"]]:
        """The events in blocks of at most `size`, with the place of the first: what is made of one stays small."""
        return ((start, self[start : start + size]) for start in range(0, len(self), size))

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
    kinds, numbers = (np.broadcast_to(np.asarray(one, whole), (size,)) for one in (kind, data))
    order = order_of(time, kinds, actor, count)
    touched = np.zeros((size, 0), whole) if rows is None else rows[order].astype(whole, copy=False)
    kinds, numbers = (one if np.ndim(given) == 0 else one[order] for one, given in ((kinds, kind), (numbers, data)))
    by_node = actor[order].astype(whole, copy=False), count[order].astype(whole, copy=False)
    return Events(time[order], kinds, *by_node, touched, numbers, sizes or {})


def order_of(time: np.ndarray, kind: np.ndarray, actor: np.ndarray, count: np.ndarray) -> np.ndarray:
    """The places [E] of events in the order in which they happen."""
    order = np.argsort(time, kind="stable")
    same = np.diff(time[order]) == 0
    tied = np.flatnonzero(np.append(same, False) | np.append(False, same))
    some = order[tied]  # few of them, where clocks are random: sorting all by four columns takes three times as long
    order[tied] = some[np.lexsort((count[some], actor[some], kind[some], time[some]))]
    return order


def with_returns(events: Events, away: Absences, seconds: float, *, kind: int) -> Events:
    """The events, with one of a kind for every node that was away and returns, whose touches are all of its own row."""
    time, node = away.returns
    time, node = time[time <= seconds], node[time <= seconds]
    turns = (events.time, time), (events.actor, node), (events.count, numbered(node))
    both: Any = (np.concatenate(one) for one in turns)
    rows = np.concatenate([events.rows, np.repeat(node[:, None], events.rows.shape[1], axis=1)])
    kinds = np.concatenate([events.kind, np.full(len(node), kind)])
    return in_order(*both, kind=kinds, rows=rows, data=np.concatenate([events.data, 0 * node]), sizes=events.sizes)


def numbered(node: np.ndarray) -> np.ndarray:
    """How often every node [E] was there before."""
    order = np.argsort(node, kind="stable")
    first = np.flatnonzero(np.diff(node[order], prepend=-1))
    count = np.empty(len(node), np.int64)
    count[order] = np.arange(len(node)) - np.repeat(first, np.diff(first, append=len(node)))
    return count


def sent_in(network: Timed) -> np.ndarray:
    """The seconds [m] that a message of every node takes for its bits."""
    bits = network.bits
    sizes = np.full(network.m, bits) if isinstance(bits, int) else np.asarray(bits.bits)
    return sizes / float(network.bandwidth)


def wakes(
    network: Timed, key: Array, seconds: float, *, gradients: int = 1, messages: bool = True, each: int = BYTES
) -> Events:
    """The times at which nodes finish one thing after another, until a time; the events touch nothing yet.

    Args:
        network: The network in a run, with the times of a gradient and of a message.
        key: The key [] of the run's network.
        seconds: The last time, included.
        gradients: How many gradients a node computes each time, one after another.
        messages: Whether it also waits for a message each time.
        each: Bytes of memory that a method needs for every time while it makes its events of them.

    Raises:
        ValueError: For times that are not positive and finite, for a trace that is too short, and for more events than
            int32 counts or memory holds; the last as soon as the first events say how many there will be.
    """
    room = memory.host()
    m, slow = network.m, gradients * np.asarray(network.slow(), np.float64)
    fixed = sent_in(network) if messages else np.zeros(m)
    away, known = absences(network, seconds), times.known(network, seconds, gradients=gradients, messages=messages)
    if isinstance(network.compute, TimeTrace) and not network.compute.cycle:
        _check_trace(network.compute, slow, seconds, away, known)
    last, end = np.zeros(m) if away is None else away.first, seconds
    if known is not None:
        last, end = times.units(last, known.unit, known.compute.dtype), known.last
    going, had, drawn_before = np.flatnonzero(last <= end).astype(np.int32), np.zeros(m, np.int32), 0
    parts = [tuple(np.zeros(0, kind) for kind in (np.float64, np.int32, np.int32))]
    while len(going):
        for start in range(0, len(going), _NODES):
            some = going[start : start + _NODES]
            counts = np.full(len(some), drawn_before, np.int32)
            if known is not None:
                waits = known.waits(some, drawn_before, _AT_ONCE)
            else:
                waits = sample_times(network.compute, _WAIT.of(key), some, counts, _AT_ONCE) * slow[some, None]
                if messages:
                    waits += sample_times(network.latency, _TRAVEL.of(key), some, counts, _AT_ONCE) + fixed[some, None]
            check_times(waits, network.compute)
            if away is None:
                ends = last[some, None] + np.cumsum(waits, axis=1)
                last[some] = ends[:, -1]
            else:
                ends, last[some] = away.ends(some, last[some], waits, 1 if known is None else known.unit)
            done = ends <= end
            node, _ = np.nonzero(done)
            turn = (had[some, None] + np.cumsum(done, axis=1, dtype=np.int32))[done] - 1
            parts.append((ends[done] if known is None else known.seconds(ends[done]), some[node], turn))
            had[some] += done.sum(axis=1, dtype=np.int32)
        going, drawn_before = going[last[going] <= end], drawn_before + _AT_ONCE
        check_number(had.sum() + still_to_come(drawn_before, last[going], end), seconds, room, each)
    return in_order(*(np.concatenate(columns) for columns in zip(*parts)))


def _check_trace(
    trace: TimeTrace, slow: np.ndarray, seconds: float, away: Absences | None, known: times.Exact | None
) -> None:
    """Refuse a trace [m, K] that ends before the last second, with factors slow [m], or whose nodes lose gradients."""
    whole = np.asarray(trace.seconds, np.float64).sum(axis=1) * slow
    least = whole.min() <= seconds if known is None else known.compute.sum(axis=1).min() <= known.last
    if away is not None or least:
        least = f"node {int(whole.argmin())} has {whole.min():g} s" if away is None else "nodes that are away"
        raise ValueError(
            f"Expected a trace of more than {seconds:g} s of every node, got {least}. Give more times, or "
            "cycle = True, which begins again."
        )


def check_times(waits: np.ndarray, times: Times) -> None:
    """Raise ValueError for waits [k, t] of k nodes below zero or not finite, and for nodes that never wait."""
    # A single wait may be zero: a float32 from an exponential distribution is, once in eight million times.
    bad = waits[~((waits >= 0) & (waits < np.inf))]
    if bad.size or (waits.sum(axis=1) <= 0).any():
        found = bad[0] if bad.size else 0.0
        raise ValueError(f"Expected times above 0 and finite, got {found:g} from {times!r}. Use another distribution.")


def check_number(events: float, seconds: float, room: int | None, each: int) -> None:
    """Raise ValueError for more events than int32 counts, or than the memory of the host has room for."""
    if events > MOST:
        raise ValueError(f"Expected at most {MOST:,} events, got {events:.3g} until {seconds:g} s. Use fewer seconds.")
    if room is not None and events * each > room:
        raise ValueError(
            f"Expected at most {room // each:,} events, for which the host has memory ({each} bytes for each while "
            f"they are drawn), got {events:.3g} until {seconds:g} s. Use fewer seconds, and go on from there."
        )


def still_to_come(drawn_before: int, last: np.ndarray, seconds: float) -> float:
    """About how many events are still to come of nodes that go on at the same rate."""
    return float(np.sum(drawn_before * (seconds / np.maximum(last, 1e-30) - 1)))


def arrivals(network: Timed, key: Array, events: Events) -> np.ndarray:
    """The times [E] at which messages arrive that nodes send in events."""
    known = times.known(network, float(np.ceil(events.time.max(initial=0))))
    if known is not None:
        return known.arrivals(events.time, events.actor)
    return events.time + travels(network, key, events.actor, events.count)


def travels(network: Timed, key: Array, sender: np.ndarray, count: np.ndarray) -> np.ndarray:
    """The seconds [E] that messages take that nodes send in their events."""
    taken = sample_times(network.latency, _TRAVEL.of(key), sender, count)[:, 0] + sent_in(network)[sender]
    if not (np.isfinite(taken).all() and (taken >= 0).all()):
        raise ValueError(f"Expected times from 0 and finite, got {network.latency!r}. Use another distribution.")
    return taken


def partners(
    network: Timed, neighbours: tuple[np.ndarray, np.ndarray], events: Events, key: Array, away: Absences | None
) -> np.ndarray:
    """One of the neighbours of every event's actor [E] int32, uniformly at random.

    It is -1 for actors without any and where the neighbour is away, and -2 - j where neighbour j is there but the
    messages between both are lost.
    """
    table, mask = neighbours
    neighbour, degree = table, mask.sum(axis=1, dtype=np.int32)
    if not mask.all():  # slots with a neighbour first
        neighbour = np.take_along_axis(table, np.argsort(~mask, axis=1, kind="stable"), axis=1)
    share, own = shares(_PARTNER.of(key), events.actor, events.count), degree[events.actor]
    slot = np.minimum((share * own).astype(np.int32), np.maximum(own - 1, 0))
    found, there = neighbour[events.actor, slot], own > 0
    if away is not None:
        there &= ~away.at(found, events.time)
    found = np.where(lost(network, key, events.actor, events.count), -2 - found, found)
    return np.where(there, found, -1).astype(np.int32)


def hears(graph: Graph) -> tuple[np.ndarray, np.ndarray]:
    """The table of in-neighbours [m, d] int32 on the host, and its mask [m, d]."""
    return np.asarray(graph.senders), np.asarray(graph.mask)


def heard_by(graph: Graph) -> tuple[np.ndarray, np.ndarray]:
    """The table of out-neighbours [m, d'] int32 on the host, and its mask [m, d']."""
    senders, mask = hears(graph)
    receiver, slot = np.nonzero(mask)
    sender = senders[receiver, slot]
    order = np.argsort(sender, kind="stable")
    sender, receiver = sender[order], receiver[order]
    number = np.bincount(sender, minlength=graph.m)
    place = np.arange(len(sender)) - np.repeat(np.cumsum(number) - number, number)
    table = np.zeros((graph.m, max(1, int(number.max(initial=0)))), np.int32)
    table[sender, place] = receiver
    return table, np.arange(table.shape[1]) < number[:, None]


def meetings(network: Timed, key: Array, seconds: float, *, columns: int, gradients: int = 1) -> Events:
    """Events of nodes that wake with their clocks and meet a random in-neighbour.

    The last of the `columns`, at least 2, has the row of the neighbour, as `partners` has it, and the others that of
    the node; `network`, `key`, `seconds` and `gradients` are as for `wakes`.
    """
    found = wakes(network, key, seconds, gradients=gradients)
    rows = np.repeat(found.actor[:, None], columns, axis=1)
    rows[:, -1] = partners(network, hears(links(network)), found, key, absences(network, seconds))
    return replace(found, rows=rows)


def check_rows(events: Events, kinds: Sequence[Kind]) -> None:
    """Raise ValueError for `own` rows that are not the actor's, and for rows that an event writes and touches twice."""
    for (_, some), (number, kind) in product(events.blocks(_BLOCK), enumerate(kinds)):
        here = some.kind == number
        rows, actor = some.rows[here], some.actor[here]
        for c, touch in enumerate(kind.touches):
            if touch.own and (bad := rows[:, c] != actor).any():
                raise ValueError(
                    f"Expected the actor's own row of the table {touch.table!r} in every event {kind.name!r}, got row "
                    f"{rows[bad, c][0]} of node {actor[bad][0]}. Leave out own=True."
                )
            for other, before in enumerate(kind.touches[:c]):
                written = touch.table == before.table != NOTHING and "w" in touch.mode + before.mode
                if written and not touch.many and ((rows[:, c] == rows[:, other]) & (rows[:, c] >= 0)).any():
                    raise ValueError(
                        f"Expected different rows of the table {touch.table!r} in an event {kind.name!r}, got one "
                        "twice. A node cannot be its own partner."
                    )
