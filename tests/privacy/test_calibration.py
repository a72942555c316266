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

MAKE = {"gaussian": GaussianEvent, "laplace": LaplaceEvent}
SUBSET, POISSON = Sampled("subset", 20, 100), Sampled("poisson", 30, 100, looks=2)
CASES = {
    "gaussian": ("gaussian", 1.0, 1e-5, 3, {}),
    "gaussian-much": ("gaussian", 30.0, 1e-6, 50, {}),
    "gaussian-little": ("gaussian", 0.02, 1e-6, 1, {}),
    "laplace": ("laplace", 1.0, 1e-5, 40, {}),
    "laplace-one": ("laplace", 0.5, 1e-9, 1, {}),
    "subset": ("gaussian", 2.0, 1e-5, 30, {"sampled": SUBSET}),
    "subset-laplace": ("laplace", 2.0, 1e-5, 9, {"sampled": SUBSET}),
    "looks": ("gaussian", 2.0, 1e-5, 9, {"sampled": POISSON}),
    "add-remove": ("gaussian", 3.0, 1e-5, 4, {"sampled": Sampled("poisson", 60, 100), "adjacency": "add-remove"}),
}


@pytest.mark.parametrize("name", CASES)
def test_the_noise_is_enough_and_a_little_less_is_not(name):
    kind, target, delta, releases, options = CASES[name]
    multiplier = noise_multiplier(kind, target, delta, releases, **options)
    assert epsilon(MAKE[kind](multiplier), releases, delta, **options) <= target
    assert epsilon(MAKE[kind](0.999 * multiplier), releases, delta, **options) > target


@pytest.mark.parametrize(("target", "delta", "releases"), [(0.1, 1e-7, 1), (20.0, 1e-5, 10)])
def test_gaussian_noise_agrees_with_the_closed_form(target, delta, releases):
    exact = analytic_gaussian(target, delta, releases).multiplier
    assert exact <= noise_multiplier("gaussian", target, delta, releases) <= exact * (1 + 1e-3)


def test_three_releases_need_six_and_a_half():
    assert noise_multiplier("gaussian", 1.0, 1e-5, 3) == pytest.approx(6.46, abs=0.02)


@pytest.mark.parametrize("delta", [1e-20, 1e-40])
def test_tiny_deltas_end(delta):
    exact = analytic_gaussian(1.0, delta).multiplier
    assert noise_multiplier("gaussian", 1.0, delta, 1) == pytest.approx(exact, rel=1e-3)
    assert noise_multiplier("laplace", 1.0, delta, 4) == pytest.approx(4.0, rel=1e-3)


@pytest.mark.parametrize(
    ("event", "target", "options"),
    [
        (GaussianEvent(30.0), 1.0, {}),
        (LaplaceEvent(30.0), 1.0, {}),
        (GaussianEvent(2.0), 3.0, {"sampled": SUBSET}),
        (GaussianEvent(3.0), 3.0, {"sampled": POISSON}),
    ],
    ids=["gaussian", "laplace", "subset", "looks"],
)
def test_the_number_of_releases_is_the_last_that_fits(event: Any, target: float, options: Any):
    found = most_releases(event, target, 1e-5, **options)
    assert found > 1
    assert epsilon(event, found, 1e-5, **options) <= target < epsilon(event, found + 1, 1e-5, **options)


def test_the_number_of_gaussian_releases_agrees_with_the_closed_form():
    one = analytic_gaussian(1.0, 1e-5).multiplier
    for count in (1, 5, 40):
        event = GaussianEvent(1.0005 * one * math.sqrt(count))
        assert most_releases(event, 1.0, 1e-5) == count


def test_the_number_of_laplace_releases_at_a_tiny_delta_is_that_of_the_pure_sum():
    assert most_releases(LaplaceEvent(10.0), 1.05, 1e-14) == 10


def test_none_fit_or_as_many_as_were_asked_for():
    assert most_releases(GaussianEvent(0.5), 1.0, 1e-5) == 0
    assert most_releases(GaussianEvent(1e9), 1.0, 1e-5, most=1000) == 1000


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"kind": "uniform"}, "kind = 'uniform'"),
        ({"epsilon": 0.0}, "epsilon = 0.0"),
        ({"delta": 1.0}, "delta = 1.0"),
        ({"releases": 0}, "releases = 0"),
        ({"sampled": Sampled("subset", 5, 4)}, "batch = 5"),
    ],
    ids=["kind", "epsilon", "delta", "releases", "sampled"],
)
def test_targets_that_make_no_sense_are_refused(changes: dict[str, Any], words: str):
    settings: dict[str, Any] = {"kind": "gaussian", "epsilon": 1.0, "delta": 1e-5, "releases": 1, **changes}
    with pytest.raises(ValueError, match=words):
        noise_multiplier(**settings)
