"""The gradient of least squares from one pass, in JAX's interpreter of kernels: XLA's up to rounding, or that form."""

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import jdfl
from jdfl import problems, testing
from jdfl.base.backend import interpreted, with_kernels
from jdfl.engine.start import started
from jdfl.kernels import one_pass

SHAPES = [(3, 4, 1), (2, 70, 100), (2, 7, 1000)]  # m, q, n
SQUARES = jdfl.DPSGD(lr=0.05)


@jax.jit
def kernel(*given):
    with with_kernels("interpreted"):
        return jax.vmap(one_pass.least_squares)(*given)


def drawn(m, q, n, seed):
    """Parameters, features and targets of very different sizes at the nodes, and shares of which some are zero."""
    rng = np.random.default_rng(seed)
    scale = 10.0 ** rng.integers(-6, 7, (m, 1))
    shapes = (m, n), (m, q, n), (m, q), (m, q)
    w, A, b, share = (rng.standard_normal(shape).astype(np.float32) for shape in shapes)
    share = np.where(rng.random((m, q)) < 0.3, 0.0, np.abs(share) * scale).astype(np.float32)
    return w, A, b, share


def close(arrays):
    w, A, b, share = (x.astype(np.float64) for x in arrays)
    residuals = np.einsum("mqn,mn->mq", A, w) - b
    expected = np.einsum("mqn,mq->mn", A, share * residuals)
    size = np.einsum("mqn,mq->mn", np.abs(A), share * (np.einsum("mqn,mn->mq", np.abs(A), np.abs(w)) + np.abs(b)))
    found = np.asarray(kernel(*arrays))
    assert found.dtype == np.float32
    assert (np.abs(found - expected) <= 1e-6 * size + 1e-37).all()  # of what is added up


@pytest.mark.parametrize("shape", SHAPES)
def test_the_gradient_up_to_rounding(shape):
    @given(st.integers(0, 2**31))
    def compared(seed):
        close(drawn(*shape, seed))

    compared()


def test_numbers_that_are_not_finite_stay_visible():
    w, A, b, share = drawn(3, 6, 5, 0)
    A[0, 1, 2], w[1, 0], share[0, 1] = np.nan, np.inf, 1.0
    found = np.asarray(kernel(w, A, b, share))
    assert not np.isfinite(found[0]).any()
    assert not np.isfinite(found[1]).any()
    assert np.isfinite(found[2]).all()


def small(dtype=np.float32):
    return problems.example1(m=6, n=33, s=3, rows=(5, 20), dtype=dtype)


def run(algorithm, asked=True):
    given = {"steps": 20, "key": 3, "metrics": (), "options": jdfl.Options(kernels=asked)}
    with interpreted():
        return jdfl.run(algorithm, small(), testing.small_network(), **given)


def names(algorithm=SQUARES, problem=None, **how):
    """The kernels of a run that is not made."""
    given = {"key": 0, "steps": 1, "every": 1, "stop": None, "metrics": (), "before": None}
    with interpreted():
        options = jdfl.Options(kernels=True, **how)
        start = started(algorithm, problem or small(), testing.small_network(), **given, options=options)
    return start.provenance.settings["kernels"]


def test_a_run_is_the_same_up_to_rounding():
    algorithm = jdfl.IHT(s=5, lr=0.01)
    found, expected = run(algorithm), run(algorithm, asked=False)
    assert found.provenance.settings["kernels"] == "least_squares, top_s"
    np.testing.assert_allclose(found.params, expected.params, rtol=2e-5, atol=1e-6)
    np.testing.assert_array_equal(np.asarray(found.params) == 0, np.asarray(expected.params) == 0)  # the same support
    assert found.sums == expected.sums


def test_other_problems_types_sizes_and_derivatives_have_the_other_form():
    assert names() == "least_squares"
    for other in (SQUARES.replace(gradients=jdfl.Gradients(batch=5)), jdfl.CEPS(s=3)):
        assert "least_squares" not in names(other), other  # a block of nodes, the last
    few = problems.example1(m=6, n=33, s=3, rows=(2, one_pass.FEWEST - 1))
    assert names(problem=few) == "none"
    assert names(devices=2) == "none"
    _, A, _, share = given = tuple(x[0] for x in drawn(1, 6, 5, 1))
    with with_kernels("interpreted"):
        found = jax.jit(jax.jacrev(one_pass.least_squares))(*given)
    expected = (A.T * share) @ A
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5 * np.abs(expected).max())
