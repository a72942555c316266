"""Values and gradients against float64 numpy formulas, and the laws every problem obeys."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.special import expit, logsumexp, softmax

from jdfl.problems import check_problem, linear_regression, logistic_regression, softmax_regression, stack
from tests.refused import all_refused, refused

SIZES, P_FEATURES, CLASSES, PENALTY = (7, 3, 12, 1), 5, 3, 0.25


def parts_of(kind, seed=0, sizes=SIZES):
    rng = np.random.default_rng(seed)
    features = [rng.normal(size=(q, P_FEATURES)) for q in sizes]
    if kind == "linear":
        return [(A, rng.normal(size=len(A))) for A in features]
    classes = 2 if kind == "logistic" else CLASSES
    return [(A, rng.integers(0, classes, len(A))) for A in features]


def build(kind, parts, dtype="float32", test=None):
    if kind == "linear":
        return linear_regression(*zip(*parts), dtype=dtype, test=test)
    if kind == "logistic":
        return logistic_regression(parts, penalty=PENALTY, dtype=dtype, test=test)
    return softmax_regression(parts, classes=CLASSES, penalty=PENALTY, dtype=dtype, test=test)


def numpy_value_and_gradient(kind, w, A, b):
    """f_i and its gradient from the formulas, one node, float64."""
    if kind == "linear":
        r = A @ w - b
        return r @ r / (2 * len(b)), A.T @ r / len(b)
    if kind == "logistic":
        z = A @ w
        value = np.mean(np.log1p(np.exp(z)) - b * z) + PENALTY / 2 * w @ w
        return value, A.T @ (expit(z) - b) / len(b) + PENALTY * w
    Z = A @ w.reshape(-1, CLASSES)
    value = np.mean(logsumexp(Z, axis=1) - Z[np.arange(len(b)), b]) + PENALTY / 2 * w @ w
    slope = softmax(Z, axis=1) - np.eye(CLASSES)[b]
    return value, (A.T @ slope / len(b)).ravel() + PENALTY * w


KINDS = pytest.mark.parametrize("kind", ["linear", "logistic", "softmax"])


@jax.jit
def looked_at(problem, w):
    """Values [m], values at node 0's parameters [m], gradients [m, n], and of all examples apart [m, q, n]."""
    each = jax.vmap(problem.example_gradients)(w, problem.data)
    return problem.values(w), problem.values_at(w[0]), problem.gradients(w), each


@KINDS
def test_value_and_gradient_are_the_formulas(kind):
    parts, w = parts_of(kind), None
    for dtype, tolerance in (("float64", 1e-9), ("float32", 1e-4)):
        with jax.enable_x64(dtype == "float64"):
            problem = build(kind, parts, dtype)
            w = np.random.default_rng(1).normal(size=(len(SIZES), problem.n)).astype(dtype)
            values, at_first, gradients, each = (np.asarray(one) for one in looked_at(problem, w))
        assert gradients.dtype == dtype
        for i, (A, b) in enumerate(parts):
            value, gradient = numpy_value_and_gradient(kind, w[i].astype(float), A, b)
            at = numpy_value_and_gradient(kind, w[0].astype(float), A, b)[0]
            np.testing.assert_allclose([values[i], at_first[i]], [value, at], rtol=tolerance / 10)
            np.testing.assert_allclose(gradients[i], gradient, rtol=tolerance, atol=tolerance / 10)
            mean = each[i, : len(b)].mean(axis=0) + (0 if kind == "linear" else PENALTY) * w[i]
            np.testing.assert_allclose(mean, gradient, rtol=tolerance, atol=tolerance / 10)


@KINDS
def test_padding_changes_nothing_and_weights_count_as_repetitions(kind):
    parts = parts_of(kind)
    problem = build(kind, parts)
    grow = lambda leaf: np.pad(leaf, [(0, 0), (0, 1)] + [(0, 0)] * (leaf.ndim - 2))  # noqa: E731
    padded = problem.replace(data=jax.tree.map(grow, problem.data), weight=grow(problem.weight))
    repeated = build(kind, [(np.concatenate([A, A[:1]]), np.concatenate([b, b[:1]])) for A, b in parts])
    weighted = padded.replace(weight=np.where(np.arange(padded.weight.shape[1]) == 0, np.float32(2), padded.weight))
    w = np.random.default_rng(2).normal(size=(problem.m, problem.n)).astype(np.float32)
    for one, other in ((problem, padded), (repeated, weighted)):
        found, expected = looked_at(one, w)[:3], looked_at(other, w)[:3]
        for a, b in zip(found, expected):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_logistic_loss_is_finite_at_any_score():
    problem = logistic_regression([(np.array([[1.0]]), np.array([1]))])
    z = np.array([-1e4, -50.0, 0.0, 50.0, 1e4], np.float32)
    each = jax.jit(jax.vmap(jax.value_and_grad(problem.loss), (0, None)))
    loss, slope = each(z[:, None], (np.ones(1, np.float32), np.float32(1)))
    np.testing.assert_allclose(loss, np.logaddexp(0, z) - z, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(slope[:, 0], expit(z) - 1, rtol=1e-5, atol=1e-7)


def test_minibatch_never_draws_padding_and_is_uniform():
    problem = build("linear", parts_of("linear"))
    weight = np.array(problem.weight)
    weight[0, 2] = 0  # a hole, not only a padded tail
    marks = jnp.arange(weight.shape[1])
    keys = jax.random.split(jax.random.key(0), problem.m)
    draw = jax.jit(jax.vmap(lambda key, w: problem.minibatch(key, marks, w, 6000)))
    chosen, drawn_weight = draw(keys, weight)
    assert (np.asarray(drawn_weight) > 0).all()
    for i in range(problem.m):
        real = np.flatnonzero(weight[i])
        counts = np.bincount(np.asarray(chosen[i]), minlength=weight.shape[1])
        assert counts.sum() == counts[real].sum()
        expected = 6000 / len(real)
        assert (np.abs(counts[real] - expected) <= 5 * np.sqrt(expected)).all()


@KINDS
def test_curvature_is_the_largest_eigenvalue(kind, monkeypatch):
    rng = np.random.default_rng(5)
    sizes = (40, 90, 25, 60, 1)  # five nodes: one more than a batch; fewer and more examples than features
    parts = [(rng.normal(size=(q, 60)), rng.integers(0, 2, q)) for q in sizes]
    share = {"linear": 1, "logistic": 1 / 4, "softmax": 1 / 2}[kind]
    expected = [share * np.linalg.eigvalsh(A.T @ A)[-1] / len(A) for A, _ in parts]
    np.testing.assert_allclose(build(kind, parts).curvature, expected, rtol=1e-6)
    monkeypatch.setattr(stack, "_FEW", 0)  # on the device
    np.testing.assert_allclose(build(kind, parts).curvature, expected, rtol=1e-4)


def test_intercept_appends_ones_everywhere():
    parts = parts_of("logistic")
    problem = logistic_regression(parts, intercept=True, test=parts[0])
    np.testing.assert_array_equal(problem.data[0][0, : SIZES[0], -1], 1.0)
    np.testing.assert_array_equal(problem.data[0][0, SIZES[0] :, -1], 0.0)
    np.testing.assert_array_equal(problem.test[0][:, -1], 1.0)
    assert jax.tree.structure(problem.replace(penalty=jnp.float32(2))) == jax.tree.structure(problem)  # one program


def test_bad_input_is_refused():
    A, y = np.ones((2, 3)), np.ones(2)
    all_refused(
        (lambda: logistic_regression([(A, np.array([-1, 1]))]), "labels", "-1"),
        (lambda: logistic_regression([(A, 0 * y)], penalty=-1.0), "penalty"),
        (lambda: logistic_regression([(A[:0], y[:0])]), "node 0"),
        (lambda: softmax_regression([(A, np.array([0, 5]))], classes=3), "5"),
        (lambda: linear_regression([A], [y], dtype="float64"), "jax_enable_x64"),
        (lambda: linear_regression([A], [y], test=(np.ones((2, 4)), y)), "test set"),
        (lambda: linear_regression(np.ones((3, 4, 5)), np.ones((3, 3))), "targets"),
        (lambda: linear_regression([A], [y, y]), "targets", "2"),
        (lambda: linear_regression([csr_array(A)], [y]), "features"),
        (lambda: linear_regression(np.ones((3, 0, 5)), np.ones((3, 0))), "(3, 0, 5)"),
        (lambda: linear_regression([A, A[:, 1:]], [y, y]), "node 1"),
        (lambda: linear_regression([], []), "one node"),
        (lambda: logistic_regression([]), "one node"),
    )
    one, other = np.random.default_rng(0).standard_normal((3, 4, 5)), np.ones((3, 4))
    whole, parts = linear_regression(jnp.asarray(one), jnp.asarray(other)), linear_regression(list(one), list(other))
    jax.tree.map(np.testing.assert_array_equal, whole, parts)


def test_check_problem_accepts_what_the_builders_make_and_names_what_is_broken():
    parts = parts_of("softmax")
    problem = build("softmax", parts, test=parts[0])
    check_problem(problem)  # must not raise
    (A, b), (rows, labels) = jax.device_get((problem.data, problem.test))

    def with_one(array, place, value):
        changed = np.array(array)
        changed[place] = value
        return changed

    for named, change in {
        "node 1, example 2, entry": {"data": (with_one(A, (1, 2, 3), np.nan), b)},
        "node 2": {"weight": with_one(problem.weight, 2, 0)},
        "node 0, example 1": {"weight": with_one(problem.weight, (0, 1), -1)},
        "data[1]": {"data": (A, b[:, :-1])},
        "curvature": {"curvature": problem.curvature[:-1]},
        "truth": {"truth": np.ones(problem.n + 1)},
        "test[1]": {"test": (rows, labels[:-1])},
        "structure": {"test": rows},
        "one array": {"data": ()},
        "test[0]": {"test": (with_one(rows, (0, 0), np.inf), labels)},
    }.items():
        with refused(named):
            check_problem(problem.replace(**change))
