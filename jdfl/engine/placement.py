"""Whether a run fits on its devices, and the placement of its arrays: networks as each device needs them, rest by rows.

What a run needs is estimated from shapes before anything is allocated:

    bytes = state + prepared constants + 3 m n (gradient, noise, mixture) + activations of the nodes at work

The data are on the device already. The compiler's own memory is not known, so a run that passes may still fail.

Axes: M nodes in all, D devices, m rows on each of them, n parameters, d slots of the neighbour table.
"""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import Mesh

from jdfl.algorithms.algorithm import Algorithm
from jdfl.algorithms.program import planned
from jdfl.base import struct
from jdfl.base.keys import typed_key
from jdfl.devices import memory, nodes
from jdfl.devices.layout import Layout, Rows
from jdfl.engine import loop, stepping
from jdfl.network.graph import Graph, Network, Static
from jdfl.network.links import Sizes, in_run
from jdfl.network.sums import halo
from jdfl.problems import Problem
from jdfl.problems.ragged import dealt

COPIES = 1000  # of [M, n], in addition to one per node, that no state is expected to exceed
_REMEDY = "Use fewer nodes, fewer parameters or a device with more memory."


@struct.dataclass
class Sliced:
    """A network that is drawn or changes: every device finds all of it and keeps its own rows."""

    base: Network

    @property
    def m(self) -> int:
        """The number of nodes."""
        return self.base.m

    def in_run(self, key: Array, bits: int | Sizes) -> "Sliced":
        """With the network as the run has it."""
        return Sliced(in_run(self.base, key, bits))

    def at(self, k: Array, key: Array) -> Graph:
        """The rows of this device."""
        graph, here = _without_buckets(self.base.at(k, key)), nodes.share()
        held = graph.m if here is None else nodes.per_device(here.nodes, here.devices)
        return jax.tree.map(lambda x: nodes.own(x, held) if x.ndim else x, graph)


def placed(setting: stepping.Setting, mesh: Mesh) -> tuple[stepping.Setting, Layout]:
    """The setting with its arrays on a mesh of `mesh_of`, and the layout for the loop's functions."""
    count, every = setting.problem.m, nodes.per_device(setting.problem.m, mesh.size) * mesh.size
    place = np.minimum(np.arange(every), count - 1).reshape(mesh.size, -1)
    problem = dealt(setting.problem, place)
    setting = replace(setting, problem=problem, network=shared(setting.network, mesh.size))
    layout = laid_out(setting, mesh)
    return layout.put(layout.begin, replace(layout.widened(layout.begin, setting), network=setting.network)), layout


def shared(network: Network, devices: int) -> Network:
    """The network as devices that share its nodes need it."""
    return _spread(network, devices) if isinstance(network, Static) else Sliced(network)


def laid_out(setting: stepping.Setting, mesh: Mesh) -> Layout:
    """The layout for the loop's functions, of a setting with a `shared` network; shapes serve as arrays."""
    network = setting.network
    flags: Any = replace(
        jax.tree.map(lambda _: False, setting),
        program=struct.per_node(setting.program),
        problem=_rows(setting.problem),
        network=jax.tree.map(lambda x: isinstance(network, Static) and np.ndim(x) > 0, network),
        node=True,
        limit=None if setting.limit is None else True,
        planned=None if setting.planned is None else True,
    )
    count, begin = setting.problem.m, Rows.of(flags)
    some, more = (_started(setting, begin, size) for size in (count, count + 1))
    program, carry = nodes.rows_in(some, more)
    ready = Rows.of(replace(flags, program=program))
    return Layout(mesh, count, begin, ready, Rows.of(program), Rows.of(carry))


def _rows(problem: Problem) -> Any:
    """Flags of the problem's arrays that have a row for every node."""
    flags = nodes.with_rows(type(problem).nodes, problem)
    if problem.own_test is not None:
        flags = replace(flags, own_test=_rows(problem.own_test))
    if problem.blocks is None:
        return flags
    return replace(flags, **jax.tree.map(lambda _: True, {"data": problem.data, "blocks": problem.blocks}))


def _started(setting: stepping.Setting, rows: Rows, size: int) -> tuple[Any, Any]:
    """The shapes of the prepared algorithm and of the carry for `size` nodes."""

    def resized(x: Any) -> Any:
        return jax.ShapeDtypeStruct((size, *np.shape(x)[1:]), x.dtype)

    graph = jax.eval_shape(setting.network.at, jnp.int32(0), setting.keys.network)
    graph = jax.tree.map(lambda x: resized(x) if x.ndim else x, replace(graph, halo=None))
    small = replace(rows.map(resized, setting), network=Static(graph))
    return jax.eval_shape(loop.start, small, ())[:2]


def _without_buckets(graph: Graph) -> Graph:
    """The graph without buckets, whose rows are not in the nodes' order."""
    return replace(graph, format="padded" if graph.format == "buckets" else graph.format, buckets=None)


def _spread(network: Static, devices: int) -> Static:
    """The table [D m, d] of a fixed network whose senders count the rows that reach a device."""
    graph = _without_buckets(network.graph)
    held = nodes.per_device(graph.m, devices) * devices
    real, place = np.arange(held) < graph.m, np.minimum(np.arange(held), graph.m - 1)
    wide: Any = jax.tree.map(lambda x: np.asarray(x)[place] if np.ndim(x) else x, graph)
    wide = replace(wide, mask=wide.mask & real[:, None])
    found = halo(wide.senders, wide.mask, devices) if graph.format == "padded" else None
    return Static(wide if found is None else replace(wide, halo=found[0], senders=found[1]))


def require_memory(algorithm: Algorithm, problem: Problem, network: Network, devices: int = 1) -> None:
    """Refuse a run whose arrays would not fit into the memory of the devices that share its nodes: ValueError.

    The message has the terms of the sum, what is available and the largest number of nodes that fits. Where the
    available memory is not known, and where it is plenty for any state, nothing is traced.
    """
    room, m = memory.available(devices), problem.m
    if room is None:
        return
    batch = getattr(getattr(algorithm, "gradients", None), "batch", None)
    if isinstance(batch, int) and batch > problem.weight.shape[1]:  # copies of `batch` examples of every node
        stored = problem.weight.size if problem.blocks is None else problem.blocks.stored
        each = batch * max(1, memory.size_of(problem.data) // stored)
        what = {f"batches of {batch} examples": m * each}
        memory.require(what, room // each, m, "Use a smaller batch, or fewer nodes.", room)
    if array_bytes(problem) * (COPIES + m) + activation_bytes(algorithm, problem, m) <= room:
        return
    needed = estimate(algorithm, problem, network)
    most = int(m * room // sum(needed.values()))  # all terms grow with the nodes
    fewer = " nodes_at_once makes the activations smaller." if getattr(problem, "nodes_at_once", 0) is None else ""
    memory.require(needed, most, m, _REMEDY + fewer, room)


def estimate(algorithm: Algorithm, problem: Problem, network: Network) -> dict[str, int]:
    """Bytes of a run by their purpose, in words, computed from shapes alone."""
    setting = stepping.setting(planned(algorithm, problem, network, 1), problem, network, None, typed_key(0))
    prepared, carry, _ = jax.eval_shape(loop.start, setting, ())
    held = held_bytes(prepared, carry.state)
    if algorithm.asynchronous:  # `waves.require_events` knows the rest, when events are drawn
        return held
    return held | {
        f"3 x {problem.m} x {problem.n} numbers for gradient, noise and mixture": 3 * array_bytes(problem),
        "activations": activation_bytes(algorithm, problem, problem.m),
    }


def held_bytes(prepared: Any, state: Any) -> dict[str, int]:
    """Bytes that stay for the whole run."""
    return {"the algorithm's state": memory.size_of(state), "its constants": memory.size_of(prepared)}


def array_bytes(problem: Problem) -> int:
    """Bytes of one array [m, n]."""
    return problem.m * problem.n * np.dtype(problem.dtype).itemsize


def activation_bytes(algorithm: Algorithm, problem: Problem, nodes: int) -> int:
    """Bytes of a gradient's forward pass of some nodes at work together; 0 where a problem does not say."""
    of_one = getattr(problem, "activation_bytes", None)
    if of_one is None:
        return 0
    gradients: Any = getattr(algorithm, "gradients", None)
    batch = None if getattr(gradients, "sampling", None) == "poisson" else getattr(gradients, "batch", None)
    at_work = min(getattr(problem, "nodes_at_once", None) or nodes, nodes)
    return of_one(batch or problem.weight.shape[1]) * at_work
