"""The experiments of asynchronous methods: how staleness is counted."""

import numpy as np

from experiments import async_staleness
from jdfl.events import Events


def happened(actor: list[int], rows: list[list[int]]) -> Events:
    """Events of one kind, a second apart."""
    size = len(actor)
    zero = np.zeros(size, np.int32)
    return Events(np.arange(size) + 1.0, zero, np.array(actor), zero, np.array(rows), zero)


def test_meetings_since_the_snapshot_and_versions_are_counted():
    found = happened([0, 1, 0, 2, 0], [[0, 1], [1, 0], [0, 2], [2, 0], [0, -1]])
    assert async_staleness.meetings(found, 3).tolist() == [0, 1, 1, 1, 1]
    assert async_staleness.elsewhere(found, 3).tolist() == [0, 1, 1, 3, 1]
    # Node 1 makes versions in rows 2 and 3; node 0 reads the initial one, the first and the second.
    found = happened([1, 0, 1, 0, 0], [[1, 2, 0], [0, 4, 1], [1, 3, 4], [0, 0, 2], [0, 5, 3]])
    assert async_staleness.versions(found, 2).tolist() == [0, 1, 0, 1, 0]
