"""Reports and ledgers of noise that follows a schedule, under several neighbouring relations at once."""

import json
import math
from dataclasses import dataclass, fields, replace

import numpy as np
import pytest

from jdfl.engine.spending import records_of, release_limits
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
from jdfl.privacy.relation import upper
from tests.toy import problem

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


# ---------------------------------------------------------------- reports


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
    none = report_of(WHOLE, releases=0 * RELEASES)
    assert (none.epsilon, none.epsilon_one_release, none.noise_multiplier, none.largest_multiplier) == (0, 0, 5.0, 60.0)


def test_noise_that_does_not_differ_is_told_as_one():
    told = report_of(replace(WHOLE, event=LaplaceEvent(7.0)))
    assert told.largest_multiplier is None
    assert "noise: laplace, 7 times" in told.statement()


@pytest.mark.parametrize(
    ("event", "small"),
    [(EVENT, LaplaceSchedule((2e-4, 3e-4, 3e-4, 2e-4))), (LaplaceEvent(30.0), LaplaceEvent(3e-4))],
    ids=["schedule", "constant"],
)
def test_the_bound_that_is_least_is_named(event, small):
    assert "epsilon by PLD; by RDP" in report_of(replace(WHOLE, event=event)).statement()
    told = report_of(replace(WHOLE, event=small))
    assert told.epsilon == told.epsilon_rdp
    assert "epsilon by RDP; by RDP" in told.statement()
    told = report_of(replace(WHOLE, event=event), delta=1e-40)
    assert told.epsilon == told.epsilon_pure
    assert "epsilon by the sum of pure epsilons;" in told.statement()


def test_more_releases_than_were_scheduled_have_no_report():
    with pytest.raises(ValueError, match="at most the 5 releases"):
        report_of(WHOLE, releases=RELEASES + 2)


def test_what_may_fail_is_a_part_of_delta():
    told = report_of(SWAP)
    assert told.delta == DELTA
    assert told.failure == 4e-6
    assert told.epsilon == epsilon(LaplaceEvent(8.0), 4, DELTA - 4e-6) > epsilon(LaplaceEvent(8.0), 4, DELTA)
    assert told.epsilon_rdp == epsilon_rdp(LaplaceEvent(8.0), 4, DELTA - 4e-6)
    assert told.epsilon_one_release == epsilon(LaplaceEvent(8.0), 1, DELTA - 4e-6)
    assert "delta includes 4e-06, the probability that" in told.statement()
    assert "delta includes" not in report_of(WHOLE).statement()
    assert report_of(SWAP, delta=None).delta == 1e-5


@pytest.mark.parametrize("failure", [1e-5, 0.5])
@pytest.mark.parametrize("where", ["itself", "beside"])
def test_a_delta_that_is_spent_beforehand_is_refused(failure, where):
    swap = replace(SWAP, failure=failure)
    with pytest.raises(ValueError, match=rf"delta > failure = {failure:g}, got delta = 1e-05.*a certified schedule"):
        report_of(swap if where == "itself" else replace(WHOLE, beside=(swap,)))


@pytest.mark.parametrize("unit", ["node", "node-swap"])
def test_delta_is_held_against_nodes_where_nodes_are_protected(unit):
    assert report_of(replace(WHOLE, unit=unit), delta=0.01).warnings == ()
    assert "below a tenth of 1 / nodes" in report_of(replace(WHOLE, unit=unit), delta=0.2).warnings[0]
    with pytest.raises(ValueError, match=r"delta < 1 / nodes = 0\.333"):
        report_of(replace(WHOLE, unit=unit), delta=0.4)
    with pytest.raises(ValueError, match="delta < 1 / records"):
        report_of(replace(WHOLE, unit="record"), delta=0.01)


def test_delta_suits_all_relations():
    records = 1000 * RECORDS
    both = replace(WHOLE, beside=(replace(WHOLE, unit="record"),))
    assert report_of(WHOLE, records=records, delta=None).delta == 1e-5
    assert report_of(both, records=records, delta=None).delta == pytest.approx(1e-8)
    with pytest.raises(ValueError, match="delta < 1 / records"):
        report_of(both, records=records, delta=1e-5)


def test_a_relation_beside_is_told_what_a_report_of_its_own_says():
    told, alone = report_of(), report_of(SWAP)
    assert replace(told, beside=()) == report_of(WHOLE)
    (other,) = told.beside
    for name in ("unit", "adjacency", "observer", "sensitivity", "enforced_by", "noise_multiplier", "delta", "failure"):
        assert other[name] == getattr(alone, name)
    for name in ("epsilon", "epsilon_pure", "epsilon_one_release", "largest_multiplier", "mechanism"):
        assert other[name] == getattr(alone, name)
    first, second = (line for line in told.statement().splitlines() if "-differential privacy for" in line)
    assert first.startswith(
        f"- privacy: ({upper(told.epsilon)}, 1e-05)-differential privacy for a whole node's data (r"
    )
    assert second == f"- {other['statement']}"
    assert f"({upper(alone.epsilon)}, 1e-05)-differential privacy for one node's answer" in second
    assert "(node-swap, replace-one)" in second
    assert "enforced by a certified schedule" in second
    assert "delta includes 4e-06" in second


def test_by_the_paper_s_accounting_both_relations_are_labelled():
    text = report_of(accounting="paper").statement()
    assert "privacy: NO GUARANTEE" in text
    lines = [line for line in text.splitlines() if "-differential privacy for" in line]
    assert len(lines) == 2
    assert all("if all assumptions held" in line for line in lines)


@pytest.mark.parametrize("accounting", ["sound", "paper"])
@pytest.mark.parametrize("changes", [{"event": None}, {"claimed": False}, {"sensitivity": None}], ids=lambda c: min(c))
def test_a_relation_under_which_nothing_is_claimed_has_no_epsilon(changes, accounting):
    silent = replace(SWAP, reason="distances are guessed", **changes)
    (other,) = report_of(replace(WHOLE, beside=(silent,)), accounting=accounting).beside
    assert other["statement"].endswith("(node-swap, replace-one): NO GUARANTEE: distances are guessed")
    assert {value for name, value in other.items() if "epsilon" in name} == {None}


@pytest.mark.parametrize("accounting", ["sound", "paper"])
@pytest.mark.parametrize("unit", ["none", "node", "node-swap"])
def test_a_guessed_sensitivity_has_no_epsilon_in_any_accounting(unit, accounting):
    guessed = replace(
        WHOLE,
        unit=unit,
        claimed=False,
        event=None,
        reason="Eq. 22 is a guess",
        remedy="Use another.",
        sensitivity=None,
    )
    with pytest.raises(ValueError, match=r"^No epsilon can be given: Eq\. 22 is a guess\. Use another\.$"):
        report_of(guessed, accounting=accounting)


@pytest.mark.parametrize("event", [EVENT, LaplaceEvent(1.0)], ids=["schedule", "constant"])
def test_reports_and_guarantees_are_plain_data(event):
    both = replace(BOTH, event=event)
    told = report_of(both).as_dict()
    back = json.loads(json.dumps(told, allow_nan=False))
    assert back == told
    assert back["beside"][0]["unit"] == "node-swap"
    assert isinstance(back["beside"][0]["epsilon"], float)
    guarantee = json.loads(json.dumps(both.as_dict(), allow_nan=False))
    assert guarantee["beside"][0]["failure"] == 4e-6
    assert guarantee["event"] == json.loads(json.dumps(vars(event)))
    assert hash(both) == hash(replace(BOTH, event=event))


# ---------------------------------------------------------------- ledgers


def test_a_ledger_comes_back_from_json():
    told = ledger(failure=1e-7)
    back = Ledger.from_dict(json.loads(json.dumps(told.as_dict())))
    for field in fields(Ledger):
        mine, theirs = getattr(told, field.name), getattr(back, field.name)
        assert type(mine) is type(theirs)
        np.testing.assert_array_equal(mine, theirs)
    told.check_same(back)
    assert back.worst(DELTA) == told.worst(DELTA)
    older = told.as_dict()
    del older["failure"]
    assert Ledger.from_dict(older).failure == 0.0


def test_a_ledger_takes_the_failure_off_delta():
    told = ledger(failure=4e-6)
    assert told.epsilon(1, DELTA) == epsilon(EVENT, 4, DELTA - 4e-6) == told.worst(DELTA)[1]
    assert told.epsilon(1, 4e-6) == math.inf
    np.testing.assert_array_equal(told.limits(1.0, 4e-6), 0)


@pytest.mark.parametrize("length", [3, 4, 5, 8])
def test_a_schedule_may_grow_or_end_earlier(length):
    longer = LaplaceSchedule((*EVENT.multipliers, 1.0, 2.0, 3.0)[:length])
    ledger().check_same(ledger(longer))
    ledger().check_same(ledger(LaplaceSchedule(tuple(float(np.float32(z) * (1 + 1e-7)) for z in longer.multipliers))))


@pytest.mark.parametrize(
    ("event", "words"),
    [
        (LaplaceSchedule((30.0, 20.0, 60.1)), r"event = LaplaceSchedule.*\(release 3: 60, got 60\.1\)"),
        (LaplaceSchedule((20.0, 30.0, 60.0, 40.0, 5.0)), r"\(release 1: 30, got 20\)"),
        (LaplaceEvent(5.0), r"got LaplaceEvent\(noise_multiplier=5\.0\)\. What"),
        (GaussianEvent(5.0), "got GaussianEvent"),
        (None, "got None"),
    ],
    ids=["later", "order", "constant", "gaussian", "none"],
)
def test_going_on_with_another_schedule_is_refused(event, words):
    with pytest.raises(ValueError, match=words):
        ledger().check_same(ledger(event))


def test_going_on_with_another_failure_is_refused():
    with pytest.raises(ValueError, match=r"failure = 1e-07, got 2e-07"):
        ledger(failure=1e-7).check_same(ledger(failure=2e-7))


def test_limits_end_with_the_schedule():
    assert ledger().limits(100.0, DELTA).tolist() == [5, 5, 5]
    target = epsilon(EVENT, 4, DELTA)
    assert ledger().limits(1.001 * target, DELTA).tolist() == [4, 4, 4]
    assert ledger().limits(0.999 * target, DELTA).tolist() == [3, 3, 3]
    assert ledger().limits(1e-3, DELTA).tolist() == [0, 0, 0]


@dataclass(frozen=True)
class Says:
    """As much of an algorithm as says something about privacy."""

    guarantee: Guarantee

    def privacy(self, problem, plan=None, steps=None):
        return self.guarantee


def test_a_budget_is_spent_at_delta_without_the_failure(monkeypatch):
    monkeypatch.setattr("jdfl.algorithms.program._derives", lambda _: True)  # there is no program to derive it from
    event, target = LaplaceSchedule((9.0,) * 50), 2.0
    swap = replace(SWAP, event=event, failure=9.99e-6)
    limits = release_limits(Says(swap), problem, epsilon=target, delta=DELTA)  # pyright: ignore[reportArgumentType]
    assert len(limits) == len(records_of(problem))
    best, left = int(limits[0]), DELTA - 9.99e-6
    assert epsilon(event, best, left) <= target < epsilon(event, best + 1, left)
    assert epsilon(event, best + 1, DELTA) < target  # which it would be if nothing failed
