"""P_s in registers, in JAX's interpreter of kernels: bit by bit what XLA's form selects, and that form elsewhere."""

from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from jdfl.arrays import ops
from jdfl.base.backend import with_kernels
from jdfl.kernels import selection

SIZES = [(2, 1), (7, 3), (8, 7), (33, 10)]  # n and s
plain = jax.jit(ops.top_s, static_argnames="s")


@cache
def kernel(s):
    def top_s(x):
        with with_kernels("interpreted"):
            return selection.top_s(x, s, partial(ops.top_s, s=s))

    return jax.jit(top_s)


def rows(n):
    """Rows [3, n] of few values with many ties, or of any bits: NaN, infinities, subnormal numbers, both zeros."""
    few = arrays.arrays(np.float32, (3, n), elements=st.sampled_from([np.float32(x) for x in (0, -0.0, 1, -1, 2)]))
    return st.one_of(few, arrays.arrays(np.uint32, (3, n)).map(lambda x: x.view(np.float32)))


def same(x, s):
    ways = kernel(s), partial(plain, s=s)
    found, expected = (np.asarray(way(jnp.asarray(x))).view(np.uint32) for way in ways)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(("n", "s"), SIZES)
def test_the_same_bits(n, s):
    @given(rows(n))
    def compared(x):
        same(x, s)

    compared()


@given(st.integers(0, 2**31), st.sampled_from([1, 3, 20, 10**6]))
def test_long_rows_with_any_number_of_ties(seed, levels):
    rng = np.random.default_rng(seed)
    same((rng.integers(-levels, levels + 1, (3, 300)) * 10.0 ** rng.integers(-30, 30, (3, 1))).astype(np.float32), 30)


def traced(x, s=3):
    with with_kernels("interpreted"):
        return str(jax.make_jaxpr(lambda x: ops.top_s(x, s))(x))


def test_other_types_sizes_and_numbers_have_the_other_form():
    assert "pallas_call" in traced(jnp.ones((2, selection.WIDEST), jnp.float32))
    assert "pallas_call" not in str(jax.make_jaxpr(lambda x: ops.top_s(x, 3))(jnp.ones((2, 9))))
    for shape, dtype, s in (((2, selection.WIDEST + 1), "float32", 3), ((2, 9), "bfloat16", 3), ((0, 9), "float32", 3)):
        assert "pallas_call" not in traced(jnp.ones(shape, dtype), s)
    for s in (0, 9):
        assert "pallas_call" not in traced(jnp.ones((2, 9), jnp.float32), s)


def test_derivatives_and_rows_of_lanes_are_those_of_the_other_form():
    def squared(x):
        return jnp.sum(jnp.square(ops.top_s(x, 3)))

    x = jnp.asarray(np.round(np.random.default_rng(0).standard_normal((3, 9)), 1), jnp.float32)
    with with_kernels("interpreted"):
        found = jax.jit(jax.grad(squared))(x)
    np.testing.assert_array_equal(found, jax.jit(jax.grad(lambda x: squared(x)))(x))
    x = np.random.default_rng(0).standard_normal((2, 3, 9)).astype(np.float32)
    with with_kernels("interpreted"):
        found = jax.jit(jax.vmap(jax.vmap(lambda row: ops.top_s(row, 4))))(x)
    np.testing.assert_array_equal(found, plain(jnp.asarray(x), s=4))
