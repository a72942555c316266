"""From images to a neural problem: parts, shapes, refusals, and a run that learns."""

from dataclasses import replace
from functools import partial

import jax
import numpy as np
from scipy.sparse import csr_matrix

import jdfl
from jdfl import config, models
from jdfl.devices import memory
from jdfl.problems import Dataset, check_problem, load, networks, neural_classification
from tests.refused import each_refused, refused

digits = partial(neural_classification, "digits")
SMALL = Dataset("small", np.arange(240, dtype=np.uint8).reshape(20, 12), np.arange(20, dtype=np.int32) % 2)


def held(problem):
    """Every node's images and labels without the padding."""
    images, labels = (np.asarray(leaf) for leaf in problem.data)
    sizes = np.asarray(problem.sizes)
    return [(images[i, :size], labels[i, :size]) for i, size in enumerate(sizes)]


def rows(images):
    return sorted(image.tobytes() for image in np.asarray(images))


def test_each_digit_is_at_one_node_or_in_the_test_and_all_nodes_begin_with_the_models_parameters():
    problem, data = digits(10), load("digits")
    check_problem(problem)
    parts = held(problem)
    assert parts[0][0].shape[1:] == problem.model.shape == (8, 8, 1)
    assert rows(np.concatenate([images for images, _ in parts] + [problem.test[0]])) == rows(data.features)
    counts = np.bincount(np.concatenate([labels for _, labels in parts] + [problem.test[1]]))
    np.testing.assert_array_equal(counts, np.bincount(data.labels))
    assert not set(rows(problem.test[0])) & set(rows(np.concatenate([images for images, _ in parts])))
    one, same, other = (digits(4, init_seed=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one.initial_params(), np.broadcast_to(one.model.init(1), (4, one.n)))
    np.testing.assert_array_equal(one.start, same.start)
    assert not np.allclose(one.start, other.start)
    assert one.shared is None
    assert digits(4, shared="partpsp-1").n_shared == digits(4, shared=("layer1.*",)).n_shared == 64 * 10 + 10
    one_class = [len(np.unique(labels)) for _, labels in held(digits(10, partition="shards", shards_per_node=1))]
    assert np.mean(one_class) < 2
    unequal = np.asarray(digits(10, partition="dirichlet", alpha=0.1).sizes)
    assert unequal.max() > 2 * unequal.min()
    split = models.mlp(shape=(8, 8, 1)).split(("layer3.*",))
    assert digits(4, model=split).n_shared == split.n_shared < split.n
    assert digits(4, model=split, shared="all").shared is None


def test_clients_stay_with_their_examples_where_a_few_are_drawn_or_some_held_out():
    data, clients = replace(SMALL, test_features=SMALL.features[:7], test_labels=SMALL.labels[:7]), np.arange(20) // 5
    how = {"partition": "clients", "clients": clients}
    few = neural_classification(data, 4, **how, examples=15, test_examples=3, seed=1)
    assert (int(few.sizes.sum()), len(few.test[1])) == (15, 3)
    apart = neural_classification(SMALL, 4, **how), jdfl.problems.classification(SMALL, 4, **how)
    for problem in (few, *apart):
        for client, (images, labels) in enumerate(held(problem)):
            place = images[:, 0].astype(int) // 12
            assert (clients[place] == client).all()
            np.testing.assert_array_equal(labels, data.labels[place])
    assert all(int(problem.sizes.sum()) == 16 for problem in apart)


def test_images_become_what_the_model_takes():
    square = SMALL.features.reshape(20, 4, 3)
    flat = neural_classification(SMALL, 2)
    assert flat.model.shape == (12,)
    assert flat.data[0].dtype == np.uint8
    grey = Dataset("grey", square, SMALL.labels)
    assert neural_classification(grey, 2).model.shape == (4, 3, 1)
    assert neural_classification(Dataset("x", square / 255, SMALL.labels), 2).data[0].dtype == np.float32
    given = models.mlp(shape=(4, 3, 1), classes=2, hidden=2)
    assert neural_classification(SMALL, 2, model=given).data[0].shape[2:] == (4, 3, 1)
    coloured = networks._model("resnet18", (28, 28, 1), 10, "float32")
    assert (coloured.shape, coloured.n, coloured.examples_mix) == ((28, 28, 3), 11_181_642, False)


def test_mistakes_are_named(monkeypatch):
    sparse = Dataset("text", csr_matrix(SMALL.features), SMALL.labels)
    small, wide = (models.mlp(shape=(width,), classes=2, hidden=2) for width in (12, 13))
    right = {"data": SMALL, "m": 2}
    wrong = {"m": 21, "model": 3, "nodes_at_once": 0, "examples": 17, "test_examples": 0}
    each_refused(neural_classification, *({name: value} for name, value in wrong.items()), **right)
    for options, words in (
        ({"shared": "partpsp-9"}, "'partpsp-9'"),
        ({"clients": np.arange(19), "partition": "clients"}, "clients"),
        ({"model": small, "dtype": "bfloat16"}, "model"),
        ({"model": wide}, "(13,)"),
        ({"data": sparse}, "sparse"),
        ({"data": Dataset("many", SMALL.features, SMALL.labels + 2), "model": small}, "4"),
    ):
        with refused(words):
            neural_classification(**right | options)
    n = neural_classification(**right).n
    for room, words in ((2 * 4 * n, f"2 x {n} parameters"), (10, "Not even one node")):
        monkeypatch.setattr(memory, "available", lambda room=room: room)
        with refused(words):
            neural_classification(**right)


def test_the_configuration_builds_the_same_problem(tmp_path):
    mirror = config.PROBLEMS("neural", m=3, shared="layer1.*, layer2.*", examples=40, test_examples=9, penalty=0.25)
    built = mirror.build()
    direct = digits(3, shared=("layer1.*", "layer2.*"), examples=40, test_examples=9, penalty=0.25)
    for one, other in zip(jax.tree.leaves(built), jax.tree.leaves(direct), strict=True):
        np.testing.assert_array_equal(one, other)
    assert jax.tree.structure(built) == jax.tree.structure(direct)
    with refused(FileNotFoundError, "no.txt"):
        config.PROBLEMS("neural", m=2, partition="clients", clients=str(tmp_path / "no.txt")).build()
