"""Clipping bounds every vector, whatever is in it, and `stretch` says what that is worth in another norm."""

import itertools

import hypothesis.extra.numpy as hnp
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jdfl.privacy import clipped, factor, stretch

N = 6
NORMS = ["l1", "l2", "linf"]
ROUNDING = 1 + 1e-6  # float32
anything = st.floats(width=32, allow_nan=True, allow_infinity=True)
clips = st.sampled_from([1e-6, 0.1, 1.0, 50.0])


compiled = jax.jit(clipped, static_argnames="norm")  # as in a run, where the compiler rewrites what it is given


def length(x, norm):
    """In 64 bits."""
    return np.linalg.norm(np.asarray(x, float), {"l1": 1, "l2": 2, "linf": np.inf}[norm])


@pytest.mark.parametrize("norm", NORMS)
@given(x=hnp.arrays(np.float32, N, elements=anything), clip=clips)
def test_nothing_is_longer_than_the_clip(norm, x, clip):
    found = np.asarray(compiled(jnp.asarray(x), norm, clip))
    assert np.isfinite(found).all()
    assert length(found, norm) <= clip * ROUNDING
    if not np.isfinite(x).all():
        np.testing.assert_array_equal(found, 0.0)


@pytest.mark.parametrize("norm", NORMS)
@given(x=hnp.arrays(np.float32, N, elements=st.floats(-(2.0**50), 2.0**50, width=32)), clip=clips)
def test_direction_is_kept_and_what_is_short_is_unchanged(norm, x, clip):
    found, measured = np.asarray(clipped(jnp.asarray(x), norm, clip), float), length(x, norm)
    if measured * ROUNDING <= clip:
        np.testing.assert_array_equal(found, x)
    elif measured >= clip * ROUNDING:
        np.testing.assert_allclose(found, x.astype(float) * (clip / measured), rtol=2e-6, atol=1e-37)
        assert length(found, norm) == pytest.approx(clip, rel=2e-6)


@pytest.mark.parametrize("norm", NORMS)
def test_one_bad_entry_makes_its_own_row_zero_only(norm):
    for bad in (np.nan, -np.inf):
        found = np.asarray(compiled(jnp.ones((3, N)).at[1, 2].set(bad), norm, 0.5))
        np.testing.assert_array_equal(found[1], 0.0)
        for row in (0, 2):
            assert length(found[row], norm) == pytest.approx(0.5, rel=1e-6)


@given(lengths=hnp.arrays(np.float32, 4, elements=st.floats(0, 2.0**100, width=32)), clip=clips)
def test_factors_shorten_and_never_lengthen_and_are_zero_where_a_length_is_no_number(lengths, clip):
    found = np.asarray(factor(jnp.asarray(lengths), clip), float)
    assert ((found >= 0) & (found <= 1)).all()
    assert (found * lengths <= clip * ROUNDING).all()
    assert (found[lengths <= np.float32(clip)] == 1).all()
    in_order = found[np.argsort(lengths)]
    assert (np.diff(in_order) <= 0).all()
    found = factor(jnp.array([0.0, jnp.nan, jnp.inf, 2.0]), 1.0)
    np.testing.assert_array_equal(found, [1.0, 0.0, 0.0, 0.5])


def test_stretch_is_attained():
    for clipped_in, measured_in in itertools.product(NORMS, NORMS):
        worst = max(length(x, measured_in) / length(x, clipped_in) for x in (np.eye(N)[0], np.ones(N)))
        # the extreme points of these norms' balls point along an axis or to a corner
        assert stretch(clipped_in, measured_in, N) == pytest.approx(worst, rel=1e-12)
        assert stretch(clipped_in, measured_in, 1) == 1.0


@given(x=hnp.arrays(np.float64, st.integers(1, 9), elements=st.floats(-1e3, 1e3).map(lambda e: round(e, 6))))
def test_stretch_is_never_exceeded(x):
    for clipped_in, measured_in in itertools.product(NORMS, NORMS):
        bound = stretch(clipped_in, measured_in, len(x))
        assert length(x, measured_in) <= bound * length(x, clipped_in) * (1 + 1e-12)
