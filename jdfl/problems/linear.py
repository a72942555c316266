"""Least squares.

Axes: m nodes, q examples per node (padded with weight 0), n parameters.
"""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike, DTypeLike

from jdfl import checks, ops, struct
from jdfl.problems.base import Problem
from jdfl.problems.stack import floating, gram_eigenvalues, stack

Arrays = Array | np.ndarray | Sequence[ArrayLike]


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
        return 0.5 * jnp.square(jnp.dot(a, w, precision=ops.HIGHEST) - b)

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


def linear_regression(
    features: Arrays,
    targets: Arrays,
    *,
    truth: ArrayLike | None = None,
    test: tuple[ArrayLike, ArrayLike] | None = None,
    name: str = "linear regression",
    dtype: DTypeLike = jnp.float32,
) -> LinearRegression:
    """Least squares from the nodes' features and targets.

    `features` is a list of m arrays [q_i, n], or one array [m, q, n]; `targets` correspondingly [q_i] or [m, q].
    `truth` [n] are the generating parameters, `test` = (features [N, n], targets [N]). ValueError for shapes that do
    not fit together.
    """
    kind = floating(dtype)
    if len(features) != len(targets):
        raise ValueError(f"Expected targets of {len(features)} nodes, got {len(targets)}.")
    data, weight = _together(features, targets, kind)
    n = data[0].shape[-1]
    if truth is not None:
        checks.shape((n,), truth=truth)
    if test is not None:
        checks.shape((None, n), "See the test set.", features=test[0])
        checks.shape(np.shape(test[0])[:1], "See the test set.", targets=test[1])
    return build(data, weight, truth, test, name, kind)


def _together(features: Arrays, targets: Arrays, kind: np.dtype) -> tuple[tuple[Any, ...], Any]:
    """Features [m, q, n] and targets [m, q], and the weights [m, q]; what is one array stays one."""
    if isinstance(features, Array | np.ndarray) and isinstance(targets, Array | np.ndarray):
        checks.shape((None, None, None), "It is an array of all nodes.", features=features)
        checks.shape(features.shape[:2], "It is an array of all nodes.", targets=targets)
        if 0 in features.shape:
            raise ValueError(f"Expected features of nodes with examples, got an array of shape {features.shape}.")
        return (features, targets), np.ones(features.shape[:2], kind)
    parts = [(np.asarray(A), np.asarray(b)) for A, b in zip(features, targets)]
    for i, (A, b) in enumerate(parts):
        checks.shape((None, None), f"See node {i}.", features=A)
        checks.shape((len(A),), f"See node {i}.", targets=b)
    return stack(parts, (kind, kind))


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
