"""Laws of the linear algebra behind observers: the projection is the pseudo-inverse's, and bounds are bounds."""

import hypothesis.strategies as st
import numpy as np
from hypothesis import given

from jdfl.observers.observe import blocks, largest, spans

seeds = st.integers(0, 2**32 - 1)


def drawn(seed, rows=5, releases=4, m=3):
    return np.random.default_rng(seed).standard_normal((rows, releases, m))


@given(seeds, st.integers(1, 14))
def test_a_block_is_that_of_the_pseudo_inverse(seed, rows):
    A = drawn(seed, rows)
    if rows > 3:
        A[-1] = A[0] - 2 * A[1]  # which says nothing new
    A[rows // 2 :] *= 1e-6  # the size of a row does not matter
    unknown = np.array([True, False, True])
    flat = A[:, :, unknown].reshape(rows, -1)
    found = blocks(A, flat)
    scaled = flat / np.linalg.norm(flat, axis=1, keepdims=True)
    whole = (scaled.T @ np.linalg.pinv(scaled @ scaled.T, 1e-10) @ scaled).reshape(4, 2, 4, 2)
    np.testing.assert_allclose(found[[0, 2]], [whole[:, 0, :, 0], whole[:, 1, :, 1]], atol=1e-7)
    assert not blocks(A[:0], flat[:0]).any()


def test_faint_directions_count_as_much_as_clear_ones():
    A = np.zeros((2, 1, 2))
    A[0, 0], A[1, 0] = [1.0, 1.0], [1.0, 1.0 + 1e-8]  # whose difference shows the second node alone
    np.testing.assert_allclose(blocks(A, A.reshape(2, 2)), np.ones((2, 1, 1)), atol=1e-6)
    A[1, 0, 1] = 1.0 + 1e-15  # which is rounding
    np.testing.assert_allclose(blocks(A, A.reshape(2, 2)), np.full((2, 1, 1), 0.5), atol=1e-6)


@given(seeds)
def test_noise_of_any_kind_is_counted_and_its_lack_is_infinite(seed):
    A, noise = drawn(seed, 5), np.random.default_rng(seed + 1).standard_normal((5, 9))
    white = np.linalg.inv(noise @ noise.T)
    np.testing.assert_allclose(blocks(A, noise)[1], A[:, :, 1].T @ white @ A[:, :, 1], rtol=1e-6, atol=1e-8)
    noise[4] = 0
    assert np.isinf(largest(blocks(A, noise))).all()  # a bare row
    noise[4] = noise[0] + noise[1]
    assert np.isinf(largest(blocks(A, noise))).all()  # whose noise others cancel
    A[4] = A[0] + A[1]
    assert np.isfinite(largest(blocks(A, noise))).all()
    A[:, :, 1] = 0
    assert largest(blocks(A, noise))[1] == 0


def gained(M, d):
    return np.einsum("ts,tk,sk->", M, d, d)


@given(seeds, st.integers(1, 6), st.integers(1, 6))
def test_no_change_gains_more_than_the_bound(seed, count, rank):
    random = np.random.default_rng(seed)
    root = random.standard_normal((count, rank))
    M = root @ root.T
    bound = largest(M[None])[0]
    d = random.standard_normal((200, count, count + 1))
    d /= np.linalg.norm(d, axis=2, keepdims=True)
    d[0], d[1] = 0.0, 0.0
    d[0, :, 0], d[1, :, 0] = 1.0, np.sign(root[:, 0])
    assert max(gained(M, one) for one in d) <= bound * (1 + 1e-9)
    assert bound <= min(np.abs(M).sum(), count * np.linalg.eigvalsh(M)[-1]) * (1 + 1e-9)


@given(seeds)
def test_what_is_spanned_is_told_from_what_is_not(seed):
    random = np.random.default_rng(seed)
    rows = random.standard_normal((3, 8))
    inside = random.standard_normal((2, 3)) @ rows
    assert spans(rows, inside)
    assert spans(rows, 0 * inside)
    assert spans(rows[:0], 0 * inside)
    assert not spans(rows[:2], inside)
    assert not spans(rows[:0], inside)
