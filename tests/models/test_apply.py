"""A model's scores and gradients are those of the flax module, for one node and for many."""

import subprocess
import sys

import jax
import numpy as np
import pytest
from jax import lax
from jax import numpy as jnp

from jdfl import models
from tests.models.laws import LAWS, B, M, compiled, loss
from tests.models.small import NAMES, SMALL, examples, parameters, small

SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    "name", ["mlp", "cnn", "vit", "batch", *(pytest.param(name, marks=SLOW) for name in ("cnn3", "group"))]
)
def test_networks_obey_the_laws(name):
    case = compiled(name)
    for law in LAWS:
        law(case)


@pytest.mark.parametrize("name", ["mlp", pytest.param("cnn", marks=SLOW)])
def test_many_nodes_are_a_loop_over_one(name):
    model = SMALL[name]
    w, x = parameters(model, M), examples(model, M, B)
    one = jax.jit(jax.value_and_grad(loss(model)))
    loop = [one(a, b) for a, b in zip(w, x)]
    values, slopes = jnp.stack([v for v, _ in loop]), jnp.stack([g for _, g in loop])
    for lift in (jax.vmap(one), lambda w, x: lax.map(lambda t: one(*t), (w, x))):
        found = jax.jit(lift)(w, x)
        np.testing.assert_allclose(found[0], values, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(found[1], slopes, rtol=1e-4, atol=1e-5 * float(jnp.abs(slopes).max()))


@pytest.mark.parametrize("name", ["mlp", pytest.param("cnn", marks=SLOW)])
def test_a_slice_of_the_gradient_costs_what_the_gradient_by_that_part_costs(name):
    model = SMALL[name].split("partpsp-2")
    k = model.n_shared
    w = jax.ShapeDtypeStruct((model.n,), jnp.float32)
    x = jax.ShapeDtypeStruct((B, *model.shape), jnp.float32)
    gradient = jax.grad(loss(model))

    def by_local(w, x):
        return jax.grad(lambda local: loss(model)(jnp.concatenate([w[:k], local]), x))(w[k:])

    def flops(function):
        return jax.jit(function).lower(w, x).compile().cost_analysis()["flops"]

    local = flops(lambda w, x: gradient(w, x)[k:])
    assert local == flops(by_local)
    assert local < 0.75 * flops(gradient)


def wiring_by_hand(wiring, leaves, x, output):
    """The formulas of the two published perceptrons."""
    first, second, third = ((leaves[f"layer{k}.kernel"], leaves[f"layer{k}.bias"]) for k in (1, 2, 3))
    x = np.asarray(x).reshape(len(x), -1)
    a = np.tanh(x @ first[0] + first[1])
    b = np.tanh(a @ second[0] + second[1]) + (x if wiring == "residual-784" else 0)
    scores = b @ third[0] + third[1]
    return (np.tanh(scores) if output == "tanh" else scores) + (a if wiring == "residual-10" else 0)


def test_the_wirings_are_the_published_formulas():
    for wiring in ("residual-784", "residual-10", "plain"):
        for output in ("linear", "tanh"):
            model = models.mlp(wiring, shape=(3, 3), classes=4, hidden=4, output=output)
            w, x = parameters(model, 1)[0], examples(model, B)
            leaves = {path: np.asarray(leaf) for path, leaf in model.unravel(w).items()}
            expected = wiring_by_hand(wiring, leaves, x, output)
            np.testing.assert_allclose(jax.jit(model.apply)(w, x), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.rotated(2)
@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_three_convolutions_and_a_head_are_the_formula(activation):
    model = small("cnn3", activation=activation)
    w, x = parameters(model, 1)[0], examples(model, B)
    leaves, hidden = model.unravel(w), x
    for name, stride in (("conv1", 2), ("conv2", 2), ("conv3", 1)):
        images = ("NHWC", "HWIO", "NHWC")
        kernel, bias = leaves[f"{name}.kernel"], leaves[f"{name}.bias"][None, None, None]
        hidden = lax.conv_general_dilated(hidden, kernel, (stride,) * 2, "SAME", dimension_numbers=images) + bias
        hidden = jnp.tanh(hidden) if activation == "tanh" else jnp.maximum(hidden, 0.0)
    assert hidden.shape == (B, 2, 2, 3)
    scores = hidden.reshape(B, -1) @ leaves["head.kernel"] + leaves["head.bias"][None]
    np.testing.assert_allclose(model.apply(w, x), scores, rtol=1e-4, atol=1e-5)


def test_bfloat16_is_close_to_float32():
    model, half = SMALL["vit"], small("vit", dtype="bfloat16")
    w, x = parameters(model, 1)[0], examples(model, 64)

    def scores_and_slope(model):
        return jax.jit(lambda w, x: (model.apply(w, x), jax.grad(lambda w: jnp.sum(model.apply(w, x)[:, 0]))(w)))(w, x)

    for low, full in zip(scores_and_slope(half), scores_and_slope(model)):
        assert low.dtype == full.dtype == jnp.float32
        assert 1e-5 < jnp.linalg.norm(low - full) / jnp.linalg.norm(full) < 3e-2


def test_the_gradient_in_bfloat16_is_float32():
    for name in NAMES:
        model = small(name, dtype="bfloat16")
        w, x = jax.ShapeDtypeStruct((model.n,), jnp.float32), jax.ShapeDtypeStruct((B, *model.shape), jnp.float32)
        closed = jax.make_jaxpr(jax.grad(loss(model)))(w, x)
        assert closed.out_avals[0].dtype == jnp.float32
        assert "bf16" in str(closed)


def test_importing_jdfl_does_not_import_flax():
    code = "import sys, jdfl, jdfl.models; assert not any(n.split('.')[0] == 'flax' for n in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


@pytest.mark.slow
def test_gradients_of_narrow_networks_do_not_explode():
    """Also where images have one place left in the last layer, and groups of two numbers would norm to their signs."""
    model = small("group", shape=(8, 8, 1), width=8)
    gradient = jax.jit(jax.grad(loss(model)))
    for seed in range(4):
        slopes = model.unravel(np.asarray(gradient(model.init(seed), examples(model, 4, seed=seed))))
        longest = {path: np.linalg.norm(slope) for path, slope in slopes.items() if path.endswith("kernel")}
        assert max(longest.values()) < 10 * longest["head.kernel"]
