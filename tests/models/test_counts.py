"""The published numbers of parameters, the order of w, and what is refused."""

import math

import jax
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import numpy as jnp

from jdfl import models
from tests.models.small import SMALL, leaves_of, parameters
from tests.refused import all_refused, refused

PUBLISHED = {
    "mlp": (7_850, 16_474, 24_324),
    "resnet18": (157_504, 683_072, 11_181_642),
    "vit": (6_400, 1_334_400, 1_335_690),
}


def test_the_presets_share_the_published_numbers():
    for name, numbers in PUBLISHED.items():
        model = models.build(name)
        assert tuple(model.split(preset).n_shared for preset in ("partpsp-1", "partpsp-2", "all")) == numbers
        assert model.n == model.n_shared == numbers[2]
    for wiring in ("residual-784", "residual-10", "plain"):
        assert models.mlp(wiring).shapes == ((784, 10), (10,), (10, 784), (784,), (784, 10), (10,))
    assert models.cnn().n == 105_866
    assert models.cnn().split("partpsp-1").n_shared == 3 * 3 * 16 + 16
    assert models.cnn3().n == 4_850
    assert models.cnn3().split("partpsp-2").n_shared == 9 * 4 + 4 + 9 * 4 * 8 + 8
    assert models.cnn3((8, 8, 1), 3, (2, 3, 4)).n == (9 * 2 + 2) + (18 * 3 + 3) + (27 * 4 + 4) + 2 * 2 * 4 * 3 + 3


def test_resnet_of_full_size_gives_scores_with_either_norm():
    group, batch = models.resnet18("group"), models.resnet18("batch", dtype="bfloat16")
    assert (group.shapes, group.paths) == (batch.shapes, batch.paths)
    assert (group.examples_mix, batch.examples_mix) == (False, True)
    for model in (group, batch):
        w = jax.ShapeDtypeStruct((model.n,), jnp.float32)
        scores = jax.eval_shape(model.apply, w, jax.ShapeDtypeStruct((7, 28, 28, 3), jnp.float32))
        assert (scores.shape, scores.dtype) == ((7, 10), jnp.float32)


@settings(max_examples=8)
@given(data=st.data(), name=st.sampled_from(["mlp", "vit"]))
def test_shared_leaves_come_first_and_nothing_is_lost(data, name):
    whole = SMALL[name]
    first = data.draw(st.lists(st.sampled_from(whole.paths), min_size=1, unique=True))
    model = whole.split(tuple(first))
    count = len(first)
    assert model.paths[:count] == tuple(path for path in whole.paths if path in first)
    assert model.paths[count:] == tuple(path for path in whole.paths if path not in first)
    sizes = dict(zip(whole.paths, map(math.prod, whole.shapes)))
    assert (model.n_shared, model.n) == (sum(sizes[path] for path in first), whole.n)
    w = np.arange(2 * model.n, dtype=np.float32).reshape(2, -1)
    leaves = leaves_of(model, w)
    assert np.array_equal(model.ravel(leaves), w)
    at = 0
    for path in model.paths:
        assert np.array_equal(leaves[path].reshape(2, -1), w[:, at : at + sizes[path]])
        at += sizes[path]


def test_patterns_and_presets_agree_and_a_split_does_not_change_the_scores():
    for model in SMALL.values():
        one = model.split("partpsp-1")
        shared = one.shared
        assert shared is not None
        assert model.split(shared) == one
        assert one.split("all") == model == one.split(("*",))
    model, other = SMALL["mlp"], SMALL["mlp"].split(("layer3.*",))
    w, x = parameters(model, 1)[0], np.ones((2, *model.shape), np.float32)
    moved = np.asarray(other.ravel(leaves_of(model, w)))
    assert not np.array_equal(moved, w)
    np.testing.assert_array_equal(jax.jit(model.apply)(w, x), jax.jit(other.apply)(moved, x))


def test_splits_leaves_and_networks_that_make_no_sense_are_refused():
    model = SMALL["mlp"]
    leaves = leaves_of(model, np.zeros(model.n))
    missing = {path: leaf for path, leaf in leaves.items() if path != "layer2.bias"}
    all_refused(
        (lambda: model.split("partpsp-3"), "'partpsp-3'"),
        (lambda: model.split(("layer9.*",)), "'layer9.*'"),
        (lambda: model.split(()), "shared"),
        (lambda: model.ravel(missing), "layer2.bias"),
        (lambda: model.ravel(leaves | {"layer2.bias": np.zeros(3)}), "layer2.bias"),
    )
    for name, options, words in (
        ("lenet", {}, "'lenet'"),
        ("mlp", {"depth": 3}, "'hidden'"),
        ("mlp", {"wiring": "residual-10", "hidden": 8}, "hidden = 8"),
        ("mlp", {"hidden": 0}, "hidden = 0"),
        ("mlp", {"shape": ()}, "shape"),
        ("mlp", {"dtype": "float16"}, "'float16'"),
        ("cnn", {"shape": (3, 8, 1)}, "rows = 3"),
        ("cnn", {"channels": (3,)}, "channels"),
        ("cnn3", {"channels": (3, 0, 3)}, "second_channels = 0"),
        ("cnn3", {"activation": "elu"}, "'elu'"),
        ("resnet18", {"norm": "layer"}, "'layer'"),
        ("resnet18", {"shape": (28, 28)}, "channels"),
        ("vit", {"patch": 5}, "patch = 5"),
        ("vit", {"heads": 3}, "heads = 3"),
    ):
        with refused(words):
            models.build(name, **options)
