"""The ledger finds the most exposed node, comes back from JSON, and the report says no more than is so."""

import json
import math
import re
from dataclasses import fields, replace
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jdfl.privacy import (
    NO_NOISE,
    GaussianEvent,
    Guarantee,
    LaplaceEvent,
    LaplaceSchedule,
    Ledger,
    Published,
    Sampling,
    epsilon,
    epsilon_pure,
    epsilon_rdp,
    report,
)
from jdfl.privacy.report import ASSUMPTIONS, default_delta, upper
from tests.refused import each_refused, refused

SAMPLING = Sampling("subset", 10)
CLAIMED = Guarantee(
    unit="record",
    adjacency="replace-one",
    observer="all messages",
    sensitivity=0.02,
    enforced_by="l2 clipping of every example's gradient to 1",
    claimed=True,
    reason="every gradient is clipped and noisy",
    event=GaussianEvent(3.0),
)
UNCLAIMED = replace(CLAIMED, claimed=False, enforced_by=None, reason="nothing is clipped", remedy="Give clip.")
RELEASES, RECORDS = np.array([4, 9, 0]), np.array([100, 200, 50])


def ledger(sampling: Sampling | None = SAMPLING, releases=RELEASES, records=RECORDS, **changes):
    return Ledger.of(replace(CLAIMED, sampling=sampling, **changes), releases, records)


def report_of(guarantee=CLAIMED, releases=RELEASES, records=RECORDS, **options):
    return report(guarantee, releases, records, **options)


def test_the_worst_node_is_the_worst_of_all():
    """Fewer releases may tell more, where samples are of few records."""
    for sampling, worst in ((None, 2), (SAMPLING, 1)):
        told = ledger(sampling, np.array([3, 12, 25]), np.array([20, 20, 80]))
        every = [told.epsilon(node, 1e-5) for node in range(3)]
        assert told.worst(1e-5) == (worst, max(every))
        assert every[worst] == max(every) > min(every)


def test_few_releases_from_few_records_may_be_the_worst():
    told = ledger(SAMPLING, np.array([100, 20]), np.array([1000, 20]))
    assert told.worst(1e-5)[0] == 1
    assert ledger(None, np.array([100, 20]), np.array([1000, 20])).worst(1e-5)[0] == 0


def test_the_ledger_counts_what_the_accountant_does_and_limits_are_the_last_number_that_fits():
    told = ledger()
    for node in range(3):
        sampled = told.sampled(node)
        assert sampled is not None
        assert (sampled.kind, sampled.batch, sampled.records) == ("subset", 10, RECORDS[node])
        assert told.epsilon(node, 1e-5) == epsilon(GaussianEvent(3.0), int(RELEASES[node]), 1e-5, sampled=sampled)
    assert told.epsilon(2, 1e-5) == 0.0
    assert ledger(event=None).epsilon(0, 1e-5) == math.inf
    told = ledger(Sampling("subset", 40), records=np.array([50, 100, 50]))
    limits = told.limits(1.2, 1e-3)
    assert limits[0] == limits[2] < limits[1]
    at, beyond = replace(told, releases=limits), replace(told, releases=limits + 1)
    assert all(at.epsilon(node, 1e-3) <= 1.2 < beyond.epsilon(node, 1e-3) for node in (0, 1))
    np.testing.assert_array_equal(ledger(event=None).limits(1.0, 1e-5), 0)


def test_a_ledger_comes_back_from_json():
    poisson = ledger(Sampling("poisson", 3, 2), event=LaplaceEvent(0.1), adjacency="add-remove")
    scheduled = ledger(None, event=LaplaceSchedule((30.0,) * 9), failure=1e-7)
    for told in (ledger(), poisson, scheduled, Ledger.of(NO_NOISE, RELEASES, RECORDS)):
        back = Ledger.from_dict(json.loads(json.dumps(told.as_dict())))
        for field in fields(Ledger):
            mine, theirs = getattr(told, field.name), getattr(back, field.name)
            assert type(mine) is type(theirs)
            np.testing.assert_array_equal(mine, theirs)
        told.check_same(back)
        assert back.terms(0) == told.terms(0)
    older = {name: value for name, value in ledger().as_dict().items() if name != "failure"}
    assert Ledger.from_dict(older).failure == 0.0


def test_going_on_with_other_noise_is_refused():
    for other, named in [
        (ledger(event=GaussianEvent(2.0)), "event"),
        (ledger(adjacency="add-remove"), "adjacency"),
        (ledger(unit="node"), "unit"),
        (ledger(failure=1e-7), "failure"),
        (ledger(Sampling("subset", 10, 2)), "sampling"),
        (ledger(records=RECORDS + 1), "records"),
    ]:
        with refused(named):
            ledger().check_same(other)
    ledger().check_same(ledger(releases=RELEASES + 5))


def test_a_report_is_what_the_accountants_say_of_the_worst_node():
    guarantee = replace(CLAIMED, sampling=SAMPLING)
    told, worst = report_of(guarantee, delta=1e-6), ledger().sampled(0)
    assert told.sound
    assert (told.releases["worst_node"], told.epsilon) == ledger().worst(1e-6)
    assert told.releases["worst_node"] == 0
    assert told.epsilon_rdp == epsilon_rdp(GaussianEvent(3.0), 4, 1e-6, sampled=worst)
    assert told.epsilon_unamplified == epsilon(GaussianEvent(3.0), 9, 1e-6) > told.epsilon  # of all nodes
    assert told.epsilon_one_release == epsilon(GaussianEvent(3.0), 1, 1e-6) < told.epsilon_unamplified
    assert told.epsilon_nodes["least"] == 0.0
    assert told.epsilon_pure is None
    assert (told.releases["least"], told.releases["median"], told.releases["most"]) == (0, 4.0, 9)
    assert (told.releases["total"], told.records) == (13, {"least": 50, "total": 350})
    assert told.sampling == {"kind": "subset", "batch": 10, "rate": 0.2}
    assert report_of(replace(CLAIMED, event=LaplaceEvent(3.0))).epsilon_pure == epsilon_pure(LaplaceEvent(3.0), 9)


@given(value=st.floats(min_value=0, max_value=1e300), digits=st.integers(1, 8))
@example(value=0.1, digits=4)
@example(value=1.0000000000000002, digits=4)
@example(value=9999.5, digits=4)
def test_a_printed_bound_is_never_below_the_computed_one_and_off_by_less_than_a_digit(value, digits):
    told = upper(value, digits)
    assert float(told) >= value
    unit = Decimal(10) ** (Decimal(repr(value)).adjusted() - digits + 1)
    assert Decimal(told) - Decimal(repr(value)) < unit
    assert len(Decimal(told).normalize().as_tuple().digits) <= digits
    assert upper(math.inf) == "inf"


def test_a_sound_report_states_its_guarantee_and_no_epsilon_below_the_computed_one():
    other = replace(CLAIMED, sampling=SAMPLING, warnings=("sigma is not public",))
    told = report_of(replace(other, beside=(replace(other, sensitivity=0.04),)), warnings=("a step was skipped",))
    for words in (*ASSUMPTIONS, CLAIMED.enforced_by, "warning: sigma is not public", "warning: a step was skipped"):
        assert words in told.statement()
    for pattern, bound in {
        r"privacy: \((\S+), ": told.epsilon,
        r", median (\S+), maximum": told.epsilon_nodes["median"],
        r"by RDP ([^\s;]+)": told.epsilon_rdp,
        r"without sampling ([^\s;]+)": told.epsilon_unamplified,
        r"of one release ([^\s;]+)": told.epsilon_one_release,
        r"in addition: \((\S+), ": told.beside[0]["epsilon"],
    }.items():
        found = re.search(pattern, told.statement())
        assert found is not None, pattern
        assert bound <= float(found[1]) <= 1.001 * bound, pattern


def test_a_delta_that_publishes_a_record_is_refused_and_one_near_it_is_warned_of():
    for unit, counted, most in (("record", "records", 1 / 350), ("node-swap", "nodes", 1 / 3)):
        guarantee = replace(CLAIMED, unit=unit)
        for share, warned in ((0.0999, 0), (0.1, 1), (0.99, 1)):
            assert len(report_of(guarantee, delta=share * most).warnings) == warned
        for delta in (most, 0.5):
            with refused("delta", counted):
                report_of(guarantee, delta=delta)
    each_refused(report_of, {"delta": 0.0}, {"accounting": "loose"})


def test_the_default_delta_is_a_power_of_ten_below_a_tenth_of_one_over_the_records():
    for records, power in ((1, -5), (9_999, -5), (10_000, -6), (10_001, -6), (10**9, -11)):
        assert 0.1 / records > default_delta(records) == pytest.approx(10.0**power)
    told = report_of(records=np.array([10_000, 1, 1]), releases=np.ones(3))
    assert (told.delta, told.warnings) == (default_delta(10_002), ())


def test_what_is_not_claimed_has_no_report_but_by_a_paper_s_accounting_and_labelled():
    with refused(UNCLAIMED.reason, "Give clip", "'paper'"):
        report_of(UNCLAIMED)
    for accounting in ("sound", "paper"):
        with refused("no noise is added", "mechanism"):
            report_of(NO_NOISE, accounting=accounting)
    published = Published(2.0, 0.5, "Theorem 2", "half of all runs may tell everything")
    for guarantee, words in (
        (UNCLAIMED, "NO GUARANTEE: nothing is clipped\n"),
        (replace(CLAIMED, published=published), "NO GUARANTEE: half of all runs"),
        (replace(CLAIMED, published=published), "as published, unsound: epsilon = 2 at delta = 0.5 (Theorem 2)"),
    ):
        told = report_of(guarantee, accounting="paper")
        assert (told.sound, told.epsilon) == (False, report_of().epsilon)
        assert words in told.statement()


def test_a_report_is_plain_data():
    beside = replace(CLAIMED, unit="node-swap", failure=4e-6, event=LaplaceSchedule((8.0,) * 9))
    published = Published(math.inf, 0.5, "T", "vacuous")
    told = report_of(replace(CLAIMED, beside=(beside,), published=published)).as_dict()
    back = json.loads(json.dumps(told, allow_nan=False))
    assert (back["published"]["epsilon"], back["sound"]) == (None, True)
    assert isinstance(back["releases"]["worst_node"], int)
    assert isinstance(back["beside"][0]["epsilon"], float)
    assert json.loads(json.dumps(beside.as_dict(), allow_nan=False))["failure"] == 4e-6
