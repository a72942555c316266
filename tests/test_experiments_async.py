"""The experiments of asynchronous methods: how staleness is counted, and what pace implies."""

import numpy as np
import pytest

import jdfl
from experiments import async_common, async_speedup, async_staleness
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


@pytest.mark.parametrize("label", ["D-PSGD", "AD-PSGD"])
def test_implied_slowdowns_are_those_of_long_runs(label):
    slow, seconds = 10.0, 1_000
    network = async_common.one_slow(slow).network(jdfl.network.ring(async_speedup.M), async_speedup.LATENCY)
    problem = jdfl.problems.averaging(np.zeros((async_speedup.M, 1)))
    method = {"D-PSGD": jdfl.DPSGD(lr=0.1), "AD-PSGD": jdfl.events.ADPSGD(lr=0.1)}[label]
    result = jdfl.run(method, problem, network, steps=seconds if label == "AD-PSGD" else 100, every=1000)
    pace = result.totals.gradients / result.final["network_seconds"] / async_speedup.M
    assert pace == pytest.approx(1 / (1 + async_speedup.LATENCY) / async_speedup.implied(slow, label), rel=0.1)
