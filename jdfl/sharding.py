"""Nodes on several devices: which arrays have a row for every node, where the rows lie, and functions of one device's.

Axes: M nodes in all, D devices, m rows on each of them; m D >= M, and the rows beyond M are the last node's again.
"""

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from jdfl import checks, distributed, nodes

Devices = int | Mesh | Sequence[jax.Device]


@dataclass(frozen=True)
class Rows:
    """Which leaves of a tree have the nodes as their first axis."""

    structure: Any
    flags: tuple[bool, ...]

    def specs(self, axis: str) -> Any:
        """The tree's partition over a mesh's axis."""
        return self.structure.unflatten([PartitionSpec(axis) if flag else PartitionSpec() for flag in self.flags])

    def map(self, function: Callable[[Any], Any], tree: Any, otherwise: Callable[[Any], Any] = lambda x: x) -> Any:
        """The tree with `function` of the leaves that have rows, and `otherwise` of the others."""
        leaves = self.structure.flatten_up_to(tree)
        return self.structure.unflatten([(function if f else otherwise)(x) for x, f in zip(leaves, self.flags)])


@dataclass(frozen=True)
class Layout:
    """Where a run's nodes lie, and which arrays of its functions have a row for each."""

    mesh: Mesh
    count: int  # M
    begin: Rows  # the setting of `loop.start`
    ready: Rows  # that of `loop.advance`
    algorithm: Rows  # the prepared one
    carry: Rows

    @property
    def axis(self) -> str:
        """The name of the mesh's axis."""
        return self.mesh.axis_names[0]

    def spread(self, rows: Rows, tree: Any) -> Any:
        """The tree on the devices, from rows [M, ...] of all nodes."""
        return spread(rows, widened(rows, tree, self.mesh, self.count), self.mesh)

    def whole(self, rows: Rows, tree: Any) -> Any:
        """The tree on the host, with the rows [M, ...] of all nodes."""
        return rows.map(self.nodes, tree, distributed.on_host)

    def nodes(self, x: Array) -> Any:
        """The rows [M, ...] of all nodes on the host."""
        return distributed.on_host(x)[: self.count]

    def each_device(
        self, function: Callable[..., Any], arguments: tuple[Rows | None, ...], results: tuple[Rows | None, ...]
    ) -> Callable[..., Any]:
        """`function` of every device's rows; what has no `Rows` is the same on every device."""

        def specs(parts: tuple[Rows | None, ...]) -> tuple[Any, ...]:
            return tuple(PartitionSpec() if rows is None else rows.specs(self.axis) for rows in parts)

        takes, gives = specs(arguments), specs(results)
        return jax.shard_map(function, mesh=self.mesh, in_specs=takes, out_specs=gives, check_vma=False)


def simulate(devices: int) -> None:
    """Let the CPU stand for so many devices, if JAX has not begun to use it; raises ValueError for less than one."""
    checks.whole(1, devices=devices)
    with contextlib.suppress(RuntimeError):  # `mesh_of` says what there is
        jax.config.update("jax_num_cpu_devices", int(devices))


def mesh_of(devices: Devices, count: int) -> Mesh:
    """A mesh of one axis over which `count` nodes lie: the first so many devices, those given, or those of a mesh.

    Raises ValueError for more devices than there are, and for none.
    """
    if isinstance(devices, Mesh):
        chosen = list(devices.devices.flat)
    elif isinstance(devices, Sequence) and all(checks.is_a(one, jax.Device) for one in devices):
        chosen = list(devices)
    else:
        here = jax.devices()
        remedy = (
            f"This machine's backend is {here[0].platform!r}. On a CPU, devices are simulated: set "
            f"JAX_NUM_CPU_DEVICES={checks.shown(devices)} in the environment."
        )
        checks.whole(1, len(here), remedy, mesh=devices)
        chosen = here[: int(cast(Any, devices))]
    if not chosen:
        raise ValueError("Expected at least one device, got none. Leave mesh=None for the default device.")
    return Mesh(np.array(chosen), (nodes.axis_name(count),), axis_types=(AxisType.Auto,))


def compared(one: Any, two: Any) -> Rows:
    """Which leaves have rows, from the shapes of a tree for some number of nodes and for another."""
    structure = jax.tree.structure(one)
    pairs = list(zip(jax.tree.leaves(one), jax.tree.leaves(two)))
    for a, b in pairs:
        if a.shape[1:] != b.shape[1:]:
            raise ValueError(
                f"Expected the nodes as the first axis of every array, got one of shape {a.shape} that becomes "
                f"{b.shape} with one node more. Put the nodes first, to run on several devices."
            )
    return Rows(structure, tuple(a.shape != b.shape for a, b in pairs))


def widened(rows: Rows, tree: Any, mesh: Mesh, count: int) -> Any:
    """The tree with rows [D m, ...], from rows [M, ...] of `count` nodes."""
    held = nodes.per_device(count, mesh.size) * mesh.size
    if held == count:
        return tree
    place = np.minimum(np.arange(held), count - 1)
    return rows.map(lambda x: x if isinstance(x, distributed.Portion) else jnp.asarray(x)[place], tree)


def spread(rows: Rows, tree: Any, mesh: Mesh) -> Any:
    """The tree's arrays on a mesh's devices, rows [D m, ...] each on its own and the others on all."""

    def put(spec: PartitionSpec) -> Callable[[Any], Array]:
        return lambda x: distributed.spread(x, NamedSharding(mesh, spec))

    return rows.map(put(PartitionSpec(mesh.axis_names[0])), tree, put(PartitionSpec()))
