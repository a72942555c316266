"""Convolutions and pooling, values and both gradients, are lax's: any strides and padding, vmap, loops, bfloat16."""

from functools import partial

import jax
import numpy as np
import pytest
from flax import nnx
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax
from jax import numpy as jnp

from jdfl.models import convolution, from_nnx
from jdfl.models.convolution import fast

LAYOUT = ("NHWC", "HWIO", "NHWC")
B = 2


def usual(x, kernel, strides, padding):
    return lax.conv_general_dilated(x, kernel, strides, padding, dimension_numbers=LAYOUT)


usual_pool = nnx.max_pool  # whose gradient scatters


def convolve(x, kernel, strides, padding):
    return fast(lambda x, kernel: usual(x, kernel, strides, padding))(x, kernel)


def max_pool(x, size, strides, pads):
    return fast(lambda x: usual_pool(x, size, strides, pads))(x)


def results(function):
    """The value of function(x, kernel), and the gradients of a smooth scalar of it by both."""

    def total(x, kernel):
        y = function(x, kernel)
        return jnp.sum(jnp.sin(y).astype(jnp.float32)), y

    def both(x, kernel):
        (_, y), slopes = jax.value_and_grad(total, (0, 1), has_aux=True)(x, kernel)
        return y, *slopes

    return both


def arrays(image, kernel, *lead):
    """Random images [*lead, B, *image] and kernels [*lead, *kernel]."""
    rng, fan = np.random.default_rng(0), np.sqrt(np.prod(kernel[:-1]))
    x, k = rng.normal(size=(*lead, B, *image)), rng.normal(size=(*lead, *kernel)) / fan
    return x.astype(np.float32), k.astype(np.float32)


def agree(found, expected, tolerance=1e-5):
    for a, b in zip(jax.device_get(found), jax.device_get(expected), strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        assert np.abs(b).max() > 0
        np.testing.assert_allclose(a, b, rtol=0, atol=tolerance * np.abs(b).max())


def two(low, high):
    return st.tuples(st.integers(low, high), st.integers(low, high))


@settings(max_examples=4)
@given(two(1, 3), two(0, 4), two(1, 2), st.sampled_from(["SAME", "VALID"]) | st.tuples(two(0, 2), two(0, 2)), two(1, 3))
def test_values_and_gradients_are_the_usual_ones(size, extra, strides, padding, channels):
    image = (size[0] + extra[0], size[1] + extra[1], channels[0])
    x, kernel = arrays(image, (*size, *channels))
    both = [results(lambda x, k, f=f: f(x, k, strides, padding)) for f in (convolve, usual)]
    found, expected = jax.jit(lambda x, k: [one(x, k) for one in both])(x, kernel)
    agree(found, expected)


LAYERS = {
    "3x3 by 2": ((6, 6, 2), (3, 3, 2, 3), (2, 2), ((1, 1), (1, 1))),
    "1x1 by 2": ((6, 5, 2), (1, 1, 2, 3), (2, 2), ((0, 0), (0, 0))),
}


def test_nodes_side_by_side_and_one_after_another_in_a_loop_and_single_examples_are_the_usual_ones():
    everything = {name: arrays(image, size, 3) for name, (image, size, *_) in LAYERS.items()}

    def program(everything):
        for name, (x, k) in everything.items():
            how = LAYERS[name][2:]
            one = results(lambda x, k, how=how: convolve(x, k, *how))
            by_usual = jax.vmap(results(lambda x, k, how=how: usual(x, k, *how)))
            yield by_usual(x, k), jax.vmap(one)(x, k), lax.map(lambda row, one=one: one(*row), (x, k))

    for expected, beside, after in jax.jit(lambda everything: list(program(everything)))(everything):
        agree(beside, expected)
        agree(after, expected)

    image, size, strides, padding = LAYERS["3x3 by 2"]
    x, kernel = arrays(image, size)

    def each(function):
        single = results(lambda x, k: function(x[None], k, strides, padding))
        return jax.jit(jax.vmap(single, (0, None)))(x, kernel)

    agree(each(convolve), each(usual))


def test_no_gradient_has_a_layout_that_is_slow_in_loops():
    image, size, strides, padding = LAYERS["3x3 by 2"]
    x, kernel = arrays(image, size)

    closed = jax.make_jaxpr(jax.grad(lambda x, k: jnp.sum(convolve(x, k, strides, padding)), (0, 1)))(x, kernel)
    found = [e.params["dimension_numbers"] for e in closed.eqns if e.primitive.name == "conv_general_dilated"]
    channels_last = {tuple(map(tuple, numbers)) for numbers in found} == {((0, 3, 1, 2), (3, 2, 0, 1), (0, 3, 1, 2))}
    assert channels_last == (jax.default_backend() == "cpu")


POOLS = {"2x2": ((2, 2), (2, 2), ((0, 0), (0, 0))), "3x3 by 2": ((3, 3), (2, 2), ((1, 1), (1, 1)))}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_pooling_is_the_usual_one_where_no_two_are_equal_and_gives_the_first_of_equals_all(dtype):
    shape = (3, 5, 7, 2)  # fewer than 256 entries, so that bfloat16 tells them apart
    different = np.random.default_rng(0).permutation(np.prod(shape)).reshape(shape)
    equal = np.round(np.random.default_rng(1).normal(size=shape))

    def both(function, how, x):
        value, back = jax.vjp(lambda x: function(x, *how), x)
        return value, *back(jnp.cos(jnp.arange(float(value.size))).astype(dtype).reshape(value.shape))

    @jax.jit
    def program(x):
        return [
            (lax.map(lambda x, how=how: both(max_pool, how, x), x[None]), both(usual_pool, how, x))
            for how in POOLS.values()
        ]

    for x in (different, equal):
        for found, expected in program(jnp.asarray(x, dtype)):
            for a, b in zip(found, expected, strict=True):
                assert a.dtype == b.dtype == dtype
                np.testing.assert_array_equal(a[0].astype(jnp.float32), b.astype(jnp.float32))


def test_an_accelerator_has_the_usual_gradients(monkeypatch):
    image, size, *how = LAYERS["3x3 by 2"]
    x, kernel = arrays(image, size)
    monkeypatch.setattr(convolution, "in_loops", lambda: False)
    for mine, flax, options in ((convolve, usual, (kernel, *how)), (max_pool, usual_pool, POOLS["2x2"])):
        one, other = (jax.grad(lambda x, f=f, options=options: jnp.sum(f(x, *options))) for f in (mine, flax))
        assert str(jax.make_jaxpr(one)(x)) == str(jax.make_jaxpr(other)(x))


OTHER_WINDOWS = {  # of the maxima, [B, rows, columns, channels]
    "padded": {"window_strides": (1, 2, 2, 1), "padding": ((0, 0), (1, 1), (0, 2), (0, 0))},
    "overlapping": {"window_strides": (1, 1, 2, 1)},
    "with gaps": {"window_strides": (1, 3, 2, 1)},
    "dilated": {"window_strides": (1, 2, 2, 1), "window_dilation": (1, 2, 1, 1)},
    "dilated input": {"window_strides": (1, 2, 2, 1), "base_dilation": (1, 1, 2, 1)},
    "of channels": {"window_dimensions": (1, 1, 2, 2), "window_strides": (1, 1, 2, 2)},
}


def test_other_windows_are_left_alone():
    x = jnp.ones((3, 8, 6, 4))
    for how in OTHER_WINDOWS.values():

        def pool(x, how={"window_dimensions": (1, 2, 2, 1), "padding": "VALID"} | how):
            return jnp.sin(lax.reduce_window(x, -jnp.inf, lax.max, **how))

        assert str(jax.make_jaxpr(fast(pool))(x)) == str(jax.make_jaxpr(pool)(x)), how


class Own(nnx.Module):
    """One layer and a head, as somebody writes them."""

    def __init__(self, layer, rngs):
        self.layer = layer(rngs)

    def __call__(self, x):
        return jnp.tanh(self.layer(x)).reshape(len(x), -1)[:, :4]


OWN = {  # the settings of a layer of one's own, and whether the fast form takes them
    "zeros by side": ({"padding": ((1, 0), (3, 2)), "strides": (3, 1)}, True),
    "around": ({"padding": "CIRCULAR"}, True),
    "dilated kernel": ({"kernel_dilation": 2}, False),
    "dilated input": ({"input_dilation": (1, 2), "padding": 1}, False),
    "groups": ({"feature_group_count": 3}, False),
    "precision": ({"precision": "highest"}, False),
    "three axes": ({"kernel_size": (2, 3, 3)}, False),
}


@pytest.mark.rotated(4)
@pytest.mark.parametrize("name", OWN)
def test_layers_of_ones_own_have_the_fast_form_where_it_is_the_same(monkeypatch, name):
    how, fast = OWN[name]
    shape = (4, 5, 6, 3) if "kernel_size" in how else (9, 8, 3)
    layer = partial(nnx.Conv, 3, 6, **{"kernel_size": (3, 3)} | how)
    model = from_nnx(lambda rngs: Own(lambda rngs: layer(rngs=rngs), rngs), shape, 4)
    w, x = np.asarray(model.init(1)), np.random.default_rng(2).standard_normal((5, *shape), np.float32)

    def value(w, x):
        return jnp.sum(jnp.sin(model.apply(w, x)))

    assert ("custom_vjp_call" in str(jax.make_jaxpr(value)(w, x))) == fast
    mine = jax.jit(jax.value_and_grad(value, (0, 1)))(w, x)
    monkeypatch.setattr(convolution, "in_loops", lambda: False)
    usual = jax.jit(jax.value_and_grad(lambda w, x: value(w, x), (0, 1)))(w, x)
    for one, other in zip(jax.tree.leaves(mine), jax.tree.leaves(usual)):
        np.testing.assert_allclose(one, other, atol=5e-7 * np.abs(other).max())


class OneOfEach(nnx.Module):
    """Operations of every kind: a random draw, a nested program, a loop, batch norm, pooling."""

    def __init__(self, rngs):
        self.first, self.norm = nnx.Conv(3, 4, (3, 3), rngs=rngs), nnx.BatchNorm(4, rngs=rngs)
        self.head = nnx.Linear(36, 4, rngs=rngs)

    def __call__(self, x):
        x = nnx.relu(self.norm(self.first(x))) + 0.1 * jax.random.normal(jax.random.key(3), (4,))
        x = nnx.max_pool(jax.nn.gelu(jnp.where(x > 1, x, 2 * x)), (2, 3), (2, 3))
        x, _ = lax.scan(lambda x, k: (jnp.sin(x) * k, None), x, jnp.arange(1.0, 4.0))
        return self.head(x.reshape(len(x), -1))


def test_the_rest_of_a_model_is_as_it_was(monkeypatch):
    model = from_nnx(OneOfEach, (6, 9, 3), 4)
    ws = np.stack([model.init(seed) for seed in (1, 2, 3)])
    w, x = ws[0], np.random.default_rng(2).standard_normal((5, 6, 9, 3), np.float32)

    def value(w):
        return jnp.sum(jnp.sin(model.apply(w, x, x + 1)))

    def both():
        return jax.jit(
            lambda ws, w: (jax.vmap(jax.value_and_grad(value))(ws), jax.jvp(jax.grad(value), (w,), (ws[1],)))
        )(ws, w)

    program = str(jax.make_jaxpr(jax.grad(value))(w))
    assert "select_and_scatter" not in program
    mine = both()
    monkeypatch.setattr(convolution, "in_loops", lambda: False)
    assert "select_and_scatter" in str(jax.make_jaxpr(jax.grad(value))(w))
    for one, other in zip(jax.tree.leaves(mine), jax.tree.leaves(both())):
        np.testing.assert_allclose(one, other, atol=2e-5 * np.abs(other).max())
