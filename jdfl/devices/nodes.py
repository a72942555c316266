"""The nodes' axis: operations over all nodes, on one device or several.

With several devices, each holds the rows of some nodes, in the order of their ids, and code that runs there sees only
these rows (`jax.shard_map`). Whatever needs more than a node's own row and what the network delivers goes through this
file: on one device these are plain functions of arrays, on several they communicate. Whole numbers, flags and ids are
the same on any number of devices; sums of floats change their order and agree within rounding. Padding rows beyond the
last node never count.

Axes: M nodes in total, m rows on this device; M = m with one device.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jax import Array, lax

_PREFIX = "nodes="
F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


class Share(NamedTuple):
    """The context of code that is traced for one of several devices."""

    axis: str  # axis of the mesh along which nodes are sharded
    nodes: int  # M
    devices: int


def axis_name(count: int) -> str:
    """The name of the mesh axis over which `count` nodes are sharded.

    It contains the number, so that JAX, which caches traces by mesh, never confuses two runs.
    """
    return f"{_PREFIX}{count}"


def share() -> Share | None:
    """The context of the code that JAX is tracing; None on one device."""
    mesh = jax.sharding.get_abstract_mesh()
    for axis, devices in zip(mesh.axis_names, mesh.axis_sizes):
        if axis in mesh.manual_axes and axis.startswith(_PREFIX):
            return Share(axis, int(axis.removeprefix(_PREFIX)), devices)
    return None


def per_device(count: int, devices: int) -> int:
    """How many rows each device holds of `count` nodes, rounded up."""
    return -(-count // devices)


def count(m: int) -> int:
    """The total number of nodes M, where this device holds m rows."""
    here = share()
    return m if here is None else here.nodes


def ids(m: int) -> Array:
    """The ids [m] int32 of the nodes whose m rows are on this device; ids from M on are padding."""
    here, own = share(), jnp.arange(m, dtype=jnp.int32)
    return own if here is None else own + m * lax.axis_index(here.axis).astype(jnp.int32)


def real(m: int) -> Array:
    """Which of the m rows on this device belong to nodes, [m] bool; the others are padding."""
    return ids(m) < count(m)


def gather(x: Array) -> Array:
    """The rows of all nodes [M, ...], gathered on every device from its rows x [m, ...]."""
    here = share()
    return x if here is None else lax.all_gather(x, here.axis, tiled=True)[: here.nodes]


def own(x: Array, m: int) -> Array:
    """The m rows [m, ...] of this device from all nodes' x [M, ...]; padding rows repeat the last node's."""
    return x if share() is None else x[jnp.minimum(ids(m), x.shape[0] - 1)]


def first(x: Array) -> Array:
    """The row [...] of node 0, on every device, of rows x [m, ...]."""
    here = share()
    return x[0] if here is None else lax.all_gather(x[:1], here.axis, tiled=True)[0]


def total(x: Array) -> Array:
    """The sum [...] of all nodes' rows x [m, ...], in the same type: exact for whole numbers that fit it."""
    return together(jnp.sum(counted(x), axis=0, dtype=x.dtype))


def mean(x: Array) -> Array:
    """The mean [...] of all nodes' rows x [m, ...] of floats."""
    return total(x) / count(x.shape[0])


def largest(x: Array) -> Array:
    """The largest entries [...] of all nodes' rows x [m, ...] of floats."""
    here = share()
    found = jnp.max(x if here is None else _real_or(x, -jnp.inf), axis=0)
    return found if here is None else lax.pmax(found, here.axis)


def together(x: Array) -> Array:
    """The sum over the devices of x [...], which every device has computed from its own rows."""
    here = share()
    return x if here is None else lax.psum(x, here.axis)


def counted(x: T) -> T:
    """A tree x of numbers [m, ...] with zeros in padding rows."""
    return x if share() is None else jax.tree.map(lambda leaf: _real_or(leaf, 0), x)


def some(x: Array) -> Array:
    """Whether x [m] bool holds for some node []."""
    return total(x.astype(jnp.int32)) > 0


def every(x: Array) -> Array:
    """Whether x [m] bool holds for every node []."""
    return ~some(~x)


def least(x: Array, otherwise: int) -> Array:
    """The smallest [] of all nodes' whole numbers x [m]; those of padding rows count as `otherwise`."""
    here = share()
    if here is None:
        return jnp.min(x)
    return lax.pmin(jnp.min(_real_or(x, otherwise)), here.axis)


def with_rows(pick: Callable[..., Any], *operands: Any) -> Any:
    """A tree of flags: which arrays of `pick(*operands, ids [b])`, for some nodes, have a row for each of them.

    Nothing is computed: the shapes of the operands suffice.
    """
    return rows_in(*(jax.eval_shape(pick, *operands, jax.ShapeDtypeStruct((b,), jnp.int32)) for b in (1, 2)))


def rows_in(one: Any, two: Any) -> Any:
    """A tree of flags: which arrays of a tree have a row for every node, from its shapes for two numbers of nodes.

    Raises ValueError for an array in which an axis other than the first changes with the number of nodes.
    """

    def flag(a: Any, b: Any) -> bool:
        if a.shape[1:] != b.shape[1:]:
            raise ValueError(
                f"Expected the nodes as the first axis of every array, got one of shape {a.shape} that becomes "
                f"{b.shape} with one node more. Put the nodes first, to run on several devices."
            )
        return a.shape != b.shape

    return jax.tree.map(flag, one, two)


def on_every_device(function: F) -> F:
    """Mark a function of parameters and problem as one that takes a device's rows and uses this file for the others.

    Unmarked functions receive all nodes' rows on every device, which is correct but too much for large runs.
    """
    function.on_every_device = True  # pyright: ignore[reportFunctionMemberAccess]
    return function


def _real_or(x: Array, value: Any) -> Array:
    """The rows x [m, ...] with `value` in padding rows."""
    return jnp.where(real(x.shape[0]).reshape(-1, *[1] * (x.ndim - 1)), x, jnp.asarray(value, x.dtype))
