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
import numpy as np
from jax import Array

from jdfl.base import struct
from jdfl.base.settings import Provenance
from jdfl.robust.rule import Losses, Received, Rule

_MOST = 64  # values that the network sorts; its exchanges grow as d log^2 d, and compile time with them


@struct.dataclass
class CoordinateMedian(Rule):
    """Coordinate median: of every coordinate the median of the node's value and its in-neighbours'.

    Of an even number of values it is the mean of the middle two. `b` has no effect.
    """

    kind: ClassVar[str] = "coordinate-median"
    provenance: ClassVar[Provenance] = ("from memory", "other code read")
    title: ClassVar[str] = "coordinate median"
    assumes: ClassVar[bool] = False

    def combined(self, received: Received, losses: Losses | None) -> Array:
        return received.each(median)

    def most(self, degree: int) -> int:
        """Return the largest minority of the node and its `degree` in-neighbours."""
        return degree // 2


@struct.dataclass
class TrimmedMean(Rule):
    """Trimmed mean (BRIDGE-T): drop the b largest and b smallest values of the in-neighbours, average the rest.

    The node's own value always counts. A node with at most 2 b in-neighbours keeps its row.
    """

    kind: ClassVar[str] = "trimmed-mean"
    provenance: ClassVar[Provenance] = ("from memory", "other code read")
    title: ClassVar[str] = "trimmed mean"

    def combined(self, received: Received, losses: Losses | None) -> Array:

        def one(own: Array, others: Array, here: Array) -> Array:
            place, count = jnp.arange(len(here)), jnp.sum(here)
            kept = (place >= self.b) & (place < count - self.b)
            share = kept.astype(own.dtype) / (1 + jnp.sum(kept)).astype(own.dtype)
            return (1 - jnp.sum(share)) * own + _weighted(in_order(_filled(others, here)), share)

        return received.each(one)

    def combines(self, weight: np.ndarray) -> bool:
        return len(weight) > 2 * self.b


def median(own: Array, others: Array, here: Array) -> Array:
    """The medians [n] of the coordinates of a row [n] and of those others [d, n] that are `here` [d]."""
    place = jnp.arange(len(here) + 1)
    low, high = jnp.sum(here) // 2, (jnp.sum(here) + 1) // 2
    share = ((place == low).astype(own.dtype) + (place == high).astype(own.dtype)) / 2
    return _weighted(in_order([own, *_filled(others, here)]), share)


def _filled(others: Array, here: Array) -> list[Array]:
    """The rows [n] of others [d, n], with the largest number in place of rows that are not `here` [d]."""
    most = jnp.finfo(others.dtype).max
    return [jnp.where(here[i], one, most) for i, one in enumerate(others)]


def _weighted(values: list[Array], share: Array) -> Array:
    """The sum [n] of d vectors [n] with shares [d]."""
    return sum((share[i] * one for i, one in enumerate(values)), jnp.zeros_like(values[0]))


def in_order(values: list[Array]) -> list[Array]:
    """The values of every coordinate of some vectors [n] from the smallest on, as as many vectors."""
    if len(values) > _MOST:
        return list(jnp.sort(jnp.stack(values), axis=0))
    values = list(values)
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
