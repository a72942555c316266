"""Order statistics of every coordinate: the median, and the mean of what is left without the extremes.

L. Yin, Y. Chen, K. Ramchandran, P. Bartlett: Byzantine-Robust Distributed Learning: Towards Optimal Statistical Rates,
2018 (coordinate median); C. Fang, Z. Yang, W. U. Bajwa: BRIDGE: Byzantine-Resilient Decentralized Gradient Descent,
2022 (trimmed mean, BRIDGE-T; the median there is BRIDGE-M).

The values of a coordinate are sorted by a network of exchanges (Batcher's odd-even merge), which is the same for all
coordinates and so runs over vectors, unlike a sort of every coordinate.

Axes: d slots, n parameters.
"""

from functools import cache
from typing import ClassVar

import jax.numpy as jnp
from jax import Array

from jdfl.base import struct
from jdfl.robust.received import Received
from jdfl.robust.rule import Losses, Rule

_MOST = 64  # values that the network sorts; its exchanges grow as d log^2 d, and compile time with them


@struct.dataclass
class CoordinateMedian(Rule):
    """Coordinate median: of every coordinate the median of the node's value and its in-neighbours'.

    Of an even number of values it is the mean of the middle two. `b` has no effect.
    """

    kind: ClassVar[str] = "coordinate-median"
    title: ClassVar[str] = "coordinate median"
    assumes: ClassVar[bool] = False

    def combined(self, received: Received, losses: Losses | None) -> Array:
        """The medians [m, n]."""
        return received.each(lambda own, others, here: median(jnp.concatenate([own[None], others]), _with_own(here)))

    def most(self, degree: int) -> int:
        """Return the largest minority of the node and its `degree` in-neighbours."""
        return degree // 2


@struct.dataclass
class TrimmedMean(Rule):
    """Trimmed mean (BRIDGE-T): drop the b largest and b smallest values of the in-neighbours, average the rest.

    The node's own value always counts. A node with at most 2 b in-neighbours keeps its row.
    """

    kind: ClassVar[str] = "trimmed-mean"
    title: ClassVar[str] = "trimmed mean"

    def combined(self, received: Received, losses: Losses | None) -> Array:
        """The means [m, n]."""

        def one(own: Array, others: Array, here: Array) -> Array:
            place, count = jnp.arange(len(here)), jnp.sum(here)
            kept = (place >= self.b) & (place < count - self.b)
            values = in_order(jnp.where(here[:, None], others, jnp.inf))
            total = own + sum((jnp.where(kept[i], one, 0) for i, one in enumerate(values)), jnp.zeros_like(own))
            return total / (1 + jnp.sum(kept)).astype(own.dtype)

        return received.each(one)


def median(rows: Array, here: Array) -> Array:
    """The medians [n] of the coordinates of those rows [d, n] that are `here` [d], at least one."""
    values, count = in_order(jnp.where(here[:, None], rows, jnp.inf)), jnp.sum(here)
    low, high = (count - 1) // 2, count // 2
    middle = (jnp.where(i == low, one, 0) + jnp.where(i == high, one, 0) for i, one in enumerate(values))
    return sum((0.5 * one for one in middle), jnp.zeros_like(rows[0]))


def in_order(rows: Array) -> list[Array]:
    """The values of every coordinate of rows [d, n] from the smallest on, as d vectors [n]."""
    if len(rows) > _MOST:
        return list(jnp.sort(rows, axis=0))
    values = list(rows)
    for i, j in exchanges(len(values)):
        values[i], values[j] = jnp.minimum(values[i], values[j]), jnp.maximum(values[i], values[j])
    return values


@cache
def exchanges(size: int) -> tuple[tuple[int, int], ...]:
    """The places of every exchange of Batcher's odd-even merge sort of `size` values (Knuth, 5.2.2, Algorithm M)."""
    found: list[tuple[int, int]] = []
    top = 1 << max(0, (size - 1).bit_length() - 1)
    p = top
    while p > 0:
        q, r, step = top, 0, p
        while True:
            found += [(i, i + step) for i in range(size - step) if i & p == r]
            if q == p:
                break
            step, q, r = q - p, q // 2, p
        p //= 2
    return tuple(found)


def _with_own(here: Array) -> Array:
    return jnp.concatenate([jnp.ones((1,), jnp.bool_), here])
