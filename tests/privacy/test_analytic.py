"""The closed form of the Gaussian mechanism against integrals of its densities."""

import itertools
import math

import mpmath
import numpy as np
import pytest
import scipy
from hypothesis import given
from hypothesis import strategies as st

from jdfl.privacy import analytic_gaussian, central_multiplier, classical_gaussian, gaussian_delta, gaussian_epsilon

MUS, EPSILONS = [1e-3, 0.1, 1.0, 3.0, 10.0, 100.0], [0.0, 1e-3, 0.5, 3.0, 30.0]
TARGETS = [(1e-3, 1e-12), (0.1, 1e-5), (1.0, 1e-5), (1.0, 0.3), (10.0, 1e-12), (200.0, 1e-6)]


def hockey_stick(mu, epsilon):
    """Of N(mu, 1) from N(0, 1) at e^epsilon, by integration."""

    def above(x):
        return max(scipy.stats.norm.pdf(x, mu) - math.exp(epsilon + scipy.stats.norm.logpdf(x)), 0.0)

    start = epsilon / mu + mu / 2  # where the densities' ratio is e^epsilon
    points = [start, *(start + np.array([1e-3, 1e-2, 0.1, 1.0, 10.0])), mu, max(start, mu) + 40]
    points = sorted(p for p in points if p >= start)
    return sum(scipy.integrate.quad(above, a, b, epsabs=0, epsrel=1e-10)[0] for a, b in itertools.pairwise(points))


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("mu", [0.1, 1.0, 3.0, 10.0])
def test_delta_is_the_hockey_stick_divergence(mu, epsilon):
    assert gaussian_delta(mu, epsilon) == pytest.approx(hockey_stick(mu, epsilon), rel=1e-7, abs=1e-30)


@pytest.mark.parametrize("epsilon", [*EPSILONS, 4000.0, 6000.0])
@pytest.mark.parametrize("mu", MUS)
def test_delta_is_right_in_forty_digits(mu, epsilon):
    with mpmath.workdps(40):
        m, e = mpmath.mpf(mu), mpmath.mpf(epsilon)
        a, b = m / 2 - e / m, -m / 2 - e / m
        exact = float((mpmath.erfc(-a / mpmath.sqrt(2)) - mpmath.exp(e) * mpmath.erfc(-b / mpmath.sqrt(2))) / 2)
    assert gaussian_delta(mu, epsilon) == pytest.approx(exact, rel=1e-8, abs=1e-100)


@pytest.mark.parametrize("mu", MUS)
def test_delta_falls_with_epsilon_and_rises_with_mu(mu):
    deltas = [gaussian_delta(mu, e) for e in np.linspace(0, 3 * mu + mu**2, 50)]
    assert all(0 <= b <= a <= 1 for a, b in itertools.pairwise(deltas))
    assert all(b < a for a, b in itertools.pairwise(deltas) if 0 < a < 1 - 1e-12)
    for epsilon in EPSILONS:
        assert gaussian_delta(mu, epsilon) <= gaussian_delta(1.01 * mu, epsilon)


def test_delta_at_zero_is_the_total_variation():
    assert gaussian_delta(1.0, 0.0) == pytest.approx(2 * scipy.stats.norm.cdf(0.5) - 1, rel=1e-12)


@pytest.mark.parametrize("epsilon", [1e5, 1e300])
def test_delta_of_a_huge_epsilon_is_zero(epsilon):
    assert gaussian_delta(1.0, epsilon) == 0.0


@given(mu=st.floats(-3, 2).map(lambda p: 10.0**p), delta=st.floats(-12, -0.05).map(lambda p: 10.0**p))
def test_epsilon_is_the_inverse_of_delta(mu, delta):
    epsilon = gaussian_epsilon(mu, delta)
    if epsilon == 0:
        assert gaussian_delta(mu, 0.0) <= delta
    else:
        assert gaussian_delta(mu, epsilon) == pytest.approx(delta, rel=1e-6)
        assert gaussian_delta(mu, 0.999 * epsilon) > delta


@pytest.mark.parametrize("releases", [1, 3, 1000])
@pytest.mark.parametrize(("epsilon", "delta"), TARGETS)
def test_calibration_meets_its_target_and_no_more(epsilon, delta, releases):
    multiplier = analytic_gaussian(epsilon, delta, releases).multiplier
    assert gaussian_delta(math.sqrt(releases) / multiplier, epsilon) == pytest.approx(delta, rel=1e-7)
    assert gaussian_delta(math.sqrt(releases) / (0.999 * multiplier), epsilon) > delta


def test_three_releases_at_one_and_one_in_a_hundred_thousand():
    assert analytic_gaussian(1.0, 1e-5, releases=3).multiplier == pytest.approx(6.46, abs=0.02)


@pytest.mark.parametrize("delta", [1e-12, 1e-5, 0.1])
@pytest.mark.parametrize("epsilon", [0.01, 0.5, 1.0])
def test_the_textbook_formula_is_more_than_enough_up_to_one(epsilon, delta):
    classical, least = classical_gaussian(epsilon, delta).multiplier, analytic_gaussian(epsilon, delta).multiplier
    assert classical > least
    assert gaussian_delta(1 / classical, epsilon) < delta


@pytest.mark.parametrize(("epsilon", "delta"), [(10.0, 1e-5), (20.0, 1e-3), (100.0, 1e-6)])
def test_the_textbook_formula_is_not_enough_beyond(epsilon, delta):
    classical, least = classical_gaussian(epsilon, delta).multiplier, analytic_gaussian(epsilon, delta).multiplier
    assert classical < least
    assert gaussian_delta(1 / classical, epsilon) > delta


@pytest.mark.parametrize("clients", [2, 3, 10])
def test_a_client_subtracts_its_own_noise(clients):
    """The variance that is left of a sum of equal noises, and the sensitivity of the sum, which stays."""
    each, change = 2.0, 1.5
    whole = each * math.sqrt(clients) / change
    left = math.sqrt(sum(each**2 for _ in range(clients - 1))) / change
    assert central_multiplier(whole, clients) == pytest.approx(left, rel=1e-12)
    assert gaussian_epsilon(1 / central_multiplier(whole, clients), 1e-5) > gaussian_epsilon(1 / whole, 1e-5)


@pytest.mark.parametrize(
    ("multiplier", "clients", "words"), [(1.0, 1, "clients = 1"), (1.0, 2.5, "clients = 2.5"), (0.0, 3, "multiplier")]
)
def test_a_client_alone_leaves_no_noise(multiplier, clients, words):
    with pytest.raises(ValueError, match=words):
        central_multiplier(multiplier, clients)


@pytest.mark.parametrize("delta", [0.0, 1.0, -1e-5, float("nan"), "1e-5", None], ids=repr)
def test_a_delta_out_of_range_is_refused(delta):
    for call in (lambda: gaussian_epsilon(1.0, delta), lambda: analytic_gaussian(1.0, delta)):
        with pytest.raises(ValueError, match="delta = "):
            call()


@pytest.mark.parametrize("value", [0.0, -1.0, float("inf"), None], ids=repr)
def test_other_settings_out_of_range_are_refused(value):
    with pytest.raises(ValueError, match="mu = "):
        gaussian_delta(value, 1.0)
    with pytest.raises(ValueError, match="epsilon = "):
        analytic_gaussian(value, 1e-5)
    with pytest.raises(ValueError, match="releases = "):
        analytic_gaussian(1.0, 1e-5, releases=0)
