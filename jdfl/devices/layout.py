"""Placement of a run's arrays on several devices, and functions of one device's rows.

Axes: M nodes in total, D devices, m rows on each of them; m D >= M, and the rows beyond M repeat the last node's.
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

from jdfl.base import checks
from jdfl.devices import nodes, processes

Devices = int | Mesh | Sequence[jax.Device]


@dataclass(frozen=True)
class Rows:
    """Which leaves of a tree have the nodes as their first axis."""

    structure: Any
    flags: tuple[bool, ...]

    @classmethod
    def of(cls, flags: Any) -> "Rows":
        """The rows described by a tree of flags."""
        return cls(jax.tree.structure(flags), tuple(jax.tree.leaves(flags)))

    def map(self, function: Callable[[Any], Any], tree: Any, otherwise: Callable[[Any], Any] = lambda x: x) -> Any:
        """The tree with `function` applied to leaves that have rows, and `otherwise` to the others."""
        leaves = self.structure.flatten_up_to(tree)
        return self.structure.unflatten([(function if f else otherwise)(x) for x, f in zip(leaves, self.flags)])


@dataclass(frozen=True)
class Layout:
    """Placement of a run's nodes, and which arrays of its functions have a row for each."""

    mesh: Mesh
    count: int  # M
    begin: Rows  # of the arguments of `loop.start`
    ready: Rows  # of the arguments of `loop.advance`
    program: Rows  # of the prepared program
    carry: Rows

    def spread(self, rows: Rows, tree: Any) -> Any:
        """The tree on the devices, from rows [M, ...] of all nodes."""
        return self.put(rows, self.widened(rows, tree))

    def widened(self, rows: Rows, tree: Any) -> Any:
        """The tree with rows [D m, ...], from rows [M, ...]."""
        held = nodes.per_device(self.count, self.mesh.size) * self.mesh.size
        place = np.minimum(np.arange(held), self.count - 1)
        if held == self.count:
            return tree

        def wide(x: Any) -> Any:  # a portion is placed as it is, and rows of another number have been dealt out
            return x if isinstance(x, processes.Portion) or len(x) != self.count else jnp.asarray(x)[place]

        return rows.map(wide, tree)

    def put(self, rows: Rows, tree: Any) -> Any:
        """The tree's arrays on the devices: each device has its own of the rows [D m, ...], and everything else."""
        each, alike = (NamedSharding(self.mesh, spec) for spec in self._specs)
        return rows.map(lambda x: processes.spread(x, each), tree, lambda x: processes.spread(x, alike))

    def gather(self, rows: Rows, tree: Any) -> Any:
        """The tree on the host, with the rows [M, ...] of all nodes."""
        return rows.map(self.nodes, tree, processes.on_host)

    def nodes(self, x: Array) -> Any:
        """The rows [M, ...] of all nodes on the host."""
        return processes.on_host(x)[: self.count]

    def each_device(
        self, function: Callable[..., Any], arguments: tuple[Rows | None, ...], results: tuple[Rows | None, ...]
    ) -> Callable[..., Any]:
        """`function` of every device's rows; arguments without `Rows` are the same on every device."""
        own, alike = self._specs

        def specs(parts: tuple[Rows | None, ...]) -> tuple[Any, ...]:
            return tuple(
                alike if rows is None else rows.structure.unflatten([own if flag else alike for flag in rows.flags])
                for rows in parts
            )

        takes, gives = specs(arguments), specs(results)
        return jax.shard_map(function, mesh=self.mesh, in_specs=takes, out_specs=gives, check_vma=False)

    @property
    def _specs(self) -> tuple[PartitionSpec, PartitionSpec]:
        """The partition of arrays with rows, and of the others, which are replicated."""
        return PartitionSpec(*self.mesh.axis_names), PartitionSpec()


def simulate(devices: int) -> None:
    """Let the CPU act as several devices, unless JAX is already initialised; ValueError for fewer than one."""
    checks.integer(1, devices=devices)
    with contextlib.suppress(RuntimeError):  # `mesh_of` reports the devices that exist
        jax.config.update("jax_num_cpu_devices", int(devices))


def mesh_of(devices: Devices, count: int) -> Mesh:  # pyright: ignore[reportUnknownParameterType] (jaxlib has no types)
    """A mesh with one axis for the nodes."""
    if isinstance(devices, Mesh):
        chosen = list(devices.devices.flat)
    elif isinstance(devices, Sequence) and all(checks.is_a(one, jax.Device) for one in devices):
        chosen = list(devices)
    else:
        here = jax.devices()
        remedy = (
            f"This machine's backend is {here[0].platform!r}. On a CPU, devices are simulated: set "
            f"JAX_NUM_CPU_DEVICES={checks.text(devices)} in the environment."
        )
        checks.integer(1, len(here), remedy, devices=devices)
        chosen = here[: int(cast(Any, devices))]
    if not chosen:
        raise ValueError("Expected at least one device, got none. Leave devices=None for the default device.")
    return Mesh(np.array(chosen), (nodes.axis_name(count),), axis_types=(AxisType.Auto,))
