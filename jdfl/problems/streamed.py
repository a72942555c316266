"""Problems whose losses take much memory: a node's examples are computed in pieces, and few nodes at a time.

Axes: m nodes, q examples per node (padded with weight 0), B examples of a batch, N test examples, n parameters.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from jdfl.arrays import ops
from jdfl.base import checks, struct
from jdfl.base.backend import backend
from jdfl.problems.base import Problem
from jdfl.problems.ragged import any_ragged, is_ragged

_CACHED = 2**15  # numbers of a node that a CPU keeps at hand while it computes with them


@struct.dataclass
class Streamed(Problem):
    """A problem with the term penalty/2 ||w||^2, whose passes over all examples go piece by piece."""

    penalty: Any = None  # [] of the squared norm; None: there is none
    nodes_at_once: int | None = struct.field(pytree_node=False, default=None)  # None: as suits the device
    at_once: int = struct.field(pytree_node=False, default=500)  # examples of a node
    test_batch: int = struct.field(pytree_node=False, default=1000)

    @property
    def examples_mix(self) -> bool:
        """Whether an example's loss depends on the other examples of its batch, as with batch normalisation."""
        return False

    def each(self, function: Callable[..., Any], *stacked: Any) -> Any:
        blocks = self.blocks
        if blocks is not None and any_ragged(stacked) and self._at_once(self.m, jax.tree.leaves(stacked)) == 1:
            return blocks.one_by_one(function, stacked)
        return super().each(function, *stacked)

    def _at_once(self, m: int, leaves: list[Any]) -> int:
        """How many of m nodes are computed side by side."""
        if self.nodes_at_once is not None:
            return self.nodes_at_once
        many = sum(leaf.size for leaf in leaves) > m * _CACHED
        return 1 if many and backend() == "cpu" else m

    def _each(self, function: Callable[..., Any], *stacked: Any) -> Any:
        leaves = jax.tree.leaves(stacked)
        m = leaves[0].shape[0]
        at_once = self._at_once(m, leaves)
        if m == 1:  # products without an axis of one are laid out better
            found = function(*jax.tree.map(lambda leaf: leaf[0], stacked))
            return jax.tree.map(lambda leaf: leaf[None], found)
        if at_once >= m:
            return jax.vmap(function)(*stacked)
        return lax.map(lambda rows: function(*rows), stacked, batch_size=None if at_once == 1 else at_once)

    def regulariser(self, w: Array) -> Array:
        if self.penalty is None:
            return jnp.zeros((), w.dtype)
        return 0.5 * self.penalty * jnp.sum(w * w)

    def value(self, w: Array, data: Any, weight: Array) -> Array:
        return self._streamed(self._total, w, data, weight) / jnp.sum(weight) + self.regulariser(w)

    def gradient(self, w: Array, data: Any, weight: Array) -> Array:
        # Shares of the weight, and no zeros to add: the compiler can then leave out what only other parts of g need.
        g = self._streamed(jax.grad(self._total), w, data, weight / jnp.sum(weight))
        return g if self.penalty is None else g + jax.grad(self.regulariser)(w)

    def test_loss(self, w: Array, data: Any) -> Array:
        found = self._in_batches(lambda place: self.losses(w, self.take(self.test, place)))
        return jnp.mean(found)

    def activation_bytes(self, examples: int) -> int:
        """The memory in bytes that a gradient of `examples` of one node keeps from its forward pass.

        It follows from shapes alone; a run adds it up beforehand and refuses what would not fit.
        """
        size = min(examples, self.at_once)
        data = jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct((size, *leaf.shape[2:]), leaf.dtype), self.data, is_leaf=is_ragged
        )
        w = jax.ShapeDtypeStruct((self.n,), self.dtype)

        def residuals(w: Array, data: Any) -> Any:
            return jax.tree.leaves(jax.vjp(lambda w: jnp.sum(self.losses(w, data)), w)[1])

        return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.eval_shape(residuals, w, data))

    def check_data(self) -> None:
        super().check_data()
        checks.integer(1, at_once=self.at_once, test_batch=self.test_batch)
        if self.nodes_at_once is not None:
            checks.integer(1, remedy="None takes all nodes at once.", nodes_at_once=self.nodes_at_once)

    def _in_batches(self, function: Callable[[Array], Array]) -> Array:
        """`function(places [B])`, results [B, ...], over all places of the test set, a batch at a time: [N, ...]."""
        count = jax.tree.leaves(self.test)[0].shape[0]
        size = min(self.test_batch, count)
        places = jnp.minimum(jnp.arange(-(-count // size) * size, dtype=jnp.int32), count - 1)
        found = lax.map(function, places.reshape(-1, size))
        return found.reshape(-1, *found.shape[2:])[:count]

    def _total(self, w: Array, data: Any, weight: Array) -> Array:
        return jnp.dot(self.losses(w, data), weight, precision=ops.HIGHEST)

    def _streamed(self, function: Callable[..., Array], w: Array, data: Any, weight: Array) -> Array:
        """The sum over pieces of one node's examples of `function(w, data, weight)`."""
        q = weight.shape[0]
        pieces = -(-q // self.at_once)
        size = -(-q // pieces)
        place = jnp.arange(pieces * size, dtype=jnp.int32) % q
        weights = jnp.where(jnp.arange(pieces * size) < q, weight[place], 0.0).reshape(pieces, size)
        if self.examples_mix:  # examples of weight 0 are replaced, since they would count in the statistics
            real = jnp.argsort(weight <= 0, stable=True).astype(jnp.int32)
            count = jnp.maximum(jnp.sum(weight > 0, dtype=jnp.int32), 1)
            place = jnp.where(weights.ravel() > 0, place, real[place % count])
        if pieces == 1:
            return function(w, self.take(data, place) if self.examples_mix else data, weight)

        def add(total: Array, piece: tuple[Array, Array]) -> tuple[Array, None]:
            return total + function(w, self.take(data, piece[0]), piece[1]), None

        start = jax.tree.map(jnp.zeros_like, jax.eval_shape(function, w, self.take(data, place[:size]), weights[0]))
        return lax.scan(add, start, (place.reshape(pieces, size), weights))[0]
