import json
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jdfl
from jdfl.privacy import NO_NOISE
from tests.toy import regression


@pytest.mark.parametrize(("multiplier", "sensitivity"), [(0.5, 1.0), (3.0, 0.1), (1.0, 2.0)])
def test_gaussian_noise_has_the_scale_that_was_asked_for(multiplier, sensitivity):
    count = 40_000
    x = jnp.linspace(-1, 1, count)
    noise = np.asarray(jdfl.Gaussian(multiplier).add(jax.random.key(0), x, sensitivity) - x)
    scale = multiplier * sensitivity
    assert noise.std() == pytest.approx(scale, rel=4 / math.sqrt(2 * count))
    assert abs(noise.mean()) < 4 * scale / math.sqrt(count)
    assert np.mean(np.abs(noise) < scale) == pytest.approx(0.6827, abs=0.01)
    assert np.mean(np.abs(noise) < 2 * scale) == pytest.approx(0.9545, abs=0.005)
    assert abs(np.corrcoef(noise[1:], noise[:-1])[0, 1]) < 4 / math.sqrt(count)


def test_gaussian_noise_is_a_function_of_its_key():
    x = jnp.zeros(5)
    one, again, other = (jdfl.Gaussian(1.0).add(jax.random.key(k), x, 1.0) for k in (1, 1, 2))
    np.testing.assert_array_equal(one, again)
    assert not np.isclose(one, other).any()


def test_an_event_says_how_much_noise():
    assert jdfl.Gaussian(2.5).event().noise_multiplier == 2.5
    assert jdfl.Gaussian(jnp.float32(2.5)).event().noise_multiplier == 2.5


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


@pytest.mark.parametrize("multiplier", [0.0, -1.0, float("nan"), float("inf")])
def test_noise_needs_a_positive_multiplier(multiplier):
    with pytest.raises(ValueError, match="multiplier"):
        jdfl.Gaussian(multiplier).check()


def test_ceps_claims_nothing_and_says_why():
    problem, noise = regression(), jdfl.Gaussian(1.0)
    kept, literal, silent = (
        jdfl.CEPS(s=3, mechanism=mechanism, noise=where, sensitivity=0.2).privacy(problem)
        for mechanism, where in ((noise, "kept"), (noise, "literal"), (None, "kept"))
    )
    assert not any(guarantee.claimed for guarantee in (kept, literal, silent))
    assert all(guarantee.enforced_by is None for guarantee in (kept, literal, silent))
    assert (kept.unit, kept.adjacency, kept.sensitivity) == ("record", "replace-one", 0.2)
    assert "not clipped" in kept.reason
    assert "first message" in literal.reason
    assert "first message" not in kept.reason
    assert silent == NO_NOISE
    assert silent.sensitivity is None
    for guarantee in (kept, literal, silent):
        assert "epsilon" not in json.dumps(guarantee.as_dict()).lower()
    paper = jdfl.CEPS.paper(s=3, epsilon=0.5)
    assert not paper.privacy(problem).claimed
    assert paper.mechanism is not None
    assert paper.mechanism.event().noise_multiplier == pytest.approx(math.sqrt(2 * math.log(2.5)) / 0.5)
