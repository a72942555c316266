"""The statistics of an attack alone, on samples whose truth is known."""

import math
from functools import partial

import numpy as np
import pytest
import scipy

from jdfl.auditing.attack import (
    area,
    attack,
    best_threshold,
    delta_bound,
    epsilon_bound,
    errors,
    excluded_epsilons,
    fit,
    most_likely,
    separation,
)
from jdfl.privacy import gaussian_delta, gaussian_epsilon
from tests.refused import refused

DELTA = 1e-5


def _rng(*seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.mark.parametrize("mu", [0.0, 0.7, 2.5])
def test_the_interval_of_mu_covers_as_often_as_it_says(mu):
    rng, covered = _rng(1), 0
    for _ in range(1000):
        estimate, low, high = separation(rng.normal(size=150), mu + rng.normal(size=250), 0.9)
        assert low < estimate < high
        covered += low <= mu <= high
    # 1000 tosses of a coin that comes up in 90 of 100: four standard deviations are 38
    assert abs(covered - 900) < 40


@pytest.mark.parametrize("rate", [0.001, 0.03, 0.5, 0.97])
def test_a_rate_is_below_its_upper_bound_as_often_as_it_says_exactly(rate):
    runs, level = 60, 0.975
    errors = np.arange(runs + 1)
    missed = scipy.stats.binom.pmf(errors, runs, rate)[most_likely(errors, runs, level) < rate].sum()
    assert missed <= 1 - level
    assert most_likely(np.array([runs]), runs, level) == 1
    assert np.isclose(most_likely(np.array([0]), runs, level)[0], 1 - (1 - level) ** (1 / runs))


@pytest.mark.parametrize("mu", [0.0, 1.5])
def test_the_bound_exceeds_the_true_epsilon_as_rarely_as_it_says(mu):
    rng, above, found, runs = _rng(2), 0, [], 2000
    true = gaussian_epsilon(mu, DELTA) if mu else 0.0
    for _ in range(200):
        zero, one = rng.normal(size=(2, runs, 2))
        told = attack(zero, one + np.array([mu, 0.0]), delta=DELTA, confidence=0.8)
        found.append(told.epsilon_lower)
        above += told.epsilon_lower > true
    assert above <= 0.2 * 200
    assert mu == 0 or np.mean(found) > 0.35 * true  # half of the runs choose the threshold


def test_the_bound_comes_close_where_the_best_test_is_known():
    """Randomised response: a bit that is flipped with chance 1 / (1 + e) has epsilon 1 exactly."""
    rng, runs, found = _rng(3), 20_000, []
    for _ in range(50):
        flipped = rng.random((2, runs)) < 1 / (1 + math.e)
        zero, one = flipped[0].astype(float), 1 - flipped[1].astype(float)
        threshold = best_threshold(zero[::2], one[::2], partial(excluded_epsilons, delta=0.0), 0.95)
        above, below = errors(zero[1::2], one[1::2], threshold)
        found.append(epsilon_bound(above, below, runs // 2, runs // 2, 0.0, 0.95))
    assert np.sum(np.array(found) > 1) <= 6  # 2.5 expected at most
    assert 0.9 < np.mean(found) < 1


def test_the_bound_works_in_both_directions_and_with_delta():
    # Few of the second world are below the threshold, but many of the first above it.
    one_way, other = epsilon_bound(500, 0, 1000, 1000, 0.0, 0.95), epsilon_bound(0, 500, 1000, 1000, 0.0, 0.95)
    assert np.isclose(one_way, other)
    some, none = (most_likely(np.array([count]), 1000, 1 - 0.025)[0] for count in (500, 0))
    assert np.isclose(one_way, math.log(1 - some) - math.log(none))
    assert epsilon_bound(500, 0, 1000, 1000, 0.2, 0.95) < one_way
    assert epsilon_bound(500, 500, 1000, 1000, 0.0, 0.95) == 0


def test_the_bound_of_delta_exceeds_the_true_one_as_rarely_as_it_says():
    rng, above, found, runs, mu = _rng(8), 0, [], 2000, 0.5
    true = gaussian_delta(mu, 0.3)
    for _ in range(200):
        zero, one = rng.normal(size=(2, runs, 1))
        told = attack(zero, one + mu, delta=DELTA, confidence=0.8, epsilon=0.3)
        assert told.delta_lower is not None
        found.append(told.delta_lower)
        above += told.delta_lower > true
    assert above <= 0.2 * 200
    assert true - 0.06 < np.mean(found) < true  # 1000 held-out runs a side: the two rates are known within .02
    assert attack(zero, one + mu, delta=DELTA).delta_lower is None
    assert delta_bound(500, 500, 1000, 1000, 0.3, 0.95) == 0


def test_the_area_counts_pairs():
    rng = _rng(4)
    zero, one = rng.integers(0, 6, 40).astype(float), rng.integers(2, 8, 30).astype(float)
    pairs = (one[:, None] > zero).mean() + (one[:, None] == zero).mean() / 2
    assert np.isclose(area(zero, one), pairs)
    sample = rng.normal(size=(2, 20_000))
    assert abs(area(sample[0], sample[1] + 1) - scipy.stats.norm.cdf(1 / math.sqrt(2))) < 0.01


def test_the_score_takes_away_what_is_common():
    """Two features that share a large part: their difference tells what neither does alone."""
    rng, runs = _rng(5), 2000

    def world(mu: float) -> np.ndarray:
        common = 100 * rng.normal(size=runs)
        return np.stack([common + mu + rng.normal(size=runs), common, np.full(runs, 7.0), common], axis=1)

    found, alone = [], []
    for _ in range(40):
        zero, one = world(0.0), world(1.5)
        found.append(attack(zero, one, delta=DELTA).mu_hat)
        alone.append(attack(zero[:, :1], one[:, :1], delta=DELTA).mu_hat)
    # The standard deviation of an estimate is 0.05, so 0.008 of the mean of 40.
    assert abs(np.mean(found) - 1.5) < 0.035
    assert abs(np.mean(alone)) < 0.05
    scaled = attack(zero * [1e3, 1e-3, 1, 5], one * [1e3, 1e-3, 1, 5], delta=DELTA)
    assert np.isclose(scaled.mu_hat, found[-1], rtol=1e-6)
    score = fit(zero, one)
    assert score[2] == 0
    assert score[0] > 0 > score[1]


def test_worlds_without_noise_are_told_apart_for_certain():
    rng = _rng(6)
    noise = rng.normal(size=(2, 1000, 1))
    fixed = np.ones((1000, 1))
    told = attack(np.hstack([noise[0], fixed]), np.hstack([noise[1], fixed + 1e-3]), delta=DELTA)
    assert told.auc == 1
    assert told.mu_hat > 1e3
    assert told.epsilon_lower == told.epsilon_most > 4
    alike = attack(np.hstack([fixed, fixed]), np.hstack([fixed, fixed]), delta=DELTA)
    assert (alike.mu_hat, alike.auc, alike.epsilon_lower) == (0, 0.5, 0)


def test_bad_features_are_refused():
    good = _rng(7).normal(size=(20, 2))
    for one, named in (
        (good[:3], "runs_one"),
        (np.where(good == good[2, 1], np.inf, good), "one"),
        (good[:, 0], "one"),
    ):
        with refused(named):
            attack(good, one, delta=DELTA)
