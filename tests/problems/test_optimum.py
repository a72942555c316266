"""Centralised optima against independent solutions."""

import itertools

import jax
import numpy as np
import pytest

from jdfl import problems
from jdfl.problems import example1, logistic_regression, optimum, sparse_optimum, value_at
from tests.refused import all_refused, refused

LOOKED_AT = jax.jit(lambda problem, w: (problem.values(w), problem.gradients(w)))


def small(classes=2, seed=0):
    """Overlapping classes, equally large nodes, so that mean_i f_i is the mean over all examples."""
    rng = np.random.default_rng(seed)
    labels = [rng.integers(0, classes, 20) for _ in range(3)]
    return [(rng.normal(size=(20, 4)) + 0.5 * own[:, None] * np.arange(4), own) for own in labels]


def test_the_gradient_of_least_squares_vanishes_or_the_norm_is_least():
    rng = np.random.default_rng(0)
    sizes = (4, 30, 11)  # unequal nodes: mean_i f_i is not the mean over all examples
    A, b = [rng.normal(size=(q, 6)) for q in sizes], [rng.normal(size=q) for q in sizes]
    with jax.enable_x64(True):
        problem = problems.linear_regression(A, b, dtype="float64")
        found = optimum(problem)
        values, gradients = LOOKED_AT(problem, np.broadcast_to(found.w, (3, 6)))
        np.testing.assert_allclose(np.mean(gradients, axis=0), 0, atol=1e-12)
        np.testing.assert_allclose(found.value, np.mean(values), rtol=1e-12)
    rows = np.concatenate([A_i / np.sqrt(len(A_i)) for A_i in A])
    targets = np.concatenate([b_i / np.sqrt(len(b_i)) for b_i in b])
    np.testing.assert_allclose(found.w, np.linalg.lstsq(rows, targets, rcond=None)[0], rtol=1e-9)
    np.testing.assert_allclose(value_at(problem, found.w), found.value, rtol=1e-12)
    A, b = rng.normal(size=(5, 9)).astype(np.float32), rng.normal(size=5).astype(np.float32)
    found = optimum(problems.linear_regression([A], [b]))
    np.testing.assert_allclose(found.w, np.linalg.pinv(A.astype(float)) @ b, rtol=1e-6, atol=1e-8)
    assert abs(found.value) < 1e-12


def test_gradient_norm_is_checked():
    with refused(RuntimeError, "gradient norm <= 1e-30"):
        optimum(logistic_regression(small()), tolerance=1e-30)


def test_sparse_optimum_recovers_example1():
    problem = example1(m=4, n=40, s=5, rows=(60, 80))
    support = np.flatnonzero(problem.truth)
    from_truth, from_zero = sparse_optimum(problem, 5), sparse_optimum(problem, 5, start=np.zeros(40))
    for found in (from_truth, from_zero):
        np.testing.assert_array_equal(np.flatnonzero(found.w), support)
        np.testing.assert_allclose(found.value, value_at(problem, found.w), rtol=1e-9)
    assert optimum(problem).value < from_truth.value < problems.value_at_truth(problem)
    all_refused(
        (lambda: sparse_optimum(problem, 0), "s"),
        (lambda: sparse_optimum(problem, 2, start=np.zeros(3)), "start"),
        (lambda: sparse_optimum(problem, 5, start=np.eye(40)[0], steps=1), RuntimeError, "steps = 1"),
        (lambda: problems.value_at_truth(problems.linear_regression([np.ones((1, 2))], [np.ones(1)])), "truth"),
    )


def test_sparse_optimum_is_close_to_the_best_support():
    problem = logistic_regression(small(seed=3), penalty=0.01)
    found = sparse_optimum(problem, 2)
    assert np.count_nonzero(found.w) <= 2
    pairs = itertools.combinations(range(problem.n), 2)
    best = min(sparse_optimum(problem, 2, start=np.isin(np.arange(problem.n), pair)).value for pair in pairs)
    assert best <= found.value < problems.base_rate(problem)
    assert found.value < best * 1.02
    assert sparse_optimum(problem, problem.n).value == pytest.approx(optimum(problem).value, abs=1e-9)


def test_base_rate_is_the_best_constant():
    parts = [(np.ones((4, 1)), np.array([1, 0, 0, 0])), (np.ones((2, 1)), np.array([1, 0]))]
    share = (1 / 4 + 1 / 2) / 2  # each node counts once, whatever its size
    entropy = -share * np.log(share) - (1 - share) * np.log(1 - share)
    problem = logistic_regression(parts, penalty=0.0)
    assert problems.base_rate(problem) == pytest.approx(entropy)
    assert optimum(problem).value == pytest.approx(entropy)  # the only feature is constant
    assert problems.base_rate(problems.softmax_regression(parts, classes=3)) == pytest.approx(entropy)
    with refused(TypeError, "LinearRegression"):
        problems.base_rate(example1(m=1, n=2, s=1, rows=(2, 2)))
