"""Weighted sums over the neighbour table: slot by slot over all rows, or over buckets of rows of like degree.

A table [m, d] is as wide as its largest in-degree, so that one hub makes every row long. Buckets group the rows by
degree, rounded up to a power of two or one and a half; a row then costs less than 1.5 times its degree, whatever the
hub's.

Axes: m nodes, d slots, n parameters, b rows of a block.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jdfl.base import struct

_UNROLL = 16  # slots that are summed in one pass over the rows


@struct.dataclass
class Buckets:
    """Every row of a table in one group; the rows of a group have nothing beyond its width."""

    rows: tuple[Array, ...]  # [r] int32 per group, the rows in it
    place: Array  # [m] int32 where row i is when the groups stand one below the other
    widths: tuple[int, ...] = struct.field(pytree_node=False)  # slots of a row that count, per group

    @property
    def slots(self) -> int:
        """How many slots a sum goes through, padding in them counted."""
        return sum(rows.shape[-1] * width for rows, width in zip(self.rows, self.widths))


def bucket_widths(degree: np.ndarray, d: int) -> np.ndarray:
    """The width [m] of the bucket of every row: its degree rounded up to 1, 2, 3, 4, 6, 8, 12, ..., at most d."""
    degree = np.maximum(degree, 1)
    step = 2 ** np.maximum(np.floor(np.log2(degree)).astype(np.int64) - 1, 0)
    return np.minimum(-(-degree // step) * step, d)


def group(degree: np.ndarray, d: int) -> Buckets:
    """Buckets for the rows of a table, in which rows of the same width keep their order.

    Args:
        degree ([m]): How many of the first slots of a row count.
        d: Slots of the table.
    """
    width = bucket_widths(degree, d)
    order = np.argsort(width, kind="stable")
    widths, first = np.unique(width[order], return_index=True)
    place = np.empty(degree.size, np.int32)
    place[order] = np.arange(degree.size)
    rows = tuple(jnp.asarray(part, jnp.int32) for part in np.split(order, first[1:]))
    return Buckets(rows, jnp.asarray(place), tuple(int(w) for w in widths))


def _slots_sum(senders: Array, weight: Array, x: Array, unroll: int) -> Array:
    weight = weight.astype(x.dtype)

    def slot(j: Array, total: Array) -> Array:
        return total + weight[:, j, None] * x[senders[:, j]]

    start = jnp.zeros((senders.shape[0], x.shape[1]), x.dtype)
    return lax.fori_loop(0, senders.shape[1], slot, start, unroll=max(1, unroll))


def gather_sum(senders: Array, weight: Array, x: Array) -> Array:
    """The weighted sums of rows over a table of neighbours, sum_j weight[:, j] x[senders[:, j]].

    There is never an array [b, d, n].

    Args:
        senders: senders [b, d] int32, rows of x.
        weight: weight [b, d], their weights.
        x: Rows x [m, n].

    Returns:
        The sums [b, n].
    """
    senders, weight, x = jnp.asarray(senders), jnp.asarray(weight), jnp.asarray(x)
    d = senders.shape[1]
    if d > _UNROLL:
        return _slots_sum(senders, weight, x, _UNROLL)
    one_pass = partial(_slots_sum, unroll=d)
    # In one pass XLA would compute what x comes from, noise say, again in every slot, and the sum for all who use it.
    # On a CPU only a condition keeps it from that, here one that always holds, which XLA does not see.
    if jax.default_backend() != "cpu":
        return lax.optimization_barrier(one_pass(*lax.optimization_barrier((senders, weight, x))))
    always = lax.optimization_barrier(jnp.bool_(True))
    otherwise = partial(jnp.zeros, (senders.shape[0], x.shape[1]), x.dtype)
    return lax.cond(always, one_pass, lambda *_: otherwise(), senders, weight, x)


def bucket_sum(buckets: Buckets, senders: Array, weight: Array, x: Array) -> Array:
    """`gather_sum` of a whole table, bucket by bucket.

    Args:
        buckets: The rows in groups, from `group` for this table.
        senders ([m, d] int32): In-neighbours, rows of x.
        weight ([m, d]): Their weights, 0 for padding.
        x ([m, n]): A row for every node.

    Returns:
        The sums [m, n].
    """
    senders, weight, x = jnp.asarray(senders), jnp.asarray(weight), jnp.asarray(x)
    parts: list[Array] = []
    for rows, width in zip(buckets.rows, buckets.widths):
        # Two passes or more: a sum in one pass would be fused into the reordering below, which made it 5 times slower.
        part = _slots_sum(senders[rows, :width], weight[rows, :width], x, min(_UNROLL, width // 2))
        parts.append(part)
    return jnp.concatenate(parts)[buckets.place]
