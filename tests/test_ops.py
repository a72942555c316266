import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from jdfl.arrays import ops

pytestmark = pytest.mark.optimized

N = 7


@partial(jax.jit, static_argnames="block")
def visits(wanted, block):
    """How often every row was visited, and how many blocks that took."""

    def update(rows, carry):
        count, blocks, widths = carry
        assert rows.shape == (block,)
        return count.at[rows].add(1, mode="drop"), blocks + 1, widths + jnp.sum(rows < wanted.shape[0], dtype=jnp.int32)

    start = jnp.zeros(wanted.shape, jnp.int32), jnp.int32(0), jnp.int32(0)
    return ops.for_rows(wanted, block, update, start)


@given(arrays.arrays(bool, (N,)), st.sampled_from([1, 2, 3, N, N + 4]))
def test_for_rows_visits_the_wanted_rows_once(wanted, block):
    count, blocks, widths = visits(jnp.asarray(wanted), block=block)
    np.testing.assert_array_equal(count, wanted.astype(int))
    assert blocks == -(-wanted.sum() // block)  # the work follows the number of wanted rows
    assert widths == wanted.sum()


@jax.jit
def digits(steps):
    """A number that depends on every turn and their order."""
    return ops.in_turn(steps, lambda k, value: (31 * value + k) % 1009, jnp.int32(1))


@pytest.mark.parametrize("steps", [0, 1, 2, 31, 32, 33, 1023, 1024, 1025, 40_000])
def test_turns_are_made_in_their_order_and_no_more_of_them(steps, compilations):
    digits(jnp.int32(5))
    before, expected = compilations(), 1
    for k in range(steps):
        expected = (31 * expected + k) % 1009
    assert int(digits(jnp.int32(steps))) == expected
    assert compilations() == before


def test_turns_leave_out_what_is_not_asked_for():
    @jax.jit
    def counts(steps, A):
        def body(k, carry):
            w, count, product = carry
            return A @ w, count + k % 3, product * (count + 1)

        return ops.in_turn(steps, body, (A[0], jnp.int32(0), jnp.int32(1)))[1]

    compiled = counts.lower(jnp.int32(5), jnp.ones((50, 50))).compile()
    assert compiled.memory_analysis().argument_size_in_bytes == 4  # of steps alone
    assert " dot(" not in compiled.as_text()
    assert int(counts(jnp.int32(100), jnp.ones((50, 50)))) == 99


@pytest.mark.parametrize("block", [1, 3, N, N + 4])
@pytest.mark.parametrize("every", [False, True])
def test_for_rows_of_nobody_and_of_everybody(block, every):
    count, blocks, _ = visits(jnp.full((N,), every), block=block)
    np.testing.assert_array_equal(count, np.full(N, int(every)))
    assert blocks == (-(-N // block) if every else 0)


@given(st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=5), st.integers(1, 400))
def test_limbs_hold_sums_that_no_int32_holds(values, times):
    counts = np.tile(np.array(values, np.int32), times)
    assert ops.from_limbs(np.asarray(ops.limbs(jnp.asarray(counts)))) == sum(values) * times


def test_limbs_of_many_largest_counts():
    count = jnp.full((3000,), 2**31 - 1, jnp.int32)
    partial_sums = ops.limbs(count)
    assert partial_sums.dtype == jnp.int32
    total = ops.from_limbs(np.asarray(partial_sums))
    assert total == 3000 * (2**31 - 1) > 2**40
    assert type(total) is int


@partial(jax.jit, static_argnames="room")
def permutation(key, size, room):
    """Where the places 0 .. room-1 go; those beyond `size` mean nothing."""
    return ops.permuted(key, jnp.minimum(jnp.arange(room, dtype=jnp.int32), size - 1), size)


@given(st.integers(1, 300), st.integers(0, 2**32 - 1))
def test_every_size_is_permuted(size, seed):
    found = np.asarray(permutation(jax.random.key(seed), jnp.int32(size), room=300))[:size]
    assert found.dtype == np.int32
    np.testing.assert_array_equal(np.sort(found), np.arange(size))


@pytest.mark.parametrize("size", [2**16 - 1, 2**16, 2**16 + 1, 70_000])
def test_large_sizes_are_permuted(size):
    found = np.asarray(permutation(jax.random.key(1), jnp.int32(size), room=70_000))[:size]
    np.testing.assert_array_equal(np.sort(found), np.arange(size))
    assert abs(np.corrcoef(found, np.arange(size))[0, 1]) < 5 / np.sqrt(size)


@jax.jit
def permutations(keys, size):
    return jax.vmap(lambda key: ops.permuted(key, jnp.minimum(jnp.arange(10, dtype=jnp.int32), size - 1), size))(keys)


@pytest.mark.parametrize("size", [2, 3, 4, 10])
def test_permutations_of_few_are_close_to_uniform(size):
    count = 20_000
    found = np.asarray(permutations(jax.random.split(jax.random.key(size), count), jnp.int32(size)))[:, :size]
    share = np.stack([np.bincount(column, minlength=size) for column in found.T]) / count  # of values at every place
    assert np.abs(share * size - 1).max() < 6 * np.sqrt(size / count)
    if size <= 4:
        _, orders = np.unique(found, axis=0, return_counts=True)
        assert len(orders) == math.factorial(size)
        assert np.abs(orders / count * len(orders) - 1).max() < 6 * np.sqrt(len(orders) / count)


def test_a_part_of_a_permutation_is_that_part_of_the_whole():
    key, size = jax.random.key(3), jnp.int32(100)
    whole = np.asarray(permutation(key, size, room=100))
    few = jnp.array([97, 3, 41], jnp.int32)
    np.testing.assert_array_equal(ops.permuted(key, few, size), whole[np.asarray(few)])


def largest_eigenvalue(matrix: np.ndarray, steps: int) -> float:
    start = jnp.asarray(np.random.default_rng(1).standard_normal(len(matrix)), matrix.dtype)
    return float(ops.largest_eigenvalue(lambda x: jnp.dot(jnp.asarray(matrix), x), start, steps))


@pytest.mark.parametrize(("n", "rank", "steps"), [(12, 12, 12), (40, 40, 30), (12, 3, 30), (1, 1, 5)])
def test_largest_eigenvalue_is_numpys(n, rank, steps):
    A = np.random.default_rng(n + rank).standard_normal((rank, n)).astype(np.float32)
    matrix = A.T @ A
    assert largest_eigenvalue(matrix, steps) == pytest.approx(np.linalg.eigvalsh(matrix)[-1], rel=1e-4)


@pytest.mark.parametrize(("matrix", "value"), [(np.zeros((5, 5)), 0.0), (np.eye(5), 1.0), (4e8 * np.eye(5), 4e8)])
def test_largest_eigenvalue_of_degenerate_maps(matrix, value):
    assert largest_eigenvalue(matrix.astype(np.float32), 5) == pytest.approx(value, rel=1e-5, abs=1e-6)


def test_what_is_skipped_costs_nothing_and_lanes_share_what_they_share():
    data = jnp.ones((40, 50))
    x = jnp.arange(6.0)[:, None] * jnp.ones((1, 50))
    wanted = jnp.arange(6) % 2 == 0

    def total(x, data):
        return jnp.sum(jnp.dot(data, x))

    def one(wanted, x):
        return ops.skipped_unless(wanted, total, jnp.float32(-1.0), x, data)

    expected = [2000.0 * lane if lane % 2 == 0 else -1.0 for lane in range(6)]
    np.testing.assert_allclose(jax.jit(jax.vmap(one))(wanted, x), expected)
    np.testing.assert_allclose(jax.lax.map(lambda lane: one(*lane), (wanted, x)), expected)
    np.testing.assert_allclose(jax.vmap(one, (None, 0))(jnp.bool_(False), x), -1.0)
    assert "[6,40,50]" not in str(jax.make_jaxpr(jax.vmap(one))(wanted, x))
    assert "cond" in str(jax.make_jaxpr(one)(wanted[0], x[0]))
