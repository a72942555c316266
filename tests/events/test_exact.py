"""Known times are exact: events are those of a queue of fractions, for any decimals, and random times stay floats."""

from fractions import Fraction
from itertools import count

import jax
import numpy as np
import pandas as pd
from hypothesis import given, settings
from hypothesis import strategies as st

import jdfl
from jdfl import network as nw
from jdfl import testing
from jdfl.events import RandomWalkSGD, timeline, times
from jdfl.lab import curves

KEY, M = jax.random.key(4), 3
RING = nw.ring(M)
AWAY = nw.membership(RING, joins=[0, 1, 2], leaves=[2, 4, 9])
DECIMALS = st.builds(lambda digits, places: f"{digits:.{places}f}", st.floats(0.1, 5.0), st.integers(1, 5))
LONG = st.floats(0.1, 5.0).map(repr)  # up to seventeen digits


def until(limit: Fraction, waits, begins: Fraction = Fraction(0)) -> list[Fraction]:
    """When things end that are done one after another, until a time."""
    found, time = [], begins
    for k in count():
        time += waits(k)
        if time > limit:
            return found
        found.append(time)
    raise AssertionError


def of(texts) -> list[float]:
    return [float(one) for one in texts]


@given(st.lists(st.one_of(DECIMALS, LONG), min_size=M, max_size=M), DECIMALS, DECIMALS, st.integers(1, 999), st.data())
@settings(max_examples=60, deadline=None)
def test_events_of_known_times_are_those_of_a_queue_of_fractions(slow, compute, latency, bandwidth, data):
    """Compute times, factors of nodes, latency, bits over bandwidth, and the last second, which is included."""
    bits, gradients = data.draw(st.integers(0, 500)), data.draw(st.integers(1, 3))
    whole = [Fraction(compute) * Fraction(one) * gradients for one in slow]
    sent = Fraction(latency) + Fraction(bits, bandwidth)
    limit = Fraction(str(float(min(one + sent for one in whole) * data.draw(st.integers(1, 20)))))
    net = nw.timed(
        RING, nw.FixedTime(float(compute)), latency=nw.FixedTime(float(latency)), bandwidth=bandwidth, slowness=of(slow)
    ).in_run(KEY, bits)
    found = timeline.wakes(net, KEY, float(limit), gradients=gradients)
    for i in range(M):
        expected = until(limit, lambda _, wait=whole[i] + sent: wait)
        assert found.time[found.actor == i].tolist() == [float(one) for one in expected]
    alone = timeline.wakes(net, KEY, float(limit), gradients=gradients, messages=False)
    assert np.bincount(alone.actor, minlength=M).tolist() == [int(limit / one) for one in whole]


@given(st.lists(st.lists(DECIMALS, min_size=3, max_size=3), min_size=M, max_size=M), DECIMALS, st.integers(1, 30))
@settings(max_examples=40, deadline=None)
def test_gradients_of_a_trace_and_their_messages_are_exact(measured, latency, number):
    times = [[Fraction(one) for one in row] for row in measured]
    limit = Fraction(str(float(min(map(sum, times)) * number)))
    net = nw.timed(RING, nw.time_trace([of(row) for row in measured], cycle=True), latency=nw.FixedTime(float(latency)))
    net = net.in_run(KEY, 0)
    found = timeline.wakes(net, KEY, float(limit), messages=False)
    come = timeline.arrivals(net, KEY, found)
    for i, row in enumerate(times):
        expected, here = until(limit, lambda k, row=row: row[k % 3]), found.actor == i
        assert found.time[here].tolist() == [float(one) for one in expected]
        assert come[here].tolist() == [float(one + Fraction(latency)) for one in expected]


@given(st.one_of(DECIMALS, LONG), st.integers(0, 9))
@settings(max_examples=40, deadline=None)
def test_nodes_that_are_away_lose_what_the_fractions_say(compute, limit):
    wait = max(Fraction(compute), Fraction(1, 50))
    net = nw.timed(AWAY, nw.FixedTime(float(wait))).in_run(KEY, 0)
    found = timeline.wakes(net, KEY, float(limit))
    wait = times.decimal(float(wait))
    for i, (first, last) in enumerate(zip((0, 1, 2), (2, 4, 9))):
        expected = until(Fraction(min(last, limit)), lambda _: wait, Fraction(first)) if first <= limit else []
        assert found.time[found.actor == i].tolist() == [float(one) for one in expected]


@given(st.one_of(DECIMALS, LONG), st.integers(1, 60))
@settings(max_examples=20, deadline=None)
def test_walks_take_as_many_steps_as_fit(compute, number):
    limit = float(times.decimal(float(compute)) * number)
    net = nw.timed(RING, nw.FixedTime(float(compute))).in_run(KEY, 0)
    expected = int(times.decimal(limit) / times.decimal(float(compute)))
    assert len(RandomWalkSGD(tokens=2).events(net, KEY, limit)) == 2 * expected


def test_what_is_random_is_not_known():
    fixed = nw.FixedTime(0.1)
    for net in (nw.timed(RING, slowness=[1.0] * M), nw.timed(RING, fixed, latency=nw.ParetoTime())):
        assert times.known(net.in_run(KEY, 0), 1.0) is None
    assert times.known(nw.timed(RING, nw.FixedTime(1e-300)).in_run(KEY, 0), 1e9) is None  # nor what no float holds
    assert times.known(nw.timed(RING, fixed, slowness=nw.ParetoTime()).in_run(KEY, 0), 1.0, messages=False) is None
    assert times.known(nw.timed(RING, fixed, latency=nw.ParetoTime()).in_run(KEY, 0), 1.0, messages=False) is not None


def test_a_budget_of_simulated_seconds_pays_for_the_round_that_ends_then():
    problem = testing.small_problem()
    net = nw.timed(nw.ring(problem.m), nw.FixedTime(0.1))
    rows = jdfl.run(jdfl.DPSGD(lr=0.01), problem, net, steps=12, metrics=[]).history.assign(ending="steps")
    for k in range(1, 13):
        record = curves.last_within(pd.DataFrame(rows), "network_seconds", float(Fraction(k, 10)))
        assert record is not None
        assert record["round"] == k
