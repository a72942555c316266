"""Convolutions and pooling, values and both gradients, are lax's: any strides and padding, vmap, loops, bfloat16."""

import jax
import numpy as np
import pytest
from flax import nnx
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax
from jax import numpy as jnp

from jdfl.models import convolution
from jdfl.models.convolution import convolution as convolve
from jdfl.models.convolution import max_pool, tiles

LAYOUT = ("NHWC", "HWIO", "NHWC")
B = 2


def usual(x, kernel, strides, padding):
    """JAX's convolution with JAX's gradients."""
    return lax.conv_general_dilated(x, kernel, strides, padding, dimension_numbers=LAYOUT)


def usual_pool(x, size, strides, pads):
    """Flax's pooling, whose gradient scatters."""
    return nnx.max_pool(x, size, strides, pads)


def results(function):
    """The value of function(x, kernel), and the gradients of a smooth scalar of it by both."""

    def total(x, kernel):
        y = function(x, kernel)
        return jnp.sum(jnp.sin(y).astype(jnp.float32)), y

    def both(x, kernel):
        (_, y), slopes = jax.value_and_grad(total, (0, 1), has_aux=True)(x, kernel)
        return y, *slopes

    return both


def arrays(image, kernel, *lead, seed=0, dtype=jnp.float32):
    """Random images [*lead, B, *image] and kernels [*lead, *kernel] of that dtype."""
    one, two = jax.random.split(jax.random.key(seed))
    fan = float(np.sqrt(np.prod(kernel[:-1])))
    x, k = jax.random.normal(one, (*lead, B, *image)), jax.random.normal(two, (*lead, *kernel)) / fan
    return x.astype(dtype), k.astype(dtype)


def agree(found, expected, tolerance=1e-5):
    for a, b in zip(found, expected, strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        a, b = np.asarray(a, np.float32), np.asarray(b, np.float32)
        assert np.abs(b).max() > 0
        np.testing.assert_allclose(a, b, rtol=0, atol=tolerance * np.abs(b).max())


def side():
    return st.tuples(st.integers(0, 2), st.integers(0, 2))


@settings(max_examples=5)
@given(
    size=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    extra=st.tuples(st.integers(0, 4), st.integers(0, 4)),
    strides=st.tuples(st.integers(1, 2), st.integers(1, 2)),
    padding=st.one_of(st.sampled_from(["SAME", "VALID"]), st.tuples(side(), side())),
    channels=st.tuples(st.integers(1, 3), st.integers(1, 3)),
)
def test_values_and_gradients_are_the_usual_ones(size, extra, strides, padding, channels):
    image = (size[0] + extra[0], size[1] + extra[1], channels[0])
    x, kernel = arrays(image, (*size, *channels))
    both = [results(lambda x, k, f=f: f(x, k, strides, padding)) for f in (convolve, usual)]
    found, expected = jax.jit(lambda x, k: [one(x, k) for one in both])(x, kernel)
    agree(found, expected)


LAYERS = {
    "3x3 by 2": ((6, 6, 2), (3, 3, 2, 3), (2, 2), ((1, 1), (1, 1))),
    "1x1 by 2": ((6, 5, 2), (1, 1, 2, 3), (2, 2), ((0, 0), (0, 0))),
    "7x7 by 2": ((8, 8, 1), (7, 7, 1, 2), (2, 2), ((3, 3), (3, 3))),
}


@pytest.mark.parametrize("name", LAYERS)
def test_nodes_side_by_side_and_one_after_another_in_a_loop_are_the_usual_ones(name):
    image, size, strides, padding = LAYERS[name]
    x, kernel = arrays(image, size, 3)
    one = results(lambda x, k: convolve(x, k, strides, padding))
    by_usual = jax.vmap(results(lambda x, k: usual(x, k, strides, padding)))

    def program(x, k):
        return by_usual(x, k), jax.vmap(one)(x, k), lax.map(lambda row: one(*row), (x, k))

    expected, beside, after = jax.jit(program)(x, kernel)
    agree(beside, expected)
    agree(after, expected)


def test_every_example_has_a_gradient_of_its_own():
    image, size, strides, padding = LAYERS["3x3 by 2"]
    x, kernel = arrays(image, size)

    def each(function):
        single = results(lambda x, k: function(x[None], k, strides, padding))
        return jax.jit(jax.vmap(single, (0, None)))(x, kernel)

    agree(each(convolve), each(usual))


@pytest.mark.parametrize("name", ["3x3 by 2", "7x7 by 2"])
def test_bfloat16_is_as_close_as_bfloat16_is(name):
    image, size, strides, padding = LAYERS[name]
    x, kernel = arrays(image, size, dtype=jnp.bfloat16)
    found = jax.jit(results(lambda x, k: convolve(x, k, strides, padding)))(x, kernel)
    wide = [leaf.astype(jnp.float32) for leaf in (x, kernel)]
    expected = jax.jit(results(lambda x, k: usual(x, k, strides, padding)))(*wide)
    agree(found, [leaf.astype(jnp.bfloat16) for leaf in expected], 2e-2)


def test_no_gradient_has_a_layout_that_is_slow_in_loops():
    image, size, strides, padding = LAYERS["3x3 by 2"]
    x, kernel = arrays(image, size)

    def layouts(function):
        closed = jax.make_jaxpr(jax.grad(lambda x, k: jnp.sum(function(x, k, strides, padding)), (0, 1)))(x, kernel)
        found = [e.params["dimension_numbers"] for e in closed.eqns if e.primitive.name == "conv_general_dilated"]
        return {tuple(map(tuple, numbers)) for numbers in found}

    def channels_last(found):
        return found == {((0, 3, 1, 2), (3, 2, 0, 1), (0, 3, 1, 2))}

    assert not channels_last(layouts(usual))
    assert channels_last(layouts(convolve)) == (jax.default_backend() == "cpu")


def test_tiles_are_a_convolution():
    x, kernel = arrays((4, 6, 3), (2, 3, 3, 5))
    found, expected = (jax.jit(results(lambda x, k, f=f: f(x, k, (2, 3), "VALID")))(x, kernel) for f in (tiles, usual))
    agree(found, expected)


POOLS = {
    "2x2": ((2, 2), (2, 2), ((0, 0), (0, 0))),
    "2x3": ((2, 3), (2, 3), ((0, 0), (0, 0))),
    "3x3 by 2": ((3, 3), (2, 2), ((1, 1), (1, 1))),
}


@pytest.mark.parametrize("name", POOLS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("shape", [(4, 6), (5, 7)], ids=["even", "odd"])
def test_pooling_is_the_usual_one_where_no_two_are_equal(name, dtype, shape):
    count = 3 * 2 * int(np.prod(shape))  # below 256, so that bfloat16 tells the entries apart
    x = jax.random.permutation(jax.random.key(0), jnp.arange(float(count)).astype(dtype)).reshape(3, *shape, 2)

    def both(function):
        value, back = jax.vjp(lambda x: function(x, *POOLS[name]), x)
        return value, *back(jnp.cos(value))

    found, expected = jax.jit(lambda: (lax.map(lambda _: both(max_pool), jnp.arange(1)), both(usual_pool)))()
    for a, b in zip(found, expected, strict=True):
        assert a.dtype == b.dtype == dtype
        np.testing.assert_allclose(a[0].astype(jnp.float32), b.astype(jnp.float32), rtol=1e-6, atol=1e-6)


def test_equal_entries_share_the_whole_gradient():
    x = jnp.zeros((1, 4, 6, 1))
    value, back = jax.vjp(lambda x: max_pool(x, *POOLS["2x2"]), x)
    (slope,) = back(jnp.ones_like(value))
    assert float(slope.min()) >= 0
    windows = slope.reshape(2, 2, 3, 2).sum((1, 3))
    np.testing.assert_allclose(windows, jnp.ones((2, 3)), rtol=1e-6)


def test_an_accelerator_has_the_usual_gradients(monkeypatch):
    image, size, strides, padding = LAYERS["3x3 by 2"]
    x, kernel = arrays(image, size)
    monkeypatch.setattr(convolution, "in_loops", lambda: False)

    def program(function, *operands):
        return str(jax.make_jaxpr(jax.grad(lambda *a: jnp.sum(function(*a)), (0,)))(*operands))

    assert program(lambda x: convolve(x, kernel, strides, padding), x) == program(
        lambda x: usual(x, kernel, strides, padding), x
    )
    assert program(lambda x: max_pool(x, *POOLS["2x2"]), x) == program(lambda x: usual_pool(x, *POOLS["2x2"]), x)
