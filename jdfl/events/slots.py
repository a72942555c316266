"""Rows for messages on their way: each takes a row when it is sent, and gives it back when nobody needs it any more.

Axes: K messages.
"""

from collections import deque
from heapq import heappop, heappush

import numpy as np

SENT, DONE = 0, 1


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
