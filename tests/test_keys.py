"""Keys of runs draw what JAX's own keys draw."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jdfl.base.keys import typed_key

SEEDS = st.integers(0, 2**32 - 1)
SHAPES = st.sampled_from([(), (0,), (5,), (2, 3), (4, 1, 2)])  # each is compiled


def same(a, b):
    """Bit for bit, keys by their words."""
    if jnp.issubdtype(b.dtype, jax.dtypes.prng_key):
        a, b = jax.random.key_data(a), jax.random.key_data(b)
    chex.assert_trees_all_equal_shapes_and_dtypes(a, b)
    np.testing.assert_array_equal(a, b)


@settings(max_examples=12, deadline=None)
@given(SEEDS, SEEDS, SHAPES)
def test_words_splits_and_folds_are_those_of_jax(seed, data, shape):
    ours, theirs = typed_key(seed), jax.random.key(seed)
    same(ours, theirs)
    same(jax.random.fold_in(ours, np.uint32(data)), jax.random.fold_in(theirs, np.uint32(data)))
    same(jax.random.split(ours, shape), jax.random.split(theirs, shape))
    for kind in ("uint8", "uint16", "uint32"):
        same(jax.random.bits(ours, shape, kind), jax.random.bits(theirs, shape, kind))


def draws(key):
    """What algorithms draw, from keys of nodes."""
    one, two, three, four, five, six = jax.random.split(key, 6)
    nodes = jax.vmap(jax.random.fold_in, (None, 0))(one, jnp.arange(7))
    return (
        jax.vmap(lambda node: jax.random.normal(node, (3, 5)))(nodes),
        jax.vmap(lambda node: jax.random.laplace(node, (33,)))(nodes),
        jax.random.uniform(two, (4,)),
        jax.random.bernoulli(three, 0.3, (50,)),
        jax.random.permutation(four, 20),
        jax.random.randint(five, (9,), 0, 1000),
        jax.random.normal(six, (9,), jnp.bfloat16),
    )


@pytest.mark.parametrize("x64", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_what_is_drawn_is_what_jax_draws(x64):
    with jax.enable_x64(x64):
        for ours, theirs in zip(jax.jit(draws)(typed_key(3)), jax.jit(draws)(jax.random.key(3))):
            same(ours, theirs)


def test_typed_keys_are_taken_with_their_numbers_and_keys_of_another_kind_become_ones_that_draw_alone():
    theirs = jax.random.fold_in(jax.random.key(1), 2)
    same(typed_key(theirs), theirs)
    assert typed_key(typed_key(theirs)).dtype == typed_key(theirs).dtype != theirs.dtype
    keys = [typed_key(jax.random.key(seed, impl="rbg")) for seed in (1, 2, 3)]
    assert len({str(jax.random.key_data(key)) for key in keys}) == 3
    lanes = jax.vmap(lambda key: jax.random.normal(key, (4,)))(jax.numpy.stack(keys))
    for lane, key in zip(lanes, keys):
        same(lane, jax.random.normal(key, (4,)))


def test_more_places_than_counters_are_left_to_jax(monkeypatch):
    monkeypatch.setattr("jdfl.base.keys._COUNTERS", 5)

    def six(key):
        return jax.random.bits(key, (2, 3)), jax.random.key_data(jax.random.split(key, 6))

    lowered = jax.jit(six).lower(typed_key(0))
    assert lowered.as_text().count("while") >= 2  # JAX's loop
    for ours, theirs in zip(lowered.compile()(typed_key(0)), six(jax.random.key(0))):
        same(ours, theirs)
