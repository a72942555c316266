"""When events may run: levels, waves of events of one level, and the pieces of equal width that are executed.

An event declares the rows that it reads and writes. Its level is one more than the largest level of the earlier events
with which it conflicts: one of both writes a row that the other touches. Events of one level touch different rows, or
only read the same, so that executing a level at once gives what one after another gives.

Axes: E events, C columns of rows, P pieces.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise, repeat

import numpy as np

from jdfl.events.timeline import NOTHING, Events, Kind, by_column

WIDTHS = (8, 64, 512, 4096, 16384)  # of pieces; narrower ones are slower than 8: XLA copies whole tables for one row
_BLOCK = 10**6  # events that are lists of Python numbers at a time
_FEWEST = 1024  # rows without long chains among as many events
_LEAST = 1024  # events that are worth a call of NumPy
_DEEPEST = 64  # of chains of events of a block; longer ones are quicker one after another


@dataclass(frozen=True)
class Plan:
    """Events in the order of their execution, and the pieces that execute them."""

    order: np.ndarray  # int64 [E] places among the events
    level: np.ndarray  # int32 [E] level of every event, in the order of time, from 1
    start: np.ndarray  # int32 [P] the first event of a piece, in the order of execution
    size: np.ndarray  # int32 [P] its events
    kind: np.ndarray  # int32 [P] their kind
    width: np.ndarray  # int32 [P] at least as many

    @property
    def waves(self) -> int:
        """The number of levels."""
        return int(self.level.max(initial=0))

    def runs(self) -> list[tuple[int, int, int, int]]:
        """Pieces of one kind and width that follow one another: (kind, width, first piece, after the last)."""
        new = np.flatnonzero((np.diff(self.kind) != 0) | (np.diff(self.width) != 0)) + 1
        ends = [0, *new.tolist(), len(self.start)] if len(self.start) else [0]
        return [(int(self.kind[a]), int(self.width[a]), a, b) for a, b in pairwise(ends)]


def planned(events: Events, kinds: Sequence[Kind], widths: Sequence[int] = WIDTHS) -> Plan:
    """The plan of events with these kinds, executed in pieces of these widths."""
    level = levels(events, kinds)
    if len({kind.costly for kind in kinds}) > 1:
        level = _gathered(events, kinds, level)
    return arranged(events, level, len(kinds), widths)


def arranged(events: Events, level: np.ndarray, kinds: int, widths: Sequence[int] = WIDTHS) -> Plan:
    """The plan of events whose levels [E] are known."""
    group = level.astype(np.int64) * kinds + events.kind
    few = len(group) > 0 and group.max() < 2**16  # which NumPy sorts by their digits
    order = np.argsort(group.astype(np.uint16) if few else group, kind="stable")
    first = np.flatnonzero(np.diff(group[order], prepend=-1))
    left = np.diff(first, append=len(order))
    place, parts = first.copy(), list[tuple[np.ndarray, ...]]()
    for width in sorted(widths, reverse=True):
        whole = left // width
        rest = left - whole * width
        last = (2 * rest >= width) | ((width == min(widths)) & (rest > 0))
        count = whole + last
        of = np.repeat(np.arange(len(first)), count)
        turn = np.arange(len(of)) - np.repeat(np.cumsum(count) - count, count)
        size = np.minimum(width, left[of] - turn * width)
        parts.append((of, place[of] + turn * width, size, np.full(len(of), width)))
        taken = np.where(last, left, whole * width)
        place, left = place + taken, left - taken
    of, start, size, width = (np.concatenate(columns) for columns in zip(*parts))
    by_group = np.argsort(of, kind="stable")
    of, start, size, width = (column[by_group] for column in (of, start, size, width))
    kind = (group[order[start]] % kinds).astype(np.int32) if len(start) else np.zeros(0, np.int32)
    return Plan(order, level, start.astype(np.int32), size.astype(np.int32), kind, width.astype(np.int32))


def _gathered(events: Events, kinds: Sequence[Kind], level: np.ndarray) -> np.ndarray:
    """Levels [E] by the largest number of costly events in a chain of conflicts: many of them are then at once."""
    costly = np.array([kind.costly for kind in kinds])[events.kind]
    depth = levels(events, kinds, costly.astype(np.int32))
    deepest = np.int64(1 + level.max(initial=0))
    place = depth.astype(np.int64) * deepest + np.where(costly, 0, level)
    return (1 + np.unique(place, return_inverse=True)[1]).astype(np.int32)


def levels(events: Events, kinds: Sequence[Kind], steps: np.ndarray | None = None) -> np.ndarray:
    """The level of every event [E] int32, from 1."""
    reads, writes = _rows_of(events, kinds)
    steps = np.ones(len(events), np.int32) if steps is None else steps
    rows = 1 + max(int(reads.max(initial=-1)), int(writes.max(initial=-1)))
    found = np.empty(len(events), np.int32)
    written, read = (np.zeros(rows + 1, np.int32) for _ in range(2))  # the last place: rows that are not there
    few = rows // (4 * max(1, reads.shape[1] + writes.shape[1]))  # events among which few touch the same row
    start, size, flat = 0, max(_LEAST, few), rows >= _FEWEST
    while flat and start < len(events):
        block = slice(start, start + size)
        flat = _of_block(reads[block], writes[block], steps[block], written, read, found[block])
        start += size if flat else 0
    seen = (written.tolist(), read.tolist()) if start < len(events) else ([], [])
    for begin in range(start, len(events), _BLOCK):  # long chains, as through a server, go event by event
        block = slice(begin, begin + _BLOCK)
        found[block] = _of_each(_tuples(reads[block]), _tuples(writes[block]), steps[block].tolist(), *seen)
    return found


def _of_block(
    reads: np.ndarray, writes: np.ndarray, steps: np.ndarray, written: np.ndarray, read: np.ndarray, found: np.ndarray
) -> bool:
    """Whether chains of conflicts among k events are short; their levels are then in `found` [k]."""
    size, bits = len(steps), (2 * len(steps)).bit_length()
    mark = 2 * np.arange(size)[:, None]
    touch = np.concatenate([((rows << bits) | mark | w)[rows >= 0] for w, rows in ((0, reads), (1, writes))])
    touch.sort()  # by row, then by time
    row, event, writes_it = touch >> bits, (touch & ((1 << bits) - 1)) >> 1, (touch & 1).astype(bool)
    turn = np.arange(len(touch))
    earlier = np.maximum.accumulate(np.where(writes_it, turn, 0)) if reads.size else turn  # the last that wrote so far
    pairs = [(earlier[:-1], turn[1:])]
    if reads.size:
        later = np.minimum.accumulate(np.where(writes_it, turn, turn[-1:])[::-1])[::-1]  # the first that writes then
        pairs.append((turn[~writes_it], later[~writes_it]))
    first, second = (np.concatenate(ends) for ends in zip(*pairs))
    follows = (row[first] == row[second]) & (event[first] < event[second])
    if reads.size:
        follows &= writes_it[first] | writes_it[second]
    first, second = event[first[follows]], event[second[follows]]
    level = np.zeros(size, np.int32)
    for seen, rows in ((written, reads), (written, writes), *[(read, writes)] * (reads.size > 0)):
        for column in rows.T:
            np.maximum(level, seen[column], out=level)
    level += steps
    some, rounds = np.ones(len(first), bool), 0
    while some.any():
        if rounds == _DEEPEST:
            return False
        one, other = first[some], second[some]
        wanted = level[one] + steps[other]
        more = wanted > level[other]
        risen = np.zeros(len(level), bool)
        risen[other[more]] = True
        np.maximum.at(level, other[more], wanted[more])
        some, rounds = risen[first], rounds + 1
    for seen, rows in ((written, writes), (read, reads)):
        np.maximum.at(seen, rows.ravel(), np.repeat(level, rows.shape[1]))
        seen[-1] = 0
    found[:] = level
    return True


def _tuples(table: np.ndarray) -> Iterable[tuple[int, ...]]:
    """The rows of a table [k, c]; lists of its columns take NumPy a tenth of the time of lists of its rows."""
    return zip(*table.T.tolist()) if table.shape[1] else repeat((), len(table))


def _of_each(
    reads: Iterable[tuple[int, ...]],
    writes: Iterable[tuple[int, ...]],
    steps: list[int],
    written: list[int],
    read: list[int],
) -> list[int]:
    """Levels of events one after another, with what `_of_block` is given."""
    found = list[int]()
    for some_read, some_written, step in zip(reads, writes, steps):
        level = 0
        for row in some_read:
            if written[row] > level:
                level = written[row]
        for row in some_written:
            if written[row] > level:
                level = written[row]
            if read[row] > level:
                level = read[row]
        level += step
        for row in some_read:
            if read[row] < level:
                read[row] = level
        for row in some_written:
            written[row] = level
        written[-1] = read[-1] = 0
        found.append(level)
    return found


def _rows_of(events: Events, kinds: Sequence[Kind]) -> tuple[np.ndarray, np.ndarray]:
    """The rows of others that events read only [E, R] and write [E, W], numbered over all tables; -1: none."""
    tables = dict.fromkeys(touch.table for kind in kinds for touch in kind.touches)
    size = 1 + int(events.rows.max(initial=0))
    offset = {table: place * size for place, table in enumerate(tables)}
    touches = [by_column(kind, events.rows.shape[1]) for kind in kinds]
    found = list[np.ndarray]()
    for writing in (False, True):
        columns = [
            [c for c, one in enumerate(some) if ("w" in one.mode) == writing and not one.own and one.table != NOTHING]
            for some in touches
        ]
        table = np.full((len(events), max(map(len, columns), default=0)), -1, np.int64)
        for number, chosen in enumerate(columns):
            here = events.kind == number
            for place, c in enumerate(chosen):
                row = events.rows[here, c]
                table[here, place] = np.where(row < 0, -1, row + offset[touches[number][c].table])
        found.append(table)
    return found[0], found[1]
