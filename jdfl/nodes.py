"""The nodes' axis: what all nodes have together, the same bit for bit on one device and on many.

On several devices every device holds the rows of some nodes, in the order of their ids, and what runs there sees these
rows alone (`jax.shard_map`). Whatever looks at more than a node's own row and what the network brings it goes through
this file: on one device these are plain functions of arrays, on several they communicate. Sums of floats are made in
one order, which follows from the number of nodes: by halves within blocks of nodes, and then over the blocks. A device
holds whole blocks. Rows beyond the last node, which fill up the last device, count in nothing.

Axes: M nodes in all, m rows that this device holds; M = m where there is one device.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jax import Array, lax

from jdfl.rounding import apart, rounded

_BLOCKS = 1024  # of which a sum is made, at most
_PREFIX = "nodes="
F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


class Share(NamedTuple):
    """That this code runs on one of several devices."""

    axis: str
    nodes: int  # M
    devices: int


def axis_name(count: int) -> str:
    """The name of the mesh's axis over which `count` nodes lie.

    It holds the number, so that JAX, which keeps what it traced by mesh, never takes one run for another.
    """
    return f"{_PREFIX}{count}"


def share() -> Share | None:
    """Where this code runs while JAX traces it; None on one device."""
    mesh = jax.sharding.get_abstract_mesh()
    for axis, devices in zip(mesh.axis_names, mesh.axis_sizes):
        if axis in mesh.manual_axes and axis.startswith(_PREFIX):
            return Share(axis, int(axis.removeprefix(_PREFIX)), devices)
    return None


def per_device(count: int, devices: int) -> int:
    """How many rows each of the devices holds of `count` nodes."""
    size = _block(count)
    return size * _ceil(_ceil(count, size), devices)


def count(m: int) -> int:
    """M, where this device holds m rows."""
    here = share()
    return m if here is None else here.nodes


def ids(m: int) -> Array:
    """The ids [m] int32 of the nodes whose rows lie here; those from M on are nobody's."""
    here, own = share(), jnp.arange(m, dtype=jnp.int32)
    return own if here is None else own + m * lax.axis_index(here.axis).astype(jnp.int32)


def real(m: int) -> Array:
    """[m] bool: which rows are nodes'."""
    return ids(m) < count(m)


def everyone(x: Array) -> Array:
    """The rows of all nodes [M, ...] on every device, from own rows x [m, ...]."""
    here = share()
    return x if here is None else lax.all_gather(x, here.axis, tiled=True)[: here.nodes]


def own(x: Array, m: int) -> Array:
    """The rows [m, ...] of this device, of all nodes' x [M, ...]; rows that are nobody's are the last node's again."""
    return x if share() is None else x[jnp.minimum(ids(m), x.shape[0] - 1)]


def first(x: Array) -> Array:
    """The row of node 0 [...] of rows x [m, ...]."""
    here = share()
    row = apart(_first_row, x)
    return row[0] if here is None else lax.all_gather(row, here.axis, tiled=True)[0]


def _first_row(x: Array) -> Array:
    return x[:1]


def total(x: Array) -> Array:
    """The sum [...] of all nodes' rows x [m, ...]; of floats in the one order."""
    here = share()
    if here is not None:
        x = jnp.where(_beside(real(x.shape[0]), x), x, jnp.zeros_like(x))
    if not jnp.issubdtype(x.dtype, jnp.inexact):
        return together(jnp.sum(x, axis=0, dtype=x.dtype))
    size = _block(count(x.shape[0]))
    if size > 1:
        beyond = -x.shape[0] % size
        x = jnp.pad(x, [(0, beyond), *[(0, 0)] * (x.ndim - 1)]) if beyond else x
        x = apart(_halved, x.reshape(x.shape[0] // size, size, *x.shape[1:]))
    if here is not None:
        x = lax.all_gather(x, here.axis, tiled=True)[: _ceil(here.nodes, size)]
    return apart(partial(jnp.sum, axis=0), x)


def mean(x: Array) -> Array:
    """The mean [...] of all nodes' rows x [m, ...]."""
    return rounded(total(x) / count(x.shape[0]))


def largest(x: Array) -> Array:
    """The largest entries [...] of all nodes' rows x [m, ...] of floats."""
    here = share()
    if here is None:
        return jnp.max(x, axis=0)
    return lax.pmax(jnp.max(jnp.where(_beside(real(x.shape[0]), x), x, -jnp.inf), axis=0), here.axis)


def together(x: Array) -> Array:
    """The sum over the devices of whole numbers x [...] that every device has of its own rows."""
    here = share()
    return x if here is None else lax.psum(x, here.axis)


def counted(x: T) -> T:
    """A tree x of whole numbers [m, ...] with zeros in the rows that are nobody's."""
    if share() is None:
        return x
    return jax.tree.map(lambda leaf: jnp.where(_beside(real(leaf.shape[0]), leaf), leaf, 0), x)


def some(x: Array) -> Array:
    """Whether x [m] bool holds for some node []."""
    return total(x.astype(jnp.int32)) > 0


def every(x: Array) -> Array:
    """Whether x [m] bool holds for every node []."""
    return ~some(~x)


def lowest(x: Array, otherwise: int) -> Array:
    """The lowest id [] int32 of the nodes for which x [m] bool holds, or `otherwise`."""
    here, m = share(), x.shape[0]
    nobody = jnp.iinfo(jnp.int32).max
    found = jnp.min(jnp.where(x & real(m), ids(m), nobody))
    found = found if here is None else lax.pmin(found, here.axis)
    return jnp.where(found == nobody, jnp.int32(otherwise), found)


def with_rows(pick: Callable[..., Any], *operands: Any) -> Any:
    """A tree of flags: which arrays of what `pick(*operands, ids [b])` gives of some nodes have a row for each of them.

    Of the operands the shapes are enough.
    """
    one, two = (jax.eval_shape(pick, *operands, jax.ShapeDtypeStruct((b,), jnp.int32)) for b in (1, 2))
    return jax.tree.map(lambda a, b: a.shape != b.shape, one, two)


def on_every_device(function: F) -> F:
    """Marks a function of parameters and problem as one that takes a device's rows and uses this file for the others.

    Functions without the mark get all nodes' rows on every device: right, but of large runs too much.
    """
    function.on_every_device = True  # pyright: ignore[reportFunctionMemberAccess]
    return function


def _block(count: int) -> int:
    """How many nodes stand in a block of a sum: a power of two."""
    size = 1
    while size * _BLOCKS < count:
        size *= 2
    return size


def _ceil(number: int, size: int) -> int:
    return -(-number // size)


def _beside(flags: Array, x: Array) -> Array:
    """Flags [m] in the shape of x [m, ...]."""
    return flags.reshape(-1, *[1] * (x.ndim - 1))


def _halved(x: Array) -> Array:
    """Sums [r, ...] over the second axis of x [r, size, ...], a power of two: the second half is added to the first."""
    while x.shape[1] > 1:
        half = x.shape[1] // 2
        x = x[:, :half] + x[:, half:]
    return x[:, 0]
