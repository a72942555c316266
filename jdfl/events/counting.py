"""What nodes do in events, counted on the host before anything is computed: messages, gradients, releases.

Axes: E events, m nodes.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from jdfl.events.event import Note
from jdfl.events.timeline import Events

_BLOCK = 2**17  # events that are counted at a time; one for every node, if there are more nodes


def counted(
    events: Events, notes: Sequence[Sequence[Note]], names: Sequence[str], out_degree: np.ndarray
) -> dict[str, np.ndarray]:
    """How often every node does something in events: by its name, numbers [m] int64."""
    found = {name: np.zeros(len(out_degree), np.int64) for name in names}
    for _, block in events.blocks(max(_BLOCK, len(out_degree))):
        for some, _, node in _doings(block, notes):
            wanted = [note for note in some if note.what in found]
            number = np.bincount(node, minlength=len(out_degree)) if wanted else node
            for note in wanted:
                found[note.what] += number * (note.times * out_degree if note.links else note.times)
    return found


def within(events: Events, notes: Sequence[Sequence[Note]], left: np.ndarray) -> int:
    """How many of the events happen before the first with which a node would release more than it has left."""
    for start, block in events.blocks(max(_BLOCK, len(left))):
        over = _first_over(block, notes, left)
        if over < len(block):
            return start + over
        left = left - counted(block, notes, ["releases"], np.zeros(len(left), np.int64))["releases"]
    return len(events)


def _first_over(events: Events, notes: Sequence[Sequence[Note]], left: np.ndarray) -> int:
    """The place of the first event with which a node would release more than it has left [m]; their number: none."""
    doings = [
        (place, node, np.full(len(node), note.times))
        for some, place, node in _doings(events, notes)
        for note in some
        if note.what == "releases"
    ]
    if not doings:
        return len(events)
    place, node, times = (np.concatenate(columns) for columns in zip(*doings))
    order = np.lexsort((place, node))
    place, node, times = place[order], node[order], times[order]
    total = np.cumsum(times)
    first = np.flatnonzero(np.diff(node, prepend=-1))
    before = np.repeat(total[first] - times[first], np.diff(first, append=len(node)))
    over = total - before > left[node]
    return int(place[over].min(initial=len(events)))


def _doings(events: Events, notes: Sequence[Sequence[Note]]) -> Iterator[tuple[list[Note], np.ndarray, np.ndarray]]:
    """Everything that is done: notes of the same nodes, and the places of events [k] and the nodes [k]."""
    for kind, some in enumerate(notes):
        alike = dict[tuple[int | None, int | None, bool], list[Note]]()
        for note in some:
            alike.setdefault((note.by, note.where, note.what.startswith("sent_")), []).append(note)
        here = np.flatnonzero(events.kind == kind)
        for (by, where, sent), group in alike.items():
            place = here
            for column in (by, where):
                if column is not None:
                    row = events.rows[place, column]
                    place = place[row != -1 if sent else row >= 0]  # what is lost is sent
            if by is None:
                node = events.actor[place]
            else:
                row = events.rows[place, by]
                node = np.where(row < 0, -2 - row, row)
            yield group, place, node
