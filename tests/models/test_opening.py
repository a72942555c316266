"""Models as values: equality, initial parameters, flax networks from outside, and inputs that are refused."""

import jax
import numpy as np
import pytest
from flax import nnx
from jax import numpy as jnp

from jdfl import models
from tests.models.small import NAMES, SMALL, examples, leaves_of, parameters, small
from tests.refused import all_refused


def test_models_made_of_the_same_are_equal_and_compile_once(compilations):
    scores = jax.jit(lambda model, w, x: model.apply(w, x), static_argnums=0)
    model = small("mlp")
    w, x = parameters(model, 1)[0], examples(model, 2)
    scores(model, w, x).block_until_ready()
    before = compilations()
    scores(small("mlp"), w + 1, x).block_until_ready()
    assert compilations() == before
    scores(small("mlp", wiring="plain"), w, x).block_until_ready()
    assert compilations() == before + 1
    for name in NAMES:
        one, two = small(name), small(name)
        assert one == two
        assert one.split("partpsp-1") == two.split("partpsp-1")
        assert len({one, two, one.split("partpsp-1"), small(name, dtype="bfloat16"), small(name, classes=4)}) == 4
        assert " at 0x" not in repr(one)


def test_a_seed_gives_the_modules_own_leaves_in_every_split():
    model = SMALL["mlp"]
    other = model.split(("layer3.*",))
    w = np.asarray(model.init(5))
    assert (w.shape, w.dtype) == ((model.n,), np.float32)
    np.testing.assert_array_equal(other.ravel(leaves_of(model, w)), other.init(5))
    assert not np.array_equal(w, model.init(4))
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        module = model.make(nnx.Rngs(5))
    found = leaves_of(model, w)
    state = {".".join(map(str, path)): leaf[...] for path, leaf in nnx.to_flat_state(nnx.state(module, nnx.Param))}
    assert set(state) == set(found)
    for path, leaf in state.items():
        np.testing.assert_allclose(found[path], leaf, rtol=1e-5, atol=1e-6)

    wide = models.mlp(shape=(50,), hidden=40)
    leaves = leaves_of(wide, wide.init(0))  # in its bounds
    for layer, inputs in ((1, 50), (2, 40), (3, 50)):
        kernel = leaves[f"layer{layer}.kernel"] * np.sqrt(inputs)
        assert 0.95 < np.abs(kernel).max() <= 1
        assert kernel.std() == pytest.approx(1 / np.sqrt(3), rel=0.1)
        assert np.abs(leaves[f"layer{layer}.bias"]).max() * np.sqrt(inputs) <= 1


class Tied(nnx.Module):
    """One matrix used twice, in a list, and attributes whose order is not the alphabet's."""

    def __init__(self, rngs: nnx.Rngs):
        self.z = nnx.Linear(3, 3, rngs=rngs)
        self.stack = nnx.Sequential(self.z, nnx.tanh, nnx.Linear(3, 3, rngs=rngs))
        self.a = nnx.Linear(3, 2, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.a(self.z(self.stack(x)))


def test_any_flax_network_opens():
    model = models.from_nnx(Tied, (3,), 2, "tied", {"first": ("*.layers.0.*",), "head": ("a.*",)})
    assert model.n == 12 + 12 + 8
    assert model.paths == (
        "stack.layers.0.kernel", "stack.layers.0.bias", "stack.layers.2.kernel", "stack.layers.2.bias",
        "a.kernel", "a.bias",
    )  # fmt: skip
    assert (model.split("first").n_shared, model.split("head").n_shared) == (12, 8)
    w, x = parameters(model, 1)[0], examples(model, 5)
    leaf = leaves_of(model, w)
    first = (leaf["stack.layers.0.kernel"], leaf["stack.layers.0.bias"])
    h = np.tanh(x @ first[0] + first[1]) @ leaf["stack.layers.2.kernel"] + leaf["stack.layers.2.bias"]
    expected = (h @ first[0] + first[1]) @ leaf["a.kernel"] + leaf["a.bias"]
    np.testing.assert_allclose(jax.jit(model.apply)(w, x), expected, rtol=1e-4, atol=1e-5)


class Odd(nnx.Module):
    """A dense layer and something else that the test wants."""

    def __init__(self, extra, rngs: nnx.Rngs):
        self.dense = nnx.Linear(3, 2, rngs=rngs, param_dtype=jnp.bfloat16 if extra == "half" else jnp.float32)
        if extra == "dropout":
            self.extra = nnx.Dropout(0.5, rngs=rngs)
        if extra == "array":
            self.extra = jnp.ones(2)

    def __call__(self, x):
        return self.dense(x)


def test_networks_that_could_not_be_carried_and_inputs_of_other_shapes_are_refused():
    def odd(extra):
        return models.Maker(Odd, (("extra", extra),))

    all_refused(
        (lambda: models.from_nnx(odd("dropout"), (3,), 2), "extra.rngs"),
        (lambda: models.from_nnx(odd("array"), (3,), 2), "extra"),
        (lambda: models.from_nnx(odd("half"), (3,), 2), "bfloat16"),
        (lambda: models.from_nnx(odd(""), (3,), 3), "(3, 3)"),
        (lambda: models.from_nnx(None, (3,), 3), "make = None"),
        (lambda: models.from_nnx(Tied, (3,), 2, presets={"first": ("layer1.*",)}), "'layer1.*'"),
    )
    model = SMALL["mlp"]
    w, x = np.zeros(model.n, np.float32), np.zeros((5, 4, 4, 1), np.float32)
    all_refused(
        (lambda: model.apply(np.zeros((2, 18), np.float32), x), "w"),
        (lambda: model.apply(w, x[0]), "x"),
        (lambda: model.apply(w, np.repeat(x, 3, axis=3)), "x"),
        (lambda: model.apply(w, x, x[0]), "calibration"),
        (lambda: model.apply(w, x.astype(np.uint8)), "uint8"),
        *((lambda seed=seed: model.init(seed), "seed") for seed in (-1, 1.0, 2**32)),
    )
