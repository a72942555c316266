"""Noise has the scale and the distribution that the accountant is told of."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy

import jdfl
from jdfl.privacy import Gaussian, GaussianEvent, Laplace, LaplaceEvent, check_mechanism
from tests.later import Later

COUNT = 200_000
SCALES = [(0.5, 1.0), (3.0, 0.1), (1.0, 2.0)]
KINDS = [
    pytest.param(Gaussian, Later(lambda: scipy.stats.norm), id="gaussian"),
    pytest.param(Laplace, Later(lambda: scipy.stats.laplace), id="laplace"),
]


def noise_of(mechanism, sensitivity, seed=0, count=COUNT):
    x = jnp.linspace(-1, 1, count)
    return np.asarray(mechanism.add(jax.random.key(seed), x, sensitivity) - x, float)


@pytest.mark.parametrize(("multiplier", "sensitivity"), SCALES)
@pytest.mark.parametrize(("make", "law"), KINDS)
def test_noise_has_the_distribution_that_was_asked_for(make, law, multiplier, sensitivity):
    noise = noise_of(make(multiplier), sensitivity)
    scale = multiplier * sensitivity
    assert scipy.stats.kstest(noise, law(scale=scale).cdf).pvalue > 0.01
    assert scipy.stats.kstest(noise, law(scale=1.03 * scale).cdf).pvalue < 0.01  # so that the test can fail
    excess = float(law.stats(moments="k"))
    assert noise.std() == pytest.approx(law(scale=scale).std(), rel=4 * math.sqrt((excess + 2) / (4 * COUNT)))
    assert abs(np.corrcoef(noise[1:], noise[:-1])[0, 1]) < 4 / math.sqrt(COUNT)


@pytest.mark.parametrize(("make", "law"), KINDS)
def test_the_tails_are_those_of_the_law(make, law):
    noise = noise_of(make(1.0), 1.0, seed=3, count=2 * COUNT)
    for chance in (1e-2, 1e-3, 1e-4):
        beyond = np.sum(np.abs(noise) > law.isf(chance / 2))
        assert abs(beyond - chance * noise.size) < 4 * math.sqrt(chance * noise.size)


@pytest.mark.parametrize(("make", "law"), KINDS)
def test_noise_is_a_function_of_its_key(make, law):
    x = jnp.zeros(5)
    one, again, other = (make(1.0).add(jax.random.key(k), x, 1.0) for k in (1, 1, 2))
    np.testing.assert_array_equal(one, again)
    assert not np.isclose(one, other).any()


@pytest.mark.parametrize(("make", "law"), KINDS)
def test_every_row_has_its_own_sensitivity_under_vmap(make, law):
    keys, x = jax.random.split(jax.random.key(0), 3), jnp.ones((3, 7))
    rows = jax.vmap(make(2.0).add)(keys, x, jnp.array([0.0, 1.0, 10.0]))
    np.testing.assert_array_equal(rows[0], x[0])
    for row, sensitivity in ((1, 1.0), (2, 10.0)):
        np.testing.assert_allclose(rows[row], make(2.0).add(keys[row], x[row], sensitivity), rtol=1e-6)


def test_an_event_says_how_much_noise():
    assert Gaussian(2.5).event() == GaussianEvent(2.5)
    assert Gaussian(jnp.float32(2.5)).event() == GaussianEvent(2.5)
    assert Laplace(2.5).event() == LaplaceEvent(2.5)
    assert Laplace(2.5).event() != GaussianEvent(2.5)
    assert isinstance(Gaussian(jnp.float32(2.5)).event().noise_multiplier, float)
    assert (GaussianEvent.kind, LaplaceEvent.kind) == ("gaussian", "laplace")


def test_sensitivities_are_measured_in_the_norm_of_the_noise():
    assert (Gaussian.norm, Laplace.norm) == ("l2", "l1")


@pytest.mark.parametrize(
    ("epsilon", "delta", "multiplier"),
    [(1.0, 1e-5, 4.844805262605389), (0.5, 1e-5, 9.689610525210778), (0.1, 0.5, 13.537287)],
)
def test_classical_calibration(epsilon, delta, multiplier):
    found = jdfl.classical_gaussian(epsilon, delta).multiplier
    assert found == pytest.approx(multiplier, rel=1e-6)
    assert found == pytest.approx(math.sqrt(2 * math.log(1.25 / delta)) / epsilon)


@pytest.mark.parametrize(
    ("epsilon", "delta", "words"),
    [(0.0, 0.1, "epsilon = 0.0"), (-1.0, 0.1, "epsilon = -1.0"), (1.0, 0.0, "delta = 0.0"), (1.0, 1.0, "delta = 1.0")],
)
def test_classical_calibration_refuses(epsilon, delta, words):
    with pytest.raises(ValueError, match=words):
        jdfl.classical_gaussian(epsilon, delta)


@pytest.mark.parametrize("multiplier", [0.0, -1.0, float("nan"), float("inf"), None, "1", [1.0, 2.0]], ids=repr)
@pytest.mark.parametrize(("make", "law"), KINDS)
def test_noise_needs_one_positive_multiplier(make, law, multiplier):
    with pytest.raises(ValueError, match="multiplier"):
        check_mechanism(make(multiplier))


@pytest.mark.parametrize(
    "mechanism", [1.0, Gaussian, None, GaussianEvent(1.0)], ids=["number", "class", "none", "event"]
)
def test_what_is_no_mechanism_is_refused_with_a_remedy(mechanism):
    with pytest.raises(ValueError, match=r"mechanism = .*Use Gaussian\(multiplier\)"):
        check_mechanism(mechanism)
