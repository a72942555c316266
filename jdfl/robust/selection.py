"""Rules that compare the received rows with one another: Krum, multi-Krum and the geometric median.

P. Blanchard, E. M. El Mhamdi, R. Guerraoui, J. Stainer: Machine Learning with Adversaries: Byzantine Tolerant Gradient
Descent, 2017; K. Pillutla, S. M. Kakade, Z. Harchaoui: Robust Aggregation for Federated Learning, 2022 (Weiszfeld's
iteration, there smoothed); A. Beck, S. Sabach: Weiszfeld's Method: Old and New Results, 2015 (the start). In a network
a node applies them to its own row and those of its in-neighbours.

Axes: d slots, p = d + 1 rows with the node's own first, n parameters.
"""

from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jdfl.arrays import ops
from jdfl.base import struct
from jdfl.base.settings import Count, Positive, Provenance
from jdfl.robust.order import in_order, median
from jdfl.robust.rule import Losses, Received, Rule, once, squares

_CALM = 5  # iterations in a row whose moves promise the tolerance; a single one may be of a component that shrinks fast


@struct.dataclass
class Krum(Rule):
    """Krum: of the node's row and its in-neighbours' the one that is nearest to its p - b - 2 nearest others.

    The score of a row is the sum of its squared distances to them, at least to one. Of rows with equal scores, such as
    the closest two where one distance counts, the one nearest to the node's own comes first.
    """

    kind: ClassVar[str] = "krum"
    provenance: ClassVar[Provenance] = ("from memory", "other code read")
    title: ClassVar[str] = "Krum"

    def combined(self, received: Received, losses: Losses | None) -> Array:

        def share(apart: Array, here: Array) -> Array:
            score = once(lambda apart, here: _scores(apart, here, self.b), apart, here)
            chosen = _ranks(score, apart[0], here) < self.kept(jnp.sum(here))
            return chosen.astype(apart.dtype) / jnp.sum(chosen).astype(apart.dtype)

        (every, n), p = received.rows.shape, received.here.shape[1] + 1
        if every <= min(n, p * p):  # the squared distances of all pairs are few, and most are needed several times
            here = jnp.concatenate([jnp.ones_like(received.here[:, :1]), received.here], axis=1)
            apart = once(_of_all, received)
            return received.moved(jax.vmap(share)(apart, here)[:, 1:])

        def one(own: Array, others: Array, here: Array) -> Array:
            rows, here = _all(own, others, here)
            apart = lax.map(lambda row: squares(rows - row[None]), rows)
            return jnp.dot(share(apart, here), jnp.where(here[:, None], rows, 0), precision=ops.HIGHEST)

        return received.each(one)

    def kept(self, p: Array) -> Array | int:
        """Return how many of p rows are averaged."""
        return 1

    def combines(self, weight: np.ndarray) -> bool:
        """Return whether another row can be chosen: of two, the node's own comes first."""
        return len(weight) > 1

    def most(self, degree: int) -> int:
        """Return the most with 2 b + 2 below the number of rows, the node's own included."""
        return max(0, (degree - 2) // 2)


@struct.dataclass
class MultiKrum(Krum):
    """Multi-Krum: the mean of the rows with the p - b smallest scores of Krum, or of a given number."""

    kind: ClassVar[str] = "multi-krum"
    provenance: ClassVar[Provenance] = ("from memory", "other code read")
    title: ClassVar[str] = "multi-Krum"
    average: Count | None = struct.field(pytree_node=False, default=None)
    """Rows that are averaged; None: all but b."""

    def kept(self, p: Array) -> Array | int:
        return jnp.maximum(1, p - self.b if self.average is None else jnp.minimum(p, self.average))

    def combines(self, weight: np.ndarray) -> bool:
        """Return whether another row can be chosen, or both of two are averaged."""
        return len(weight) > 1 or (len(weight) == 1 and int(self.kept(jnp.int32(2))) > 1)


@struct.dataclass
class GeometricMedian(Rule):
    """Geometric median: the point with the smallest sum of distances, by Weiszfeld's iteration up to a tolerance.

    It begins at the coordinate median, which arbitrary rows do not move far, or next to the row nearest to it if that
    has the smaller sum of distances. `b` has no effect.
    """

    kind: ClassVar[str] = "geometric-median"
    provenance: ClassVar[Provenance] = ("from memory", "other code read")
    title: ClassVar[str] = "geometric median"
    assumes: ClassVar[bool] = False
    tolerance: Positive = 1e-4
    """Distance from the median at which to end, as estimated from two iterations, by the rows' median distance."""
    iterations: Count = struct.field(pytree_node=False, default=1000)
    """The most iterations; most nodes need 5 to 30."""

    def combined(self, received: Received, losses: Losses | None) -> Array:

        def one(own: Array, others: Array, here: Array) -> Array:
            middle = median(own, others, here)
            rows, here = _all(own, others, here)
            rows = jnp.where(here[:, None], rows - middle[None], 0)
            far = jnp.sqrt(squares(rows))
            scale = jnp.sort(jnp.where(here, far, jnp.inf))[jnp.sum(here) // 2]
            near = rows[jnp.argmin(jnp.where(here, far, jnp.inf))]
            apart = jnp.sqrt(squares(rows - near[None]))
            away = here & (apart > 0)
            pulls = jnp.where(away, 1 / jnp.where(away, apart, 1), 0)
            force = jnp.dot(pulls, rows, precision=ops.HIGHEST) - jnp.sum(pulls) * near
            size, same = jnp.sqrt(jnp.sum(force**2)), jnp.sum(here & ~away).astype(rows.dtype)
            step = jnp.where(size > same, (size - same) / jnp.where(size > 0, size * jnp.sum(pulls), 1), 0)
            sums = jnp.sum(jnp.where(here, far, 0)), jnp.sum(jnp.where(here, apart, 0))
            better = (jnp.min(jnp.where(here, far, jnp.inf)) > 0) & (sums[0] <= (1 + 1e-6) * sums[1])
            moves = better | (size > same)  # otherwise the nearest row is the median

            def closer(at: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
                v, before, calm, i = at
                far = jnp.maximum(jnp.sqrt(squares(rows - v[None])), jnp.finfo(rows.dtype).tiny)
                share = jnp.where(here, jnp.min(jnp.where(here, far, jnp.inf)) / far, 0)
                new = jnp.dot(share / jnp.sum(share), rows, precision=ops.HIGHEST)
                move = jnp.sqrt(jnp.sum((new - v) ** 2))
                left = move**2 > self.tolerance * scale * (before - move)  # of a geometric series of moves
                calm = jnp.where(move == 0, _CALM, jnp.where((move >= before) | left, 0, calm + 1))
                return new, move, calm, i + 1

            start = jnp.where(better, 0, near + step * force), jnp.zeros((), rows.dtype), jnp.int32(0), jnp.int32(0)
            found = lax.while_loop(lambda at: moves & (at[2] < _CALM) & (at[3] < self.iterations), closer, start)[0]
            return middle + jnp.where(moves, found, near)

        return received.each(one)

    def most(self, degree: int) -> int:
        """Return the largest minority of the node and its `degree` in-neighbours."""
        return degree // 2


def _all(own: Array, others: Array, here: Array) -> tuple[Array, Array]:
    """The node's own row and the others [p, n], and which of them are there [p]."""
    rows = lax.optimization_barrier(jnp.concatenate([own[None], others]))
    return rows, jnp.concatenate([jnp.ones((1,), jnp.bool_), here])


def _of_all(received: Received) -> Array:
    """The squared distances [m, p, p] between the rows of every node, from those between all rows."""
    rows, senders = received.rows, received.senders
    table = lax.map(lambda row: squares(rows - row[None]), rows)
    pairs = senders[:, :, None] * len(rows) + senders[:, None, :]
    others = table.reshape(-1).at[pairs].get(mode="promise_in_bounds")
    if received.aim is not None and received.aimed is not None:
        aim, aimed = received.aim, received.aimed
        cross = received.slots(lambda z: squares(z - aimed))
        one, other = aim[:, :, None], aim[:, None, :]
        others = jnp.where(one, cross[:, None, :], jnp.where(other, cross[:, :, None], others))
        others = jnp.where(one & other, 0, others)
    own = (received.distances() ** 2)[:, None, :]
    corner = jnp.zeros_like(own[:, :, :1])
    below = jnp.concatenate([own.swapaxes(1, 2), others], axis=2)
    return jnp.concatenate([jnp.concatenate([corner, own], axis=2), below], axis=1)


def _scores(apart: Array, here: Array, b: Array | int) -> Array:
    """Krum's scores [p] by squared distances [p, p], infinite for rows that are not there."""
    there = here[None] & here[:, None] & ~jnp.eye(len(here), dtype=jnp.bool_)
    apart = jnp.where(there, jnp.minimum(apart, apart.T), jnp.inf)  # which may be rounded otherwise
    near = jnp.maximum(1, jnp.sum(here) - b - 2)
    summed = (jnp.where(i < near, one, 0) for i, one in enumerate(in_order(list(apart))))
    return jnp.where(here, sum(summed, jnp.zeros_like(apart[0])), jnp.inf)


def _ranks(score: Array, far: Array, here: Array) -> Array:
    """The ranks [p] by scores [p], then by far [p], then by place; rows that are not there come last."""
    place = jnp.arange(len(score))

    def first(one: Array, other: Array) -> tuple[Array, Array]:
        return one[:, None] < other[None], one[:, None] == other[None]

    (less, same), (nearer, equal), (earlier, _) = first(score, score), first(far, far), first(place, place)
    before = (less | (same & (nearer | (equal & earlier)))) & here[:, None]
    return jnp.where(here, jnp.sum(before, axis=0), len(score))
