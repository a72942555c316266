"""Lost messages and absent nodes: what is lost is sent, who is away does nothing, and longer runs begin alike."""

from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from jdfl import network as nw
from jdfl import testing
from jdfl.events import meetings, wakes
from jdfl.events.faults import Absences, absences, with_times
from jdfl.network import in_run
from tests.events.scenes import ROWS, by_loop, network, simulated, wide
from tests.refused import refused

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
    base = nw.timed(nw.ring(50), nw.FixedTime(1.0))
    whole = meetings(drawn(base), KEY, 200.0, columns=2).rows[:, 1]
    once = nw.link_loss(base, 0.3)
    for net, p in ((once, 0.3), (nw.link_loss(once, 0.5), 0.65), (nw.timed(nw.link_loss(nw.ring(50), 0.3)), 0.3)):
        found = meetings(drawn(net), KEY, 200.0, columns=2).rows[:, 1]
        missed = found < -1
        assert stats.binomtest(int(missed.sum()), len(missed), p).pvalue > 1e-3
        if len(found) == len(whole):
            np.testing.assert_array_equal(np.where(missed, -2 - found, found), whole)


def test_who_was_away_is_met_no_more_and_loses_its_gradient(monkeypatch):
    """Where absent nodes were met, or gradients survived absences, other things would happen."""
    net = drawn(network(fault="both"))
    whole = meetings(net, KEY, 14.0, columns=2)
    ends = lambda self, node, begins, waits, unit: (begins[:, None] + waits.cumsum(1), begins + waits.sum(1))  # noqa: E731
    for name, free in (("at", lambda self, node, time: np.zeros(len(node), bool)), ("ends", ends)):
        with monkeypatch.context() as changed:
            changed.setattr(Absences, name, free)
            other = meetings(net, KEY, 14.0, columns=2)
            assert len(other) != len(whole) or not np.array_equal(other.rows, whole.rows)


def test_a_run_in_which_no_message_arrives():
    """All that is sent is lost, and stays with its sender: tables of messages have rows that nobody uses."""
    lossy = nw.link_loss(network("equal"), 1 - 1e-7, weights="sender")
    with jax.enable_x64(True):
        problem = wide(testing.small_problem())
        found, expected = simulated(ROWS["AGP"].method, problem, lossy), by_loop(ROWS["AGP"], problem, lossy)
    np.testing.assert_allclose(found.params, expected, rtol=1e-12)
    assert (found.state["node"][1] == 1).all()


def test_more_seconds_of_absences_than_can_be_held_are_refused():
    with refused("seconds times nodes"):
        wakes(drawn(nw.outages(nw.timed(nw.ring(1000)), 0.1, 0.5)), KEY, 1e6)
