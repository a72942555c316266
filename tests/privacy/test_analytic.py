"""The closed form of the Gaussian mechanism in forty digits, its inverse, and what is calibrated with it."""

import itertools
import math

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jdfl.privacy import analytic_gaussian, central_multiplier, classical_gaussian, gaussian_delta, gaussian_epsilon
from tests.refused import each_refused

MUS, EPSILONS = [1e-3, 0.1, 1.0, 3.0, 10.0, 100.0], [0.0, 1e-3, 0.5, 3.0, 30.0]
TARGETS = [(1e-3, 1e-12), (0.1, 1e-5), (1.0, 0.3), (10.0, 1e-12), (200.0, 1e-6)]


@pytest.mark.parametrize("mu", MUS)
def test_delta_is_right_in_forty_digits_and_falls_with_epsilon(mu):
    for epsilon in [*EPSILONS, 4000.0, 6000.0]:
        with mpmath.workdps(40):
            m, e = mpmath.mpf(mu), mpmath.mpf(epsilon)
            a, b = m / 2 - e / m, -m / 2 - e / m
            exact = float((mpmath.erfc(-a / mpmath.sqrt(2)) - mpmath.exp(e) * mpmath.erfc(-b / mpmath.sqrt(2))) / 2)
        assert gaussian_delta(mu, epsilon) == pytest.approx(exact, rel=1e-8, abs=1e-100)
        assert gaussian_delta(mu, epsilon) <= gaussian_delta(1.01 * mu, epsilon)
    deltas = [gaussian_delta(mu, e) for e in np.linspace(0, 3 * mu + mu**2, 50)]
    assert all(0 <= b <= a <= 1 for a, b in itertools.pairwise(deltas))
    assert gaussian_delta(mu, 1e300) == 0.0


@given(mu=st.floats(-3, 2).map(lambda p: 10.0**p), delta=st.floats(-12, -0.05).map(lambda p: 10.0**p))
def test_epsilon_is_the_inverse_of_delta(mu, delta):
    epsilon = gaussian_epsilon(mu, delta)
    if epsilon == 0:
        assert gaussian_delta(mu, 0.0) <= delta
    else:
        assert gaussian_delta(mu, epsilon) == pytest.approx(delta, rel=1e-6)
        assert gaussian_delta(mu, 0.999 * epsilon) > delta


@pytest.mark.parametrize(("epsilon", "delta"), TARGETS)
def test_calibration_meets_its_target_and_no_more(epsilon, delta):
    for releases in (1, 3, 1000):
        multiplier = analytic_gaussian(epsilon, delta, releases).multiplier
        assert gaussian_delta(math.sqrt(releases) / multiplier, epsilon) == pytest.approx(delta, rel=1e-7)
        assert gaussian_delta(math.sqrt(releases) / (0.999 * multiplier), epsilon) > delta


def test_the_textbook_formula_is_more_than_enough_up_to_one_and_not_enough_beyond():
    for epsilon, delta in [(0.01, 1e-12), (0.5, 1e-5), (1.0, 0.1), (10.0, 1e-5), (100.0, 1e-6)]:
        classical = classical_gaussian(epsilon, delta).multiplier
        assert classical == pytest.approx(math.sqrt(2 * math.log(1.25 / delta)) / epsilon)
        assert (gaussian_delta(1 / classical, epsilon) < delta) == (epsilon <= 1)
        assert (classical > analytic_gaussian(epsilon, delta).multiplier) == (epsilon <= 1)


def test_a_client_subtracts_its_own_noise():
    """The variance that is left of a sum of equal noises, and the sensitivity of the sum, which stays."""
    each, change = 2.0, 1.5
    for clients in (2, 10):
        whole, left = (each * math.sqrt(count) / change for count in (clients, clients - 1))
        assert central_multiplier(whole, clients) == pytest.approx(left, rel=1e-12)


def test_settings_out_of_range_are_refused():
    deltas = [{"delta": delta} for delta in (0.0, 1.0, -1e-5, float("nan"), "1e-5", None)]
    each_refused(gaussian_epsilon, *deltas, {"mu": 1e200}, mu=1.0, delta=1e-5)
    each_refused(gaussian_delta, {"mu": 0.0}, {"mu": -1.0}, {"mu": float("inf")}, {"mu": None}, epsilon=1.0)
    each_refused(analytic_gaussian, *deltas, {"epsilon": 0.0}, {"releases": 0}, epsilon=1.0, delta=1e-5)
    each_refused(classical_gaussian, *deltas, {"epsilon": -1.0}, {"epsilon": None}, epsilon=1.0, delta=1e-5)
    each_refused(central_multiplier, {"clients": 1}, {"clients": 2.5}, {"multiplier": 0.0}, multiplier=1.0, clients=3)
