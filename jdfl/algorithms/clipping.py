"""Means of clipped gradients of single examples, without forming the gradients where that can be avoided.

Axes: q examples of a node, n parameters.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jdfl.arrays import ops
from jdfl.privacy import Clip, clipped, factor
from jdfl.problems import Problem


def clipped_sum(
    problem: Problem,
    w: Array,
    data: Any,
    weight: Array,
    clip: float | Array,
    norm: Clip,
    lengths: Array | None,
    chunk: int,
    part: slice | None = None,
) -> Array:
    """sum_t weight[t] min(1, clip / ||g_t||) g_t [n] over one node's examples, g_t the loss's gradient at w [n].

    `lengths` [q] are those of the features where the problem has slopes (None: computed). Other problems' gradients,
    and those whose entries are clipped, are formed `chunk` at a time. An example whose gradient is not finite counts as
    0. With `part` g_t is that part of it.
    """
    slopes = problem.slopes(w, data) if part is None and norm != "entries" else None
    if slopes is None:
        return _chunks(problem, w, data, weight, clip, norm, chunk, slice(None) if part is None else part)
    if lengths is None:
        lengths = problem.feature_lengths(data, norm)
    scale = factor(lengths * ops.length(slopes[:, None], norm, tuple(range(1, slopes.ndim + 1))), clip)
    share = (weight * scale).reshape(-1, *[1] * (slopes.ndim - 1))
    return problem.spread(jnp.where(share > 0, slopes, 0.0) * share, data)


def check_slopes(problem: Problem) -> None:
    """Refuse a problem whose slopes are not those of its loss, as of a class that inherits them: ValueError."""
    data = problem.take(problem.some_node(), jnp.arange(1, dtype=jnp.int32))
    w = jnp.asarray(np.random.default_rng(0).standard_normal(problem.n) / problem.n**0.5, problem.dtype)
    slopes = problem.slopes(w, data)
    if slopes is None:
        return
    g = np.asarray(problem.example_gradients(w, data)[0], np.float64)
    made = np.asarray(problem.spread(slopes, data), np.float64)
    length = float(problem.feature_lengths(data, "l2")[0]) * float(jnp.linalg.norm(slopes[0]))
    size = np.linalg.norm(g)
    if not np.isfinite(g).all():
        return  # a record that is too long for its type tells nothing
    if not (np.linalg.norm(made - g) <= 1e-3 * size + 1e-6 and abs(length - size) <= 1e-3 * size + 1e-6):
        raise ValueError(
            f"Expected slopes, feature_lengths and spread of {type(problem).__name__} that make the gradient of its "
            "loss, got others. Give the class its own, or slopes that return None."
        )


def _chunks(
    problem: Problem, w: Array, data: Any, weight: Array, clip: float | Array, norm: Clip, chunk: int, part: slice
) -> Array:
    q = weight.shape[0]
    count = -(-q // chunk)
    weight = jnp.pad(weight, (0, count * chunk - q))  # the places of the last chunk beyond q weigh nothing

    def add(c: Array, total: Array) -> Array:
        place = jnp.minimum(c * chunk + jnp.arange(chunk, dtype=jnp.int32), q - 1)
        here = lax.dynamic_slice_in_dim(weight, c * chunk, chunk)
        g = clipped(problem.example_gradients(w, problem.take(data, place))[:, part], norm, clip)
        return total + jnp.dot(here, g, precision=ops.HIGHEST)

    return lax.fori_loop(0, count, add, jnp.zeros_like(w[part]))
