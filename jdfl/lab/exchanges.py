"""Where the events of an asynchronous method happen, and which of them use what another node has sent.

Both follow from the tables that events touch, whatever the method is.

Axes: E events, C columns of rows, L exchanges.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from jdfl.events import AsyncMethod, Events
from jdfl.events.touches import NOTHING, by_column


class Exchanges(NamedTuple):
    """What nodes send each other: from the event that sends to the one that uses it, or within one event."""

    start: np.ndarray  # int64 [L] the place of the event that sends
    giver: np.ndarray  # int64 [L] the node that sends
    end: np.ndarray  # int64 [L] the place of the event that uses it; that of `start` for the two nodes of one event
    taker: np.ndarray  # int64 [L] the node that receives


def places_of(method: AsyncMethod, events: Events) -> np.ndarray:
    """The node [E] int64 at which every event happens: its actor, or the receiver where it only takes a message."""
    node = events.actor.astype(np.int64)
    for number, kind in enumerate(method.kinds):
        message = [touch.table in method.message_tables for touch in kind.touches]
        writes = ["w" in touch.mode for touch in kind.touches]
        if any(message) and any(writes) and not any(np.logical_and(message, writes)):
            here = events.kind == number
            node[here] = events.rows[here, writes.index(True)]
    return node


def exchanges(method: AsyncMethod, events: Events, node: np.ndarray, own: np.ndarray) -> Exchanges:
    """What some events do together with a partner, or are the first at their node to use of another node's event."""
    found = [*_meetings(method, events, node, own), *_handed(method, events, node, own)]
    none = np.zeros(0, np.int64)
    return Exchanges(*(np.concatenate([none, *(one[i] for one in found)]) for i in range(4)))


def _meetings(method: AsyncMethod, events: Events, node: np.ndarray, own: np.ndarray) -> Iterator[Exchanges]:
    """Of events that touch the rows of two nodes in one table."""
    for number, kind in enumerate(method.kinds):
        here = own[events.kind[own] == number]
        for c, touch in enumerate(kind.touches):
            nodes = touch.table not in (NOTHING, *method.message_tables) and not touch.many
            if nodes and any(touch.table == other.table for other in kind.touches[:c]):
                place = here[events.rows[here, c] >= 0]
                yield Exchanges(place, node[place], place, events.rows[place, c].astype(np.int64))


def _handed(method: AsyncMethod, events: Events, node: np.ndarray, own: np.ndarray) -> Iterator[Exchanges]:
    """Of events that read what another node has written last: messages, rows of in-neighbours, or a row passed on."""
    walking = {kind.touches[0].table for kind in method.kinds if any(one.table == NOTHING for one in kind.touches)}
    many = {touch.table for kind in method.kinds for touch in kind.touches if touch.many}
    far = np.int64(len(events) + 1)
    for table in sorted({*method.message_tables, *walking, *many}):
        writes = np.sort(_touched(method, events, table, "w", np.arange(len(events))))  # by row, then by place
        reads = _touched(method, events, table, "r", own)
        before = np.searchsorted(writes, reads) - 1
        reads, before = reads[before >= 0], before[before >= 0]
        same = writes[before] // far == reads // far
        start, end = writes[before[same]] % far, reads[same] % far
        order = np.lexsort((end, node[end], start))
        start, end = start[order], end[order]
        taker = node[end]
        new = (np.diff(start, prepend=-1) != 0) | (np.diff(taker, prepend=-1) != 0)  # the first use at every node
        new &= node[start] != taker
        yield Exchanges(start[new], node[start[new]], end[new], taker[new])


def _touched(method: AsyncMethod, events: Events, table: str, mode: str, places: np.ndarray) -> np.ndarray:
    """The rows of a table that events at some places write or read: row times (E + 1), plus the place [k]."""
    found = [np.zeros(0, np.int64)]
    for number, kind in enumerate(method.kinds):
        here = places[events.kind[places] == number]
        for c, touch in enumerate(by_column(kind, events.rows.shape[1])):
            if touch.table == table and mode in touch.mode:
                there = here[events.rows[here, c] >= 0]
                found.append(events.rows[there, c] * np.int64(len(events) + 1) + there)
    return np.concatenate(found)
