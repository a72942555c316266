"""Times and partners: longer runs begin alike, distributions are those that are asked for, and bad ones are refused."""

import jax
import numpy as np
import pytest
from scipy import stats

from jdfl import network as nw
from jdfl.events.timeline import partners, wakes

KEY = jax.random.key(4)
CLOCKS = {
    "fixed": nw.FixedTime(0.7),
    "exponential": nw.ExponentialTime(1.0),
    "log-normal": nw.LogNormalTime(1.0, 1.0),
    "pareto": nw.ParetoTime(0.5, 1.5),
}


@pytest.mark.parametrize("kind", CLOCKS)
def test_a_longer_run_begins_like_a_shorter_one(kind):
    slow = np.array([1.0, 2.0, 0.3, 1.0])
    short, long = (wakes(CLOCKS[kind], slow, KEY, seconds) for seconds in (9.5, 60.0))
    count = long.until(9.5)
    assert len(short) == count < len(long)
    for name in ("time", "actor", "count", "kind"):
        np.testing.assert_array_equal(getattr(short, name), getattr(long, name)[:count])
    graph = nw.star(4, weights="uniform").graph
    np.testing.assert_array_equal(partners(graph, short, KEY), partners(graph, long, KEY)[:count])


def test_events_are_in_a_total_order():
    events = wakes(nw.FixedTime(1.0), np.ones(3), KEY, 5.0)
    assert events.time.tolist() == [float(t) for t in range(1, 6) for _ in range(3)]
    assert events.actor.tolist() == [0, 1, 2] * 5
    assert events.count.tolist() == [t for t in range(5) for _ in range(3)]
    assert events.until(3.0) == 9
    assert events.until(2.999) == 6


def test_waits_are_independent_and_of_the_distribution():
    events = wakes(nw.ExponentialTime(2.0), np.ones(200), KEY, 400.0)
    waits = np.concatenate([np.diff(events.time[events.actor == i], prepend=0.0) for i in range(200)])
    assert stats.kstest(waits, "expon", args=(0, 2.0)).pvalue > 1e-3
    assert stats.kstest(waits[1::2] + waits[:-1:2][: len(waits[1::2])], "gamma", args=(2, 0, 2.0)).pvalue > 1e-3


def test_partners_are_in_neighbours_and_equally_likely():
    graph = nw.from_edges([(0, 1), (0, 2), (0, 3), (2, 3)], 5, connected=False).graph
    events = wakes(nw.FixedTime(1.0), np.ones(5), KEY, 3000.0)
    found = partners(graph, events, KEY)
    assert set(found[events.actor == 4]) == {-1}
    assert set(found[events.actor == 1]) == {0}
    _, counts = np.unique(found[events.actor == 0], return_counts=True)
    assert len(counts) == 3
    assert stats.chisquare(counts).pvalue > 1e-3


@pytest.mark.parametrize("bad", [nw.FixedTime(0.0), nw.ExponentialTime(np.inf)])
def test_times_that_are_not_above_zero_and_finite_are_refused(bad):
    with pytest.raises(ValueError, match=r"times above 0 and finite.*FixedTime|ExponentialTime"):
        wakes(bad, np.ones(2), KEY, 5.0)
