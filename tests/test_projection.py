"""P_s by both of its ways: against a stable sort, bit by bit, for every type of number."""

from contextlib import nullcontext
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from jax import lax

from jdfl.arrays import ops, projection

N = 7
by_index = jax.jit(projection._by_index, static_argnames="s")
by_search = jax.jit(lambda x, s: jnp.where(projection._largest(x, s), x, jnp.zeros_like(x)), static_argnames="s")
top_s = jax.jit(ops.top_s, static_argnames="s")
support = jax.jit(ops.support, static_argnames="s")


def bits_of(dtype):
    return np.dtype(f"uint{8 * jnp.dtype(dtype).itemsize}")


def wide(dtype):
    return jax.enable_x64(True) if jnp.dtype(dtype).itemsize == 8 else nullcontext()


def rows_of(dtype):
    """Rows [3, N]: few values with many ties, or any bit patterns (NaN, infinities, subnormal numbers, -2^31)."""
    few = st.sampled_from([0.0, -0.0, 1.0, -1.0, 2.0, -2.0])
    ties = arrays.arrays(np.float64, (3, N), elements=few).map(lambda x: x.astype(dtype))
    return st.one_of(ties, arrays.arrays(bits_of(dtype), (3, N)).map(lambda x: x.view(dtype)))


def order(x: np.ndarray) -> np.ndarray:
    """The places of the entries of each row from the largest to the smallest, the lower one first among equals."""
    size = np.abs(x.astype(np.float64))
    if x.dtype in (np.float32, np.float64, jnp.bfloat16):
        size[size < float(jnp.finfo(x.dtype).smallest_normal)] = 0
    missing = np.isnan(size)
    return np.lexsort((-np.where(missing, 0, size), ~missing), axis=-1)


def oracle(x: np.ndarray, s: int) -> np.ndarray:
    kept = order(x)[..., :s]
    result = np.zeros_like(x)
    np.put_along_axis(result, kept, np.take_along_axis(x, kept, -1), -1)
    return result


def assert_same_bits(found, expected):
    """Equal in type and bits, except that a NaN is a NaN."""
    found = np.asarray(found)
    assert found.dtype == expected.dtype
    missing = np.isnan(expected.astype(np.float64))
    np.testing.assert_array_equal(np.isnan(found.astype(np.float64)), missing)
    kind = bits_of(found.dtype)
    np.testing.assert_array_equal(found.view(kind)[~missing], np.ascontiguousarray(expected).view(kind)[~missing])


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "int32"])
@given(data=st.data(), s=st.sampled_from([1, 4]))
def test_every_way_keeps_the_largest(dtype, data, s):
    x = data.draw(rows_of(dtype))
    with wide(dtype):
        for way in (top_s, by_index, by_search):
            assert_same_bits(way(x, s=s), oracle(x, s))
        index, value = (np.asarray(part) for part in support(x[0], s=s))
        np.testing.assert_array_equal(np.sort(index), np.sort(order(x)[0, :s]))
        assert_same_bits(value, x[0][index])


@given(st.integers(0, 2**31), st.sampled_from([1, 299]), st.sampled_from([1, 20, 10**6]))
def test_long_rows_with_any_number_of_ties(seed, s, levels):
    rng = np.random.default_rng(seed)
    x = (rng.integers(-levels, levels + 1, (4, 300)) * 10.0 ** rng.integers(-30, 30, (4, 1))).astype(np.float32)
    assert_same_bits(by_search(x, s=s), oracle(x, s))
    assert_same_bits(by_index(x, s=s), oracle(x, s))


def test_none_are_kept_for_zero_all_for_many_and_the_smallest_integer_is_large():
    x = jnp.ones((2, N), jnp.float32)
    np.testing.assert_array_equal(ops.top_s(x, 0), np.zeros((2, N)))
    np.testing.assert_array_equal(ops.top_s(x, N + 2), x)
    for wrong in (lambda: ops.top_s(x, -1), lambda: ops.support(x[0], N + 1)):
        with pytest.raises(ValueError, match=r"negative|k argument"):
            wrong()
    least = np.iinfo("int8").min
    x = np.array([[least + 1, 5, least, -(least + 1)]], np.int8)
    tiny = np.array([[0.0, 1e-40, -2e-40, 1.0]], np.float32)
    half = np.array([[0.0, 6e-8, -1e-6, 1.0]], np.float16)
    for way in (by_index, by_search):
        np.testing.assert_array_equal(way(x, s=2), [[least + 1, 0, least, 0]])
        assert_same_bits(way(tiny, s=3), np.array([[0, 1e-40, 0, 1]], np.float32))  # kept as it is
        np.testing.assert_array_equal(way(half, s=2), np.array([[0, 0, -1e-6, 1]], np.float16))


def test_leading_axes_vmap_scan_and_no_rows():
    x = np.random.default_rng(0).standard_normal((2, 3, N)).astype(np.float32)
    expected, one = oracle(x, 2), partial(ops.top_s, s=2)
    np.testing.assert_array_equal(top_s(x[:0], s=2), expected[:0])
    np.testing.assert_array_equal(jax.jit(jax.vmap(one, in_axes=1, out_axes=1))(x), expected)
    np.testing.assert_array_equal(lax.scan(lambda _, row: (None, one(row)), None, x)[1], expected)


@given(rows_of("float32"), st.sampled_from([1, 3]), st.sampled_from(["rank", "threshold", "padded", "search"]))
def test_ways_of_gpus_give_the_same(x, s, way):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jax, "default_backend", lambda: "gpu")
        patch.setattr(projection, "RANKED", N if way == "rank" else 1)
        patch.setattr(projection, "SORTED", 1 if way == "search" else N)
        patch.setattr(projection, "LONG", 2 * N if way == "padded" else 1)
        rows = jnp.asarray(x)
        assert ("top_k" in str(jax.make_jaxpr(partial(ops.top_s, s=s))(rows))) == (way in ("threshold", "padded"))
        assert_same_bits(ops.top_s(rows, s), oracle(x, s))
        index, value = jax.vmap(lambda row: ops.support(row, s))(rows)
        assert_same_bits(jax.vmap(lambda i, v: jnp.zeros(x.shape[1:]).at[i].set(v))(index, value), oracle(x, s))
