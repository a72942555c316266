"""Rows for messages on their way: each takes a row when it is sent, and gives it back when nobody needs it any more.

Axes: K messages, E events, m nodes, d slots of the table of in-neighbours.
"""

from collections import deque
from heapq import heappop, heappush

import numpy as np
from jax import Array

from jdfl.events import faults, timeline
from jdfl.events.timeline import Events
from jdfl.network import Timed

SENT, DONE = 0, 1
_BLOCK = 2**12  # events whose neighbours are looked up at a time


def slots(taken: np.ndarray, freed: np.ndarray, rest: int) -> tuple[np.ndarray, int]:
    """The row of every message [K] int32, and the number of rows.

    The lowest free row is taken. One that has been given back rests for a while: used again at once, it would make
    events wait for each other that have nothing to do with each other. The rows of a longer run begin like those of a
    shorter one.
    """
    ended = np.flatnonzero(np.isfinite(freed))
    what = np.concatenate([np.full(len(ended), DONE), np.full(len(taken), SENT)])
    who = np.concatenate([ended, np.arange(len(taken))])
    order = np.lexsort((who, what == SENT, np.concatenate([freed[ended], taken])))
    row, free, resting, size, sent = [0] * len(taken), list[int](), deque[tuple[int, int]](), 0, 0
    for kind, message in zip(what[order].tolist(), who[order].tolist()):
        if kind == DONE:
            resting.append((sent + rest, row[message]))
            continue
        while resting and resting[0][0] <= sent:
            heappush(free, resting.popleft()[1])
        if free:
            row[message] = heappop(free)
        else:
            row[message], size = size, size + 1
        sent += 1
    return np.array(row, np.int32), size


def newest(network: Timed, key: Array, events: Events) -> tuple[np.ndarray, np.ndarray, int]:
    """The rows of versions that events write [E] and read [E, d] int32, -1 where no neighbour is, and their number.

    Rows 0 to m - 1 are the initial versions, which all nodes have. The event of a node makes its next version, which
    arrives at all neighbours after one travel time. It keeps its row until a newer one has arrived. What arrives at the
    very time of an event comes too late for it.
    """
    m, size = network.m, len(events)
    arrival = timeline.arrivals(network, key, events)
    times, rank = np.unique(np.concatenate([arrival, events.time]), return_inverse=True)
    far = np.int64(len(times) + 1)
    came, now = events.actor * far + rank[:size], rank[size:]  # by node, then by time

    order = np.argsort(came, kind="stable")
    last = np.maximum.accumulate(events.actor[order] * np.int64(size + 1) + order)  # the newest of a node so far
    senders, mask = timeline.hears(faults.links(network))
    version, by_time = np.empty((size, senders.shape[1]), np.int32), came[order]
    for start in range(0, size, _BLOCK):
        some = slice(start, start + _BLOCK)
        sender = senders[events.actor[some]]
        place = np.searchsorted(by_time, sender * far + now[some, None], side="left") - 1
        found = order[np.maximum(place, 0)]
        arrived = (place >= 0) & (events.actor[found] == sender)
        version[some] = np.where(arrived, m + last[np.maximum(place, 0)] % (size + 1), sender)

    by_node = np.lexsort((events.count, events.actor))
    node = events.actor[by_node]
    least = np.minimum.accumulate(came[by_node][::-1])[::-1]  # the first arrival of this version or a newer one
    until = np.full(m + size, np.inf)  # version by version: when a newer one has arrived
    same = np.flatnonzero(node[:-1] == node[1:])
    until[m + by_node[same]] = times[least[same + 1] - node[same] * far]
    first = np.flatnonzero(np.diff(node, prepend=-1))
    until[node[first]] = times[least[first] - node[first] * far]

    freed = np.where(np.isfinite(until), np.searchsorted(events.time, until, side="right") - 0.5, np.inf)
    row, rows = slots(np.concatenate([np.full(m, -1), np.arange(size)]), freed, m)
    for start in range(0, size, _BLOCK):
        some = slice(start, start + _BLOCK)
        version[some] = np.where(mask[events.actor[some]], row[version[some]], -1)
    return row[m:], version, rows
