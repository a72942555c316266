"""Neural problems: the formula, however it is cut into pieces, and what is kept apart from it."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from scipy.special import logsumexp

import jdfl
from jdfl import models
from jdfl.algorithms.round import RoundContext
from jdfl.engine import metrics
from jdfl.engine.start import check_settings
from jdfl.problems import Dataset, check_problem, neural_classification
from tests.algorithms.play import direct
from tests.refused import all_refused, refused

CLASSES, SHAPE = 3, (4, 4, 1)
CLIENTS = np.repeat([5, 2, 9], [7, 2, 13])  # sorted: 2 examples, 7, 13
MLP = models.mlp(shape=SHAPE, classes=CLASSES, hidden=3)


class Normed(nnx.Module):
    """A layer, a batch normalisation, a layer."""

    def __init__(self, rngs):
        self.first = nnx.Linear(16, 4, rngs=rngs)
        self.norm = nnx.BatchNorm(4, rngs=rngs)
        self.head = nnx.Linear(4, CLASSES, rngs=rngs)

    def __call__(self, x):
        return self.head(nnx.tanh(self.norm(self.first(x.reshape(len(x), -1)))))


def normed(rngs):
    return Normed(rngs)


MIXED = models.from_nnx(normed, SHAPE, CLASSES, name="normed")


def pictures(count, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (count, *SHAPE), dtype=np.uint8)


def tiny(**options):
    """Three nodes with 2, 7 and 13 examples, 23 test images."""
    labels = np.arange(len(CLIENTS), dtype=np.int32) % CLASSES
    data = Dataset("tiny", pictures(len(CLIENTS)), labels, pictures(23, 1), np.arange(23, dtype=np.int32) % CLASSES)
    given = {"model": MLP, "partition": "clients", "clients": CLIENTS} | options
    return neural_classification(data, 3, **given)


def point(problem, scale=0.3):
    noise = np.random.default_rng(0).standard_normal((problem.m, problem.n))
    return np.asarray(problem.initial_params()) + (scale * noise).astype(np.float32)


def padded_with_rubbish(problem):
    """The data of a problem with other images and labels where it is padded."""
    real, (images, labels) = np.asarray(problem.weight) > 0, problem.data
    return np.where(real[..., None, None, None], images, np.uint8(200)), np.where(real, labels, np.int32(1))


@jax.jit
def values(problem, w):
    return problem.values(w)


@jax.jit
def gradients(problem, w):
    return problem.gradients(w)


@partial(jax.jit, static_argnames="calibrated")
def scores(problem, w, images, own=None, calibrated=False):
    calibration = problem.inputs(own) if calibrated else None
    return problem.model.apply(w, problem.inputs(images), calibration=calibration)


accuracy = jax.jit(metrics.accuracy)


def cross_entropy(problem, w, images, labels):
    z = np.asarray(scores(problem, w, images), np.float64)
    return logsumexp(z, axis=1) - z[np.arange(len(labels)), labels]


def test_the_value_is_the_weighted_mean_of_the_cross_entropy_and_the_penalty():
    problem = tiny(penalty=0.5)
    weight = np.asarray(problem.weight) * np.random.default_rng(0).uniform(0.5, 2, problem.weight.shape)
    weight = weight.astype(np.float32)
    problem, w = problem.replace(weight=weight, at_once=5), point(problem)
    images, labels = (np.asarray(leaf) for leaf in problem.data)
    found, g = values(problem, w), gradients(problem, w)
    step = 1e-2 * np.random.default_rng(3).standard_normal(w.shape).astype(np.float32)
    change = np.asarray(values(problem, w + step)) - np.asarray(values(problem, w - step))
    for i in range(3):
        mean = np.average(cross_entropy(problem, w[i], images[i], labels[i]), weights=weight[i])
        norm = np.sum(np.asarray(w[i], np.float64) ** 2)
        assert float(found[i]) == pytest.approx(mean + 0.5 / 2 * norm, rel=1e-5)
        assert change[i] == pytest.approx(2 * np.dot(g[i], step[i]), rel=0.02, abs=1e-5)


def test_pieces_change_nothing_padding_counts_for_nothing_and_examples_add_up():
    whole = tiny()
    w, rubbish = point(whole), padded_with_rubbish(whole)
    cut = whole.replace(at_once=5, data=rubbish)
    for apart in (cut, tiny(nodes_at_once=2)):
        np.testing.assert_allclose(values(apart, w), values(whole, w), rtol=1e-5)
        np.testing.assert_allclose(gradients(apart, w), gradients(whole, w), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(accuracy(w, apart), accuracy(w, whole), rtol=1e-6)
    each = np.asarray(jax.jit(whole.example_gradients)(w[2], whole.local(2)[0]))
    np.testing.assert_allclose(each.mean(axis=0), gradients(whole, w)[2], rtol=1e-4, atol=1e-6)


def test_classes_do_not_depend_on_how_many_images_are_tested_at_a_time():
    problem = tiny().replace(test_batch=5)
    assert problem.data[0].dtype == problem.test[0].dtype == jnp.uint8  # numbers where they are used
    np.testing.assert_allclose(problem.inputs(problem.test[0]), np.asarray(problem.test[0]) / 255, rtol=3e-7)
    w = point(problem, 3.0)
    expected = np.asarray(scores(problem, w[1], problem.test[0])).argmax(axis=1)
    assert (expected[:-2] != expected[2:]).any()
    found = jax.jit(problem.predict)(w[1], problem.local(1)[0])
    assert found.dtype == jnp.int32
    np.testing.assert_array_equal(found, expected)


def test_standardised_channels_have_mean_zero_and_deviation_one_and_grey_images_have_all_colours():
    images = np.random.default_rng(0).integers(0, 200, (30, 4, 4, 3), dtype=np.uint8) // np.uint8([1, 2, 4])
    images[..., 2] = 7  # a channel without deviation stays finite
    model = models.mlp(shape=(4, 4, 3), classes=CLASSES, hidden=3)
    for given, dtype in ((images, jnp.uint8), (images / 255, jnp.float32)):
        data = Dataset("tiny", given, np.arange(30) % CLASSES)
        problem = neural_classification(data, 3, model=model, standardise=True, test_fraction=0)
        assert problem.data[0].dtype == dtype
        x = np.asarray(problem.inputs(problem.data[0].reshape(30, 4, 4, 3)), np.float64)
        np.testing.assert_allclose(x.mean(axis=(0, 1, 2)), 0, atol=1e-5)
        np.testing.assert_allclose(x.std(axis=(0, 1, 2)), [1, 1, 0], atol=1e-5)
    coloured = tiny(model=model)
    assert coloured.data[0].shape[2:] == SHAPE
    x = np.asarray(coloured.inputs(coloured.test[0]))
    np.testing.assert_allclose(x, np.repeat(np.asarray(coloured.test[0]) / 255, 3, axis=3), rtol=3e-7)


def test_augmentation_flips_and_shifts_every_image_on_its_own_and_gradients_of_batches_see_it():
    problem = tiny(augment="flip-crop")
    image = np.arange(1, 17, dtype=np.uint8).reshape(SHAPE)
    batch = jnp.broadcast_to(image, (600, *SHAPE)), jnp.arange(600, dtype=jnp.int32)
    made, labels = jax.jit(problem.varied)(jax.random.key(0), batch)
    np.testing.assert_array_equal(labels, batch[1])
    found = [one.tobytes() for one in np.asarray(made)]
    wide = [np.pad(one, ((4, 4), (4, 4), (0, 0))) for one in (image, image[:, ::-1])]
    possible = {one[r : r + 4, c : c + 4].tobytes() for one in wide for r in range(9) for c in range(9)}
    assert set(found) <= possible
    assert len(set(found)) > 0.9 * len(possible)
    assert tiny().varied(jax.random.key(0), batch) is batch
    graph, node = jdfl.network.complete(3).graph, jnp.arange(3, dtype=jnp.int32)
    few = jdfl.Gradients(batch=2, sampling="in order")

    @jax.jit
    def evaluate(problem, key):
        return few(problem.initial_params(), direct(RoundContext(jnp.int32(0), key, graph, node), problem, few))

    first, second = (evaluate(problem, jax.random.key(k)) for k in range(2))
    assert not np.allclose(first, evaluate(tiny(), jax.random.key(0)))
    assert not np.allclose(first, second)


def test_batch_normalisation_has_no_gradients_of_single_examples_and_padding_is_not_in_its_statistics():
    problem, net = tiny(model=MIXED), jdfl.network.complete(3)
    check_problem(problem)
    check_settings(jdfl.DPSGD(gradients=jdfl.Gradients(clip=1.0, per="batch")), problem, net)
    all_refused(
        (lambda: check_settings(jdfl.DPSGD(gradients=jdfl.Gradients(clip=1.0)), problem, net), 'per="batch"'),
        (lambda: problem.example_gradients(problem.start, problem.local(0)[0]), "do not mix"),
    )

    w = point(problem)
    images, labels = (np.asarray(leaf) for leaf in problem.data)
    found = np.asarray(values(problem, w))
    assert found[2] == pytest.approx(cross_entropy(problem, w[2], images[2], labels[2]).mean(), rel=1e-5)
    np.testing.assert_array_equal(values(problem.replace(data=padded_with_rubbish(problem)), w), found)


def test_batch_normalisation_is_tested_with_the_statistics_of_the_nodes_own_examples():
    problem = tiny(model=MIXED).replace(test_batch=7)
    assert problem.calibration == 2
    w = point(problem)
    predict = jax.jit(problem.predict)
    for i in range(3):
        own = problem.data[0][i, :2]
        expected = np.asarray(scores(problem, w[i], problem.test[0], own, calibrated=True)).argmax(axis=1)
        np.testing.assert_array_equal(predict(w[i], problem.local(i)[0]), expected)
    others = [np.asarray(predict(w[0], problem.local(i)[0])) for i in range(3)]
    assert any((others[0] != other).any() for other in others[1:])


def test_a_problem_that_does_not_fit_is_refused():
    other = models.mlp(shape=(5, 4, 1), classes=CLASSES, hidden=3)
    for changes, words in (
        ({"model": MIXED, "calibration": 3}, "calibration = 3"),
        ({"model": other, "start": None}, "(5, 4, 1)"),
    ):
        with refused(words):
            check_problem(tiny().replace(**changes))
    with refused("sigma"):  # no curvature to take steps by
        check_settings(jdfl.CEPS(s=5), tiny(), jdfl.network.complete(3))
