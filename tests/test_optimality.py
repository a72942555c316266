"""Gaps to the optimum against loops in numpy, their laws, and what is refused."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.special import expit, logsumexp, softmax

import jdfl
from jdfl.algorithms.statement import values
from jdfl.engine import metrics
from jdfl.engine.metrics import referenced
from jdfl.engine.provenance import checksums
from jdfl.privacy.flow import Label
from jdfl.problems import Optimum, optimum, solved, sparse_optimum, suboptimality_floor
from tests.refused import refused

SIZES = (5, 9, 7, 12)
NAMES = ("suboptimality", "gradient_norm", "consensus_error", "distance_to_optimum")
KINDS = ("linear", "logistic", "softmax", "sparse")


def parts(kind, seed=0):
    """Features [q_i, 4] and targets [q_i] of nodes of unequal sizes, numbers that single precision holds."""
    draw = np.random.default_rng(seed)
    for q in SIZES:
        X = draw.normal(size=(q, 4))
        if kind == "linear":
            y = np.float32(X @ np.arange(4.0) + draw.normal(size=q))
        else:
            y = draw.integers(0, 3 if kind == "softmax" else 2, q)
            X = X + 0.3 * y[:, None]
        yield np.float64(np.float32(X)), y


def make(kind, dtype="float32"):
    data = list(parts(kind))
    if kind == "linear":
        return jdfl.problems.linear_regression(*zip(*data), dtype=dtype)
    if kind == "softmax":
        return jdfl.problems.softmax_regression(data, classes=3, penalty=0.03, dtype=dtype)
    if kind == "sparse":
        data = [(csr_array(np.where(np.abs(X) > 0.3, X, 0)), y) for X, y in data]
        return jdfl.problems.sparse_logistic_regression(data, penalty=0.03, dtype=dtype)
    return jdfl.problems.logistic_regression(data, penalty=0.03, dtype=dtype)


made = functools.cache(make)
known = functools.cache(lambda kind: solved(made(kind)))


def value_and_gradient(kind, w):
    """mean_i f_i(w) and its gradient, by loops over nodes and examples."""
    value, gradient = 0.0, np.zeros_like(w)
    for X, y in parts(kind):
        X = np.where(np.abs(X) > 0.3, X, 0) if kind == "sparse" else X
        for a, b in zip(X, y):
            scale = 1 / (len(y) * len(SIZES))
            if kind == "linear":
                value += scale * 0.5 * (a @ w - b) ** 2
                gradient += scale * (a @ w - b) * a
            elif kind == "softmax":
                z = a @ w.reshape(4, 3)
                value += scale * (logsumexp(z) - z[b])
                gradient += scale * np.outer(a, softmax(z) - np.eye(3)[b]).ravel()
            else:
                value += scale * (np.logaddexp(0, a @ w) - b * (a @ w))
                gradient += scale * (expit(a @ w) - b) * a
    penalty = 0.0 if kind == "linear" else 0.03
    return value + 0.5 * penalty * w @ w, gradient + penalty * w


measured = jax.jit(lambda w, problem: {name: metrics.REGISTRY[name](w, problem) for name in NAMES})


def measure(name, w, problem):
    return float(jax.jit(metrics.REGISTRY[name])(np.asarray(w, problem.dtype), problem))


@pytest.mark.parametrize("kind", KINDS)
def test_metrics_agree_with_loops_in_double_precision(kind):
    with jax.enable_x64(True):
        problem = solved(make(kind, "float64"))
        w = np.random.default_rng(1).normal(size=(problem.m, problem.n))
        mean, best = w.mean(axis=0), np.asarray(problem.optimum.w)
        least, flat = value_and_gradient(kind, best)
        value, gradient = value_and_gradient(kind, mean)
        assert np.linalg.norm(flat) < 1e-13
        expected = {
            "suboptimality": value - least,
            "gradient_norm": np.linalg.norm(gradient),
            "consensus_error": np.mean([np.sum((row - mean) ** 2) for row in w]),
            "distance_to_optimum": np.linalg.norm(mean - best) / np.linalg.norm(best),
        }
        assert measured(w, problem) == {name: pytest.approx(number, rel=1e-9) for name, number in expected.items()}


@pytest.mark.parametrize("kind", ["linear", "softmax", "sparse"])
def test_single_precision_keeps_its_digits_down_to_the_floor(kind):
    problem, draw = known(kind), np.random.default_rng(2)
    w, floor = problem.optimum.w, suboptimality_floor(problem)
    assert float(problem.optimum.accuracy) <= floor < 1e-12
    for size in (1.0, 1e-3, 1e-6):
        rows = (w + size * draw.normal(size=(problem.m, problem.n))).astype(np.float32)
        least, value = (value_and_gradient(kind, np.float64(one))[0] for one in (w, rows.astype(np.float64).mean(0)))
        gap = measure("suboptimality", rows, problem)
        assert gap == pytest.approx(value - least, rel=2e-6, abs=2e-15)
    assert gap < 1e-10  # where a difference of two objectives is zero, or 6e-8
    for size in 10.0 ** np.arange(-8, 3):  # nothing is below the optimum
        rows = w + size * draw.normal(size=(problem.m, problem.n))
        assert measure("suboptimality", rows, problem) >= -float(problem.optimum.accuracy)
    at_best = measured(np.broadcast_to(np.asarray(w, problem.dtype), (problem.m, problem.n)), problem)
    assert at_best["suboptimality"] <= floor
    assert at_best["distance_to_optimum"] < 1e-7
    assert at_best["gradient_norm"] < 1e-6
    assert at_best["consensus_error"] < 1e-13


def test_runs_compute_the_optimum_that_they_need():
    problem, network, algorithm = made("logistic"), jdfl.network.ring(4), jdfl.EXTRA(lr=0.5)
    given = {"steps": 40, "every": 10, "metrics": ["objective", "suboptimality", "distance_to_optimum"]}
    one = jdfl.run(algorithm, problem, network, **given)
    gap = one.history["suboptimality"]
    assert gap.is_monotonic_decreasing
    assert gap.iloc[-1] < 1e-3 * gap.iloc[0]
    least = float(optimum(problem).value)
    np.testing.assert_allclose(gap, one.history["objective"] - least, atol=2e-7)
    many = jdfl.repeat(algorithm, problem, network, keys=[0, 1], **given)
    np.testing.assert_allclose(many[0].history["suboptimality"], gap, rtol=1e-4)


def test_an_optimum_is_computed_once_depends_on_all_records_and_is_no_setting(monkeypatch):
    problem, found, calls = made("linear"), known("linear"), []
    assert checksums(problem=problem) == checksums(problem=found)
    every = zip(jax.tree.leaves_with_path(found), values(found), strict=True)
    assert {one.label for (path, _), one in every if path[0].name == "optimum"} == {Label.RAW}
    problem = make("linear")
    monkeypatch.setattr(jdfl.problems.yardsticks, "optimum", lambda problem: calls.append(problem) or optimum(problem))
    for _ in range(3):
        assert referenced(metrics.resolve(["suboptimality"], problem), problem).optimum is not None
    assert len(calls) == 1
    assert referenced([metrics.objective], problem) is problem


def test_a_sparse_reference_is_another_one():
    problem = jdfl.problems.example1(m=4, n=20, s=3, rows=(30, 40))
    sparse, dense = sparse_optimum(problem, 3), optimum(problem)
    assert np.isnan(sparse.accuracy)
    against_sparse, gap = problem.replace(optimum=sparse), float(sparse.value) - float(dense.value)
    assert gap > 1e-3
    for one, expected in ((sparse, pytest.approx(0, abs=1e-13)), (dense, pytest.approx(-gap, rel=1e-5))):
        assert measure("suboptimality", np.broadcast_to(one.w, (4, 20)), against_sparse) == expected
    assert suboptimality_floor(against_sparse) > 0


def test_declared_references():
    problem = made("softmax").replace(shared=4)
    w = np.random.default_rng(6).normal(size=(problem.m, problem.n))
    declared = problem.replace(optimum=Optimum(None, 0.5))
    for name, other in (("suboptimality", known("softmax").replace(shared=4)), ("distance_to_optimum", declared)):
        with refused(name):
            metrics.resolve([name], other)
    gap = measure("objective", w, problem) - 0.5
    assert measure("suboptimality", w, declared) == pytest.approx(gap, rel=1e-6)
    bare = made("softmax").replace(optimum=Optimum(known("softmax").optimum.w, 0.0))  # without its gradient
    assert measure("suboptimality", w, bare) == pytest.approx(measure("suboptimality", w, known("softmax")), rel=1e-5)


def test_gradient_norm_where_some_parameters_stay_with_the_nodes():
    problem = made("softmax").replace(shared=4)
    w = np.random.default_rng(7).normal(size=(problem.m, problem.n)).astype(np.float32)
    own = np.asarray(metrics.personal(jnp.asarray(w), problem))
    gradient = jax.jit(problem.gradient)
    gradients = np.stack([gradient(own[i], *problem.local(i)) for i in range(problem.m)])
    u, v = gradients[:, :4].mean(axis=0), gradients[:, 4:]
    expected = np.sqrt((u**2).sum() + np.mean((v**2).sum(axis=1)))
    assert measure("gradient_norm", w, problem) == pytest.approx(expected, rel=1e-5)


def test_optima_of_other_data_and_problems_without_one_minimum_are_refused():
    found, ring = known("linear"), jdfl.network.ring(4)
    for other in (
        found.replace(data=(found.data[0], found.data[1] + 1)),
        found.replace(optimum=Optimum(np.zeros(3), 0.0)),
    ):
        with refused("optimum"):
            jdfl.run(jdfl.EXTRA(lr=0.1), other, ring, steps=1, metrics=["suboptimality"])
    separable = [(np.array([[1.0], [2.0], [-1.0]]), np.array([1, 1, 0]))]
    with refused("penalty"):
        solved(jdfl.problems.logistic_regression(separable, penalty=0.0))
    overlapping = solved(jdfl.problems.logistic_regression(list(parts("logistic")), penalty=0.0))
    assert 0 < float(overlapping.optimum.accuracy) < 1e-20
    with refused("solved"):
        suboptimality_floor(made("linear"))
