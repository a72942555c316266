"""The statistics of an attack alone, on samples whose truth is known."""

import math

import numpy as np
import pytest
import scipy

from jdfl.auditing.attack import area, attack, delta_bound, epsilon_bound, fit, most_likely, separation
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
    most = 1 - 0.025 ** (
        1 / 1000
    )  # of a rate without an error in 1000 runs, where both rates fail in 5 of 100 together
    assert np.isclose(epsilon_bound(0, 0, 1000, 1000, 0.0, 0.95), math.log((1 - most) / most))
    assert delta_bound(500, 500, 1000, 1000, 0.3, 0.95) == epsilon_bound(500, 500, 1000, 1000, 0.0, 0.95) == 0
    assert np.isclose(*(epsilon_bound(*one, 1000, 1000, 0.0, 0.95) for one in ((500, 0), (0, 500))))


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
    for _ in range(20):
        zero, one = world(0.0), world(1.5)
        found.append(attack(zero, one, delta=DELTA).mu_hat)
        alone.append(attack(zero[:, :1], one[:, :1], delta=DELTA).mu_hat)
    # The standard deviation of an estimate is 0.05, so 0.011 of the mean of 20.
    assert abs(np.mean(found) - 1.5) < 0.045
    assert abs(np.mean(alone)) < 0.05
    scaled = attack(zero * [1e3, 1e-3, 1, 5], one * [1e3, 1e-3, 1, 5], delta=DELTA)
    assert np.isclose(scaled.mu_hat, found[-1], rtol=1e-6)
    fixed = np.ones((1000, 1))
    certain, alike = attack(fixed, fixed + 1e-3, delta=DELTA), attack(fixed, fixed, delta=DELTA)
    assert certain.epsilon_lower == certain.epsilon_most > 4
    assert (certain.auc, alike.mu_hat, alike.auc, alike.epsilon_lower) == (1, 0, 0.5, 0)
    score = fit(zero, one)
    assert score[2] == 0
    assert score[0] > 0 > score[1]


def test_bad_features_are_refused():
    good = _rng(7).normal(size=(20, 2))
    for one, named in (
        (good[:3], "runs_one"),
        (np.where(good == good[2, 1], np.inf, good), "one"),
        (good[:, 0], "one"),
    ):
        with refused(named):
            attack(good, one, delta=DELTA)
