"""Attacks on records find them without noise, are at chance with it, and prove no more than is accounted for."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm

import jdfl
from experiments import leakage, leakage_cases
from experiments.leakage_cases import JOINED, OBSERVERS, RECORDS, RING, VICTIM, Inversion, M, about, methods, multiplier
from experiments.leakage_inversion import Rerun, closed_form, inverted, judged
from experiments.leakage_membership import Shadows, by_loss, by_ratio, shown
from experiments.leakage_pools import DELTA, budgeted, pool, view, watched
from experiments.seen_runs import seen
from jdfl.algorithms.program import planned
from jdfl.base.keys import typed_key
from jdfl.base.streams import Keys
from jdfl.engine import stepping
from jdfl.observers import Neighbour
from jdfl.observers.watched import Recorded

pytestmark = pytest.mark.optimized
TRIALS, DESCENT = 6, 200  # of inversions
TARGETS, RUNS = 8, 256  # of membership
DIGITS, CANCER = pool("digits"), pool("breast_cancer")


@pytest.fixture(scope="module")
def inversion():
    return Inversion.of("D-PSGD", DIGITS, 1, (None, 1.0), TRIALS, DESCENT, 0)


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
@pytest.mark.parametrize("observer", ["a neighbour", "everyone"])
def test_without_noise_a_record_is_found_by_descent_and_by_the_closed_form(inversion, observer):
    place = inversion.observers.index(observer)
    told = inversion.judged(DIGITS)
    case = f"Inversion: D-PSGD, q = 1, no noise: {observer}"
    assert told[case, "found"] == told[case, "found, closed form"] == 1.0
    views, mask = inversion.found.view[place, 0], inversion.masks[place]
    exact = np.stack([closed_form(one, mask, VICTIM, 10) for one in views])
    fitted = inversion.found.features[place, 0, :, 0]
    cosine = np.sum(exact * fitted, axis=1) / np.linalg.norm(exact, axis=1) / np.linalg.norm(fitted, axis=1)
    assert cosine.min() > 0.999
    true = DIGITS.features[inversion.found.records[place, 0, :, 0]]
    np.testing.assert_allclose(exact / np.linalg.norm(exact, axis=1, keepdims=True),
                               true / np.linalg.norm(true, axis=1, keepdims=True), atol=1e-5)  # fmt: skip


def test_with_an_epsilon_of_one_the_rate_is_at_chance(inversion):
    found = [value for (case, column), value in inversion.judged(DIGITS).items()
             if "epsilon 1:" in case and column.startswith("found")]  # fmt: skip
    assert len(found) == 6
    assert np.sum(found) * TRIALS <= 1  # of 36 attempts, of which 1 in 1,797 finds a record by chance


def test_who_sees_nothing_finds_nothing(inversion):
    """The same attack whose view is empty: what it finds elsewhere comes from what is seen."""
    algorithm, _ = methods()["D-PSGD"]
    silent = stepping.with_field(
        planned(algorithm, DIGITS.held(np.arange(M).reshape(M, 1)), RING, leakage_cases.INVERTED),
        "gradients.mechanism.multiplier",
        jnp.zeros(8 * TRIALS),
    )
    empty, nobody = jnp.zeros((8 * TRIALS, *inversion.masks.shape[1:]), bool), jnp.zeros((8 * TRIALS, M), bool)
    keys = jax.random.split(typed_key(0), 8 * TRIALS)
    found = inverted(silent, RING, leakage_cases.arrays(DIGITS), empty, nobody, keys, steps=leakage_cases.INVERTED,
                     q=1, victim=VICTIM, iterations=DESCENT)  # fmt: skip
    assert judged(np.asarray(found.features), np.asarray(found.records), DIGITS.features)[1].sum() <= 1


def test_the_same_seed_finds_the_same(inversion):
    again = Inversion.of("D-PSGD", DIGITS, 1, (None, 1.0), TRIALS, DESCENT, 0)
    np.testing.assert_array_equal(again.found.features, inversion.found.features)


def sent_and_run(name, kind, mechanism):
    """The final parameters of a recorded run, and those of `jdfl.run` with this mechanism and the same key."""
    algorithm, _ = methods()[name]
    problem = CANCER.held(np.arange(8).reshape(M, 2))
    program = planned(algorithm, problem, RING, 2)
    keys = Keys.of(typed_key(3))
    run = jax.jit(lambda: seen(program, problem, RING, keys, steps=2, kind=kind))()
    same = replace(algorithm, gradients=replace(algorithm.gradients, mechanism=mechanism))
    return run.sent[-1], jdfl.run(same, problem, RING, steps=2, key=3).params


def test_the_attackers_run_is_that_of_the_method_without_noise():
    np.testing.assert_allclose(*sent_and_run("D-PSGD", Rerun, None), rtol=1e-5, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["D-PSGD", "DSGT"])
def test_what_is_seen_is_what_a_run_sends(name):
    noisy, run = sent_and_run(name, Recorded, jdfl.Gaussian(1.0))
    np.testing.assert_allclose(noisy, run, rtol=1e-5, atol=1e-6)
    bare, _ = sent_and_run(name, Rerun, None)
    assert np.abs(noisy - bare).max() > 0.1


def test_shares_of_one_class_are_labels():
    problem = DIGITS.held(np.arange(8).reshape(4, 2))
    labels = np.argmax(np.asarray(problem.data[1]), axis=2)
    parts = list(zip(np.asarray(problem.data[0]), labels))
    plain = jdfl.problems.softmax_regression(parts, classes=10, penalty=0.0)
    w = 0.1 * jax.random.normal(jax.random.key(0), (4, problem.n))
    totals = problem.weight, problem.weight.sum(axis=1)
    ours, theirs = (jax.jit(jdfl.Gradients(clip=0.5).exact)(one, w, one.data, *totals) for one in (problem, plain))
    np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6)


def test_a_view_is_the_observers(program):
    run = program[1]
    everyone, nobody = view(run, OBSERVERS["everyone"])
    assert everyone[:-1].all()
    assert not everyone[-1].any()
    assert not nobody.any()
    neighbour, own = view(run, Neighbour(0))
    assert set(np.flatnonzero(neighbour.any(axis=0))) == {1, 3}
    assert set(np.flatnonzero(own)) == {0}
    models, _ = view(run, OBSERVERS["final models"])
    assert models[-1].all()
    assert not models[:-1].any()
    with pytest.raises(ValueError, match="sums"):
        view(run, Neighbour(0, sums=True))


@pytest.mark.parametrize("known", [False, True])
def test_with_its_noise_an_attack_shows_no_more_than_is_accounted(program, known):
    planned, run, promised = program
    assert 0.9 < promised <= 1.0
    noise = float(planned.algorithm.gradients.mechanism.multiplier)
    for name, one in attacked(planned, run, noise, known=known).items():
        assert one.epsilon <= promised, name
        assert abs(one.auc - 0.5) < 0.06, name


def test_noise_that_is_missing_is_seen(program):
    """The planted bug: the same epsilon is accounted for, and nothing is added."""
    planned, run, promised = program
    for name, one in attacked(planned, run, 0.0, known=True).items():
        assert one.epsilon > 3 * promised, name
        assert one.caught == 1.0, name
    assert attacked(planned, run, 0.0, known=False)["everyone"].auc > 0.65


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


def test_runs_that_judge_are_not_fitted_to():
    """Means of few runs in many directions tell those runs apart, and no others."""
    one = shown(by_ratio(gaussians(0.0, targets=40, runs=40, width=6), np.ones((6, 1), bool), np.zeros(1, bool)))
    assert abs(one.auc - 0.5) < 0.06


def test_records_that_fit_badly_are_taken_for_strangers():
    told = gaussians(0.5)
    scores = by_loss(told, np.ones((3, 1), bool))
    np.testing.assert_allclose(scores, -np.log1p(np.exp(-told.logit[..., 0])).mean(axis=2))
    assert np.all(np.diff(by_loss(Shadows(np.linspace(-3, 3, 8).reshape(1, 8, 1, 1), told.along, told.released),
                                  np.ones((1, 1), bool))) > 0)  # fmt: skip


def test_pools_hold_what_they_say():
    assert DIGITS.features.shape == (1797, 64)
    assert CANCER.features.shape == (569, 30)
    assert (CANCER.labels.sum(axis=1) == 1).all()
    assert len(np.unique(DIGITS.features, axis=0)) == 1797  # or the nearest would not be one


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("method", list(methods())[1:])
def test_other_methods_leak_and_their_noise_helps(method):
    one = Inversion.of(method, DIGITS, 1, (None, 8.0), 16, 300, 0)
    who = one.observers[0]
    told = one.judged(DIGITS)
    assert told[f"Inversion: {method}, q = 1, no noise: {who}", "found"] > 0.9
    assert told[f"Inversion: {method}, q = 1, epsilon 8: {who}", "found"] <= 1 / 16


def test_a_bound_above_its_epsilon_is_told():
    rows = [leakage.row("some case", column, None, [value])
            for column, value in (("shown epsilon", 2.0), ("accounted epsilon", 1.0))]  # fmt: skip
    assert "missed): some case" in leakage.verdict(rows)
    assert "met" in leakage.verdict([replace(rows[0], mean=0.5), rows[1]])


def test_budgets_are_of_the_program_that_runs():
    algorithm, _ = methods()["D-PSGD"]
    problem = CANCER.held(np.arange(8).reshape(M, 2))
    noise = multiplier(algorithm, problem, 5, 8.0)
    private = stepping.with_field(algorithm, "gradients.mechanism.multiplier", noise)
    assert jdfl.account_plan(private, problem, RING, steps=5, delta=DELTA).epsilon == pytest.approx(8.0, rel=1e-3)
    assert multiplier(algorithm, problem, 5, None) == 0.0
