"""Audits of bits: floating-point noise is told apart whatever its epsilon, exact noise only where it is not exact."""

import json

import jax
import numpy as np
import pytest

import jdfl
from jdfl.auditing.bits import _released, float_scores, grid_scores, reachable
from tests.auditing.planted import BITS
from tests.later import Later

M, N, Q = 2, 40, 6
_A = np.random.default_rng(0).standard_normal((M, Q, N))
PROBLEM = Later(jdfl.problems.linear_regression, _A, _A.sum(axis=2))


def _audit(mechanism, **options):
    algorithm = jdfl.DPSGD(lr=0.1, gradients=jdfl.Gradients(clip=1.0, mechanism=mechanism))
    return jdfl.audit_bits(algorithm, PROBLEM(), **options)


@pytest.fixture
def fresh():
    """Programs of patched code are neither taken from others nor left to them."""
    jax.clear_caches()
    yield
    jax.clear_caches()


def test_the_bits_of_floating_point_noise_are_outside_its_claim():
    found = _audit(jdfl.Gaussian(50.0))
    assert found.auc > 0.999
    assert found.epsilon_lower > 4 > found.epsilon_accounted
    assert found.shown
    assert not found.violated
    assert found.exit_status == 0
    assert "OUTSIDE THE CLAIM" in found.statement()


@pytest.mark.parametrize("multiplier", [0.5, 4.0, 50.0])
def test_the_bits_of_exact_noise_show_no_more_than_its_epsilon(multiplier):
    found = _audit(jdfl.ExactGaussian(multiplier))
    assert found.covered
    assert not found.violated
    assert found.epsilon_lower <= found.epsilon_accounted
    told = found.as_dict()
    assert json.loads(json.dumps(told, allow_nan=False)) == told


def test_exact_noise_is_attacked_at_all():
    """With little noise the score is as good as the noise allows: mu is 2 at a multiplier of a half."""
    found = _audit(jdfl.ExactGaussian(0.5), runs=4000)
    assert 1.5 < found.mu_hat < 2.3
    assert found.epsilon_lower > 2


@pytest.mark.parametrize("name", list(BITS))
def test_grid_noise_that_is_not_exact_is_refuted(name, monkeypatch, fresh):
    owner, attribute, wrong = BITS[name]
    monkeypatch.setattr(owner, attribute, wrong)
    found = _audit(jdfl.ExactGaussian(50.0))
    assert found.violated
    assert found.exit_status == 3
    assert "VIOLATED" in found.statement()


def test_what_noise_can_make_of_a_number_is_what_it_makes():
    """Every release is in the set of its own clean number, and most are not in another's."""
    own, keys = np.full(N, 0.25, np.float32), jax.random.split(jax.random.key(0), 50)
    noisy = np.asarray(_released(jdfl.Gaussian(3.0), keys, own, np.float32(1.0), n=N))
    assert np.isin(noisy, np.asarray(reachable(np.float32(0.25), np.float32(3.0)))).all()
    assert float_scores(noisy, -0.25, 0.25, 3.0).min() > 100


def test_likelihoods_are_those_of_the_counts():
    seen, noise = np.array([[3.0], [-2.0]]), np.array([0.0, 0.0, 1.0, -1.0, 2.0, 2.0, 2.0])
    first, second = np.array([2.0]), np.array([1.0])  # away by 1 or 2, and by what never came
    np.testing.assert_allclose(grid_scores(seen, noise, first, second, 1.0), [np.log(3.5 / 1.5), 0.0])


@pytest.mark.parametrize(
    ("mechanism", "options", "words"),
    [
        (jdfl.Laplace(4.0), {}, ["Gaussian", "Laplace"]),
        (None, {}, ["noise"]),
        (jdfl.Gaussian(4.0), {"runs": 99}, ["runs >= 100", "99"]),
        (jdfl.Gaussian(4.0), {"node": M}, ["node", f"<= {M - 1}"]),
        (jdfl.Gaussian(4.0), {"delta": 0.0}, ["delta", "0.0"]),
        (jdfl.Gaussian(4.0), {"confidence": 1.0}, ["confidence < 1"]),
    ],
    ids=["law", "none", "runs", "node", "delta", "confidence"],
)
def test_mistakes_are_refused_early(mechanism, options, words):
    norm = "l1" if isinstance(mechanism, jdfl.Laplace) else "l2"
    algorithm = jdfl.DPSGD(lr=0.1, gradients=jdfl.Gradients(clip=1.0, norm=norm, mechanism=mechanism))
    with pytest.raises(ValueError) as error:
        jdfl.audit_bits(algorithm, PROBLEM(), **options)
    for word in words:
        assert word in str(error.value)
