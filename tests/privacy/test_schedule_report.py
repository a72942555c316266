"""Reports and ledgers of noise that follows a schedule, under several neighbouring relations at once."""

import math
from dataclasses import replace

import numpy as np
import pytest

from jdfl.privacy import (
    GaussianEvent,
    Guarantee,
    LaplaceEvent,
    LaplaceSchedule,
    Ledger,
    epsilon,
    epsilon_pure,
    epsilon_rdp,
    report,
)
from jdfl.privacy.report import upper
from tests.refused import refused

EVENT = LaplaceSchedule((30.0, 20.0, 60.0, 40.0, 5.0))
WHOLE = Guarantee(
    unit="node",
    adjacency="replace-one",
    observer="all messages",
    sensitivity=0.2,
    enforced_by="l1 clipping of every node's gradient to 1",
    claimed=True,
    reason="all messages are noisy by a public schedule",
    event=EVENT,
)
SWAP = replace(
    WHOLE,
    unit="node-swap",
    observer="one message",
    sensitivity=3.5,
    enforced_by="a certified schedule",
    event=LaplaceEvent(8.0),
    failure=4e-6,
)
BOTH = replace(WHOLE, beside=(SWAP,))
RELEASES, RECORDS = np.array([3, 4, 4]), np.array([1000, 1000, 1000])
DELTA = 1e-5


def report_of(guarantee=BOTH, releases=RELEASES, records=RECORDS, **options):
    return report(guarantee, releases, records, **{"delta": DELTA, **options})


def ledger(event=EVENT, releases=RELEASES, **changes):
    return Ledger.of(replace(WHOLE, event=event, **changes), releases, RECORDS)


def test_a_report_is_of_the_releases_that_were_made():
    told = report_of(WHOLE)
    assert told.releases["worst_node"] in (1, 2)
    assert told.epsilon == epsilon(EVENT, 4, DELTA)
    assert told.epsilon_nodes["least"] == epsilon(EVENT, 3, DELTA) < told.epsilon
    assert told.epsilon_rdp == epsilon_rdp(EVENT, 4, DELTA)
    assert told.epsilon_pure == epsilon_pure(EVENT, 4)
    assert (told.noise_multiplier, told.largest_multiplier) == (20.0, 60.0)  # the fifth is to come
    assert told.epsilon_one_release == epsilon(LaplaceEvent(20.0), 1, DELTA)
    assert "noise: laplace, 20 to 60 times the sensitivity, at most 0.2, enforced by l1 clipping" in told.statement()
    pure = report_of(replace(WHOLE, event=LaplaceEvent(30.0)), delta=1e-40)
    assert (pure.largest_multiplier, pure.epsilon) == (None, pure.epsilon_pure)
    assert "epsilon by the sum of pure epsilons;" in pure.statement()
    with refused(releases=6):
        report_of(WHOLE, releases=RELEASES + 2)


def test_what_may_fail_is_a_part_of_delta():
    told = report_of(SWAP)
    assert (told.delta, told.failure) == (DELTA, 4e-6)
    assert told.epsilon == epsilon(LaplaceEvent(8.0), 4, DELTA - 4e-6) > epsilon(LaplaceEvent(8.0), 4, DELTA)
    assert told.epsilon_rdp == epsilon_rdp(LaplaceEvent(8.0), 4, DELTA - 4e-6)
    assert told.epsilon_one_release == epsilon(LaplaceEvent(8.0), 1, DELTA - 4e-6)
    assert "delta includes 4e-06" in told.statement()
    assert "delta includes" not in report_of(WHOLE).statement()
    swap = replace(SWAP, failure=1e-5)  # all of delta is spent beforehand
    for guarantee in (swap, replace(WHOLE, beside=(swap,))):
        with refused("failure", "delta", SWAP.enforced_by):
            report_of(guarantee)


def test_delta_suits_all_relations():
    records = 1000 * RECORDS
    both = replace(WHOLE, beside=(replace(WHOLE, unit="record"),))
    assert report_of(WHOLE, records=records, delta=None).delta == 1e-5
    assert report_of(both, records=records, delta=None).delta == pytest.approx(1e-8)
    with refused(delta=1e-5):
        report_of(both, records=records, delta=1e-5)


def test_a_relation_beside_is_told_what_a_report_of_its_own_says():
    told, alone = report_of(), report_of(SWAP)
    assert replace(told, beside=()) == report_of(WHOLE)
    (other,) = told.beside
    for name in ("unit", "observer", "sensitivity", "enforced_by", "delta", "failure", "epsilon", "epsilon_pure"):
        assert other[name] == getattr(alone, name)
    _, second = (line for line in told.statement().splitlines() if "-differential privacy for" in line)
    assert second == f"- {other['statement']}"
    for words in (f"({upper(alone.epsilon)}, 1e-05)", "node-swap", SWAP.enforced_by, "delta includes 4e-06"):
        assert words in second
    text = report_of(accounting="paper").statement()
    assert "NO GUARANTEE" in text
    assert text.count("if all assumptions held") == text.count("-differential privacy for") == 2


@pytest.mark.parametrize("accounting", ["sound", "paper"])
def test_what_is_not_claimed_or_guessed_has_no_epsilon_in_any_accounting(accounting):
    for changes in ({"event": None}, {"claimed": False}, {"sensitivity": None}):
        silent = replace(SWAP, reason="distances are guessed", **changes)
        (other,) = report_of(replace(WHOLE, beside=(silent,)), accounting=accounting).beside
        assert other["statement"].endswith("NO GUARANTEE: distances are guessed")
        assert {value for name, value in other.items() if "epsilon" in name} == {None}
    guess = {"claimed": False, "event": None, "sensitivity": None, "reason": "Eq. 22 is a guess", "remedy": "Use x."}
    with refused("Eq. 22 is a guess", "Use x"):
        report_of(replace(WHOLE, **guess), accounting=accounting)


def test_a_ledger_takes_the_failure_off_delta():
    told = ledger(failure=4e-6)
    assert told.epsilon(1, DELTA) == epsilon(EVENT, 4, DELTA - 4e-6) == told.worst(DELTA)[1]
    assert told.epsilon(1, 4e-6) == math.inf
    np.testing.assert_array_equal(told.limits(1.0, 4e-6), 0)


def test_a_schedule_may_grow_or_end_earlier_and_is_the_same_as_far_as_it_goes():
    for length in (3, 5, 8):
        longer = LaplaceSchedule((*EVENT.multipliers, 1.0, 2.0, 3.0)[:length])
        ledger().check_same(ledger(longer))
        rounded = tuple(float(np.float32(z) * (1 + 1e-7)) for z in longer.multipliers)
        ledger().check_same(ledger(LaplaceSchedule(rounded)))
    others = LaplaceSchedule((30.0, 20.0, 60.1)), LaplaceSchedule((20.0, 30.0, 60.0, 40.0, 5.0))
    for other in (*others, LaplaceEvent(5.0), GaussianEvent(5.0), None):
        with refused("event"):
            ledger().check_same(ledger(other))


def test_limits_end_with_the_schedule():
    assert ledger().limits(100.0, DELTA).tolist() == [5, 5, 5]
    for share, fit in ((1.001, 4), (0.999, 3), (1e-3, 0)):
        assert ledger().limits(share * epsilon(EVENT, 4, DELTA), DELTA).tolist() == [fit] * 3
