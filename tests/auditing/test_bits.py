"""Audits of bits: floating-point noise is told apart whatever its epsilon, exact noise only where it is not exact."""

import json

import jax
import numpy as np
import pytest

import jdfl
from jdfl.auditing.bits import _released, float_scores, grid_scores, reachable
from tests.auditing.planted import BITS
from tests.later import Later
from tests.refused import each_refused, refused

M, N, Q = 2, 40, 6
_A = np.random.default_rng(0).standard_normal((M, Q, N))
PROBLEM = Later(jdfl.problems.linear_regression, _A, _A.sum(axis=2))


def _audit(mechanism, **options):
    algorithm = jdfl.DPSGD(lr=0.1, gradients=jdfl.Gradients(clip=1.0, mechanism=mechanism))
    return jdfl.audit_bits(algorithm, PROBLEM(), **options)


def test_the_bits_of_floating_point_noise_are_outside_its_claim():
    found = _audit(jdfl.Gaussian(50.0))
    assert found.auc > 0.999
    assert found.epsilon_lower > 4 > found.epsilon_accounted
    assert (found.shown, found.violated, found.exit_status) == (True, False, 0)
    assert "OUTSIDE THE CLAIM" in found.statement()


def test_the_bits_of_exact_noise_show_no_more_than_its_epsilon_and_no_less_than_its_mu():
    much, little = _audit(jdfl.ExactGaussian(50.0)), _audit(jdfl.ExactGaussian(0.5), runs=4000)
    for found in (much, little):
        assert (found.covered, found.violated) == (True, False)
        assert found.epsilon_lower <= found.epsilon_accounted
    assert 1.5 < little.mu_hat < 2.3  # mu is 2 at a multiplier of a half
    told = much.as_dict()
    assert json.loads(json.dumps(told, allow_nan=False)) == told


@pytest.mark.rotated(3)
@pytest.mark.parametrize("name", list(BITS))
def test_grid_noise_that_is_not_exact_is_refuted(name, monkeypatch, fresh):
    owner, attribute, wrong = BITS[name]
    monkeypatch.setattr(owner, attribute, wrong)
    found = _audit(jdfl.ExactGaussian(50.0))
    assert (found.violated, found.exit_status) == (True, 3)


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


def test_mistakes_are_refused_early():
    right = {"algorithm": jdfl.DPSGD(gradients=jdfl.Gradients(clip=1.0, mechanism=jdfl.Gaussian(4.0)))}
    wrong = {"runs": 99}, {"node": M}, {"delta": 0.0}, {"confidence": 1.0}
    each_refused(jdfl.audit_bits, *wrong, problem=PROBLEM(), **right)
    laplace = jdfl.Gradients(clip=1.0, norm="l1", mechanism=jdfl.Laplace(4.0))
    for gradients, named in ((laplace, "Laplace"), (jdfl.Gradients(), "noise")):
        with refused(named):
            jdfl.audit_bits(jdfl.DPSGD(gradients=gradients), PROBLEM())
