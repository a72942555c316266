"""Attacks on records find them without noise, are at chance with it, and prove no more than is accounted for."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm

import jdfl
from experiments.leakage_cases import JOINED, OBSERVERS, RECORDS, RING, VICTIM, Inversion, M, about, methods
from experiments.leakage_inversion import closed_form
from experiments.leakage_membership import Shadows, by_ratio, shown
from experiments.leakage_pools import DELTA, budgeted, pool, view, watched
from jdfl.algorithms.program import planned
from jdfl.engine import stepping

pytestmark = pytest.mark.optimized
TARGETS, RUNS = 8, 256  # of membership
DIGITS, CANCER = pool("digits"), pool("breast_cancer")


@pytest.fixture(scope="module")
def program():
    """What is asked to be private, with the noise of epsilon = 1, and its epsilon."""
    algorithm, _ = methods()["D-PSGD"]
    problem = CANCER.held(np.arange(M * RECORDS).reshape(M, RECORDS))
    private = budgeted(algorithm, problem, RING, JOINED, 1.0)
    promised = jdfl.account_plan(private, problem, RING, steps=JOINED, delta=DELTA).epsilon
    return planned(private, problem, RING, JOINED), watched(private, problem, RING, JOINED), promised


def attacked(program, watched, noise, *, known):
    """What every observer's likelihood ratio shows of runs with so much noise."""
    told = about(stepping.with_field(program, "gradients.mechanism.multiplier", jnp.float32(noise)), CANCER, TARGETS,
                 RUNS, 0, known=known)  # fmt: skip
    return {name: shown(by_ratio(told, *view(watched, observer))) for name, observer in OBSERVERS.items()}


@pytest.mark.slow
def test_without_noise_a_record_is_found_by_descent_and_by_the_closed_form_and_with_it_by_chance():
    inversion = Inversion.of("D-PSGD", DIGITS, 1, (None, 1.0), 6, 200, 0)
    told = inversion.judged(DIGITS)
    for observer in ("a neighbour", "everyone"):
        place, case = inversion.observers.index(observer), f"Inversion: D-PSGD, q = 1, no noise: {observer}"
        assert told[case, "found"] == told[case, "found, closed form"] == 1.0
        exact = np.stack(
            [closed_form(one, inversion.masks[place], VICTIM, 10) for one in inversion.found.view[place, 0]]
        )
        exact /= np.linalg.norm(exact, axis=1, keepdims=True)
        fitted = inversion.found.features[place, 0, :, 0]
        assert np.min(np.sum(exact * fitted, axis=1) / np.linalg.norm(fitted, axis=1)) > 0.999
        true = DIGITS.features[inversion.found.records[place, 0, :, 0]]
        np.testing.assert_allclose(exact, true / np.linalg.norm(true, axis=1, keepdims=True), atol=1e-5)
    private = [rate for (case, column), rate in told.items() if "epsilon 1:" in case and column.startswith("found")]
    assert len(private) == 6
    assert np.sum(private) * 6 <= 1  # of 36 attempts, of which 1 in 1,797 finds a record by chance


@pytest.mark.slow
def test_an_attack_shows_no_more_than_is_accounted_and_sees_noise_that_is_missing(program):
    planned, run, promised = program
    assert 0.9 < promised <= 1.0
    noise = float(planned.algorithm.gradients.mechanism.multiplier)
    for name, one in attacked(planned, run, noise, known=True).items():
        assert one.epsilon <= promised, name
        assert abs(one.auc - 0.5) < 0.06, name
    for name, one in attacked(planned, run, 0.0, known=True).items():
        assert one.epsilon > 3 * promised, name
        assert one.caught == 1.0, name


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
