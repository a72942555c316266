"""Gaps to the optimum against loops in numpy, their laws, and what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.special import expit, logsumexp, softmax

import jdfl
from jdfl.algorithms.statement import values
from jdfl.engine import metrics
from jdfl.engine.optimality import referenced
from jdfl.engine.provenance import checksums, provenance
from jdfl.privacy.flow import Label
from jdfl.problems import Optimum, optimum, solved, sparse_optimum, suboptimality_floor

SIZES = (5, 9, 7, 12)
NAMES = ("suboptimality", "gradient_norm", "consensus_error", "distance_to_optimum")


def parts(kind, seed=0):
    """Features [q_i, 4] and targets [q_i] of nodes of unequal sizes."""
    draw = np.random.default_rng(seed)
    for q in SIZES:
        X = draw.normal(size=(q, 4))
        if kind == "linear":
            yield X, X @ np.arange(4.0) + draw.normal(size=q)
        else:
            y = draw.integers(0, 3 if kind == "softmax" else 2, q)
            yield X + 0.3 * y[:, None], y


def make(kind, dtype="float32"):
    data = list(parts(kind))
    if kind == "linear":
        return jdfl.problems.linear_regression(*zip(*data), dtype=dtype)
    if kind == "softmax":
        return jdfl.problems.softmax_regression(data, classes=3, penalty=0.03, dtype=dtype)
    if kind == "sparse":
        data = [(csr_array(np.where(np.abs(X) > 0.3, X, 0)), y) for X, y in data]
        return jdfl.problems.sparse_logistic_regression(data, penalty=0.03, dtype=dtype)
    if kind == "averaging":
        return jdfl.problems.averaging(np.stack([X[0] for X, _ in data]), dtype=dtype)
    return jdfl.problems.logistic_regression(data, penalty=0.03, dtype=dtype)


KINDS = ("linear", "logistic", "softmax", "sparse", "averaging")


def value_and_gradient(kind, w):
    """mean_i f_i(w) and its gradient, by loops over nodes and examples."""
    value, gradient = 0.0, np.zeros_like(w)
    for X, y in parts(kind):
        if kind == "averaging":
            value += 0.5 * ((w - X[0]) ** 2).sum() / len(SIZES)
            gradient += (w - X[0]) / len(SIZES)
            continue
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
    penalty = 0.0 if kind in ("linear", "averaging") else 0.03
    return value + 0.5 * penalty * w @ w, gradient + penalty * w


def measure(name, w, problem):
    return float(metrics.REGISTRY[name](jnp.asarray(w, problem.dtype), problem))


@pytest.mark.parametrize("kind", KINDS)
def test_metrics_agree_with_loops_in_double_precision(kind):
    with jax.enable_x64(True):
        problem = solved(make(kind, "float64"))
        w = np.random.default_rng(1).normal(size=(problem.m, problem.n))
        mean, best = w.mean(axis=0), np.asarray(problem.optimum.w)
        least, flat = value_and_gradient(kind, best)
        value, gradient = value_and_gradient(kind, mean)
        assert np.linalg.norm(flat) < 1e-13
        assert float(problem.optimum.value) == pytest.approx(least, rel=1e-12)
        expected = {
            "suboptimality": value - least,
            "gradient_norm": np.linalg.norm(gradient),
            "consensus_error": np.mean([np.sum((row - mean) ** 2) for row in w]),
            "distance_to_optimum": np.linalg.norm(mean - best) / np.linalg.norm(best),
        }
        for name, number in expected.items():
            assert measure(name, w, problem) == pytest.approx(number, rel=1e-9), name


@pytest.mark.parametrize("kind", KINDS)
def test_single_precision_keeps_its_digits_down_to_the_floor(kind):
    single = solved(make(kind))
    floor = suboptimality_floor(single)
    draw = np.random.default_rng(2)
    assert float(single.optimum.accuracy) <= floor < 1e-12
    rows = {}
    for size in (1.0, 1e-3, 1e-6):
        w = single.optimum.w + size * draw.normal(size=(single.m, single.n))
        rows[size] = np.asarray(w, np.float32), measure("suboptimality", w, single)
    with jax.enable_x64(True):
        whole = jax.tree.map(lambda x: jnp.asarray(x, "float64") if jnp.issubdtype(x.dtype, np.floating) else x, single)
        double = solved(whole.replace(optimum=None))
        for w, value in rows.values():
            assert value == pytest.approx(measure("suboptimality", w, double), rel=2e-6)
    assert rows[1e-6][1] < 1e-10  # where a difference of two objectives is zero, or 6e-8


@pytest.mark.parametrize("kind", KINDS)
def test_at_the_optimum_nothing_is_left(kind):
    problem = solved(make(kind))
    w = np.broadcast_to(problem.optimum.w, (problem.m, problem.n))
    assert measure("suboptimality", w, problem) <= suboptimality_floor(problem)
    assert measure("distance_to_optimum", w, problem) < 1e-7
    assert measure("gradient_norm", w, problem) < 1e-6
    assert measure("consensus_error", w, problem) == pytest.approx(0, abs=1e-13)


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_below_the_optimum(kind):
    problem, draw = solved(make(kind)), np.random.default_rng(3)
    for size in 10.0 ** np.arange(-8, 3):
        w = problem.optimum.w + size * draw.normal(size=(problem.m, problem.n))
        assert measure("suboptimality", w, problem) >= -float(problem.optimum.accuracy)


@pytest.mark.parametrize("kind", KINDS[:3])
def test_order_of_nodes_and_padding_change_nothing(kind):
    problem = solved(make(kind))
    w = np.random.default_rng(4).normal(size=(problem.m, problem.n)).astype(np.float32)
    order = np.array([2, 0, 3, 1])
    longer = jax.tree.map(lambda x: jnp.pad(x, ((0, 0), (0, 6), *[(0, 0)] * (x.ndim - 2)), "symmetric"), problem.data)
    padded = problem.replace(data=longer, weight=jnp.pad(problem.weight, ((0, 0), (0, 6))))
    for name in NAMES:
        expected = pytest.approx(measure(name, w, problem), rel=1e-5)
        assert measure(name, w[order], problem.nodes(order)) == expected
        assert measure(name, w, padded) == expected
    np.testing.assert_allclose(solved(padded.replace(optimum=None)).optimum.w, problem.optimum.w, rtol=1e-12)


def test_problems_are_stacked_along_trials():
    drawn = [jdfl.problems.linear_regression(*zip(*parts("linear", seed))) for seed in range(3)]
    found = [solved(problem) for problem in drawn]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *found)
    w = np.random.default_rng(5).normal(size=(3, 4, 4)).astype(np.float32)
    for name in NAMES:
        values = jax.jit(jax.vmap(metrics.REGISTRY[name]))(w, stacked)
        alone = [measure(name, w[i], found[i]) for i in range(3)]
        np.testing.assert_allclose(values, alone, rtol=1e-5)


def test_runs_compute_the_optimum_that_they_need():
    problem, network = make("logistic"), jdfl.network.ring(4)
    given = {"steps": 40, "every": 10, "metrics": ["objective", "suboptimality", "distance_to_optimum"]}
    one = jdfl.run(jdfl.EXTRA(lr=0.5), problem, network, **given)
    gap = one.history["suboptimality"]
    assert gap.is_monotonic_decreasing
    assert gap.iloc[-1] < 1e-3 * gap.iloc[0]
    least = float(optimum(problem).value)
    np.testing.assert_allclose(gap, one.history["objective"] - least, atol=2e-7)
    many = jdfl.repeat(jdfl.EXTRA(lr=0.5), problem, network, keys=[0, 1], **given)
    np.testing.assert_allclose(many[0].history["suboptimality"], gap, rtol=1e-4)
    spread = jdfl.run(jdfl.EXTRA(lr=0.5), problem, network, options=jdfl.Options(devices=2), **given)
    np.testing.assert_allclose(spread.history["suboptimality"], gap, rtol=1e-4)
    assert "suboptimality" not in jdfl.run(jdfl.EXTRA(lr=0.5), problem, network, steps=1).history


def test_an_optimum_changes_no_provenance():
    problem = make("logistic")
    known = solved(problem)
    assert provenance(problem=problem) == provenance(problem=known)
    assert checksums(problem=problem) == checksums(problem=known)


def test_an_optimum_depends_on_all_records():
    known = solved(make("linear"))
    every = zip(jax.tree.leaves_with_path(known), values(known), strict=True)
    assert {one.label for (path, _), one in every if path[0].name == "optimum"} == {Label.RAW}


def test_the_optimum_is_computed_once(monkeypatch):
    problem, calls = make("linear"), []
    monkeypatch.setattr(jdfl.problems.yardsticks, "optimum", lambda problem: calls.append(problem) or optimum(problem))
    (metric,) = metrics.resolve(["suboptimality"], problem)
    for _ in range(3):
        assert referenced([metric], problem).optimum is not None
    assert len(calls) == 1
    assert referenced([metrics.objective], problem) is problem


def test_a_sparse_reference_is_another_one():
    problem = jdfl.problems.example1(m=4, n=20, s=3, rows=(30, 40))
    sparse, dense = sparse_optimum(problem, 3), optimum(problem)
    assert np.isnan(sparse.accuracy)
    w = np.broadcast_to(sparse.w, (4, 20))
    against_dense, against_sparse = solved(problem), problem.replace(optimum=sparse)
    gap = float(sparse.value) - float(dense.value)
    assert gap > 1e-3
    assert measure("suboptimality", w, against_dense) == pytest.approx(gap, rel=1e-6)
    assert measure("suboptimality", w, against_sparse) == pytest.approx(0, abs=1e-13)
    below = np.broadcast_to(dense.w, (4, 20))
    assert measure("suboptimality", below, against_sparse) == pytest.approx(-gap, rel=1e-5)
    assert suboptimality_floor(against_sparse) > 0


def test_declared_references():
    problem = make("softmax").replace(shared=4)
    w = np.random.default_rng(6).normal(size=(problem.m, problem.n))
    with pytest.raises(ValueError, match="are all shared"):
        metrics.resolve(["suboptimality"], problem)
    with pytest.raises(ValueError, match="partly with the nodes"):
        metrics.resolve(["suboptimality"], solved(make("softmax")).replace(shared=4))
    declared = problem.replace(optimum=Optimum(None, 0.5))
    metrics.resolve(["suboptimality"], declared)
    with pytest.raises(ValueError, match="needs the parameters of the optimum"):
        metrics.resolve(["distance_to_optimum"], declared)
    gap = measure("objective", w, problem) - 0.5
    assert measure("suboptimality", w, declared) == pytest.approx(gap, rel=1e-6)
    known = make("linear")
    found = optimum(known)
    w = np.random.default_rng(6).normal(size=(known.m, known.n))
    plain = known.replace(optimum=Optimum(found.w, found.value))
    tangent = known.replace(optimum=found)
    assert measure("suboptimality", w, plain) == pytest.approx(measure("suboptimality", w, tangent), rel=1e-5)


def test_gradient_norm_where_some_parameters_stay_with_the_nodes():
    problem = make("softmax").replace(shared=4)
    w = np.random.default_rng(7).normal(size=(problem.m, problem.n)).astype(np.float32)
    own = np.asarray(metrics.personal(jnp.asarray(w), problem))
    gradients = np.stack([problem.gradient(jnp.asarray(own[i]), *problem.local(i)) for i in range(problem.m)])
    u, v = gradients[:, :4].mean(axis=0), gradients[:, 4:]
    expected = np.sqrt((u**2).sum() + np.mean((v**2).sum(axis=1)))
    assert measure("gradient_norm", w, problem) == pytest.approx(expected, rel=1e-5)


def test_an_optimum_of_other_data_is_refused():
    known = solved(make("linear"))
    other = known.replace(data=(known.data[0], known.data[1] + 1))
    with pytest.raises(ValueError, match="Expected an optimum of these data"):
        jdfl.run(jdfl.EXTRA(lr=0.1), other, jdfl.network.ring(4), steps=1, metrics=["suboptimality"])
    with pytest.raises(ValueError, match="optimum"):
        jdfl.run(jdfl.EXTRA(lr=0.1), known.replace(optimum=Optimum(np.zeros(3), 0.0)), jdfl.network.ring(4), steps=1)


def test_without_a_unique_minimum_there_is_no_gap():
    X, y = np.array([[1.0], [2.0], [-1.0]]), np.array([1, 1, 0])
    with pytest.raises(ValueError, match="penalty"):
        solved(jdfl.problems.logistic_regression([(X, y)], penalty=0.0))
    with pytest.raises(ValueError, match="penalty"):
        solved(jdfl.problems.softmax_regression([(X, y)], penalty=0.0))
    overlapping = list(parts("logistic"))
    known = solved(jdfl.problems.logistic_regression(overlapping, penalty=0.0))
    assert 0 < float(known.optimum.accuracy) < 1e-20
    with pytest.raises(ValueError, match="solved"):
        suboptimality_floor(make("linear"))


@pytest.mark.parametrize("kind", ["linear", "logistic", "softmax"])
def test_the_accuracy_bounds_what_is_left(kind):
    """Against the same problem solved to far less accuracy: the bound holds, and is of the size of what is left."""
    problem = make(kind)
    best = optimum(problem)
    from jdfl.problems import minima, value_at, yardsticks

    objective = yardsticks._objective(problem)
    for size in (1e-2, 1e-4):
        w = best.w + size * np.random.default_rng(8).normal(size=problem.n)
        gradient = objective.at(w)[1]
        left = value_at(problem, w) - float(best.value)
        convexity = np.linalg.eigvalsh(objective.hessian)[0] if kind == "linear" else 0.03
        bound = minima._left(gradient, 0.0, convexity)
        assert 0 < left <= bound
