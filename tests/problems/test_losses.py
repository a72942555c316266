"""Values and gradients against float64 numpy formulas, and the laws every problem obeys."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import expit, logsumexp, softmax

from jdfl.problems import check_problem, linear_regression, logistic_regression, softmax_regression

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


@KINDS
def test_value_and_gradient_are_the_formulas(kind):
    parts = parts_of(kind)
    with jax.enable_x64(True):
        problem = build(kind, parts, "float64")
        w = np.random.default_rng(1).normal(size=(len(SIZES), problem.n))
        values, gradients = problem.values(jnp.asarray(w)), problem.gradients(jnp.asarray(w))
        at_first = problem.values_at(jnp.asarray(w[0]))
        for i, (A, b) in enumerate(parts):
            value, gradient = numpy_value_and_gradient(kind, w[i], A, b)
            np.testing.assert_allclose(values[i], value, rtol=1e-12)
            np.testing.assert_allclose(gradients[i], gradient, rtol=1e-9, atol=1e-12)
            np.testing.assert_allclose(at_first[i], numpy_value_and_gradient(kind, w[0], A, b)[0], rtol=1e-12)


@KINDS
def test_float32_agrees_with_float64(kind):
    parts = parts_of(kind)
    problem = build(kind, parts)
    w = np.random.default_rng(1).normal(size=problem.n).astype(np.float32)
    gradients = problem.gradients(jnp.broadcast_to(w, (len(SIZES), problem.n)))
    assert gradients.dtype == jnp.float32
    for i, (A, b) in enumerate(parts):
        expected = numpy_value_and_gradient(kind, w.astype(np.float64), A, b)[1]
        np.testing.assert_allclose(gradients[i], expected, rtol=1e-4, atol=1e-5)


@KINDS
def test_padding_changes_nothing(kind):
    problem = build(kind, parts_of(kind))
    grow = lambda leaf: jnp.pad(leaf, [(0, 0), (0, 9)] + [(0, 0)] * (leaf.ndim - 2))  # noqa: E731
    padded = problem.replace(data=jax.tree.map(grow, problem.data), weight=grow(problem.weight))
    w = jnp.asarray(np.random.default_rng(2).normal(size=(problem.m, problem.n)), jnp.float32)
    assert padded.weight.shape[1] == problem.weight.shape[1] + 9
    np.testing.assert_allclose(padded.values(w), problem.values(w), rtol=1e-6)
    np.testing.assert_allclose(padded.gradients(w), problem.gradients(w), rtol=1e-6, atol=1e-6)


@KINDS
def test_example_gradients_average_to_the_gradient(kind):
    with jax.enable_x64(True):
        problem = build(kind, parts_of(kind), "float64")
        w = jnp.asarray(np.random.default_rng(3).normal(size=problem.n))
        for i in range(problem.m):
            data, weight = problem.local(i)
            each = problem.example_gradients(w, data)
            mean = weight @ each / weight.sum() + jax.grad(problem.regulariser)(w)
            np.testing.assert_allclose(mean, problem.gradient(w, data, weight), rtol=1e-9, atol=1e-12)


@KINDS
def test_weights_count_as_repetitions(kind):
    parts = parts_of(kind)
    doubled = [(np.concatenate([A, A[:1]]), np.concatenate([b, b[:1]])) for A, b in parts]
    with jax.enable_x64(True):
        problem, repeated = build(kind, parts, "float64"), build(kind, doubled, "float64")
        weighted = problem.replace(weight=problem.weight.at[:, 0].set(2.0))
        w = jnp.asarray(np.random.default_rng(4).normal(size=(problem.m, problem.n)))
        np.testing.assert_allclose(weighted.gradients(w), repeated.gradients(w), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("z", [-1e4, -50.0, 0.0, 50.0, 1e4])
def test_logistic_loss_is_finite_at_any_score(z):
    problem = logistic_regression([(np.array([[1.0]]), np.array([1]))])
    example = (jnp.ones(1), jnp.ones(()))
    loss, slope = jax.value_and_grad(problem.loss)(jnp.array([z], jnp.float32), example)
    np.testing.assert_allclose(loss, np.logaddexp(0, z) - z, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(slope, [expit(z) - 1], rtol=1e-5, atol=1e-7)


def test_minibatch_never_draws_padding_and_is_uniform():
    problem = build("linear", parts_of("linear"))
    weight = problem.weight.at[0, 2].set(0.0)  # a hole, not only a padded tail
    marks = jnp.arange(weight.shape[1])
    keys = jax.random.split(jax.random.key(0), problem.m)
    draw = jax.vmap(lambda key, w: problem.minibatch(key, marks, w, 6000))
    chosen, drawn_weight = draw(keys, weight)
    assert (np.asarray(drawn_weight) > 0).all()
    for i in range(problem.m):
        real = np.flatnonzero(np.asarray(weight[i]))
        counts = np.bincount(np.asarray(chosen[i]), minlength=weight.shape[1])
        assert counts.sum() == counts[real].sum()
        expected = 6000 / len(real)
        assert (np.abs(counts[real] - expected) <= 5 * np.sqrt(expected)).all()


@KINDS
def test_curvature_is_the_largest_eigenvalue(kind):
    rng = np.random.default_rng(5)
    sizes = (40, 90, 25, 60, 1)  # five nodes: one more than a batch; fewer and more examples than features
    parts = [(rng.normal(size=(q, 60)), rng.integers(0, 2, q)) for q in sizes]
    problem = build(kind, parts)
    share = {"linear": 1, "logistic": 1 / 4, "softmax": 1 / 2}[kind]
    expected = [share * np.linalg.eigvalsh(A.T @ A)[-1] / len(A) for A, _ in parts]
    np.testing.assert_allclose(problem.curvature, expected, rtol=1e-4)


@pytest.mark.parametrize("kind", ["logistic", "softmax"])
def test_curvature_bounds_the_hessian(kind):
    problem = build(kind, parts_of(kind))
    w = jnp.asarray(np.random.default_rng(0).normal(size=problem.n), jnp.float32)
    hessians = jax.jit(jax.vmap(jax.hessian(problem.value), (None, 0, 0)))
    for point in (w, jnp.zeros_like(w)):
        largest = np.linalg.eigvalsh(hessians(point, problem.data, problem.weight))[:, -1]
        assert (largest <= problem.curvature + PENALTY + 1e-4).all()


def test_scores_decide_by_class():
    problem = softmax_regression([(np.eye(3), np.arange(3))], penalty=0.0)
    assert problem.n == 9
    W = jnp.eye(3) * 2
    np.testing.assert_array_equal(problem.scores(W.ravel(), problem.data[0][0]), W)
    logistic = build("logistic", parts_of("logistic"))
    w = jnp.ones(P_FEATURES)
    scores = logistic.scores(w, logistic.data[0][0])
    np.testing.assert_allclose(scores, np.asarray(logistic.data[0][0]).sum(axis=1), rtol=1e-5, atol=1e-6)


def test_penalty_sweeps_without_recompiling():
    problem = build("logistic", parts_of("logistic"))
    traces = []

    @jax.jit
    def objective(problem, w):
        traces.append(1)
        return problem.values_at(w).mean()

    w = jnp.ones(problem.n)
    low, high = (objective(problem.replace(penalty=jnp.float32(lam)), w) for lam in (0.0, 2.0))
    np.testing.assert_allclose(high - low, problem.n, rtol=1e-5)
    assert len(traces) == 1


def test_intercept_appends_ones_everywhere():
    parts = parts_of("logistic")
    problem = logistic_regression(parts, intercept=True, test=parts[0])
    assert problem.n == P_FEATURES + 1
    np.testing.assert_array_equal(problem.data[0][0, : SIZES[0], -1], 1.0)
    np.testing.assert_array_equal(problem.data[0][0, SIZES[0] :, -1], 0.0)
    np.testing.assert_array_equal(problem.test[0][:, -1], 1.0)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: logistic_regression([(np.ones((2, 3)), np.array([-1, 1]))]), r"0\.\.1, got -1"),
        (lambda: logistic_regression([(np.ones((2, 3)), np.array([0, 1, 1]))]), "See node 0"),
        (lambda: logistic_regression([(np.ones((2, 3)), np.zeros(2))], penalty=-1.0), "penalty"),
        (lambda: logistic_regression([]), "at least one node"),
        (lambda: logistic_regression([(np.ones((0, 3)), np.zeros(0))]), "none at node 0"),
        (lambda: softmax_regression([(np.ones((2, 3)), np.array([0, 5]))], classes=3), "got 5"),
        (lambda: linear_regression([np.ones((2, 3)), np.ones((2, 4))], [np.ones(2)] * 2), "at node 1"),
        (lambda: linear_regression([np.ones((2, 3))], [np.ones(2)] * 2), "targets of 1 nodes"),
        (lambda: linear_regression([np.ones((2, 3))], [np.ones(2)], truth=np.ones(4)), "truth"),
        (lambda: linear_regression([np.ones((2, 3))], [np.ones(2)], dtype="float64"), "jax_enable_x64"),
        (lambda: linear_regression([np.ones((2, 3))], [np.ones(2)], dtype="int32"), "float32 or float64"),
        (lambda: linear_regression([np.ones((2, 3))], [np.ones(2)], test=(np.ones((2, 4)), np.ones(2))), "test set"),
    ],
)
def test_bad_input_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@KINDS
def test_check_problem_accepts_what_the_builders_make(kind):
    parts = parts_of(kind)
    problem = build(kind, parts, test=parts[0])
    check_problem(problem)  # must not raise
    A, b = problem.data
    broken = {
        "node 1, example 2, entry": problem.replace(data=(A.at[1, 2, 3].set(jnp.nan), b)),
        "node 2": problem.replace(weight=problem.weight.at[2].set(0.0)),
        "node 0, example 1": problem.replace(weight=problem.weight.at[0, 1].set(-1.0)),
        r"data\[1\] of shape": problem.replace(data=(A, b[:, :-1])),
        "curvature": problem.replace(curvature=problem.curvature[:-1]),
        "truth": problem.replace(truth=jnp.ones(problem.n + 1)),
        r"test\[1\]": problem.replace(test=(problem.test[0], problem.test[1][:-1])),
        "structure": problem.replace(test=problem.test[0]),
        r"inf at index \(0, 0\).*test\[0\]": problem.replace(
            test=(problem.test[0].at[0, 0].set(jnp.inf), problem.test[1])
        ),
    }
    for message, bad in broken.items():
        with pytest.raises(ValueError, match=message):
            check_problem(bad)


def test_one_array_of_all_nodes_is_the_list_of_their_arrays():
    draw = np.random.default_rng(0)
    A, b = draw.standard_normal((3, 4, 5)), draw.standard_normal((3, 4))
    whole, parts = linear_regression(A, b), linear_regression(list(A), list(b))
    jax.tree.map(np.testing.assert_array_equal, whole, parts)
    with pytest.raises(ValueError, match="targets"):
        linear_regression(A, b[:, :3])
    with pytest.raises(ValueError, match="with examples"):
        linear_regression(A[:, :0], b[:, :0])
