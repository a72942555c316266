"""Averaging: f_i(w) = ||w - v_i||^2 / 2, whose optimum is the mean of the nodes' vectors.

Axes: m nodes, n entries of a vector.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike, DTypeLike

from jdfl import checks, struct
from jdfl.arguments import checked
from jdfl.problems.base import Problem
from jdfl.problems.stack import floating


@struct.dataclass
class Averaging(Problem):
    """data = vectors [m, 1, n], one example per node."""

    @property
    def n(self) -> int:
        """The number of entries of a vector."""
        return self.data.shape[-1]

    def loss(self, w: Array, example: Any) -> Array:
        """||w - v||^2 / 2 [] of one vector v [n]."""
        return 0.5 * jnp.sum(jnp.square(w - example))


@checked
def averaging(vectors: ArrayLike, *, name: str = "averaging", dtype: DTypeLike = jnp.float32) -> Averaging:
    """The problem of the nodes' vectors [m, n]; its `truth` is their mean. ValueError for another shape."""
    kind = floating(dtype)
    checks.real(vectors=vectors)
    values = np.asarray(vectors)
    checks.shape((None, None), "Give one row per node.", vectors=values)
    m = len(values)
    mean = jnp.asarray(values.mean(axis=0), kind)
    return Averaging(jnp.asarray(values[:, None], kind), jnp.ones((m, 1), kind), jnp.ones((m,), kind), mean, name=name)
