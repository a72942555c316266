"""Weighted sums over the neighbour table: slot by slot for all rows, or by buckets of rows with similar degree.

A table [m, d] is as wide as its largest in-degree, so a single hub makes every row long. Buckets group the rows by
degree, rounded up to 2^k or 1.5 * 2^k; a row then costs less than 1.5 times its own degree, whatever the degree of the
hub.

Axes: m nodes, d slots, n parameters, b rows of a block.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jdfl.base import struct
from jdfl.base.backend import backend

_UNROLL = 16  # slots summed in one pass over the rows
_HELD = 4  # slots whose rows a TPU, which writes every gathered row first, holds at a time


@struct.dataclass
class Buckets:
    """The rows of a table grouped by width; slots beyond a group's width are padding in all its rows."""

    rows: tuple[Array, ...]  # [r] int32 per group, its row indices
    place: Array  # [m] int32 position of row i in the concatenated groups
    widths: tuple[int, ...] = struct.field(pytree_node=False)  # slots per row in each group

    @property
    def slots(self) -> int:
        """The number of slots that a sum reads, padding included."""
        return sum(rows.shape[-1] * width for rows, width in zip(self.rows, self.widths))


def bucket_widths(degree: np.ndarray, d: int) -> np.ndarray:
    """The bucket width [m] of each row: its degree rounded up to 1, 2, 3, 4, 6, 8, 12, ..., at most d."""
    degree = np.maximum(degree, 1)
    step = 2 ** np.maximum(np.floor(np.log2(degree)).astype(np.int64) - 1, 0)
    return np.minimum(-(-degree // step) * step, d)


def group(degree: np.ndarray, d: int) -> Buckets:
    """Buckets for the rows of a table; rows of equal width keep their order."""
    width = bucket_widths(degree, d)
    order = np.argsort(width, kind="stable")
    widths, first = np.unique(width[order], return_index=True)
    place = np.empty(degree.size, np.int32)
    place[order] = np.arange(degree.size)
    rows = jax.device_put(tuple(part.astype(np.int32) for part in np.split(order, first[1:])))
    return Buckets(rows, jax.device_put(place), tuple(int(w) for w in widths))


def _slots_sum(senders: Array, weight: Array, x: Array, unroll: int) -> Array:
    weight = weight.astype(x.dtype)

    def slot(j: Array, total: Array) -> Array:
        return total + weight[:, j, None] * x[senders[:, j]]

    start = jnp.zeros((senders.shape[0], x.shape[1]), x.dtype)
    return lax.fori_loop(0, senders.shape[1], slot, start, unroll=max(1, unroll))


def gather_sum(senders: Array, weight: Array, x: Array, *, cheap: bool = False) -> Array:
    """The weighted sums of rows over a table of neighbours, sum_j weight[:, j] x[senders[:, j]].

    No array [b, d, n] is ever formed.

    Args:
        senders: senders [b, d] int32, row indices of x.
        weight: weight [b, d], the weights.
        x: Rows x [m, n].
        cheap: Whether computing a number of x again costs less than reading it.

    Returns:
        The sums [b, n].
    """
    senders, weight, x = jnp.asarray(senders), jnp.asarray(weight), jnp.asarray(x)
    d = senders.shape[1]
    if backend() == "tpu":
        senders, weight, x = lax.optimization_barrier((senders, weight, x))
        return lax.optimization_barrier(_slots_sum(senders, weight, x, min(_HELD, d)))
    if d > _UNROLL:
        return _slots_sum(senders, weight, x, _UNROLL)
    one_pass = partial(_slots_sum, unroll=d)
    # In a single pass XLA would recompute the producer of x (say, noise) for every slot, and the sum for every
    # consumer. On a CPU only a conditional prevents this; the one here is always true, which XLA cannot see.
    if backend() == "gpu":
        x = x if cheap else lax.optimization_barrier(x)
        return jnp.sum(weight.astype(x.dtype)[:, :, None] * x.at[senders].get(mode="promise_in_bounds"), axis=1)
    always = lax.optimization_barrier(jnp.bool_(True))
    otherwise = partial(jnp.zeros, (senders.shape[0], x.shape[1]), x.dtype)
    return lax.cond(always, one_pass, lambda *_: otherwise(), senders, weight, x)


def bucket_sum(buckets: Buckets, senders: Array, weight: Array, x: Array) -> Array:
    """`gather_sum` over a whole table, bucket by bucket."""
    senders, weight, x = jnp.asarray(senders), jnp.asarray(weight), jnp.asarray(x)
    parts: list[Array] = []
    for rows, width in zip(buckets.rows, buckets.widths):
        # At least two passes: a single pass would be fused into the reordering below, which was 5 times slower.
        part = _slots_sum(senders[rows, :width], weight[rows, :width], x, min(_UNROLL, width // 2))
        parts.append(part)
    return jnp.concatenate(parts)[buckets.place]
