"""The optimum of a problem as a part of it, and how much a loss exceeds its tangent there, without cancellation.

For a convex objective f with minimiser w*, f(w) - f(w*) is the mean of loss(w) - loss(w*) - loss'(w*) (w - w*) over the
examples, since the gradient of f vanishes at w*. Every term is at least zero, so that the sum has the relative accuracy
of its terms, however close w is to w*; the difference of two objectives has the absolute accuracy of an objective.

Axes: n parameters, q examples of a node.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jdfl.base import struct

_SERIES = 0.5  # |v| below which e^v - 1 - v is summed as a series
_TERMS = 10  # of the series: 0.5^12 / 12! < 1e-12 of the first term
_LARGE = 80.0  # v above which e^v is not formed


@struct.dataclass
class Optimum:
    """Reference parameters w [n] and their objective mean_i f_i(w), which metrics compare a run with.

    `optimum`, `sparse_optimum` and `solved` compute it with all data in one place; no node of a decentralized run
    could. A reference that is known from elsewhere is given as `problem.replace(optimum=Optimum(w, value))`; with
    w = None only the metric `suboptimality` can be computed.
    """

    w: Array | np.ndarray | None  # [n] float64 on the host
    value: Any  # [] mean_i f_i(w)
    accuracy: Any = float("nan")  # [] proven bound on value - min f; NaN: nothing is proven
    rest: Array | np.ndarray | None = None  # [n] w less its rounding to the problem's type; None: zeros
    gradient: Array | np.ndarray | None = None  # [n] of mean_i f_i at w; None: not known

    def step(self, w: Array) -> Array:
        """The differences [m, n] of parameters w [m, n] from the reference, without the rounding of its type."""
        differences = w - self.head(w.dtype)[None]
        return differences if self.rest is None else differences - jnp.asarray(self.rest, w.dtype)[None]

    def head(self, dtype: Any) -> Array:
        """The parameters [n] as a run in this type holds them."""
        return jnp.asarray(self.w, dtype)


def binary(scores: Array, changes: Array) -> Array:
    """How much ln(1 + e^z) exceeds its tangent at `scores` [q] where z changes by `changes` [q]; [q], at least zero."""
    both = jnp.stack([jnp.zeros_like(scores), scores], axis=-1)
    return categorical(both, jnp.stack([jnp.zeros_like(changes), changes], axis=-1))


def categorical(scores: Array, changes: Array) -> Array:
    """How much ln(sum_c e^z_c) exceeds its tangent at `scores` [q, c] where z changes by `changes` [q, c].

    With p = softmax(scores) and v = changes - <p, changes> it is ln(1 + sum_c p_c (e^v_c - 1 - v_c)) [q], in which no
    terms cancel.
    """
    logs = jax.nn.log_softmax(scores, axis=-1)
    p = jnp.exp(logs)
    v = changes - jnp.sum(p * changes, axis=-1, keepdims=True)
    small = jnp.log1p(jnp.sum(p * _beyond_linear(jnp.minimum(v, _LARGE)), axis=-1))
    large = jax.nn.logsumexp(logs + v, axis=-1)
    return jnp.where(jnp.max(v, axis=-1) > _LARGE, large, small)


def _beyond_linear(v: Array) -> Array:
    """e^v - 1 - v for v <= 80, at least zero."""
    total = jnp.ones_like(v)
    for k in range(_TERMS + 2, 2, -1):  # v^2/2 (1 + v/3 (1 + v/4 (...)))
        total = 1.0 + v / k * total
    near = jnp.abs(v) < _SERIES
    return jnp.where(near, 0.5 * v * v * jnp.where(near, total, 1.0), jnp.expm1(v) - v)
