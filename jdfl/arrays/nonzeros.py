"""Sparse rows as positions and values, which take s numbers each instead of n.

Axes: m rows, n entries, at most s nonzeros, b rows of a block, d slots of a neighbour table.
"""

from typing import Literal

import jax
import jax.numpy as jnp
from jax import Array

from jdfl.arrays import ops
from jdfl.base import struct


@struct.dataclass
class Nonzeros:
    """Rows [m, n] with at most s nonzeros each. A block of them is a dense array: `x[rows]`."""

    place: Array  # [m, s] int32, distinct within a row where values are not zero
    value: Array  # [m, s], including zeros where a row has fewer nonzeros
    n: int = struct.field(pytree_node=False)

    @property
    def shape(self) -> tuple[int, int]:
        """(m, n)."""
        return self.place.shape[0], self.n

    def __getitem__(self, rows: Array) -> Array:
        """The rows [b, n]; ids out of range are clipped."""
        return dense(jax.tree.map(lambda x: x[rows], self))


def largest(x: Array, s: int) -> Nonzeros:
    """The s largest entries of every row of x [m, n], the same that `ops.top_s` keeps."""
    place, value = jax.vmap(lambda one: ops.support(one, s))(x)
    return Nonzeros(place, value, x.shape[1])


def kept(x: Array, s: int, storage: Literal["dense", "sparse"]) -> Array | Nonzeros:
    """P_s x, the s largest entries of every row of x [m, n], stored as n numbers per row ("dense") or as `Nonzeros`."""
    return largest(x, s) if storage == "sparse" else ops.top_s(x, s)


def dense(x: Array | Nonzeros) -> Array:
    """The rows [m, n] as one array."""
    if not isinstance(x, Nonzeros):
        return x
    return _added(x.place, x.value, x.n)


def gathered_sum(senders: Array, weight: Array, x: Nonzeros) -> Array:
    """sum_j weight[:, j] x[senders[:, j]] for tables [b, d]: rows [b, n]; makes an array [b, d, s]."""
    value = x.value[senders] * weight.astype(x.value.dtype)[:, :, None]
    b = senders.shape[0]
    return _added(x.place[senders].reshape(b, -1), value.reshape(b, -1), x.n)


def _added(place: Array, value: Array, n: int) -> Array:
    """Rows [b, n] of values [b, k] added at their positions [b, k]."""
    line = jnp.arange(place.shape[0])[:, None]
    return jnp.zeros((place.shape[0], n), value.dtype).at[line, place].add(value)
