"""Rules that compare the received rows with one another: Krum, multi-Krum and the geometric median.

P. Blanchard, E. M. El Mhamdi, R. Guerraoui, J. Stainer: Machine Learning with Adversaries: Byzantine Tolerant Gradient
Descent, 2017; K. Pillutla, S. M. Kakade, Z. Harchaoui: Robust Aggregation for Federated Learning, 2022 (the smoothed
Weiszfeld iteration). In a network a node applies them to its own row and those of its in-neighbours.

Axes: d slots, p = d + 1 rows with the node's own first, n parameters.
"""

from typing import ClassVar

import jax.numpy as jnp
from jax import Array, lax

from jdfl.base import struct
from jdfl.base.settings import Count, Positive
from jdfl.robust.order import median
from jdfl.robust.received import Received
from jdfl.robust.rule import Losses, Rule


@struct.dataclass
class Krum(Rule):
    """Krum: of the node's row and its in-neighbours' the one that is nearest to its p - b - 2 nearest others.

    The score of a row is the sum of its squared distances to them, at least to one. Of rows with equal scores, such as
    the closest two where one distance counts, the one nearest to the node's own comes first.
    """

    kind: ClassVar[str] = "krum"
    title: ClassVar[str] = "Krum"

    def combined(self, received: Received, losses: Losses | None) -> Array:
        """The chosen rows [m, n]."""

        def one(own: Array, others: Array, here: Array) -> Array:
            rows, here = _all(own, others, here)
            far = jnp.sum((rows - own[None]) ** 2, axis=1)
            chosen = _ranks(_scores(rows, here, self.b), far, here) < self.kept(jnp.sum(here))
            total = jnp.sum(jnp.where(chosen[:, None], rows, 0), axis=0)
            return total / jnp.sum(chosen).astype(rows.dtype)

        return received.each(one)

    def kept(self, p: Array) -> Array | int:
        """Return how many of p rows are averaged."""
        return 1

    def most(self, degree: int) -> int:
        """Return the most with 2 b + 2 below the number of rows, the node's own included."""
        return max(0, (degree - 2) // 2)


@struct.dataclass
class MultiKrum(Krum):
    """Multi-Krum: the mean of the rows with the p - b smallest scores of Krum, or of a given number."""

    kind: ClassVar[str] = "multi-krum"
    title: ClassVar[str] = "multi-Krum"
    average: Count | None = struct.field(pytree_node=False, default=None)
    """Rows that are averaged; None: all but b."""

    def kept(self, p: Array) -> Array | int:
        """Return how many of p rows are averaged, at least one."""
        return jnp.maximum(1, p - self.b if self.average is None else jnp.minimum(p, self.average))


@struct.dataclass
class GeometricMedian(Rule):
    """Geometric median: the point with the smallest sum of distances, by Weiszfeld's iteration.

    It begins at the coordinate median, which arbitrary rows do not move far. `b` has no effect.
    """

    kind: ClassVar[str] = "geometric-median"
    title: ClassVar[str] = "geometric median"
    assumes: ClassVar[bool] = False
    iterations: Count = struct.field(pytree_node=False, default=8)
    """Iterations of Weiszfeld."""
    smoothing: Positive = 1e-6
    """Distances count as at least this."""

    def combined(self, received: Received, losses: Losses | None) -> Array:
        """The medians [m, n]."""

        def one(own: Array, others: Array, here: Array) -> Array:
            rows, here = _all(own, others, here)

            def closer(_: Array, v: Array) -> Array:
                far = jnp.sqrt(jnp.sum((rows - v[None]) ** 2, axis=1))
                share = jnp.where(here, 1 / jnp.maximum(far, self.smoothing), 0)
                share = share / jnp.sum(share)
                return jnp.sum(share[:, None] * rows, axis=0)

            return lax.fori_loop(0, self.iterations, closer, median(rows, here))

        return received.each(one)

    def most(self, degree: int) -> int:
        """Return the largest minority of the node and its `degree` in-neighbours."""
        return degree // 2


def _all(own: Array, others: Array, here: Array) -> tuple[Array, Array]:
    """The node's own row and the others [p, n], and which of them are there [p]."""
    return jnp.concatenate([own[None], others]), jnp.concatenate([jnp.ones((1,), jnp.bool_), here])


def _scores(rows: Array, here: Array, b: Array | int) -> Array:
    """Krum's scores [p], infinite for rows that are not there."""
    apart = lax.map(lambda row: jnp.sum((rows - row[None]) ** 2, axis=1), rows)
    p = len(here)
    apart = jnp.where(here[None] & here[:, None] & ~jnp.eye(p, dtype=jnp.bool_), apart, jnp.inf)
    near = jnp.maximum(1, jnp.sum(here) - b - 2)
    summed = jnp.where(jnp.arange(p)[None] < near, jnp.sort(apart, axis=1), 0)
    return jnp.where(here, jnp.sum(summed, axis=1), jnp.inf)


def _ranks(score: Array, far: Array, here: Array) -> Array:
    """The ranks [p] by scores [p], then by far [p], then by place; rows that are not there come last."""
    order = jnp.lexsort((far, score, ~here))
    return jnp.where(here, jnp.argsort(order), len(score))
