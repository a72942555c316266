"""Least squares.

Axes: m nodes, q examples per node (padded with weight 0), n parameters.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from jdfl import ops, struct
from jdfl.problems.base import Problem
from jdfl.problems.stack import gram_eigenvalues


@struct.dataclass
class LinearRegression(Problem):
    """f_i(w) = ||A_i w - b_i||^2 / (2 q_i); data = (features A [m, q, n], targets b [m, q])."""

    @property
    def n(self) -> int:
        """The number of parameters, one per feature."""
        return self.data[0].shape[-1]

    def loss(self, w: Array, example: Any) -> Array:
        """(<a, w> - b)^2 / 2 [] of one example (a [n], b [])."""
        a, b = example
        return LinearRegression.losses(self, w, (a[None], b[None]))[0]

    def losses(self, w: Array, data: Any) -> Array:
        """The loss of every example [q]."""
        A, b = data
        return 0.5 * jnp.square(jnp.dot(A, w, precision=ops.HIGHEST) - b)

    def slopes(self, w: Array, data: Any) -> Array:
        """<a_t, w> - b_t [q]."""
        A, b = data
        return jnp.dot(A, w, precision=ops.HIGHEST) - b

    def feature_lengths(self, data: Any, norm: str) -> Array:
        """||a_t|| [q]."""
        return ops.length(data[0], norm)

    def spread(self, slopes: Array, data: Any) -> Array:
        """A^T slopes [n]."""
        return jnp.dot(slopes, data[0], precision=ops.HIGHEST)


def build(data: Any, weight: Any, truth: Any, test: Any, name: str, kind: np.dtype) -> LinearRegression:
    """The problem of checked arrays, with the curvature of every node."""
    data, weight = tuple(jnp.asarray(array, kind) for array in data), jnp.asarray(weight, kind)
    return LinearRegression(
        data=data,
        weight=weight,
        curvature=gram_eigenvalues(data[0], weight),
        truth=None if truth is None else jnp.array(truth, kind),
        test=None if test is None else tuple(jnp.array(array, kind) for array in test),
        name=name,
    )
