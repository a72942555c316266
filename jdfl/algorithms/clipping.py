"""Sums of clipped gradients of single examples, without forming the gradients where that can be avoided.

Axes: q examples of a node, n parameters.
"""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jdfl.arrays import ops
from jdfl.privacy import Clip, clipped, factor
from jdfl.problems import Problem

_AT_ONCE = 2**24  # numbers in the single-example gradients that are formed at a time
_FEW = 64  # terms that are added at once


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
    *,
    pieces: bool = False,
) -> Array:
    """sum_t weight[t] min(1, clip / ||g_t||) g_t [n] over one node's examples, g_t the loss's gradient at w [n].

    `lengths` [q] are the norms of the features where the problem has slopes (None: computed). Gradients of other
    problems, and gradients whose entries are clipped, are formed `chunk` at a time. An example whose gradient is not
    finite counts as 0. With `part` g_t is that part of the gradient. With `pieces` no term passes through more
    additions than `additions` states.
    """
    q = weight.shape[0]
    chunk = min(chunk, _piece(q)) if pieces else chunk
    slopes = problem.slopes(w, data) if part is None and norm != "entries" else None
    if slopes is None:
        return _chunks(problem, w, data, weight, clip, norm, chunk, slice(None) if part is None else part)
    if lengths is None:
        lengths = problem.feature_lengths(data, norm)
    scale = factor(lengths * ops.length(slopes[:, None], norm, tuple(range(1, slopes.ndim + 1))), clip)
    share = (weight * scale).reshape(-1, *[1] * (slopes.ndim - 1))
    scaled = jnp.where(share > 0, slopes, 0.0) * share
    if not pieces or _piece(q) == q:
        return problem.spread(scaled, data)
    return _sum(q, _piece(q), scaled, w, lambda here, place: problem.spread(here, problem.take(data, place)))


def sloped(problem: Problem) -> bool:
    """Whether gradients of examples are clipped without being formed, unless their entries are clipped."""
    w = jax.ShapeDtypeStruct((problem.n,), problem.dtype)
    return jax.eval_shape(lambda w: problem.slopes(w, problem.local(0)[0]), w) is not None


def formed(m: int, n: int, q: int) -> int:
    """How many of q examples' gradients are formed at a time, with n numbers for each of m nodes."""
    return max(1, min(q, _AT_ONCE // (m * n)))


def additions(q: int, chunk: int) -> int:
    """The largest number of additions that a term of q passes through, in pieces of at most one chunk."""
    size = min(chunk, _piece(q))
    return size + -(-q // size)


def _piece(q: int) -> int:
    """How many of q terms are added at a time to keep the rounding of their sum small: about the root of q."""
    return q if q <= _FEW else math.isqrt(q - 1) + 1


@jax.jit
def _both_gradients(problem: Problem, w: Array, data: Any) -> tuple[Array, Array, Array] | None:
    """An example's gradient, the one that its slopes make, and the length of that; None where there are no slopes."""
    data = problem.take(data, jnp.arange(1, dtype=jnp.int32))
    if (slopes := problem.slopes(w, data)) is None:
        return None
    length = problem.feature_lengths(data, "l2")[0] * jnp.linalg.norm(slopes[0])
    return problem.example_gradients(w, data)[0], problem.spread(slopes, data), length


def check_slopes(problem: Problem) -> None:
    """Raise ValueError for a problem whose slopes do not belong to its loss, for example in a derived class."""
    w = jnp.asarray(np.random.default_rng(0).standard_normal(problem.n) / problem.n**0.5, problem.dtype)
    if (both := _both_gradients(problem, w, problem.some_node())) is None:
        return
    g, made, length = (np.asarray(one, np.float64) for one in both)
    size = np.linalg.norm(g)
    if not np.isfinite(g).all():
        return  # a record too large for its type cannot be checked
    if not (np.linalg.norm(made - g) <= 1e-3 * size + 1e-6 and abs(length - size) <= 1e-3 * size + 1e-6):
        raise ValueError(
            f"Expected slopes, feature_lengths and spread of {type(problem).__name__} that make the gradient of its "
            "loss, got others. Override them in the class, or let slopes return None."
        )


def _chunks(
    problem: Problem, w: Array, data: Any, weight: Array, clip: float | Array, norm: Clip, chunk: int, part: slice
) -> Array:
    def some(here: Array, place: Array) -> Array:
        g = clipped(problem.example_gradients(w, problem.take(data, place))[:, part], norm, clip)
        return jnp.dot(here, g, precision=ops.HIGHEST)

    return _sum(weight.shape[0], chunk, weight, w[part], some)


def _sum(q: int, chunk: int, terms: Array, like: Array, some: Callable[[Array, Array], Array]) -> Array:
    """The sum of `some(terms[places], places)`, with the shape of `like`, over all q places, one chunk at a time."""
    count = -(-q // chunk)
    terms = jnp.pad(terms, [(0, count * chunk - q)] + [(0, 0)] * (terms.ndim - 1))  # padding has weight zero

    def add(c: Array, total: Array) -> Array:
        place = jnp.minimum(c * chunk + jnp.arange(chunk, dtype=jnp.int32), q - 1)
        return total + some(lax.dynamic_slice_in_dim(terms, c * chunk, chunk), place)

    return lax.fori_loop(0, count, add, jnp.zeros_like(like))
