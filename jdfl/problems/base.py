"""What the nodes learn: stacked data, the loss of one example, and everything that follows from it.

Axes: m nodes, q examples per node (padded with weight 0), n parameters, N test examples.
"""

from typing import Any

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array

from jdfl import ops


@struct.dataclass
class Problem:
    """f_i(w) = sum_t weight[i,t] loss(w, data[i,t]) / sum_t weight[i,t] + regulariser(w).

    A subclass gives `n` and `loss` of one example, and may give `regulariser` and `predict`.
    """

    data: Any  # pytree of arrays [m, q, ...]
    weight: Array  # [m, q] float, 0 = padding
    curvature: Array  # [m] lambda_max of the data part of the Hessian of f_i (a bound on it where it varies)
    truth: Array | None = None  # [n] the generating parameters, where they are known
    test: Any | None = None  # pytree of arrays [N, ...] like `data` without its node axis
    name: str = struct.field(pytree_node=False, default="problem")

    @property
    def m(self) -> int:
        """The number of nodes."""
        return self.weight.shape[0]

    @property
    def n(self) -> int:
        """The number of parameters."""
        raise TypeError(f"{type(self).__name__} does not say its number of parameters n")

    @property
    def dtype(self) -> Any:
        """The floating type of the parameters."""
        return self.weight.dtype

    def loss(self, w: Array, example: Any) -> Array:
        """The loss [] of the parameters w [n] on ONE example."""
        raise TypeError(f"{type(self).__name__} does not define the loss of one example")

    def regulariser(self, w: Array) -> Array:
        """The part of f_i [] that does not depend on data."""
        return jnp.zeros((), w.dtype)

    def local(self, i: Array | int) -> tuple[Any, Array]:
        """Node i's data (leaves [q, ...]) and weights [q]; an out-of-range i clips."""
        return jax.tree.map(lambda leaf: leaf[i], (self.data, self.weight))

    def value(self, w: Array, data: Any, weight: Array) -> Array:
        """f_i(w) [] from one node's data and weights, as `local` gives them."""
        losses = jax.vmap(self.loss, (None, 0))(w, data)
        return jnp.dot(losses, weight, precision=ops.HIGHEST) / jnp.sum(weight) + self.regulariser(w)

    def gradient(self, w: Array, data: Any, weight: Array) -> Array:
        """grad f_i(w) [n] from one node's data and weights."""
        return jax.grad(self.value)(w, data, weight)

    def example_gradients(self, w: Array, data: Any) -> Array:
        """The gradient of every single example's loss [q, n], regulariser not included."""
        return jax.vmap(jax.grad(self.loss), (None, 0))(w, data)

    def minibatch(self, key: Array, data: Any, weight: Array, size: int) -> tuple[Any, Array]:
        """`size` of one node's examples, uniformly with replacement among those with positive weight."""
        chosen = jax.random.categorical(key, jnp.where(weight > 0, 0.0, -jnp.inf), shape=(size,))
        return jax.tree.map(lambda leaf: leaf[chosen], (data, weight))

    def values(self, w: Array) -> Array:
        """f_i(w_i) [m] for stacked parameters [m, n]."""
        return jax.vmap(self.value)(w, self.data, self.weight)

    def gradients(self, w: Array) -> Array:
        """grad f_i(w_i) [m, n] for stacked parameters [m, n]."""
        return jax.vmap(self.gradient)(w, self.data, self.weight)

    def values_at(self, w: Array) -> Array:
        """f_i(w) [m] of every node at the same parameters [n]."""
        return jax.vmap(self.value, (None, 0, 0))(w, self.data, self.weight)

    def scores(self, w: Array, features: Array) -> Array:
        """What a classifier decides by: [N] (or [N, classes]) scores of examples for parameters [n]."""
        raise TypeError(f"{type(self).__name__} is not a classification problem, so it has no scores")
