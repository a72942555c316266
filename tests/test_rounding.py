"""What is compiled together does not decide how numbers are rounded."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jdfl
from jdfl.rounding import apart, rounded, row_sum

pytestmark = pytest.mark.optimized

X, Y = (np.random.default_rng(seed).standard_normal(1000).astype(np.float32) for seed in (0, 1))
Z = -(X * Y) * np.float32(1 + 1e-6)


@pytest.mark.parametrize("product", [lambda x, y: rounded(x * y), lambda x, y: apart(jnp.multiply, x, y)])
@pytest.mark.parametrize("mapped", [False, True])
def test_a_product_is_rounded_before_it_goes_into_a_sum(product, mapped):
    def both(x, y, z):
        return product(x, y) + z

    function, shape = (jax.vmap(both), (10, 100)) if mapped else (both, (1000,))
    found = jax.jit(function)(*(v.reshape(shape) for v in (X, Y, Z)))
    np.testing.assert_array_equal(found.ravel(), X * Y + Z)


def test_gradients_pass():
    slope = jax.grad(lambda x: jnp.sum(apart(jnp.multiply, rounded(x), Y)))(jnp.asarray(X))
    np.testing.assert_array_equal(slope, Y)


def test_what_is_no_number_stays():
    x = jnp.asarray([np.nan, np.inf, -np.inf, 0.0])
    np.testing.assert_array_equal(jax.jit(rounded)(x), x)
    np.testing.assert_array_equal(jax.jit(row_sum)(jnp.stack([x, x[::-1], x * 0, x.at[0].set(0)])), [np.nan] * 4)
    np.testing.assert_array_equal(row_sum(jnp.asarray([[0.0, np.inf, 1.0], [1.0, -np.inf, 0.0]])), [np.inf, -np.inf])


@pytest.mark.thinned(2, 1)
@pytest.mark.parametrize("n", [0, 1, 2, 7, 32, 33, 200, 1000])
def test_a_row_has_one_sum_however_many_rows_there_are(n):
    x = np.random.default_rng(2).standard_normal((40, n)).astype(np.float32)
    sums = jax.jit(lambda x: row_sum(jnp.tanh(x) * x))
    found = np.asarray(sums(x))
    for rows in (1, 3, 8):
        np.testing.assert_array_equal(sums(x[:rows]), found[:rows])
    exact = (np.tanh(x.astype(np.float64)) * x).sum(axis=1)
    np.testing.assert_allclose(found, exact, rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(jax.grad(lambda x: row_sum(x).sum())(x), np.ones_like(x))
    np.testing.assert_array_equal(jax.vmap(row_sum)(x), row_sum(x))


@pytest.mark.parametrize("function", ["values", "values_at", "gradients"])
def test_what_a_node_computes_does_not_depend_on_who_is_beside_it(function):
    problem = jdfl.problems.classification("breast_cancer", 10)
    found = jax.jit(lambda problem, w: getattr(problem, function)(w))
    for seed in range(20):
        w = np.random.default_rng(seed).standard_normal(problem.n).astype(np.float32)
        w = w if function == "values_at" else np.tile(w, (problem.m, 1))
        whole = np.asarray(found(problem, w))
        for some in (slice(0, 3), slice(3, 5), slice(9, 10)):
            part = found(problem.nodes(np.arange(problem.m)[some]), w if w.ndim == 1 else w[some])
            np.testing.assert_array_equal(part, whole[some])


@pytest.mark.thinned(3, 1)
@pytest.mark.parametrize("kind", ["linear", "logistic", "softmax"])
def test_what_a_node_computes_from_one_example_does_not_depend_on_who_is_beside_it(kind):
    """One row is no matrix; its product with a vector is a sum."""
    draw, m = np.random.default_rng(3), 40
    features, labels = draw.standard_normal((m, 1, 1000)).astype(np.float32), np.arange(m)[:, None] % 2
    parts = list(zip(features, labels))
    problem = {
        "linear": lambda: jdfl.problems.linear_regression(features, labels.astype(np.float32)),
        "logistic": lambda: jdfl.problems.logistic_regression(parts),
        "softmax": lambda: jdfl.problems.softmax_regression(parts, classes=2),
    }[kind]()
    w = draw.standard_normal((m, problem.n)).astype(np.float32)
    for function in ("values", "gradients"):
        found = jax.jit(lambda problem, w, function=function: getattr(problem, function)(w))
        whole = np.asarray(found(problem, w))
        for some in (slice(0, 2), slice(3, 8), slice(9, 10)):
            part = found(problem.nodes(np.arange(m)[some]), w[some])
            np.testing.assert_array_equal(part, whole[some])
