"""A run's setting on several devices: the network as every device needs it, and everything else by rows.

Axes: M nodes in all, D devices, m rows on each of them, d slots of the neighbour table.
"""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import Mesh

from jdfl import distributed, loop, nodes, sharding, stepping, struct
from jdfl.network.graph import Graph, Network, Static
from jdfl.network.halo import halo
from jdfl.network.wrapping import in_run
from jdfl.problems import Problem
from jdfl.sharding import Layout, Rows


@struct.dataclass
class Sliced:
    """A network that is drawn or changes, or is multiplied as a matrix: devices find all of it and keep their rows.

    A product with some rows of a matrix rounds differently from one with all of them, so that every device makes the
    whole one.
    """

    base: Network

    @property
    def m(self) -> int:
        """The number of nodes."""
        return self.base.m

    def in_run(self, key: Array, bits: int) -> "Sliced":
        """With the network as the run has it."""
        return Sliced(in_run(self.base, key, bits))

    def at(self, k: Array, key: Array) -> Graph:
        """The rows of this device."""
        graph = _tabular(self.base.at(k, key))
        here = nodes.share()
        if here is None:
            return graph
        held = nodes.per_device(here.nodes, here.devices)
        rows = jax.tree.map(lambda x: nodes.own(x, held) if x.ndim else x, graph)
        return rows if graph.format == "padded" else replace(rows, whole=replace(graph, synchronised=None))


def placed(setting: stepping.Setting, mesh: Mesh) -> tuple[stepping.Setting, Layout]:
    """The setting with its arrays on a mesh of `sharding.mesh_of`, and the layout for the loop's functions."""
    count, network = setting.problem.m, setting.network
    fixed = False
    if isinstance(network, Static) and network.graph.format in ("padded", "buckets"):
        fixed = True
        network = Static(_spread_graph(network.graph, nodes.per_device(count, mesh.size), mesh.size))
    else:
        network = Sliced(network)
    setting = replace(setting, network=network)
    flags: Any = replace(
        setting,
        algorithm=struct.per_node(setting.algorithm),
        problem=nodes.with_rows(_at, distributed.shaped(setting.problem)),
        network=jax.tree.map(lambda x: fixed and np.ndim(x) > 0, network),
        stop=jax.tree.map(lambda _: False, setting.stop),
        keys=jax.tree.map(lambda _: False, setting.keys),
        node=True,
        limit=None if setting.limit is None else True,
    )
    begin = Rows(jax.tree.structure(setting), tuple(jax.tree.leaves(flags)))
    shapes = [_started(setting, begin, size) for size in (count, count + 1)]
    algorithm, carry = (sharding.compared(one, two) for one, two in zip(*shapes))
    ready_flags = replace(flags, algorithm=algorithm.map(lambda _: True, shapes[0][0], lambda _: False))
    ready = Rows(jax.tree.structure(replace(setting, algorithm=shapes[0][0])), tuple(jax.tree.leaves(ready_flags)))
    wide = replace(sharding.widened(begin, setting, mesh, count), network=network)
    return sharding.spread(begin, wide, mesh), Layout(mesh, count, begin, ready, algorithm, carry)


def _at(problem: Problem, i: Array) -> Problem:
    return problem.nodes(i)


def _started(setting: stepping.Setting, rows: Rows, size: int) -> tuple[Any, Any]:
    """The shapes of the prepared algorithm and of the carry for `size` nodes."""

    def resized(x: Any) -> Any:
        return jax.ShapeDtypeStruct((size, *np.shape(x)[1:]), x.dtype)

    graph = jax.eval_shape(setting.network.at, jnp.int32(0), setting.keys.network)
    small = rows.map(resized, setting)
    graph = jax.tree.map(lambda x: resized(x) if x.ndim else x, replace(graph, halo=None, buckets=None))
    algorithm, carry, _ = jax.eval_shape(loop.start, replace(small, network=Static(graph)), ())
    return algorithm, carry


def _tabular(graph: Graph) -> Graph:
    """The graph without buckets, whose rows are not in the nodes' order."""
    return replace(graph, format="padded", buckets=None) if graph.format == "buckets" else replace(graph, buckets=None)


def _spread_graph(graph: Graph, m: int, devices: int) -> Graph:
    """The table [D m, d] of a fixed graph whose senders count the rows that reach a device; nobody's rows are alone."""
    graph, more = _tabular(graph), m * devices - graph.m
    node = np.arange(m * devices, dtype=np.int32)

    def longer(x: Array, value: Any = 0) -> np.ndarray:
        host = np.asarray(x)
        return np.concatenate([host, np.full((more, *host.shape[1:]), value, host.dtype)])

    senders, mask = longer(graph.senders), longer(graph.mask)
    senders[graph.m :] = node[graph.m :, None]
    found = halo(senders, mask, devices)
    return replace(
        graph,
        senders=jnp.asarray(np.minimum(senders, graph.m - 1) if found is None else found[1]),
        mask=jnp.asarray(mask),
        weight=jnp.asarray(longer(graph.weight)),
        self_weight=jnp.asarray(longer(graph.self_weight, 1)),
        out_degree=jnp.asarray(longer(graph.out_degree)),
        halo=None if found is None else found[0],
    )
