"""Problems whose loss depends on the parameters only through products with the features of an example.

Axes: m nodes, q examples per node (padded with weight 0), p features, n parameters, N examples of any node.
"""

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike, DTypeLike
from scipy.sparse import issparse

from jdfl.arrays import ops
from jdfl.base import checks, struct
from jdfl.base.arguments import checked
from jdfl.base.names import labels_of
from jdfl.kernels import one_pass
from jdfl.problems.base import Problem
from jdfl.problems.stack import floating, floats_fit

_FEW = 64  # parameters


@struct.dataclass
class LinearModel(Problem):
    """A problem on data = (features [m, q, n], targets [m, q]) whose losses are functions of the scores <a_t, w>.

    The gradient of an example's loss is its features times its slope, so that it can be clipped without being formed.
    A subclass defines `losses` and `slopes`, and `exact` for the host.
    """

    @property
    def n(self) -> int:
        return self.data[0].shape[-1]

    @property
    def outputs(self) -> int:
        """The number of scores of an example."""
        return 1

    def made(self, data: Any) -> tuple[Any, Array]:
        """The features and targets of `data`; a subclass may have to draw them first."""
        return data

    def products(self, w: Array, features: Any) -> Array:
        """The scores <a_t, w> [q] of features [q, n]."""
        if features.shape[0] == 1 and w.shape[0] <= _FEW:  # XLA turns a product with one row into a slow sum
            return jnp.dot(features * w[None], jnp.ones_like(w), precision=ops.HIGHEST)
        return jnp.dot(features, w, precision=ops.HIGHEST)

    def loss(self, w: Array, example: Any) -> Array:
        return self.losses(w, jax.tree.map(lambda leaf: leaf[None], example))[0]

    def feature_lengths(self, data: Any, norm: str) -> Array:
        return ops.length(self.made(data)[0], norm)

    def spread(self, slopes: Array, data: Any) -> Array:
        return jnp.dot(slopes, self.made(data)[0], precision=ops.HIGHEST)

    def divergences(self, w: Array, step: Array, data: Any) -> Array:
        """How much every loss [q] at w + step exceeds its tangent at w, by a formula in which nothing cancels.

        That is loss(w + step) - loss(w) - loss'(w) step, at least zero, for a step [n]. The metric `suboptimality` is
        computed from it in problems that have this method and a regulariser that is a quadratic form; here it raises
        TypeError.
        """
        raise TypeError(f"{type(self).__name__} does not define the divergences of its losses")

    def exact(self, scores: np.ndarray, targets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The losses [N] and their slopes, in float64 on the host, of scores [N] or [N, outputs] and targets [N].

        The slopes have the shape of the scores; the penalty is not included. A subclass defines it; here it raises
        TypeError.
        """
        raise TypeError(f"{type(self).__name__} does not define its losses on the host")

    def host_rows(self, i: int) -> Any:
        """The features [q, p] of node i on the host: a NumPy array, or CSR if the problem keeps them sparse."""
        return np.asarray(self.data[0])[i]

    def host_examples(self) -> Iterator[tuple[Any, np.ndarray, np.ndarray]]:
        """Every node's features [q_i, p], targets [q_i] and coefficients [q_i] in mean_i f_i, in float64, unpadded.

        ValueError for numbers that are not finite, with the node.
        """
        own: Any = range(self.m) if self.blocks is None else self.blocks.host_rows(self.data[0])
        targets: Any = np.asarray(self.data[1]) if self.blocks is None else self.blocks.host_rows(self.data[1])
        for i, (rows, target, weight) in enumerate(zip(own, targets, np.asarray(self.weight))):
            features = rows if self.blocks is not None else self.host_rows(i)
            real = weight[: len(target)] > 0
            c, X, y = (x[real].astype(np.float64) for x in (weight[: len(target)], features, target))
            checks.finite(f"See node {i}.", features=X.data if issparse(X) else X, targets=y, weight=c)
            yield X, y, c / (c.sum() * self.m)


@struct.dataclass
class LinearRegression(LinearModel):
    """Least squares, f_i(w) = ||A_i w - b_i||^2 / (2 q_i); data = (features A [m, q, n], targets b [m, q]).

    q_i is the number of node i's examples. There is no penalty and no intercept, unless A has a column of ones. Built
    by `linear_regression`, by `example1`, and by `sample_regression` for examples that are not stored.
    """

    def losses(self, w: Array, data: Any) -> Array:
        """(<a_t, w> - b_t)^2 / 2 [q] of one node's data at the parameters w [n]."""
        return 0.5 * jnp.square(LinearRegression.slopes(self, w, data))  # also for subclasses without slopes

    def slopes(self, w: Array, data: Any) -> Array:
        A, b = self.made(data)
        return self.products(w, A) - b

    def gradient(self, w: Array, data: Any, weight: Array) -> Array:
        """The gradient [n] of f_i of one node; a run with kernels (`jdfl.Options`) reads the examples once for it."""
        if type(self) is LinearRegression:
            A, b = data
            if one_pass.fits(w, A, b, weight):
                return one_pass.least_squares(w, A, b, weight / jnp.sum(weight))
        return super().gradient(w, data, weight)

    def divergences(self, w: Array, step: Array, data: Any) -> Array:
        """<a_t, step>^2 / 2 [q] of one node's data, whatever w is."""
        return 0.5 * jnp.square(self.products(step, self.made(data)[0]))

    def predictions(self, w: Array, features: Any) -> Array:
        return self.products(w, features)

    def exact(self, scores: np.ndarray, targets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Half the squared residuals [N], and the residuals [N], which are the slopes."""
        residuals = scores - targets
        return 0.5 * residuals**2, residuals


@struct.dataclass
class Averaging(Problem):
    """The mean of vectors, f_i(w) = ||w - v_i||^2 / 2; data = vectors v [m, 1, n], one example per node.

    mean_i f_i is minimal at the mean of the vectors. It serves to study how fast and how accurately messages average,
    without any learning; `jdfl.AverageConsensus` solves it. Built by `averaging`.
    """

    @property
    def n(self) -> int:
        return self.data.shape[-1]

    def loss(self, w: Array, example: Any) -> Array:
        return 0.5 * jnp.sum(jnp.square(w - example))

    def divergences(self, w: Array, step: Array, data: Any) -> Array:
        """||step||^2 / 2 [1] for a `step` [n], whatever w is."""
        return 0.5 * jnp.sum(jnp.square(step))[None]


@checked
def averaging(vectors: ArrayLike, *, name: str = "averaging", dtype: DTypeLike = jnp.float32) -> Averaging:
    """The problem whose optimum is the mean of the nodes' vectors, which is its `truth`.

    Args:
        vectors: The vector of every node [m, n]; the index of a DataFrame names the nodes.

    Raises ValueError for vectors of another shape and values that are not real numbers.
    """
    kind = floating(dtype)
    checks.real(vectors=vectors)
    values = np.asarray(vectors)
    checks.shape((None, None), "Give one row per node.", vectors=values)
    floats_fit("vectors", values, kind, stacklevel=4)
    m, mean, index = len(values), jnp.asarray(values.mean(axis=0), kind), labels_of(vectors)
    made = Averaging(jnp.asarray(values[:, None], kind), jnp.ones((m, 1), kind), jnp.ones((m,), kind), mean, name=name)
    return made if index is None or type(index).__name__ == "RangeIndex" else made.named(index)
