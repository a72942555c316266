"""A model's scores and gradients are those of the flax module, for one node and for many."""

from itertools import product

import jax
import numpy as np
import pytest
from jax import lax
from jax import numpy as jnp

from jdfl import models
from jdfl.models.networks import attend
from tests.models.laws import LAWS, B, compiled
from tests.models.small import NAMES, SMALL, examples, leaves_of, parameters, small

SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    "name", ["mlp", "cnn", "vit", "batch", *(pytest.param(name, marks=SLOW) for name in ("cnn3", "group"))]
)
def test_networks_obey_the_laws(name):
    case = compiled(name)
    for law in LAWS:
        law(case)


def test_the_wirings_are_the_published_formulas():
    for wiring, output in product(("residual-784", "residual-10", "plain"), ("linear", "tanh")):
        model = models.mlp(wiring, shape=(3, 3), classes=4, hidden=4, output=output)
        w, x = parameters(model, 1)[0], examples(model, B)
        leaves = list(leaves_of(model, w).values())  # kernel, bias of each layer
        flat = x.reshape(B, -1)
        a = np.tanh(flat @ leaves[0] + leaves[1])
        b = np.tanh(a @ leaves[2] + leaves[3]) + (flat if wiring == "residual-784" else 0)
        scores = b @ leaves[4] + leaves[5]
        expected = (np.tanh(scores) if output == "tanh" else scores) + (a if wiring == "residual-10" else 0)
        np.testing.assert_allclose(jax.jit(model.apply)(w, x), expected, rtol=1e-5, atol=1e-5)


def test_attention_is_the_formula():
    q, k, v = np.random.default_rng(0).standard_normal((3, 2, 5, 3, 4), np.float32)
    scores = np.exp(np.einsum("bthd,bshd->bhts", q, k) / 2)  # four numbers a head
    expected = np.einsum("bhts,bshd->bthd", scores / scores.sum(axis=3, keepdims=True), v)
    np.testing.assert_allclose(jax.jit(attend)(q, k, v), expected, rtol=1e-5, atol=1e-6)


def test_three_convolutions_and_a_head_are_the_formula():
    model = small("cnn3", activation="tanh")
    w, x = parameters(model, 1)[0], examples(model, B)
    leaves = leaves_of(model, w)

    @jax.jit
    def formula(hidden):
        for name, stride in (("conv1", 2), ("conv2", 2), ("conv3", 1)):
            images = ("NHWC", "HWIO", "NHWC")
            kernel, bias = leaves[f"{name}.kernel"], leaves[f"{name}.bias"][None, None, None]
            hidden = lax.conv_general_dilated(hidden, kernel, (stride,) * 2, "SAME", dimension_numbers=images) + bias
            hidden = jnp.tanh(hidden)
        assert hidden.shape == (B, 2, 2, 3)
        return hidden.reshape(B, -1) @ leaves["head.kernel"] + leaves["head.bias"][None]

    np.testing.assert_allclose(jax.jit(model.apply)(w, x), formula(x), rtol=1e-4, atol=1e-5)


def test_bfloat16_is_close_to_float32_and_its_gradient_is_float32():
    model, half = SMALL["vit"], small("vit", dtype="bfloat16")
    w, x = parameters(model, 1)[0], examples(model, 64)

    def scores_and_slope(model):
        return jax.jit(lambda w, x: (model.apply(w, x), jax.grad(lambda w: jnp.sum(model.apply(w, x)[:, 0]))(w)))(w, x)

    for low, full in zip(*map(jax.device_get, (scores_and_slope(half), scores_and_slope(model)))):
        assert low.dtype == full.dtype == np.float32
        assert 1e-5 < np.linalg.norm(low - full) / np.linalg.norm(full) < 3e-2

    for name in NAMES:
        model = small(name, dtype="bfloat16")
        w, x = jax.ShapeDtypeStruct((model.n,), jnp.float32), jax.ShapeDtypeStruct((B, *model.shape), jnp.float32)
        closed = jax.make_jaxpr(model.apply)(w, x)
        assert closed.out_avals[0].dtype == jnp.float32
        assert "bf16" in str(closed)
