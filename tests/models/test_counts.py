"""The published numbers of parameters, the order of w, and what is refused."""

import math

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import numpy as jnp

from jdfl import models
from tests.models.small import NAMES, SMALL, parameters

PUBLISHED = {
    "mlp": (7_850, 16_474, 24_324),
    "resnet18": (157_504, 683_072, 11_181_642),
    "vit": (6_400, 1_334_400, 1_335_690),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_presets_share_the_published_numbers(name):
    model = models.build(name)
    assert tuple(model.split(preset).n_shared for preset in ("partpsp-1", "partpsp-2", "all")) == PUBLISHED[name]
    assert model.n == model.n_shared == PUBLISHED[name][2]


@pytest.mark.parametrize("wiring", ["residual-784", "residual-10", "plain"])
def test_every_wiring_has_the_same_parameters(wiring):
    assert models.mlp(wiring).shapes == ((784, 10), (10,), (10, 784), (784,), (784, 10), (10,))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_batch_norm_has_as_many_parameters_as_group_norm(dtype):
    group, batch = models.resnet18("group", dtype=dtype), models.resnet18("batch", dtype=dtype)
    assert (group.shapes, group.paths) == (batch.shapes, batch.paths)
    assert batch.examples_mix
    assert not group.examples_mix


@pytest.mark.parametrize("options", [{}, {"norm": "batch"}, {"stem": "cifar"}], ids=["group", "batch", "cifar"])
def test_resnet_of_full_size_gives_scores(options):
    model = models.resnet18(**options)
    w = jax.ShapeDtypeStruct((model.n,), jnp.float32)
    x = jax.ShapeDtypeStruct((7, 28, 28, 3), jnp.float32)
    scores = jax.eval_shape(model.apply, w, x)
    assert (scores.shape, scores.dtype) == ((7, 10), jnp.float32)


def test_the_small_convolutional_network_is_of_the_size_it_says():
    assert models.cnn().n == 105_866
    assert models.cnn().split("partpsp-1").n_shared == 3 * 3 * 16 + 16


def test_three_convolutions_are_of_the_size_they_say():
    model = models.cnn3()
    assert model.n == 4_850
    assert model.split("partpsp-2").n_shared == 9 * 4 + 4 + 9 * 4 * 8 + 8
    w = jax.ShapeDtypeStruct((model.n,), jnp.float32)
    scores = jax.eval_shape(model.apply, w, jax.ShapeDtypeStruct((5, 28, 28, 1), jnp.float32))
    assert (scores.shape, scores.dtype) == ((5, 10), jnp.float32)
    assert models.cnn3((8, 8, 1), 3, (2, 3, 4)).n == (9 * 2 + 2) + (18 * 3 + 3) + (27 * 4 + 4) + 2 * 2 * 4 * 3 + 3


def test_the_natural_order_is_that_of_creation():
    assert models.resnet18().paths[:4] == ("conv1.kernel", "norm1.scale", "norm1.bias", "layer1.0.conv1.kernel")
    assert models.resnet18().paths[-2:] == ("head.kernel", "head.bias")
    assert models.vit().paths[:4] == ("patches.kernel", "patches.bias", "token", "encoder.position")


@settings(max_examples=8)
@given(data=st.data(), name=st.sampled_from(["mlp", "vit"]))
def test_shared_leaves_come_first_and_nothing_is_lost(data, name):
    whole = SMALL[name]
    first = data.draw(st.lists(st.sampled_from(whole.paths), min_size=1, unique=True))
    model = whole.split(lambda path: path in first)
    count = len(first)
    assert model.paths[:count] == tuple(path for path in whole.paths if path in first)
    assert model.paths[count:] == tuple(path for path in whole.paths if path not in first)
    sizes = dict(zip(whole.paths, map(math.prod, whole.shapes)))
    assert model.n_shared == sum(sizes[path] for path in first)
    assert model.n == whole.n

    w = np.arange(2 * model.n, dtype=np.float32).reshape(2, -1)
    leaves = jax.jit(model.unravel)(w)
    assert {path: leaf.shape[1:] for path, leaf in leaves.items()} == dict(zip(whole.paths, whole.shapes))
    assert np.array_equal(jax.jit(model.ravel)(leaves), w)
    at = 0
    for path in model.paths:
        assert np.array_equal(np.asarray(leaves[path]).reshape(2, -1), w[:, at : at + sizes[path]])
        at += sizes[path]


@pytest.mark.parametrize("name", NAMES)
def test_pattern_predicate_and_preset_agree(name):
    model = SMALL[name]
    one = model.split("partpsp-1")
    shared = one.shared
    assert shared is not None
    assert model.split(shared) == one
    assert model.split(lambda path: path in shared) == one
    assert model.split(shared, lambda path: path not in shared) == one
    assert one.split("all") == model == one.split(("*",))


def test_a_split_does_not_change_the_scores():
    model = SMALL["mlp"]
    other = model.split(("layer3.*",))
    w, x = parameters(model, 1)[0], jnp.ones((2, *model.shape))
    moved = other.ravel(model.unravel(w))
    assert not jnp.array_equal(moved, w)
    assert jnp.array_equal(jax.jit(model.apply)(w, x), jax.jit(other.apply)(moved, x))


@pytest.mark.parametrize(
    ("shared", "local", "words"),
    [
        ("partpsp-3", None, "'partpsp-1', 'partpsp-2', 'all'"),
        (("layer9.*",), None, "'layer9.\\*'"),
        (lambda path: False, None, "at least one"),
        (("layer1.*",), ("layer2.*",), "layer3.kernel in neither"),
        (("layer1.*", "layer2.*"), ("layer2.bias", "layer3.*"), "layer2.bias in both"),
        ("all", ("layer3.*",), "layer3.kernel in both"),
    ],
    ids=["preset", "pattern", "none", "neither", "both", "all"],
)
def test_splits_that_make_no_sense_are_refused(shared, local, words):
    with pytest.raises(ValueError, match=words):
        SMALL["mlp"].split(shared, local)


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("lenet", {}, "'mlp', 'cnn', 'resnet18', 'vit', 'cnn3'"),
        ("mlp", {"depth": 3}, "'hidden'"),
        ("mlp", {"wiring": "residual"}, "'plain'"),
        ("mlp", {"wiring": "residual-10", "hidden": 8}, "hidden = 8"),
        ("mlp", {"hidden": 0}, "hidden = 0"),
        ("mlp", {"classes": 1}, "classes = 1"),
        ("mlp", {"shape": ()}, "at least one axis"),
        ("mlp", {"dtype": "float16"}, "'float16'"),
        ("cnn", {"shape": (3, 8, 1)}, "rows = 3"),
        ("cnn", {"channels": (3,)}, "channels"),
        ("cnn3", {"channels": (3, 3)}, "channels = \\(3, 3\\)"),
        ("cnn3", {"channels": (3, 0, 3)}, "second_channels = 0"),
        ("cnn3", {"activation": "elu"}, "'tanh', 'relu'"),
        ("cnn3", {"shape": (28, 28)}, "rows, columns and channels"),
        ("resnet18", {"norm": "layer"}, "'group', 'batch'"),
        ("resnet18", {"stem": "none"}, "'cifar'"),
        ("resnet18", {"shape": (28, 28)}, "rows, columns and channels"),
        ("resnet18", {"shape": (28, 28.0, 1)}, "shape = .*28\\.0"),
        ("vit", {"patch": 5}, "patch = 5"),
        ("vit", {"heads": 3}, "heads = 3"),
    ],
)
def test_networks_that_make_no_sense_are_refused(name, options, words):
    with pytest.raises(ValueError, match=words):
        models.build(name, **options)


@pytest.mark.parametrize("case", ["missing", "unknown", "shape"])
def test_leaves_of_another_model_are_refused(case):
    model = SMALL["mlp"]
    leaves = model.unravel(jnp.zeros(model.n))
    if case == "missing":
        del leaves["layer2.bias"]
    elif case == "unknown":
        leaves["layer4.bias"] = jnp.zeros(3)
    else:
        leaves["layer2.bias"] = jnp.zeros(3)
    with pytest.raises(ValueError, match="layer4.bias" if case == "unknown" else "layer2.bias"):
        model.ravel(leaves)
