"""Noise for a target, and releases within one: the answers are at the boundary, not short of it nor beyond."""

import math
from typing import Any

import pytest

from jdfl.privacy import (
    GaussianEvent,
    LaplaceEvent,
    Sampled,
    analytic_gaussian,
    epsilon,
    most_releases,
    noise_multiplier,
)
from tests.refused import each_refused

MAKE = {"gaussian": GaussianEvent, "laplace": LaplaceEvent}
LOOKS = Sampled("poisson", 30, 100, looks=2)
CASES = {
    "gaussian": ("gaussian", 1.0, 1e-5, 3, {}),
    "laplace": ("laplace", 1.0, 1e-5, 40, {}),
    "looks": ("gaussian", 2.0, 1e-5, 2, {"sampled": LOOKS}),
    "add-remove": ("gaussian", 1.0, 1e-5, 10, {"sampled": Sampled("poisson", 60, 100), "adjacency": "add-remove"}),
}


@pytest.mark.parametrize("name", CASES)
def test_the_noise_is_enough_and_a_little_less_is_not(name):
    kind, target, delta, releases, options = CASES[name]
    multiplier = noise_multiplier(kind, target, delta, releases, **options)
    assert epsilon(MAKE[kind](multiplier), releases, delta, **options) <= target
    assert epsilon(MAKE[kind](0.999 * multiplier), releases, delta, **options) > target


def test_gaussian_noise_agrees_with_the_closed_form_at_tiny_deltas_too():
    assert noise_multiplier("gaussian", 1.0, 1e-5, 3) == pytest.approx(6.46, abs=0.02)
    for target, delta in [(0.1, 1e-7), (1.0, 1e-40)]:
        exact = analytic_gaussian(target, delta).multiplier
        assert exact <= noise_multiplier("gaussian", target, delta, 1) <= exact * (1 + 1e-3)
    assert noise_multiplier("laplace", 1.0, 1e-40, 4) == pytest.approx(4.0, rel=1e-3)


def test_the_number_of_releases_is_the_last_that_fits():
    for event, options in ((GaussianEvent(30.0), {}), (GaussianEvent(3.0), {"sampled": LOOKS})):
        found = most_releases(event, 1.0, 1e-5, **options)
        assert found > 1
        assert epsilon(event, found, 1e-5, **options) <= 1.0 < epsilon(event, found + 1, 1e-5, **options)


def test_the_number_of_releases_agrees_with_closed_forms_and_other_targets_are_refused():
    one = analytic_gaussian(1.0, 1e-5).multiplier
    assert most_releases(GaussianEvent(1.0005 * one * math.sqrt(5)), 1.0, 1e-5) == 5
    assert most_releases(LaplaceEvent(10.0), 1.05, 1e-14) == 10
    assert most_releases(GaussianEvent(0.5), 1.0, 1e-5) == 0
    assert most_releases(GaussianEvent(1e9), 1.0, 1e-5, most=1000) == 1000
    right: dict[str, Any] = {"kind": "gaussian", "epsilon": 1.0, "delta": 1e-5, "releases": 1}
    wrong = {"kind": "uniform"}, {"epsilon": 0.0}, {"epsilon": 1e101}, {"delta": 1.0}, {"releases": 0}
    each_refused(noise_multiplier, *wrong, **right)
    each_refused(lambda batch: noise_multiplier(**right, sampled=Sampled("subset", batch, 4)), {"batch": 5})
