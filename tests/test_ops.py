import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given
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


@given(arrays.arrays(bool, (N,)), st.sampled_from([1, 3, N, N + 4]))
def test_for_rows_visits_the_wanted_rows_once(wanted, block):
    for rows in (wanted, np.ones(N, bool), np.zeros(N, bool)):
        count, blocks, widths = visits(jnp.asarray(rows), block=block)
        np.testing.assert_array_equal(count, rows.astype(int))
        assert blocks == -(-rows.sum() // block)  # the work follows the number of wanted rows
        assert widths == rows.sum()


@jax.jit
def digits(steps):
    """A number that depends on every turn and their order."""
    return ops.in_turn(steps, lambda k, value: (31 * value + k) % 1009, jnp.int32(1))


def test_turns_are_made_in_their_order_without_what_no_result_needs(compilations):
    digits(jnp.int32(5))
    before, value, expected = compilations(), 1, [1]
    for k in range(1025):
        value = (31 * value + k) % 1009
        expected.append(value)
    for steps in (0, 1, 2, 31, 32, 33, 1023, 1024, 1025):
        assert int(digits(np.int32(steps))) == expected[steps]
    assert compilations() == before

    # Such as whole rounds, where releases are counted.
    def counted(steps, A):
        return ops.in_turn(steps, lambda k, carry: (A @ carry[0], carry[1] + k), (A[0], jnp.int32(0)))[1]

    compiled = jax.jit(counted).lower(jnp.int32(5), jnp.ones((50, 50))).compile()
    assert compiled.memory_analysis().argument_size_in_bytes == 4  # of steps alone


limbs = jax.jit(ops.limbs)


@given(st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=5), st.integers(1, 400))
@example([2**31 - 1], 3000)
def test_limbs_hold_sums_that_no_int32_holds(values, times):
    counts = np.zeros(3000, np.int32)
    counts[: len(values) * times] = np.tile(np.array(values, np.int32), times)
    assert ops.from_limbs(np.asarray(limbs(counts))) == sum(values) * times


@partial(jax.jit, static_argnames="room")
def permutation(key, size, room):
    """Where the places 0 .. room-1 go; those beyond `size` mean nothing."""
    return ops.permuted(key, jnp.minimum(jnp.arange(room, dtype=jnp.int32), size - 1), size)


@given(st.integers(1, 300), st.integers(0, 2**32 - 1))
def test_every_size_is_permuted_and_a_part_is_that_of_the_whole(size, seed):
    key = jax.random.key(seed)
    found = np.asarray(permutation(key, jnp.int32(size), room=300))[:size]
    assert found.dtype == np.int32
    np.testing.assert_array_equal(np.sort(found), np.arange(size))
    few = np.array([size - 1, size // 3, size // 2], np.int32)
    np.testing.assert_array_equal(jax.jit(ops.permuted)(key, few, np.int32(size)), found[few])


def test_large_sizes_are_permuted():
    for size in (2**16, 2**16 + 1, 70_000):
        found = np.asarray(permutation(jax.random.key(1), jnp.int32(size), room=70_000))[:size]
        np.testing.assert_array_equal(np.sort(found), np.arange(size))
        assert abs(np.corrcoef(found, np.arange(size))[0, 1]) < 5 / np.sqrt(size)


permutations = jax.jit(jax.vmap(partial(permutation, room=10), (0, None)))


def test_permutations_of_few_are_close_to_uniform():
    count = 20_000
    for size in (3, 4, 10):
        found = np.asarray(permutations(jax.random.split(jax.random.key(size), count), jnp.int32(size)))[:, :size]
        share = np.stack([np.bincount(column, minlength=size) for column in found.T]) / count  # of values at a place
        assert np.abs(share * size - 1).max() < 6 * np.sqrt(size / count)
        if size <= 4:
            _, orders = np.unique(found, axis=0, return_counts=True)
            assert len(orders) == math.factorial(size)
            assert np.abs(orders / count * len(orders) - 1).max() < 6 * np.sqrt(len(orders) / count)


def test_largest_eigenvalue_is_numpys():
    @jax.jit
    def largest(matrix, start):
        return ops.largest_eigenvalue(lambda x: jnp.dot(matrix, x), start, 30)

    draw = np.random.default_rng(7)
    for A in (*(draw.standard_normal((rank, 40)) for rank in (1, 3, 40)), 0 * np.eye(40), np.eye(40), 2e4 * np.eye(40)):
        matrix, start = (A.T @ A).astype(np.float32), draw.standard_normal(40).astype(np.float32)
        assert float(largest(matrix, start)) == pytest.approx(np.linalg.eigvalsh(matrix)[-1], rel=1e-4, abs=1e-6)


def test_what_is_skipped_costs_nothing_and_lanes_share_what_they_share():
    data = jnp.ones((40, 50))
    x = jnp.arange(6.0)[:, None] * jnp.ones((1, 50))
    wanted = jnp.arange(6) % 2 == 0

    def one(wanted, x):
        return ops.skipped_unless(wanted, lambda x, data: jnp.sum(jnp.dot(data, x)), jnp.float32(-1.0), x, data)

    expected = [2000.0 * lane if lane % 2 == 0 else -1.0 for lane in range(6)]
    np.testing.assert_allclose(jax.jit(jax.vmap(one))(wanted, x), expected)
    np.testing.assert_allclose(jax.lax.map(lambda lane: one(*lane), (wanted, x)), expected)
    assert "[6,40,50]" not in str(jax.make_jaxpr(jax.vmap(one))(wanted, x))
    assert "cond" in str(jax.make_jaxpr(one)(wanted[0], x[0]))
