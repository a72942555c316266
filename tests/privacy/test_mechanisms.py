"""Noise has the scale and the distribution that the accountant is told of."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy

from jdfl.privacy import Gaussian, GaussianEvent, Laplace, LaplaceEvent, check_mechanism
from jdfl.privacy.mechanisms import check_event
from tests.later import Later
from tests.refused import all_refused, refused

COUNT = 200_000
KINDS = [
    pytest.param(Gaussian, Later(lambda: scipy.stats.norm), id="gaussian"),
    pytest.param(Laplace, Later(lambda: scipy.stats.laplace), id="laplace"),
]


def noise_of(mechanism, sensitivity, seed=0):
    x = jnp.linspace(-1, 1, COUNT)
    return np.asarray(mechanism.add(jax.random.key(seed), x, sensitivity) - x, float)


@pytest.mark.parametrize(("multiplier", "sensitivity"), [(0.5, 1.0), (3.0, 0.1)])
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
    noise = noise_of(make(1.0), 1.0, seed=3)
    for chance in (1e-2, 1e-3, 1e-4):
        beyond = np.sum(np.abs(noise) > law.isf(chance / 2))
        assert abs(beyond - chance * noise.size) < 4 * math.sqrt(chance * noise.size)


@pytest.mark.parametrize(("make", "law"), KINDS)
def test_every_row_has_its_own_sensitivity_and_key_under_vmap(make, law):
    keys, x = jax.random.split(jax.random.key(0), 3), jnp.ones((3, 7))
    rows = jax.vmap(make(2.0).add)(keys, x, jnp.array([0.0, 1.0, 10.0]))
    np.testing.assert_array_equal(rows[0], x[0])
    for row, sensitivity in ((1, 1.0), (2, 10.0)):
        np.testing.assert_allclose(rows[row], make(2.0).add(keys[row], x[row], sensitivity), rtol=1e-6)
    assert not np.isclose(rows[1] - 1, (rows[2] - 1) / 10).any()


def test_an_event_says_how_much_noise_in_which_norm_and_what_is_no_mechanism_is_refused():
    for given in (2.5, jnp.float32(2.5)):
        assert (Gaussian(given).event(), Laplace(given).event()) == (GaussianEvent(2.5), LaplaceEvent(2.5))
    assert isinstance(Gaussian(jnp.float32(2.5)).event().noise_multiplier, float)
    assert (GaussianEvent.kind, LaplaceEvent.kind) == ("gaussian", "laplace")
    assert (Gaussian.norm, Laplace.norm) == ("l2", "l1")
    for multiplier in (0.0, -1.0, float("nan"), float("inf"), None, "1"):
        for make in (Gaussian, Laplace):
            with refused(multiplier=multiplier):
                check_mechanism(make(multiplier))
    all_refused(*((lambda z=z: check_event(GaussianEvent(z)), "noise_multiplier") for z in (True, 1e200)))
    for mechanism in (1.0, Gaussian, None, GaussianEvent(1.0)):
        with refused("mechanism", "Gaussian"):
            check_mechanism(mechanism)
