"""Least squares whose examples are drawn from keys whenever they are used: only their weights are stored.

Axes: m nodes, q examples per node (padded with weight 0), n parameters.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike, DTypeLike

from jdfl.base import checks, struct
from jdfl.base.keys import typed_key
from jdfl.base.streams import Stream
from jdfl.devices.processes import gathered, portion
from jdfl.problems.linear import LinearRegression
from jdfl.problems.stack import dense_eigenvalue, floating, joined

Draw = Callable[[Array], tuple[Array, Array]]  # key -> features [n] and target [] of one example
_AT_ONCE = 2**20  # numbers in the features of the nodes that are computed side by side
_ON_HOST = 256  # nodes whose examples are on the host at a time
_MOST = 2**32  # examples of a node: as many numbers as a key takes
_EXAMPLES = Stream("problem.examples", "shared")  # separate from all draws of a run with the same seed


@struct.dataclass
class DrawnRegression(LinearRegression):
    """The objective of `LinearRegression` on examples that are `draw(key)` of a key of their own.

    data = node [m], the number of every node; example t of node i has the key fold_in(fold_in(self.key, i), t). Batches
    contain (features, targets) as usual, and only their examples are drawn. A pass over all examples draws all of them.
    """

    key: Any = None
    draw: Any = None  # a pytree that can be called
    features: int = struct.field(pytree_node=False, default=0)  # of one example

    @property
    def n(self) -> int:
        """The number of parameters, one per feature."""
        return self.features

    def each(self, function: Callable[..., Any], *stacked: Any) -> Any:
        """`function` of every node's rows of `stacked`, leaves [m, ...], for as many nodes side by side as fit."""
        leaves = jax.tree.leaves(stacked)
        m, size = leaves[0].shape[0], max(1, _AT_ONCE // (self.weight.shape[-1] * self.n))
        if size >= m or not any(leaf.dtype == self.data.dtype for leaf in leaves):  # batches have been drawn
            return jax.vmap(function)(*stacked)
        return lax.map(lambda rows: function(*rows), stacked, batch_size=size)

    def examples(self, node: Array, places: Array) -> tuple[Array, Array]:
        """Some examples of a node: features [b, n] and targets [b].

        The same key, node and number always give the same example.

        Args:
            node ([]): Number of the node, from 0.
            places ([b]): Numbers of the examples, from 0. An example beyond the node's number of examples is drawn like
                the others, and has weight 0.
        """
        own = jax.random.fold_in(self.key, node)
        return jax.vmap(lambda t: self.draw(jax.random.fold_in(own, t)))(places)

    def made(self, data: Any) -> tuple[Array, Array]:
        """A batch unchanged, or all examples of a node if `data` is its number.

        Features [q, n] and targets [q] in both cases. Losses, slopes and gradients call it first, so they accept
        batches and whole nodes alike.
        """
        if checks.is_a(data, tuple):
            return data
        return self.examples(data, jnp.arange(self.weight.shape[-1], dtype=jnp.uint32))

    def take(self, data: Any, chosen: Array) -> tuple[Array, Array]:
        """The examples `chosen` [b] of one node, or of a batch."""
        return super().take(data, chosen) if isinstance(data, tuple) else self.examples(data, chosen)

    def example_gradients(self, w: Array, data: Any) -> Array:
        """The gradient [q, n] of every single example's loss at w [n]."""
        return super().example_gradients(w, self.made(data))

    def host_examples(self) -> Iterator[tuple[Any, np.ndarray, np.ndarray]]:
        """As for a stored problem; examples are drawn for some nodes at a time.

        A node gives its features [q_i, n], targets [q_i] and coefficients [q_i] in mean_i f_i, in float64 and without
        padding. `jdfl.problems.optimum` and `value_at` read them. Examples that are not finite raise ValueError.
        """
        for first in range(0, self.m, _ON_HOST):
            part = self.nodes(jnp.arange(first, min(self.m, first + _ON_HOST)))
            yield from ((X, y, c * (part.m / self.m)) for X, y, c in part.stored().host_examples())

    def stored(self) -> LinearRegression:
        """The same problem with its examples in memory, at least 4 m q n bytes; padding is zero.

        Each of several processes stores the examples of its own nodes. Use it for data that fit into memory and for
        gradients of all examples: for each such gradient a drawn problem draws all examples again.
        """
        here = self.nodes(portion(self.m))
        A, b = _every_example(here)
        real = here.weight > 0
        data = jnp.where(real[:, :, None], A, 0), jnp.where(real, b, 0)
        problem = LinearRegression(
            data, here.weight, here.curvature, self.truth, self.test, self.start, shared=self.shared, name=self.name
        )
        return replace(joined(problem, self.m), about=self.about)

    def check_data(self) -> None:
        """Refuse data that are not the numbers of nodes, and examples of the first and last node that are unfit."""
        checks.shape((self.m,), "It has the numbers of the nodes.", data=self.data)
        for i in (0, self.m - 1):
            A, b = self.examples(self.data[i], jnp.arange(min(4, self.weight.shape[1]), dtype=jnp.uint32))
            checks.finite(f"See what draw(key) gives for node {i}.", features=A, targets=b)


def drawn_regression(
    draw: Draw,
    sizes: ArrayLike,
    *,
    key: int | Array = 0,
    truth: ArrayLike | None = None,
    rows: int | None = None,
    name: str = "drawn regression",
    dtype: DTypeLike = jnp.float32,
) -> DrawnRegression:
    """Least squares on examples that are drawn whenever they are used, and never stored.

    Stored are 4 bytes per example and the curvature of every node, for which all examples are drawn once.

    Args:
        draw: The function that makes one example from a key, `draw(key) -> (features [n], target [])`, pure and in JAX.
            Captured arrays are compiled in, unless it is a callable pytree such as a `jax.tree_util.Partial`.
        sizes: Number of examples >= 1 of every node [m].
        key: Key, or seed of one, of all examples.
        truth: Parameters [n] that are known to have generated the examples; None: they are not known.
        rows: q, at least the largest of the sizes; None: the largest.
        name: What reports call the problem.
        dtype: Type of all numbers drawn, float32 or float64; the latter needs JAX_ENABLE_X64=1.

    Raises ValueError for sizes that are not whole numbers from 1, and for draws of another shape or type.
    """
    kind = floating(dtype)
    checks.shape((None,), "It has the number of examples of every node.", sizes=sizes)
    counts = np.asarray(sizes)
    if counts.size == 0 or not np.issubdtype(counts.dtype, np.integer) or counts.min() < 1 or counts.max() >= _MOST:
        raise ValueError(f"Expected sizes of whole numbers from 1, one for every node, got sizes = {sizes!r}.")
    if not callable(draw):
        raise ValueError(f"Expected draw to be a function of a key, got draw = {draw!r}.")
    own = _EXAMPLES.of(typed_key(key))
    found: Any = jax.eval_shape(draw, own)
    shapes = [(leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(found)]
    if not isinstance(found, tuple) or len(shapes) != 2 or [len(s) for s, _ in shapes] != [1, 0]:
        raise ValueError(f"Expected draw(key) to give features [n] and a target [], got {found}.")
    if any(given != kind for _, given in shapes):
        raise ValueError(f"Expected draw(key) to give {kind}, got {[str(given) for _, given in shapes]}.")
    n = shapes[0][0][0]
    if truth is not None:
        checks.shape((n,), truth=truth)
    q = int(counts.max()) if rows is None else rows
    checks.whole(int(counts.max()), remedy="It is the largest of the sizes or more.", rows=q)
    problem = DrawnRegression(
        data=jnp.arange(len(counts), dtype=jnp.uint32),
        weight=jnp.asarray(np.arange(q)[None] < counts[:, None], kind),
        curvature=jnp.zeros((len(counts),), kind),
        truth=None if truth is None else jnp.array(truth, kind),
        name=name,
        key=own,
        draw=draw if jax.tree.leaves(draw) != [draw] else jax.tree_util.Partial(draw),
        features=n,
    )
    return replace(problem, curvature=jnp.asarray(gathered(_curvature(problem.nodes(portion(problem.m))), problem.m)))


@jax.jit
def _every_example(problem: DrawnRegression) -> tuple[Array, Array]:
    """The examples of all nodes: features [m, q, n], targets [m, q]."""
    return problem.each(problem.made, problem.data)


@jax.jit
def _curvature(problem: DrawnRegression) -> Array:
    """lambda_max(A_i^T diag(weight_i) A_i) / sum_t weight[i,t] of every node [m]."""
    start = jax.random.normal(jax.random.key(0), (problem.n,), problem.dtype)

    def one(node: Array, weight: Array) -> Array:
        return dense_eigenvalue(problem.made(node)[0], weight, start)

    return problem.each(one, problem.data, problem.weight)
