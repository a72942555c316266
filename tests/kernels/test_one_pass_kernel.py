"""The gradient of least squares from one pass, in JAX's interpreter of kernels: XLA's up to rounding, or that form."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import jdfl
from jdfl import problems, testing
from jdfl.base import struct
from jdfl.base.backend import interpreted, with_kernels
from jdfl.engine.start import started
from jdfl.kernels import one_pass
from tests.kernels.faults import planted, primitives

SHAPES = [(3, 4, 1), (2, 5, 3), (1, 9, 8), (2, 70, 100), (2, 7, 1000)]  # m, q, n
SQUARES = jdfl.DPSGD(lr=0.05)


@cache
def kernel(module=one_pass):
    def gradients(*given):
        with with_kernels("interpreted"):
            return jax.vmap(module.least_squares)(*given)

    return jax.jit(gradients)


def drawn(m, q, n, seed):
    """Parameters, features and targets of very different sizes at the nodes, and shares of which some are zero."""
    rng = np.random.default_rng(seed)
    scale = 10.0 ** rng.integers(-6, 7, (m, 1))
    shapes = (m, n), (m, q, n), (m, q), (m, q)
    w, A, b, share = (rng.standard_normal(shape).astype(np.float32) for shape in shapes)
    share = np.where(rng.random((m, q)) < 0.3, 0.0, np.abs(share) * scale).astype(np.float32)
    return w, A, b, share


def close(arrays, module=one_pass):
    w, A, b, share = (x.astype(np.float64) for x in arrays)
    residuals = np.einsum("mqn,mn->mq", A, w) - b
    expected = np.einsum("mqn,mq->mn", A, share * residuals)
    size = np.einsum("mqn,mq->mn", np.abs(A), share * (np.einsum("mqn,mn->mq", np.abs(A), np.abs(w)) + np.abs(b)))
    found = np.asarray(kernel(module)(*arrays))
    assert found.dtype == np.float32
    assert (np.abs(found - expected) <= 1e-6 * size + 1e-37).all()  # of what is added up


@pytest.mark.parametrize("shape", SHAPES)
def test_the_gradient_up_to_rounding(shape):
    @given(st.integers(0, 2**31))
    def compared(seed):
        close(drawn(*shape, seed))

    compared()


FAULTS = {
    "parameters beyond the last": ("w = load(w_ref, mask=real)", "w = modules.triton.load(w_ref)"),
    "examples beyond the last": ("there = i * rows + jnp.arange(rows) < q", "there = jnp.arange(rows) < q"),
    "targets left out": ("axis=1) - b", "axis=1)"),
    "shares left out": ("(share * residuals)", "residuals"),
    "the first block again": ("here = modules.common.ds(i * rows, rows)", "here = modules.common.ds(0, rows)"),
    "a block too few": ("lax.fori_loop(0, -(-q // rows)", "lax.fori_loop(0, q // rows"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_planted_faults_are_seen(name):
    with pytest.raises(AssertionError):
        close(drawn(2, 70, 100, 0), planted(one_pass, *FAULTS[name]))


def test_numbers_that_are_not_finite_stay_visible():
    w, A, b, share = drawn(3, 6, 5, 0)
    A[0, 1, 2], w[1, 0], share[0, 1] = np.nan, np.inf, 1.0
    found = np.asarray(kernel()(w, A, b, share))
    assert not np.isfinite(found[0]).any()
    assert not np.isfinite(found[1]).any()
    assert np.isfinite(found[2]).all()


def small(dtype=np.float32):
    return problems.example1(m=6, n=33, s=3, rows=(5, 20), dtype=dtype)


def run(algorithm=SQUARES, problem=None, asked=True, **how):
    given = {"steps": 20, "key": 3, "metrics": (), "options": jdfl.Options(kernels=asked), **how}
    with interpreted():
        return jdfl.run(algorithm, small() if problem is None else problem, testing.small_network(), **given)


def names(algorithm=SQUARES, problem=None, **how):
    """The kernels of a run that is not made."""
    given = {"key": 0, "steps": 1, "every": 1, "stop": None, "metrics": (), "resume": None}
    with interpreted():
        options = jdfl.Options(kernels=True, **how)
        start = started(algorithm, problem or small(), testing.small_network(), **given, options=options)
    return start.provenance.settings["kernels"]


@pytest.mark.parametrize("algorithm", [SQUARES, jdfl.IHT(s=5, lr=0.01)])
def test_a_run_is_the_same_up_to_rounding(algorithm):
    found, expected = run(algorithm), run(algorithm, asked=False)
    words = found.provenance.settings["kernels"]
    assert words == ("least_squares" if algorithm is SQUARES else "least_squares, top_s")
    np.testing.assert_allclose(found.params, expected.params, rtol=2e-5, atol=1e-6)
    np.testing.assert_array_equal(np.asarray(found.params) == 0, np.asarray(expected.params) == 0)  # the same support
    assert found.sums == expected.sums


@struct.dataclass
class Halves(problems.LinearRegression):
    """A loss of its own, in a class of its own."""

    def losses(self, w, data):
        return 0.5 * super().losses(w, data)


def test_other_problems_types_and_sizes_have_the_other_form():
    def of(**gradients):
        return jdfl.DPSGD(lr=0.05, gradients=jdfl.Gradients(**gradients))

    assert names() == "least_squares"
    assert names(of(clip=1.0, per="batch")) == "least_squares"
    for other in (of(clip=1.0), of(batch=5), of(batch=5, sampling="subset"), jdfl.CEPS(s=3)):
        assert "least_squares" not in names(other), other  # a block of nodes, the last
    plain = small()
    halves = Halves(plain.data, plain.weight, plain.curvature)
    few = problems.example1(m=6, n=33, s=3, rows=(2, one_pass.FEWEST - 1))
    generated = problems.example1(m=6, n=33, s=3, rows=(5, 9), storage="generated")
    for problem in (halves, few, generated):
        assert names(problem=problem) == "none", problem.name
    with jax.enable_x64(True):
        assert names(problem=small(np.float64)) == "none"
    assert names(devices=2) == "none"
    found, expected = (run(steps=2, options=jdfl.Options(kernels=asked, devices=2)) for asked in (True, False))
    np.testing.assert_array_equal(found.params, expected.params)


def test_wide_rows_have_the_other_form():
    def fit(n):
        shapes = (n,), (4, n), (4,), (4,)
        with with_kernels("interpreted"), one_pass.stored(True):
            return one_pass.fits(*(jnp.zeros(shape, jnp.float32) for shape in shapes))

    assert fit(one_pass.WIDEST)
    assert not fit(one_pass.WIDEST + 1)


def test_derivatives_are_those_of_the_other_form():
    given = tuple(x[0] for x in drawn(1, 6, 5, 1))

    def squared(w, *rest):
        return jnp.sum(jnp.square(one_pass.least_squares(w, *rest)))

    with with_kernels("interpreted"):
        found = jax.grad(squared)(*given)
        assert "pallas_call" in primitives(jax.make_jaxpr(squared)(*given).jaxpr)
    _, A, _, share = given
    expected = 2 * (A.T * share) @ A @ np.asarray(one_pass._plain(*given))
    np.testing.assert_allclose(found, expected, rtol=1e-4)
