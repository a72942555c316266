"""BatchNorm without running averages: the batch's statistics in training, a calibration batch's for a test."""

import jax
import numpy as np
import pytest
from flax import nnx

from jdfl import models
from tests.models.laws import direct
from tests.models.small import examples, leaves_of, parameters


class Normed(nnx.Module):
    """Two convolutions, each with a norm, and a head."""

    def __init__(self, rngs: nnx.Rngs):
        self.conv1 = nnx.Conv(1, 2, (3, 3), rngs=rngs)
        self.norm1 = nnx.BatchNorm(2, momentum=0.0, rngs=rngs)
        self.conv2 = nnx.Conv(2, 3, (2, 2), rngs=rngs)
        self.norm2 = nnx.BatchNorm(3, momentum=0.0, rngs=rngs)
        self.head = nnx.Linear(3, 3, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        x = nnx.relu(self.norm1(self.conv1(x)))
        return self.head(nnx.relu(self.norm2(self.conv2(x))).mean((1, 2)))


@pytest.fixture(scope="module")
def case():
    """A network with BatchNorm, parameters, ten examples, ten others to calibrate with, and its compiled scores."""
    model = models.from_nnx(Normed, (3, 3, 1), 3)
    scores = jax.jit(model.apply)
    return model, parameters(model, 1)[0], examples(model, 10), examples(model, 10, seed=1), scores


def test_calibration_has_the_statistics_of_its_batch_and_scores_an_example_alone(case):
    model, w, x, other, scores = case

    def by_hand(w, x, other):
        _, module = direct(model, w, other)
        for norm in (module.norm1, module.norm2):
            norm.use_running_average = True
        return module(x)

    found, expected = scores(w, x, other), jax.jit(by_hand)(w, x, other)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    assert np.abs(np.asarray(found) - np.asarray(scores(w, x))).max() > 1e-2
    before = scores(w, x)
    alone = np.concatenate([x[:5], x[4::-1] ** 2])
    together, mirrored, alone = (np.asarray(scores(w, one, other)) for one in (x, x[::-1] ** 2, alone))
    np.testing.assert_allclose(together[:5], alone[:5], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(mirrored[5:], alone[5:], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(scores(w, x, x), before, rtol=1e-5, atol=1e-5)  # with the batch itself
    jax.eval_shape(jax.vmap(jax.grad(lambda w: model.apply(w, other).sum())), w[None])
    np.testing.assert_array_equal(scores(w, x), before)

    w, x, other = parameters(model, 3), examples(model, 3, 10), examples(model, 3, 10, seed=2)
    nodes = jax.jit(jax.vmap(model.apply))
    found = np.asarray(nodes(w, x, other))
    loop = [scores(*row) for row in zip(w, x, other)]
    np.testing.assert_allclose(found, loop, rtol=1e-4, atol=1e-5)
    assert np.abs(np.asarray(nodes(w, x, other[::-1])) - found).max() > 1e-2


def test_a_norm_with_a_momentum_of_its_own_takes_the_same_statistics():
    model = models.from_nnx(Momentum, (4,), 2)
    x, w = examples(model, 7), np.ones(model.n, np.float32)
    h = x @ np.ones((4, 2), np.float32)
    centred = (h - h.mean(0)) / np.sqrt(h.var(0) + 1e-5)
    assert set(leaves_of(model, w)) == {"dense.kernel", "norm.scale", "norm.bias"}
    for calibration in (None, x):
        np.testing.assert_allclose(jax.jit(model.apply)(w, x, calibration), centred + 1, rtol=1e-4, atol=1e-5)


class Momentum(nnx.Module):
    """A dense layer and a norm that would keep running averages, and use them."""

    def __init__(self, rngs: nnx.Rngs):
        self.dense = nnx.Linear(4, 2, use_bias=False, rngs=rngs)
        self.norm = nnx.BatchNorm(2, momentum=0.9, use_running_average=True, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.norm(self.dense(x))
