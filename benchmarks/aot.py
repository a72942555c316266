"""Programs for a GPU or TPU that is not there: compiled on any machine, from shapes alone.

A run of `SMALL` nodes, parameters and examples, whose numbers no other axis has, is prepared; its arrays become shapes,
in which the wanted numbers take the places of the small ones. Nothing of the wanted size is allocated. JAX needs the
compiler of the target: `pip install 'jdfl[cuda]'` for an H100, `'jdfl[tpu]'` for a TPU v5e.
"""

import math
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import topologies
from jax.sharding import SingleDeviceSharding

import jdfl
from benchmarks import floors
from jdfl import problems
from jdfl.algorithms.program import planned
from jdfl.base.backend import target as compiling_for
from jdfl.base.keys import typed_key
from jdfl.base.streams import Keys
from jdfl.engine import loop, stepping
from jdfl.engine.loop import put_in_rows
from jdfl.engine.start import form_of

NEIGHBOURS = 8


class Size(NamedTuple):
    """Nodes m, parameters n, examples q of a node."""

    m: int
    n: int
    q: int


SMALL, SOME = Size(13, 11, 7), Size(67, 11, 7)  # for shapes, and for the counts of rounds
ROUNDS = 10**6  # that a run is planned for


@dataclass(frozen=True)
class Target:
    """A device: what it is called, and the constants of the model of its time.

    Bandwidth and operations are those of its data sheet; the time to start a kernel and to wait for the host are those
    that were measured on an H200 (benchmarks/results/device.json).
    """

    name: str
    platform: str  # as the compiler calls it
    backend: str  # as JAX calls it
    package: str
    bandwidth: float  # bytes per second
    memory: float  # bytes
    cache: float  # bytes of an array that stays in it
    ints: float  # operations per second
    floats: float
    launch: float = 3e-6  # seconds that a kernel takes at least
    link: float = math.inf  # bytes per second that come from other devices
    sync: float = 10e-6  # seconds until the host has read a number

    def topology(self, devices: int = 1) -> Any:
        """Its description for the compiler.

        Args:
            devices: How many GPUs one machine has; a TPU has four.

        Raises:
            RuntimeError: Where the compiler is not installed.
        """
        try:
            if self.platform == "cuda":
                described = topologies.get_topology_desc(
                    platform="cuda", target_config=_H100, topology=f"1x1x{devices}", num_devices=devices
                )
            else:
                described = topologies.get_topology_desc(platform="tpu", topology_name="v5e:2x2")
        except Exception as error:
            raise RuntimeError(
                f"Expected the compiler for {self.name}, got none ({type(error).__name__}: {str(error)[:200]}). "
                f"Install it: pip install 'jdfl[{self.package}]'"
            ) from error
        return described


_H100 = """gpu_device_info {
  threads_per_block_limit: 1024 threads_per_warp: 32 threads_per_core_limit: 2048 core_count: 132 fpus_per_core: 128
  shared_memory_per_block: 49152 shared_memory_per_block_optin: 232448 shared_memory_per_core: 233472
  block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535
  registers_per_core_limit: 65536 registers_per_block_limit: 65536
  memory_bandwidth: 3352320000000 l2_cache_size: 52428800 clock_rate_ghz: 1.98 device_memory_size: 84978434048
  cuda_compute_capability { major: 9 }
}
platform_name: "CUDA"
dnn_version_info { major: 9 minor: 8 }
device_description_str: "NVIDIA H100 80GB HBM3"
"""
H100 = Target("H100", "cuda", "gpu", "cuda", 3.35e12, 80e9, 40e6, 14.8e12, 29.6e12, link=450e9)
V5E = Target("TPU v5e", "tpu", "tpu", "tpu", 819e9, 16e9, 100e6, 2e12, 4e12, launch=1e-6, sync=0.0)
TARGETS = {"h100": H100, "v5e": V5E}


def environment() -> None:
    """What JAX has to know before it is used: no device is to be found or tried."""
    flags = os.environ.get("XLA_FLAGS", "")
    jax.config.update("jax_platforms", "cpu")
    os.environ |= {
        "JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1",
        "TPU_SKIP_MDS_QUERY": "1",
        "XLA_FLAGS": f"{flags} --xla_gpu_autotune_level=0".strip(),
    }


@dataclass(frozen=True)
class Program:
    """A compiled program of rounds, and what is known about it without running it."""

    text: str
    arguments: float  # bytes
    temporary: float
    results: float  # that are no arguments
    needed: floors.Floor
    per_node: floors.Counts
    state: float  # bytes
    m: int
    rounds: int  # of one turn of the loop over rounds

    @property
    def peak(self) -> float:
        """The bytes that it needs."""
        return self.arguments + self.temporary + self.results


def network(m: int, directed: bool = False) -> jdfl.network.Static:
    """Eight neighbours; the table's rows are those of any network in which every node has eight."""
    offsets = range(1, NEIGHBOURS // 2 + 1)
    return jdfl.network.circulant(m, offsets, weights="out-degree" if directed else None, format="padded")


def regression(size: Size) -> Any:
    """Least squares on normal features; the curvature is an upper estimate, not computed."""
    shape = (size.m, size.q, size.n)
    features = jax.random.normal(jax.random.key(0), shape)
    truth = jnp.zeros((size.n,)).at[: max(1, size.n // 100)].set(1.0)
    curvature = jnp.full((size.m,), (1 + (size.n / size.q) ** 0.5) ** 2)
    return problems.LinearRegression((features, features @ truth), jnp.ones(shape[:2]), curvature, truth)


def compiled(target: Target, algorithm: jdfl.Algorithm, size: Size, kernels: bool = False) -> Program:
    """The program of a method's rounds on least squares and a network in which every node has eight neighbours.

    Args:
        target: The device.
        algorithm: The settings of the method.
        size: Nodes, parameters and examples.
        kernels: Whether the run asks for kernels of jdfl's own.
    """
    given = regression(SMALL), network(SMALL.m, algorithm.columns), per_node(algorithm, size.q)
    return scaled(target, algorithm, *given, dict(zip(SMALL, size, strict=True)), kernels=kernels)


def scaled(
    target: Target,
    algorithm: jdfl.Algorithm,
    problem: Any,
    graph: jdfl.network.Network,
    each: floors.Counts,
    numbers: dict[int, int],
    rounds: int = ROUNDS,
    kernels: bool = False,
) -> Program:
    """The program of a method's rounds on a problem of another size.

    Args:
        target: The device.
        algorithm: The settings of the method.
        problem: A small problem.
        graph: A network of its nodes.
        each: What a node does in a round.
        numbers: Sizes of axes, by those of the small problem and its network, which no other axis has.
        rounds: How many rounds the run is planned for.
        kernels: Whether the run asks for kernels of jdfl's own.

    Raises:
        TooLargeError: For what does not fit into the target's memory, before it is compiled.
    """
    with compiling_for(target.backend):
        program = planned(algorithm, problem, graph, rounds)
        form = form_of(kernels)
        setting = stepping.setting(program, problem, graph, None, Keys.of(typed_key(0)), kernels=form)
        place = SingleDeviceSharding(target.topology().devices[0])
        whole = _shapes(numbers, place)(setting)
        whole = replace(whole, problem=put_in_rows(whole.problem))
        prepared, carry, _ = jax.eval_shape(loop.start, whole, ())
        same = _shapes({}, place)
        ready, carry = replace(whole, program=same(prepared)), same(carry)
        _check_room(target, ready.problem.m, floors.bytes_of((ready, carry)) + floors.bytes_of(carry.state))
        end = jax.ShapeDtypeStruct((), jnp.int32, sharding=place)
        traced = loop.advance.trace(carry, ready, end, rounds, 1, ())
        turn = loop.rounds_per_turn(carry.state)
        made = traced.lower(lowering_platforms=(target.platform,)).compile()
    return described(made, carry.state, ready.problem, algorithm, each, turn)


class TooLargeError(ValueError):
    """A size for which a target has no memory."""


def _check_room(target: Target, m: int, needed: float) -> None:
    """Refuse what does not fit: what is given, and the state once more."""
    if needed > target.memory:
        raise TooLargeError(
            f"Expected m <= {int(m * target.memory / needed):,} nodes, for which {target.name} has memory, got m = "
            f"{m:,}: data, network and state, and the state once more, take {needed / 1e9:.3g} of "
            f"{target.memory / 1e9:.3g} GB."
        )


def described(
    made: Any, state: Any, problem: Any, algorithm: jdfl.Algorithm, each: floors.Counts, turn: int
) -> Program:
    """What is known of a compiled program of rounds.

    Args:
        made: The program.
        state: The state of a run, or its shapes.
        problem: The problem, or its shapes.
        algorithm: The settings of the method.
        each: What a node does in a round.
        turn: Rounds of one turn of the loop over rounds.
    """
    memory, size = made.memory_analysis(), floors.bytes_of(state)
    needed = floors.of(each, algorithm, problem, size)
    return Program(
        text=made.as_text(),
        arguments=float(memory.argument_size_in_bytes),
        temporary=float(memory.temp_size_in_bytes),
        results=float(memory.output_size_in_bytes - memory.alias_size_in_bytes),
        needed=needed,
        per_node=each,
        state=size,
        m=problem.m,
        rounds=turn,
    )


def per_node(algorithm: jdfl.Algorithm, q: int) -> floors.Counts:
    """What a node with q examples and eight neighbours does in a round."""
    found = floors.counts(algorithm, regression(SOME), network(SOME.m, algorithm.columns))
    return replace(found, examples=found.examples * q / SOME.q) if floors.whole(algorithm) else found


def _shapes(numbers: dict[int, int], place: Any) -> Callable[[Any], Any]:
    """A function that turns arrays into shapes on a device, with other numbers in place of some."""

    def shape(x: Any) -> Any:
        dims = tuple(numbers.get(dim, dim) for dim in jnp.shape(x))
        return jax.ShapeDtypeStruct(dims, jnp.asarray(x).dtype if not hasattr(x, "dtype") else x.dtype, sharding=place)

    return lambda tree: jax.tree.map(shape, tree)
