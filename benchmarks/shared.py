"""Programs of several GPUs that are not there, whose nodes they share: compiled from shapes alone.

A run of `FEW` nodes on a device is prepared as `jdfl.Options(devices=)` does it; its arrays become shapes of the wanted
size (`benchmarks.aot`). How many rows devices exchange depends on the network: the lists of two networks of its kind,
with `FEW` and `MORE` nodes on a device, give it as a linear function of the nodes. That is exact where the lists are as
long on both, and within sampling where they are a share of the nodes.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

import jdfl
from benchmarks import aot, floors
from benchmarks.aot import NEIGHBOURS, ROUNDS, Program, Size, Target
from jdfl.algorithms.program import planned
from jdfl.base.backend import target as compiling_for
from jdfl.base.keys import typed_key
from jdfl.base.streams import Keys
from jdfl.devices import nodes
from jdfl.devices.layout import Rows
from jdfl.engine import loop, placement, stepping
from jdfl.network import Static

FEW, MORE = 1009, 8191  # nodes on a device
SMALL = Size(FEW, 11, 7)


@dataclass(frozen=True)
class Kind:
    """Networks of any size in which every node has eight neighbours."""

    name: str
    make: Callable[[int, bool], Static]


def _random(m: int, directed: bool) -> Static:
    return jdfl.network.k_regular(m, NEIGHBOURS, weights="out-degree" if directed else None, format="padded")


RING, RANDOM = Kind("eight nearest on a ring", aot.network), Kind("random, eight neighbours", _random)
KINDS = (RING, RANDOM)


class Made(NamedTuple):
    """A compiled program of a device."""

    program: Program
    needed: float  # rows of other devices' nodes that a device's nodes receive, where it is most
    parts: dict[str, float]  # bytes of what is given to a device, by what it is


class Lists(NamedTuple):
    """How many rows a device sends in every hop, and how many rows of others its nodes need."""

    hops: tuple[float, ...]
    needed: float


def remote(senders: np.ndarray, mask: np.ndarray, devices: int) -> list[int]:
    """How many rows of other devices' nodes the nodes of each device receive.

    Args:
        senders ([m, d]): Ids of in-neighbours.
        mask ([m, d]): Which slots hold one.
        devices: How many devices share the nodes.
    """
    held, found = nodes.per_device(len(senders), devices), list[int]()
    for device in range(devices):
        here = slice(device * held, (device + 1) * held)
        heard: Any = np.unique(senders[here][mask[here]])
        found.append(int(np.sum(heard // held != device)))
    return found


@cache
def lists(kind: Kind, devices: int, held: int) -> Lists:
    """Those of a network of a kind, with `held` nodes on every device."""
    network = kind.make(devices * held, False)
    placed: Any = placement.shared(network, devices)
    needed = max(remote(np.asarray(network.graph.senders), np.asarray(network.graph.mask), devices))
    halo = placed.graph.halo
    return Lists(() if halo is None else tuple(len(rows) / devices for rows in halo.rows), float(needed))


def scaled(kind: Kind, devices: int, held: int) -> Lists:
    """Those of a network with any number of nodes on a device, from two small ones.

    Raises:
        ValueError: Where one of the two gathers all rows and the other does not.
    """
    few, more = lists(kind, devices, FEW), lists(kind, devices, MORE)
    if len(few.hops) != len(more.hops):
        raise ValueError(f"Expected the same exchanges in both networks, got {len(few.hops)} and {len(more.hops)}.")

    def line(one: float, two: float) -> float:
        return one + (two - one) * (held - FEW) / (MORE - FEW)

    hops = tuple(round(line(one, two)) for one, two in zip(few.hops, more.hops))
    return Lists(hops, line(few.needed, more.needed))


def compiled(target: Target, algorithm: jdfl.Algorithm, size: Size, kind: Kind, devices: int) -> Made:
    """The program of a method's rounds on one of several devices.

    Args:
        target: The device.
        algorithm: The settings of the method.
        size: Nodes, rounded up to as many on every device; parameters and examples.
        kind: The network.
        devices: How many devices share the nodes.
    """
    held, few = nodes.per_device(size.m, devices), devices * FEW
    numbers = {few: devices * held, SMALL.n: size.n, SMALL.q: size.q}
    exchanged = scaled(kind, devices, held)
    problem, network = aot.regression(SMALL._replace(m=few)), kind.make(few, algorithm.columns)
    with compiling_for(target.backend):
        program = planned(algorithm, problem, network, ROUNDS)
        setting = stepping.setting(program, problem, network, None, Keys.of(typed_key(0)))
        setting = replace(setting, network=placement.shared(network, devices))
        setting = _with_lists(_sized(setting, numbers), exchanged, devices)
        mesh = Mesh(
            np.array(target.topology(devices).devices), (nodes.axis_name(devices * held),), axis_types=(AxisType.Auto,)
        )
        layout = placement.laid_out(setting, mesh)

        def put(rows: Rows, tree: Any) -> Any:
            each, alike = (NamedSharding(mesh, spec) for spec in (PartitionSpec(*mesh.axis_names), PartitionSpec()))
            return rows.map(lambda x: _shape(x, x.shape, each), tree, lambda x: _shape(x, x.shape, alike))

        setting = put(layout.begin, setting)
        prepared, carry, _ = jax.eval_shape(loop.start, setting, (), layout)
        ready, carry = replace(setting, program=put(layout.program, prepared)), put(layout.carry, carry)
        end = jax.ShapeDtypeStruct((), jnp.int32, sharding=NamedSharding(mesh, PartitionSpec()))
        traced = loop.advance.trace(carry, ready, end, ROUNDS, 1, (), layout)
        turn = loop.rounds_per_turn(carry.state)
        made = traced.lower(lowering_platforms=(target.platform,)).compile()
    own, state = (_of_one(*one, devices) for one in ((layout.ready, ready), (layout.carry, carry)))
    each = aot.per_node(algorithm, size.q)
    program = aot.described(made, state.state, own.problem, algorithm, each, turn)
    parts = {"state": state.state, "data": own.problem, "tables of the network": own.network}
    sizes = {name: floors.bytes_of(part) for name, part in parts.items()}
    return Made(program, exchanged.needed, sizes | {"other arrays": program.arguments - sum(sizes.values())})


def _with_lists(setting: stepping.Setting, found: Lists, devices: int) -> stepping.Setting:
    """The setting with lists of other lengths."""
    network: Any = setting.network
    if (graph := network.graph).halo is None:
        return setting
    rows = tuple(jax.ShapeDtypeStruct((devices * int(k),), jnp.int32) for k in found.hops)
    return replace(setting, network=Static(replace(graph, halo=replace(graph.halo, rows=rows))))


def _sized(tree: Any, numbers: dict[int, int]) -> Any:
    """The tree as shapes, with other numbers in place of some."""
    return jax.tree.map(lambda x: _shape(x, tuple(numbers.get(dim, dim) for dim in jnp.shape(x))), tree)


def _of_one(rows: Rows, tree: Any, devices: int) -> Any:
    """The shapes of one device's part."""
    return rows.map(lambda x: _shape(x, (x.shape[0] // devices, *x.shape[1:])), tree)


def _shape(x: Any, dims: tuple[int, ...], place: Any = None) -> Any:
    return jax.ShapeDtypeStruct(dims, x.dtype if hasattr(x, "dtype") else jnp.asarray(x).dtype, sharding=place)
