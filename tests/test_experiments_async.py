"""The experiments of asynchronous methods: how staleness is counted, what pace implies, and what small versions say."""

from collections.abc import Mapping
from pathlib import Path

import jax
import numpy as np
import pytest

import jdfl
from experiments import async_common, async_speedup, async_staleness
from experiments.common import Row
from jdfl.events import Events

SLOW = "one node 10 times slower"


def the_slow_node_slows_rounds(cells: Mapping[tuple[str, str], Row], _: Path) -> None:
    """All-reduce SGD waits for a node ten times slower, and AD-PSGD does not; late messages slow D-PSGD alone."""
    slowdown = {
        case.rpartition(", ")[2]: one.mean for (case, what), one in cells.items() if what == "slowdown" and SLOW in case
    }
    assert slowdown["all-reduce SGD"] > 6
    assert slowdown["AD-PSGD"] < 1.5
    (late,) = [one for one in cells.values() if one.paper is not None]
    assert 1 / 1.5 < late.mean / late.paper < 1.5


def clocks_make_stale(cells: Mapping[tuple[str, str], Row], _: Path) -> None:
    """On average a node meets one other between its gradients; the largest numbers are those of a slow node."""
    value = {place: one.mean for place, one in cells.items()}
    equal, slow = (f"AD-PSGD, meetings, {clock}" for clock in ("equal", SLOW))
    assert abs(value[equal, "mean"] - 1) < 0.1
    assert value[slow, "largest"] > 2 * value[equal, "largest"]


def more_nodes_cost_alike(cells: Mapping[tuple[str, str], Row], _: Path) -> None:
    """The objective falls as far with ten times the nodes, in about as many waves for m events."""
    value = {place: one.mean for place, one in cells.items()}
    for graph in ("ring", "8 neighbours"):
        few, many = (f"{graph}, {m:,} nodes" for m in (1_000, 10_000))
        assert value[many, "events"] > 9 * value[few, "events"]
        assert 0.5 < value[many, "gap left"] / value[few, "gap left"] < 2
        assert value[many, "waves for m events"] < 2 * value[few, "waves for m events"]


def happened(actor: list[int], rows: list[list[int]]) -> Events:
    """Events of one kind, a second apart."""
    size = len(actor)
    zero = np.zeros(size, np.int32)
    return Events(np.arange(size) + 1.0, zero, np.array(actor), zero, np.array(rows), zero)


def test_meetings_since_the_snapshot_are_counted():
    found = happened([0, 1, 0, 2, 0], [[0, 1], [1, 0], [0, 2], [2, 0], [0, -1]])
    assert async_staleness.meetings(found, 3).tolist() == [0, 1, 1, 1, 1]
    assert async_staleness.elsewhere(found, 3).tolist() == [0, 1, 1, 3, 1]


def test_versions_are_those_that_the_rows_have():
    # Node 1 makes versions in rows 2 and 3; node 0 reads the initial one, the first and the second.
    found = happened([1, 0, 1, 0, 0], [[1, 2, 0], [0, 4, 1], [1, 3, 4], [0, 0, 2], [0, 5, 3]])
    assert async_staleness.versions(found, 2).tolist() == [0, 1, 0, 1, 0]


def test_versions_of_equal_clocks_are_one_old():
    network = jdfl.network.timed(jdfl.network.ring(6), jdfl.network.FixedTime(1.0), latency=jdfl.network.FixedTime(0.5))
    key = jax.random.key(0)
    found = jdfl.events.SWIFT().events(network.in_run(key, 0), key, 20.0)
    ages = async_staleness.versions(found, 6)
    # Events of one second are one after another: the later of two neighbours reads one version before the newest.
    assert set(ages.tolist()) == {0, 1}


@pytest.mark.parametrize("label", ["D-PSGD", "AD-PSGD"])
def test_implied_slowdowns_are_those_of_long_runs(label):
    slow, seconds = 10.0, 1_000
    network = async_common.one_slow(slow).network(jdfl.network.ring(async_speedup.M), async_speedup.LATENCY)
    problem = jdfl.problems.averaging(np.zeros((async_speedup.M, 1)))
    method = {"D-PSGD": jdfl.DPSGD(lr=0.1), "AD-PSGD": jdfl.events.ADPSGD(lr=0.1)}[label]
    result = jdfl.run(method, problem, network, steps=seconds if label == "AD-PSGD" else 100, every=1000)
    pace = result.totals.gradients / result.final["network_seconds"] / async_speedup.M
    assert pace == pytest.approx(1 / (1 + async_speedup.LATENCY) / async_speedup.implied(slow, label), rel=0.1)
