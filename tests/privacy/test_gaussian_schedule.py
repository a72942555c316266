"""Gaussian releases that tell different amounts: what they add up to, are stored as, and how many a budget allows."""

import json
import math
from typing import Any

import numpy as np
import pytest

from jdfl.privacy import GaussianEvent, GaussianSchedule, Ledger, Sampled, epsilon, epsilons, gaussian_epsilon
from jdfl.privacy.accounting import most_releases
from jdfl.privacy.ledger import total_epsilon
from jdfl.privacy.report import span
from tests.refused import each_refused, refused


def ledger(event: Any, releases: Any = (2, 3), **fields: Any) -> Ledger:
    """That of a run of two nodes."""
    terms = {"adjacency": "replace-one", "sampling": None, "unit": "record", "observer": "all messages"}
    counts = np.asarray(releases), np.asarray([10, 10])
    return Ledger(event=event, releases=counts[0], records=counts[1], claimed=True, **terms, **fields)


def test_its_beginnings_are_as_one_release():
    mu = [0.3, 0.3, 0.7, 2.0]
    event = GaussianSchedule.of(mu)
    for releases, shift in enumerate(mu, 1):
        assert event.shift(releases) == shift
        assert epsilon(event, releases, 1e-3) == pytest.approx(gaussian_epsilon(shift, 1e-3), rel=1e-3, abs=1e-4)
    assert event.shift(0) == 0 == epsilon(event, 0, 1e-3)
    np.testing.assert_array_equal(event.shift(np.array([0, len(mu)])), [0, mu[-1]])


def test_equal_noise_is_that_of_plain_releases():
    event, plain = GaussianSchedule.of(np.sqrt(np.arange(1, 9)) / 3.0), GaussianEvent(3.0)
    assert span(event, 5) == pytest.approx((3.0, 3.0))
    for name, bound in epsilons(plain, 8, 1e-5).items():
        assert epsilons(event, 8, 1e-5)[name] == pytest.approx(bound, rel=1e-9)


def test_it_is_stored_and_compared():
    event = GaussianSchedule.of([0.5, 0.5, 0.9])
    again = Ledger.from_dict(json.loads(json.dumps(ledger(event).as_dict())))
    assert again.event == event
    ledger(event).check_same(again)
    ledger(event).check_same(ledger(GaussianSchedule.of([0.5, 0.5, 0.9, 1.0])))  # of more rounds
    with refused("event"):
        ledger(event).check_same(ledger(GaussianSchedule.of([0.5, 0.6, 0.9])))


def test_runs_add_up_by_their_squares_and_a_budget_allows_no_more_than_are_scheduled():
    one, other = ledger(GaussianSchedule.of([0.3, 0.5, 0.6])), ledger(GaussianEvent(4.0), (9, 1))
    wanted = max(0.5**2 + 9 / 16, 0.6**2 + 1 / 16)
    assert total_epsilon([one, other], 1e-5) == pytest.approx(gaussian_epsilon(math.sqrt(wanted), 1e-5))
    assert total_epsilon([one, one], 1e-5) == pytest.approx(gaussian_epsilon(math.sqrt(2) * 0.6, 1e-5))
    event = GaussianSchedule.of([0.3, 0.3, 0.3, 2.0])
    assert most_releases(event, 100.0, 1e-5) == 4
    assert most_releases(event, epsilon(event, 3, 1e-5), 1e-5) == 3
    assert most_releases(event, epsilon(event, 1, 1e-5) * 0.99, 1e-5) == 0
    each_refused(epsilon, {"releases": 5}, {"sampled": Sampled("subset", 1, 2)}, event=event, releases=1, delta=1e-5)
    for mu in ([], [0.0, 1.0], [1.0, 0.9], [1.0, math.inf], [math.nan]):
        with refused("mu"):
            GaussianSchedule.of(mu)
