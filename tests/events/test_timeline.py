"""Times and partners: longer runs begin alike, distributions are those that are asked for, and bad ones are refused."""

from functools import partial

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import jdfl
from jdfl import network as nw
from jdfl import testing
from jdfl.devices import memory
from jdfl.events import RandomWalkSGD, random_walk, timeline
from jdfl.events.faults import with_times
from jdfl.events.slots import slots
from jdfl.events.timeline import heard_by, hears, partners, wakes
from tests.refused import refused

KEY = jax.random.key(4)
CLOCKS = {
    "fixed": nw.FixedTime(0.7),
    "exponential": nw.ExponentialTime(1.0),
    "log-normal": nw.LogNormalTime(1.0, 1.0),
    "pareto": nw.ParetoTime(0.5, 1.5),
}


def network(clock, m, **how):
    """A ring in a run, whose nodes take these times."""
    return nw.timed(nw.ring(m) if m > 1 else nw.from_edges([], 1), clock, **how).in_run(KEY, 0)


def chosen(graph, events):
    net = nw.timed(nw.Static(graph), nw.FixedTime(1.0))
    return partners(net, hears(graph), events, KEY, None)


def test_a_longer_run_begins_like_a_shorter_one():
    for clock in CLOCKS.values():
        net = network(clock, 4, slowness=nw.LogNormalTime(1.0, 0.5), latency=nw.ExponentialTime(0.2))
        short, long = (wakes(net, KEY, seconds) for seconds in (9.5, 60.0))
        count = long.until(short.time[-1])  # what ends then is included
        assert len(short) == count == long.until(9.5) < len(long)
        for name in ("time", "actor", "count", "kind"):
            np.testing.assert_array_equal(getattr(short, name), getattr(long, name)[:count])
        graph = nw.star(4, weights="uniform").graph
        np.testing.assert_array_equal(chosen(graph, short), chosen(graph, long)[:count])


def test_gradients_take_the_times_of_a_trace():
    measured = np.random.default_rng(3).uniform(0.5, 2.0, (4, 5)).astype(np.float32).astype(float)
    net = network(nw.time_trace(measured, cycle=True), 4)
    events = wakes(net, KEY, 30.0)
    for i in range(4):
        expected = np.cumsum(np.tile(measured[i], 20))
        np.testing.assert_allclose(events.time[events.actor == i], expected[expected <= 30.0], rtol=1e-12)
    once = network(nw.time_trace(measured), 4)
    enough = float(measured.sum(axis=1).min()) - 1e-6
    np.testing.assert_array_equal(wakes(once, KEY, enough).time, events.time[: events.until(enough)])
    with refused("30 s", "node"):
        wakes(once, KEY, 30.0)
    with refused("trace", "away"):
        wakes(with_times(nw.outages(once, 0.1, 0.5), ""), KEY, 2.0)
    with refused("random-walk SGD", "TimeTrace"):
        jdfl.run(
            RandomWalkSGD(), testing.small_problem(), nw.timed(nw.ring(6), nw.time_trace(np.ones((6, 9)))), steps=2
        )


def test_waits_are_independent_and_of_the_distribution_and_partners_equally_likely():
    events = wakes(network(nw.ExponentialTime(2.0), 200), KEY, 400.0)
    waits = np.concatenate([np.diff(events.time[events.actor == i], prepend=0.0) for i in range(200)])
    assert stats.kstest(waits, "expon", args=(0, 2.0)).pvalue > 1e-3
    assert stats.kstest(waits[1::2] + waits[:-1:2][: len(waits[1::2])], "gamma", args=(2, 0, 2.0)).pvalue > 1e-3
    graph = nw.from_edges([(0, 1), (0, 2), (0, 3), (2, 3)], 5, connected=False).graph
    events = wakes(network(nw.FixedTime(1.0), 5), KEY, 3000.0)
    found = chosen(graph, events)
    assert set(found[events.actor == 4]) == {-1}
    assert set(found[events.actor == 1]) == {0}
    _, counts = np.unique(found[events.actor == 0], return_counts=True)
    assert len(counts) == 3
    assert stats.chisquare(counts).pvalue > 1e-3


def test_times_that_are_not_above_zero_and_finite_are_refused():
    for bad in (nw.FixedTime(0.0), nw.LogNormalTime(1e38, 100.0)):
        with refused(type(bad).__name__):
            wakes(network(bad, 2), KEY, 5.0)


def test_out_neighbours_are_those_who_hear_a_node():
    graph = nw.from_edges([(0, 1), (0, 2), (2, 1)], 4, directed=True, connected=False, weights="uniform").graph
    table, mask = heard_by(graph)
    assert [sorted(row[there].tolist()) for row, there in zip(table, mask)] == [[1, 2], [], [1], []]


TIMES = st.one_of(st.sampled_from([0.0, 1e-300, 1.0, 1.0 + 2**-52, 1.0 + 2**-51, 7.0]), st.floats(0, 1e9))


@given(st.lists(st.tuples(TIMES, *(st.integers(0, 2) for _ in range(3))), max_size=30))
def test_events_are_in_the_order_of_time_and_equal_times_in_that_of_kind_actor_and_count(some):
    """Also where times differ by less than what they are sorted by at first."""
    columns = [np.array(column) for column in zip(*some)] if some else [np.zeros(0)] * 4
    order = timeline.order_of(*columns)
    assert sorted(order.tolist()) == list(range(len(some)))
    assert [some[place] for place in order] == sorted(some)


@given(st.lists(st.integers(0, 12), max_size=30), st.integers(0, 8))
def test_slots_are_never_shared_and_begin_alike(lasts, rest):
    taken = np.arange(len(lasts))
    freed = np.where(np.array(lasts) == 12, np.inf, taken + lasts + 0.5)
    row, size = slots(taken, freed, rest)
    assert sorted(set(row.tolist())) == list(range(size))
    for k in range(len(lasts)):
        for other in range(k):
            assert row[k] != row[other] or taken[k] > freed[other]
    assert slots(np.arange(10), np.arange(10) + 0.5, 3)[1] == 4  # each rests before it is used again
    half = len(lasts) // 2
    early = np.where(freed[:half] < half, freed[:half], np.inf)
    np.testing.assert_array_equal(slots(taken[:half], early, rest)[0], row[:half])


def test_a_wait_may_be_zero_by_rounding():
    """Of ten million exponential draws in float32 one or two are exactly zero."""
    events = wakes(nw.timed(nw.ring(2**20), nw.ExponentialTime(1.0)).in_run(KEY, 0), KEY, 0.05)
    assert len(events) == pytest.approx(2**20 * 0.05, rel=0.02)
    assert (events.time >= 0).all()


@pytest.mark.parametrize(
    ("drawing", "each"), [(partial(wakes, each=80), 80), (RandomWalkSGD(tokens=3).events, random_walk._BYTES)]
)
def test_too_many_events_are_refused_before_they_are_drawn(drawing, each, monkeypatch):
    net = network(nw.ExponentialTime(1.0), 6)
    with refused("2,147,483,647 events", "1e+12 s"):
        drawing(net, KEY, 1e12)
    monkeypatch.setattr(memory, "host", lambda: each * 2000)
    assert len(drawing(net, KEY, 200.0)) < 2000
    with refused("2,000 events", "memory"):
        drawing(net, KEY, 2000.0)


def test_the_number_of_events_is_foretold(monkeypatch):
    """After the first ones of every node their number is known within a fifth, whatever the times."""
    for clock in CLOCKS.values():
        foretold = list[float]()
        monkeypatch.setattr(timeline, "check_number", lambda events, *_: foretold.append(float(events)))  # noqa: B023
        net = network(clock, 200, slowness=nw.LogNormalTime(1.0, 0.3))
        found = wakes(net, KEY, 200.0)
        assert foretold[0] == pytest.approx(len(found), rel=0.2)
    monkeypatch.undo()
    left = iter([timeline.BYTES * 1500, *[0] * 1000])  # what is drawn already is not counted twice
    monkeypatch.setattr(memory, "host", lambda: next(left))
    assert len(wakes(network(nw.ExponentialTime(1.0), 6), KEY, 200.0)) > 1000
