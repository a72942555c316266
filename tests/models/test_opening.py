"""Models as values: equality, initial parameters, flax networks from outside, and inputs that are refused."""

import jax
import numpy as np
import pytest
from flax import nnx
from jax import numpy as jnp

from jdfl import models
from jdfl.base import struct
from jdfl.models import Model
from tests.models.small import NAMES, SMALL, examples, parameters, small


@struct.dataclass
class Holder:
    """A structure with a model as a static field."""

    w: jax.Array
    model: Model = struct.field(pytree_node=False)


def test_equal_models_compile_once(compilations):
    scores = jax.jit(lambda held, x: held.model.apply(held.w, x))
    model = small("mlp")
    w, x = np.asarray(parameters(model, 1)[0]), examples(model, 2)
    scores(Holder(w, model), x).block_until_ready()
    before = compilations()
    scores(Holder(w + 1, small("mlp")), x).block_until_ready()
    assert compilations() == before
    scores(Holder(w, small("mlp", wiring="plain")), x).block_until_ready()
    assert compilations() == before + 1


@pytest.mark.parametrize("name", NAMES)
def test_models_are_equal_where_they_are_made_of_the_same(name):
    one, two = small(name), small(name)
    assert one == two
    assert hash(one) == hash(two)
    assert one.split("partpsp-1") == two.split("partpsp-1")
    assert hash(one.split("partpsp-1")) == hash(two.split("partpsp-1"))
    assert len({one, two, one.split("partpsp-1"), small(name, dtype="bfloat16"), small(name, classes=4)}) == 4
    assert repr(one) == repr(two)
    assert " at 0x" not in repr(one)


def test_a_seed_gives_the_same_leaves_in_every_split():
    model = SMALL["mlp"]
    other = model.split(("layer3.*",))
    w = model.init(3)
    assert (w.shape, w.dtype) == ((model.n,), jnp.float32)
    assert jnp.array_equal(w, small("mlp").init(3))
    assert jnp.array_equal(other.ravel(model.unravel(w)), other.init(3))
    assert not jnp.array_equal(w, model.init(4))


@pytest.mark.parametrize("name", ["mlp", "vit"])
def test_initial_parameters_are_the_modules_own(name):
    model = SMALL[name]
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        module = model.make(nnx.Rngs(5))
    found = model.unravel(model.init(5))
    state = {".".join(map(str, path)): leaf[...] for path, leaf in nnx.to_flat_state(nnx.state(module, nnx.Param))}
    assert set(state) == set(found)
    for path, leaf in state.items():
        np.testing.assert_allclose(found[path], leaf, rtol=1e-5, atol=1e-6)


def test_the_perceptron_starts_within_its_bounds():
    leaves = models.mlp(shape=(50,), hidden=40).unravel(models.mlp(shape=(50,), hidden=40).init(0))
    for layer, inputs in ((1, 50), (2, 40), (3, 50)):
        kernel = leaves[f"layer{layer}.kernel"] * np.sqrt(inputs)
        assert 0.95 < float(jnp.abs(kernel).max()) <= 1
        np.testing.assert_allclose(float(kernel.std()), 1 / np.sqrt(3), rtol=0.1)
        assert float(jnp.abs(leaves[f"layer{layer}.bias"]).max()) * np.sqrt(inputs) <= 1


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
    leaf = {path: np.asarray(value) for path, value in model.unravel(w).items()}
    first = (leaf["stack.layers.0.kernel"], leaf["stack.layers.0.bias"])
    h = np.tanh(np.asarray(x) @ first[0] + first[1]) @ leaf["stack.layers.2.kernel"] + leaf["stack.layers.2.bias"]
    expected = (h @ first[0] + first[1]) @ leaf["a.kernel"] + leaf["a.bias"]
    np.testing.assert_allclose(model.apply(w, x), expected, rtol=1e-4, atol=1e-5)
    assert model == models.from_nnx(Tied, (3,), 2, "tied", {"first": ("*.layers.0.*",), "head": ("a.*",)})


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


class Nothing(nnx.Module):
    """No parameters."""

    def __init__(self, rngs: nnx.Rngs):
        pass

    def __call__(self, x):
        return x


@pytest.mark.parametrize(
    ("make", "classes", "words"),
    [
        (models.Maker(Odd, (("extra", "dropout"),)), 2, "extra.rngs"),
        (models.Maker(Odd, (("extra", "array"),)), 2, "at extra"),
        (models.Maker(Odd, (("extra", "half"),)), 2, "bfloat16 at dense"),
        (models.Maker(Odd, (("extra", ""),)), 3, r"scores of shape \(3, 3\)"),
        (Nothing, 3, "with parameters"),
        (None, 3, "make = None"),
    ],
    ids=["dropout", "array", "half", "classes", "nothing", "none"],
)
def test_networks_that_could_not_be_carried_are_refused(make, classes, words):
    with pytest.raises(ValueError, match=words):
        models.from_nnx(make, (3,), classes)


def test_a_preset_that_fits_nothing_is_refused():
    with pytest.raises(ValueError, match=r"'layer1\.\*'"):
        models.from_nnx(Tied, (3,), 2, presets={"first": ("layer1.*",)})


@pytest.mark.parametrize(
    ("w", "x", "calibration", "words"),
    [
        ((2, 18), (5, 4, 4, 1), None, "Expected w of shape"),
        ((None,), (4, 4, 1), None, "Expected x of shape"),
        ((None,), (5, 4, 4, 3), None, "Expected x of shape"),
        ((None,), (5, 4, 4, 1), (4, 4, 1), "Expected calibration of shape"),
    ],
    ids=["w", "one example", "colours", "calibration"],
)
def test_shapes_that_do_not_fit_are_refused(w, x, calibration, words):
    model = SMALL["mlp"]
    shape = tuple(model.n if size is None else size for size in w)
    with pytest.raises(ValueError, match=words):
        model.apply(jnp.zeros(shape), jnp.zeros(x), None if calibration is None else jnp.zeros(calibration))


def test_bytes_are_not_examples():
    model = SMALL["mlp"]
    with pytest.raises(ValueError, match="uint8"):
        model.apply(jnp.zeros(model.n), jnp.zeros((2, 4, 4, 1), jnp.uint8))


@pytest.mark.parametrize("seed", [-1, 1.0, 2**32])
def test_seeds_are_whole_numbers(seed):
    with pytest.raises(ValueError, match="seed"):
        SMALL["mlp"].init(seed)


def test_an_unknown_name_is_no_attribute():
    with pytest.raises(AttributeError, match="lenet"):
        _ = models.lenet  # pyright: ignore[reportAttributeAccessIssue]
    assert set(models.NAMES) < set(dir(models))
