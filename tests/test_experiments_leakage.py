"""The attack on records by a likelihood ratio is the best one, and proves no more than is accounted for."""

import numpy as np
import pytest
from scipy.stats import norm

import jdfl
from experiments.leakage_attacks import DELTA, Shadows, by_ratio, shown


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
