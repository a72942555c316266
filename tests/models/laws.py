"""What holds for every network, each law a function of a compiled case."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from flax import nnx
from jax import numpy as jnp

from jdfl.models import Model
from tests.models.small import SMALL, examples, leaves_of, parameters

M, B = 3, 4


class Case(NamedTuple):
    """A network, parameters and examples of M nodes, and the programs of all nodes at once."""

    model: Model
    w: np.ndarray  # [M, n]
    x: np.ndarray  # [M, B, *shape]
    scores: Callable[..., Any]
    gradients: Callable[..., Any]


def compiled(name: str) -> Case:
    """The small network of that name; the laws share its two programs."""
    model = SMALL[name]
    gradients = jax.jit(jax.vmap(jax.value_and_grad(loss(model))))
    return Case(model, parameters(model, M), examples(model, M, B), jax.jit(jax.vmap(model.apply)), gradients)


def direct(model, w, x):
    """The scores by hand: a fresh module whose parameters are set one by one."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        module = nnx.eval_shape(lambda: model.make(nnx.Rngs(0)))
        for path, leaf in model.unravel(w).items():
            *way, last = path.split(".")
            node = module
            for step in way:
                node = node[int(step)] if step.isdigit() else getattr(node, step)
            getattr(node, last).set_value(leaf)
        for _, node in nnx.iter_graph(module):
            if isinstance(node, nnx.BatchNorm):
                node.mean.set_value(jnp.zeros(node.num_features))
                node.var.set_value(jnp.ones(node.num_features))
        return module(x), module


def loss(model):
    """A smooth scalar of the scores, different for every example and class."""
    return lambda w, x: jnp.sum(jnp.sin(model.apply(w, x)) * jnp.arange(1.0, 1 + x.shape[0])[:, None])


def scores_are_the_modules(case):
    model, w, x, scores, _ = case
    found = scores(w, x)
    assert found.dtype == jnp.float32
    expected = jax.jit(jax.vmap(lambda w, x: direct(model, w, x)[0]))(w, x)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)
    assert np.ptp(found, axis=1).min() > 1e-4, "the examples are told apart"


def nodes_do_not_see_one_another(case):
    model, w, x, _, gradients = case
    values, slopes = jax.device_get(gradients(w, x))
    size = np.abs(slopes).max()
    assert np.isfinite(slopes).all()
    assert np.isfinite(gradients(w, np.zeros_like(x))[1]).all()  # of images of a single colour
    for path, leaf in leaves_of(model, slopes).items():
        assert "key.bias" in path or np.abs(leaf).sum() > 0, path
    for i in range(M):
        same = gradients(np.broadcast_to(w[i], w.shape), np.broadcast_to(x[i], x.shape))
        np.testing.assert_allclose(same[0], np.broadcast_to(values[i], M), rtol=1e-5)
        np.testing.assert_allclose(same[1], np.broadcast_to(slopes[i], w.shape), rtol=1e-4, atol=1e-5 * size)


def examples_mix_exactly_where_a_batch_norm_is(case):
    model, w, x, scores, _ = case
    others = np.concatenate([x[:, :1], x[::-1, 1:] ** 2], axis=1)
    moved = np.abs(np.asarray(scores(w, x))[:, 0] - np.asarray(scores(w, others))[:, 0]).max()
    assert (moved > 1e-3) if model.examples_mix else (moved < 1e-6)


LAWS = [scores_are_the_modules, nodes_do_not_see_one_another, examples_mix_exactly_where_a_batch_norm_is]
