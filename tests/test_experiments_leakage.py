"""Attacks on records see them without noise, are at chance with it, and prove no more than is accounted for."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm

import jdfl
from experiments.leakage_cases import JOINED, OBSERVERS, RECORDS, RING, M, about, methods
from experiments.leakage_membership import Shadows, by_ratio, shown
from experiments.leakage_pools import DELTA, budgeted, pool, view, watched
from jdfl.algorithms.program import planned
from jdfl.engine import stepping

pytestmark = pytest.mark.optimized
DIGITS, CANCER = pool("digits"), pool("breast_cancer")


@pytest.mark.slow
def test_an_attack_shows_no_more_than_is_accounted_and_sees_noise_that_is_missing():
    problem = CANCER.held(np.arange(M * RECORDS).reshape(M, RECORDS))
    private = budgeted(methods()["D-PSGD"][0], problem, RING, JOINED, 1.0)
    promised = jdfl.account_plan(private, problem, RING, steps=JOINED, delta=DELTA).epsilon
    assert 0.9 < promised <= 1.0
    run = planned(private, problem, RING, JOINED)
    silent = stepping.with_field(run, "gradients.mechanism.multiplier", jnp.float32(0))
    noisy, bare = (about(one, CANCER, 8, 256, 0, known=True) for one in (run, silent))
    for name, observer in OBSERVERS.items():
        seen = view(watched(private, problem, RING, JOINED), observer)
        one, other = (shown(by_ratio(told, *seen)) for told in (noisy, bare))
        assert one.epsilon <= promised, name
        assert abs(one.auc - 0.5) < 0.06, name
        assert other.epsilon > 3 * promised, name
        assert other.caught == 1.0, name


def gaussians(mu, targets=8, runs=4000, width=3):
    """What runs would tell whose logits have a direction of their own and correlated noise, with that mu."""
    random = np.random.default_rng(0)
    mixing = random.standard_normal((width, width))
    gap = random.standard_normal((targets, 1, width))
    gap *= mu / np.linalg.norm(gap, axis=2, keepdims=True)
    noise = random.standard_normal((targets, runs, width))
    held = (np.arange(runs) % 2 == 1)[None, :, None]
    logit = (noise + held * gap) @ mixing + 5 * random.standard_normal((targets, 1, width))
    zero = np.zeros((targets, runs, width, 1))
    return Shadows(logit[..., None], zero, zero[:, :, :1])


@pytest.mark.parametrize("mu", [0.5, 2.0])
def test_the_ratio_is_the_best_score_of_gaussians(mu):
    one = shown(by_ratio(gaussians(mu), np.ones((3, 1), bool), np.zeros(1, bool)))
    assert one.auc == pytest.approx(norm.cdf(mu / np.sqrt(2)), abs=0.015)
    assert one.caught == pytest.approx(norm.sf(norm.isf(0.01) - mu), abs=0.05)
    assert one.epsilon <= jdfl.privacy.gaussian_epsilon(mu, DELTA)
    assert (one.epsilon > 1) == (mu > 1)
