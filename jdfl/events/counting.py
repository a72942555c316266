"""What nodes do in events, counted on the host before anything is computed: messages, gradients, releases.

Axes: E events, m nodes.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from jdfl.events.event import Note
from jdfl.events.timeline import Events


def counted(
    events: Events, notes: Sequence[Sequence[Note]], names: Sequence[str], out_degree: np.ndarray
) -> dict[str, np.ndarray]:
    """How often every node does something in events: by its name, numbers [m] int64.

    Args:
        events: The events.
        notes: What events of every kind do.
        names: The names of what is counted, as `Note.what` has them; the rest is left out.
        out_degree: The number of out-neighbours of every node, out_degree [m].
    """
    found = {name: np.zeros(len(out_degree), np.int64) for name in names}
    for what, _, node, times, links in _doings(events, notes):
        if what in found:
            found[what] += np.bincount(node, minlength=len(out_degree)) * (times * out_degree if links else times)
    return found


def within(events: Events, notes: Sequence[Sequence[Note]], left: np.ndarray) -> int:
    """How many of the events happen before the first with which a node would release more than it has left.

    Args:
        events: The events, in the order of time.
        notes: What events of every kind do.
        left: How many releases every node has left, left [m].
    """
    doings = [one for one in _doings(events, notes) if one[0] == "releases"]
    if not doings:
        return len(events)
    place, node, times = (
        np.concatenate(columns) for columns in zip(*((p, n, np.full(len(n), t)) for _, p, n, t, _ in doings))
    )
    order = np.lexsort((place, node))
    place, node, times = place[order], node[order], times[order]
    total = np.cumsum(times)
    first = np.flatnonzero(np.diff(node, prepend=-1))
    before = np.repeat(total[first] - times[first], np.diff(first, append=len(node)))
    over = total - before > left[node]
    return int(place[over].min(initial=len(events)))


def _doings(events: Events, notes: Sequence[Sequence[Note]]) -> Iterator[tuple[str, np.ndarray, np.ndarray, int, bool]]:
    """Everything that is done: its name, places of events [k], nodes [k], how often, and whether per out-neighbour."""
    for kind, some in enumerate(notes):
        here = np.flatnonzero(events.kind == kind)
        for what, by, where, times, links in some:
            place = here
            for column in (by, where):
                if column is not None:
                    row = events.rows[place, column]
                    place = place[row != -1 if what.startswith("sent_") else row >= 0]  # what is lost is sent
            node = events.actor[place] if by is None else events.rows[place, by]
            yield what, place, np.where(node < 0, -2 - node, node), times, links
