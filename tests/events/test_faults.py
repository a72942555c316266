"""Lost messages and absent nodes: what is lost is sent, who is away does nothing, and longer runs begin alike."""

from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import jdfl
from jdfl import network as nw
from jdfl import testing
from jdfl.events import ADPSGD, AGP, REGISTRY, SWIFT, RandomizedGossip, meetings, wakes
from jdfl.events.faults import Absences, absences, with_times
from jdfl.network import in_run
from tests.events.scenes import PERIODS, VARIANTS, M, borne, equal, network, simulated

KEY = jax.random.key(4)


def drawn(net: Any) -> nw.Timed:
    return with_times(in_run(net, KEY, 0), "a test")


@given(st.lists(st.lists(st.booleans(), min_size=2, max_size=2), min_size=1, max_size=7), st.data())
def test_a_gradient_is_lost_when_its_node_leaves(away, data):
    """From second to second: a node that is away loses what it computes, and begins the next thing when it returns."""
    found = Absences(np.array(away))
    waits = np.array(data.draw(st.lists(st.sampled_from([0.25, 0.5, 1.0, 1.75, 3.0]), min_size=8, max_size=8)))
    begins = found.first
    ends, then = found.ends(np.arange(2), begins, waits.reshape(2, 4))
    for i in range(2):
        there = [not second[i] for second in away] + [False]  # what is later counts as never
        now = float(there.index(True)) if any(there) else np.inf
        assert begins[i] == now
        for t, wait in enumerate(waits.reshape(2, 4)[i]):
            if now >= len(away):
                break  # after the last second nobody asks
            leaves = next((k for k in range(int(now), len(away)) if away[k][i]), np.inf)
            if leaves < now + wait:
                assert ends[i, t] == np.inf
                now = next((float(k) for k in range(int(leaves), len(away)) if there[k]), np.inf)
            else:
                now += wait
                assert ends[i, t] == now
        assert then[i] == now or now >= len(away)


def test_who_is_away_does_nothing_and_is_not_met():
    net = drawn(nw.outages(nw.timed(nw.complete(40), nw.ExponentialTime(0.5)), 0.2, 0.3))
    away = absences(net, 60.0)
    assert away is not None
    events = meetings(net, KEY, 60.0, columns=2)
    second = np.maximum(np.ceil(events.time).astype(int) - 1, 0)
    assert not away.away[second, events.actor].any()
    there = events.rows[:, 1] >= 0
    assert not away.away[second[there], events.rows[there, 1]].any()
    assert (~there).mean() == pytest.approx(0.4, abs=0.05)
    counts = [np.diff(events.count[events.actor == i]) for i in range(40)]
    assert all((one == 1).all() for one in counts)
    exponential = wakes(drawn(nw.timed(nw.complete(40), nw.ExponentialTime(0.5))), KEY, 60.0)
    assert len(events) / len(exponential) == pytest.approx(0.6, abs=0.05)  # they have no memory


def test_as_many_messages_are_lost_as_is_asked_for():
    net = drawn(nw.link_loss(nw.timed(nw.ring(50), nw.FixedTime(1.0)), 0.3))
    events = meetings(net, KEY, 200.0, columns=2)
    missed = events.rows[:, 1] < -1
    assert stats.binomtest(int(missed.sum()), len(missed), 0.3).pvalue > 1e-3
    whole = meetings(drawn(nw.timed(nw.ring(50), nw.FixedTime(1.0))), KEY, 200.0, columns=2).rows[:, 1]
    np.testing.assert_array_equal(np.where(missed, -2 - events.rows[:, 1], events.rows[:, 1]), whole)
    twice = drawn(nw.link_loss(nw.link_loss(nw.timed(nw.ring(50), nw.FixedTime(1.0)), 0.3), 0.5))
    missed = meetings(twice, KEY, 200.0, columns=2).rows[:, 1] < -1
    assert stats.binomtest(int(missed.sum()), len(missed), 0.65).pvalue > 1e-3


@pytest.mark.parametrize(
    ("name", "fault"), [(name, fault) for name in ("AD-PSGD", "AGP", "SWIFT", "FedBuff") for fault in borne(name)]
)
def test_a_longer_run_with_faults_begins_like_a_shorter_one(name, fault):
    method, net = VARIANTS[name], drawn(network("slow nodes", fault=fault))
    short, long = (method.events(net, KEY, seconds) for seconds in (6.3, 19.0))
    count = long.until(6.3)
    for what in ("time", "actor", "count", "kind", "data", "rows"):
        np.testing.assert_array_equal(getattr(short, what), getattr(long, what)[:count])
    problem = testing.small_problem()
    whole = simulated(method, problem, network("slow nodes", fault=fault))
    equal(whole.state, simulated(method, problem, network("slow nodes", fault=fault), every=3).state)


@pytest.mark.parametrize("around", [lambda net: nw.link_loss(net, 0.0), lambda net: nw.membership(net, joins=0)])
def test_faults_that_never_happen_change_nothing(around):
    problem = testing.small_problem()
    equal(*(simulated(ADPSGD(lr=0.05), problem, net).state for net in (network(), around(network()))))


def test_faults_may_be_inside_or_outside_times():
    base, problem = nw.ring(M), testing.small_problem()
    clock = nw.ExponentialTime(1.0)
    one, other = nw.link_loss(nw.timed(base, clock), 0.3), nw.timed(nw.link_loss(base, 0.3), clock)
    for net in (one, other):
        assert (simulated(ADPSGD(), problem, net).scheduler.events.rows < -1).any()


def test_a_lost_exchange_is_sent_and_nothing_else():
    """All exchanges are lost: models never mix, and both messages of each count."""
    method, problem = RandomizedGossip(), testing.small_problem()
    near = jdfl.run(method, problem, nw.link_loss(network(), 1 - 1e-7), key=2, steps=PERIODS, metrics=[])
    start = jdfl.run(method, problem, nw.link_loss(network(), 1 - 1e-7), key=2, steps=1, metrics=[])
    np.testing.assert_array_equal(near.params, start.params)
    plain = jdfl.run(method, problem, network(), key=2, steps=PERIODS, metrics=[])
    assert near.totals.messages == plain.totals.messages
    assert near.communication_rounds.sum() == 0 < plain.communication_rounds.sum()


def test_a_run_in_which_no_message_arrives():
    """Nobody has neighbours, or all that is sent is lost: tables of messages have rows that nobody uses."""
    problem, method = testing.small_problem(), AGP(lr=0.002)
    alone = nw.timed(nw.from_edges([], M, connected=False), nw.FixedTime(1.0))
    found = simulated(method, problem, alone)
    lost = simulated(method, problem, nw.link_loss(nw.timed(nw.ring(M), nw.FixedTime(1.0)), 1 - 1e-7, weights="sender"))
    np.testing.assert_array_equal(found.params, lost.params)
    assert (found.state["node"][1] == 1).all()


@pytest.mark.parametrize("name", [name for name in VARIANTS if name.endswith("noise") and "both" in borne(name)])
def test_releases_with_faults_are_known_before_the_run(name):
    method, problem, timed = VARIANTS[name], testing.small_problem(), network(fault="both")
    result = jdfl.run(method, problem, timed, key=2, steps=PERIODS, metrics=[])
    planned = jdfl.planned_releases(method, problem, timed, steps=PERIODS, key=2)
    np.testing.assert_array_equal(planned, result.releases)
    assert result.totals.releases == result.totals.gradients


def test_refusals():
    problem, ring = testing.small_problem(), nw.timed(nw.ring(M))
    cases = [
        (AGP(), nw.link_loss(ring, 0.1), "weights = 'sender'"),
        (ADPSGD(), nw.link_loss(ring, 0.1, directed=True), "directed = False"),
        (SWIFT(), nw.link_loss(ring, 0.1), "without lost messages for SWIFT"),
        (ADPSGD(), nw.bursty_loss(ring, 0.1, 0.5), "fixed network with times"),
        (ADPSGD(), nw.link_loss(ring, 0.1, weights="rescale"), "weights = 'own' or 'sender'.*'rescale'"),
        (SWIFT(), nw.outages(ring, 0.1, 0.5, weights="rescale"), "weights = 'own' or 'sender'.*'rescale'"),
    ]
    for method, net, words in cases:
        with pytest.raises(ValueError, match=words):
            jdfl.run(method, problem, net, steps=2)
    with pytest.raises(ValueError, match="seconds times nodes"):
        wakes(drawn(nw.outages(nw.timed(nw.ring(1000)), 0.1, 0.5)), KEY, 1e6)


def test_every_method_says_which_faults_it_bears():
    assert all(set(method.bears) <= {"lost messages", "absent nodes"} for method in REGISTRY.values())


@pytest.mark.parametrize("planted", ["met", "kept", "free"])
def test_planted_faults_are_noticed(planted, monkeypatch):
    """Absent nodes are met, gradients survive absences, lost messages arrive: each changes the result."""
    problem, net = testing.small_problem(), network(fault="both")
    whole = simulated(ADPSGD(lr=0.05), problem, net).params
    if planted == "met":
        monkeypatch.setattr(Absences, "at", lambda self, node, time: np.zeros(len(node), bool))
    elif planted == "kept":
        ends = lambda self, node, begins, waits, unit: (begins[:, None] + waits.cumsum(1), begins + waits.sum(1))  # noqa: E731
        monkeypatch.setattr(Absences, "ends", ends)
    else:
        monkeypatch.setattr("jdfl.events.partners.lost", lambda network, key, node, count: np.zeros(len(node), bool))
    assert not np.array_equal(simulated(ADPSGD(lr=0.05), problem, net).params, whole)
