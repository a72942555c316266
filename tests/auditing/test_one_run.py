"""Audits of one run: what is private passes, what is grossly wrong is refuted, and the bound holds as often as told."""

import dataclasses
from typing import Any

import jax
import numpy as np
import pytest
import scipy

import jdfl
from jdfl.auditing.one_run import Dirac, chance, epsilon_shown, places, planted, right_guesses, with_sizes
from tests.auditing.planted import BUGS, plant
from tests.later import Later
from tests.refused import each_refused, refused

M, N, Q, STEPS, CANARIES = 4, 200, 150, 4, 400
NETWORK = Later(jdfl.network.ring, M)
_rng = np.random.default_rng(0)
_A = _rng.standard_normal((M, Q, N))
PROBLEM = Later(jdfl.problems.linear_regression, _A, _A @ _rng.standard_normal(N))
CLASSES = Later(jdfl.problems.softmax_regression, [(a, _rng.integers(0, 3, Q)) for a in _A[:, :, : N // 2]], classes=3)
NOISY = jdfl.Gradients(clip=1.0, mechanism=jdfl.Gaussian(6.0))
PLAIN = jdfl.DPSGD(lr=0.1, gradients=NOISY)


def _audit(algorithm: Any = PLAIN, problem: Any = None, **options: Any) -> jdfl.OneRun:
    given = {"steps": STEPS, "canaries": CANARIES} | options
    return jdfl.audit_one_run(algorithm, PROBLEM() if problem is None else problem, NETWORK(), **given)


def _with(algorithm: Any, **fields: Any) -> Any:
    return dataclasses.replace(algorithm, gradients=dataclasses.replace(NOISY, **fields))


PRIVATE = {  # with the least share of the mu that is accounted for
    "linear": (PLAIN, PROBLEM, 0.5),
    "add-remove": (_with(PLAIN, adjacency="add-remove"), PROBLEM, 0.5),
    "FedAvg": (jdfl.FedAvg(lr=0.1, local_steps=2, gradients=NOISY), PROBLEM, 0.2),  # averages have the noise of all
    "Poisson": (_with(PLAIN, batch=50, sampling="poisson"), PROBLEM, None),
    "Laplace": (jdfl.DPSGD(gradients=jdfl.Gradients(clip=1.0, norm="l1", mechanism=jdfl.Laplace(6.0))), PROBLEM, None),
}


@pytest.mark.rotated(5)
@pytest.mark.parametrize("name", PRIVATE)
def test_what_is_private_passes_and_shows_the_mu_that_is_accounted_for(name):
    """The 1,200 canaries of three runs know mu to .06."""
    algorithm, problem, least = PRIVATE[name]
    found = [_audit(algorithm, problem(), key=seed) for seed in range(3)]
    for one in found:
        assert (one.claimed, one.violated) == (True, False)
        assert one.epsilon_lower < one.epsilon_accounted
    if least is None:
        assert found[0].mu_accounted is None
    else:
        mean = np.mean([one.mu_hat for one in found])
        assert least * found[0].mu_accounted <= mean <= found[0].mu_accounted + 0.16


def test_so_few_canaries_cannot_refute_a_large_epsilon():
    found = _audit(_with(PLAIN, mechanism=jdfl.Gaussian(0.2)))
    assert found.epsilon_accounted > found.epsilon_most
    assert (found.inconclusive, found.exit_status) == (True, 4)
    told = dataclasses.replace(found, epsilon_most=np.inf, mu_accounted=found.mu_low - 0.1).statement()
    assert told.index("gross errors") < told.index("warning: mu is above")


@pytest.mark.rotated(2)
@pytest.mark.parametrize("problem", [PROBLEM, CLASSES], ids=["regression", "classes"])
def test_canaries_have_the_gradient_that_they_are_said_to_have(problem):
    where = places(problem, 100, 1)
    sign = np.where(np.arange(100) % 3 == 0, 0, np.where(np.arange(100) % 2, 1, -1))
    made = with_sizes(planted(problem, where), where, sign, 2.0)
    assert isinstance(made, Dirac)
    w = jax.random.normal(jax.random.key(0), (problem.n,))
    wanted = np.array(jax.vmap(problem.example_gradients, (None, 0))(w, problem.data))
    wanted[where.node, where.record] = 0.0
    wanted[where.node, where.record, where.entry] = 20.0 * sign
    for gradients in (made.example_gradients, jax.vmap(jax.grad(made.loss), (None, 0))):
        got = jax.vmap(gradients, (None, 0))(w, made.data)
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)
    jax.tree.map(np.testing.assert_array_equal, made.varied(None, made.data), made.data)  # nothing varies here
    slopes = jax.vmap(made.slopes, (None, 0))(w, made.data)
    np.testing.assert_allclose(jax.vmap(made.spread)(slopes, made.data), wanted.sum(axis=1), rtol=1e-3, atol=1e-3)
    assert len(set(zip(where.node.tolist(), where.entry.tolist()))) == 100
    assert np.ptp(np.bincount(where.node, minlength=M)) <= 1


def test_the_chance_of_right_guesses_is_that_of_randomised_response():
    epsilon = np.array([1.0])
    np.testing.assert_allclose(chance(60, 80, 200, epsilon, 0.0), scipy.stats.binom.sf(59, 80, np.e / (1 + np.e)))
    assert epsilon_shown(40, 80, 200, 0.0, 0.95) == 0.0
    assert 3.2 < epsilon_shown(80, 80, 80, 0.0, 0.95) < np.log(80 / 3)


def test_the_term_with_delta_covers_mechanisms_that_give_records_away():
    """Randomised response that shows a coin as it is with chance delta, and is guessed where that is seen first."""
    rng, m, trials, share, delta = np.random.default_rng(0), 100, 20_000, 0.1, 0.002
    q, r = np.e / (1 + np.e), int(share * m)
    bare = rng.random((trials, m)) < delta
    right = bare | (rng.random((trials, m)) < q)
    first = np.take_along_axis(right, np.argsort(~bare, axis=1, kind="stable"), axis=1)[:, :r].sum(axis=1)
    beyond = 0
    for v in range(r + 1):
        bound = float(chance(v, r, m, np.array([1.0]), delta)[0])
        assert np.mean(first >= v) <= bound + 4 * np.sqrt(bound / trials) + 1e-3
        beyond += np.mean(first >= v) > scipy.stats.binom.sf(v - 1, r, q) + 0.01
    assert beyond  # without the term the bound would not hold


def test_the_bound_is_wrong_as_seldom_as_told():
    """Of 2,000 audits of an attained randomised response at 95 %, no more are wrong than 5 % and what chance adds."""
    rng, m, epsilon = np.random.default_rng(1), 400, 1.0
    q = np.exp(epsilon) / (1 + np.exp(epsilon))
    right, times = np.unique(rng.binomial(m // 2, q, 2000), return_counts=True)
    shown = np.repeat([epsilon_shown(int(v), m // 2, m, 0.0, 0.95) for v in right], times)
    wrong = np.mean(shown > epsilon)
    assert 0.01 < wrong < 0.05 + 3 * np.sqrt(0.05 * 0.95 / 2000)
    assert np.median(shown) > 0.6


def test_guesses_are_of_the_clearest_scores():
    scores, coins = np.array([0.1, -3.0, 2.0, 5.0, -4.0, 0.2]), np.array([1, 0, 0, 1, 1, 0])
    assert right_guesses(scores, coins, 2, 1) == 2
    assert right_guesses(scores, coins, 0, 2) == 1


def test_mistakes_are_refused_early():
    each_refused(_audit, {"canaries": 99}, {"canaries": 601}, {"confidence": 1.0}, {"delta": 1.5})
    for algorithm, named in ((jdfl.DPSGD(), "no noise is added"), (_with(PLAIN, per="batch"), "single records")):
        with refused(named):
            _audit(algorithm)
    with refused("finite"):  # of a run that diverges
        _audit(jdfl.DPSGD(lr=1e38, gradients=NOISY))


@pytest.mark.rotated(2)
@pytest.mark.parametrize("name", ["no noise", "clip skipped at one node"])
def test_what_is_grossly_wrong_is_refuted(name, monkeypatch, fresh):
    plant(BUGS[name], monkeypatch)
    found = _audit(key=1)
    assert (found.violated, found.exit_status) == (True, 3)
    assert "VIOLATED" in found.statement()
