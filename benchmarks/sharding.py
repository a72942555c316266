"""What several devices exchange in a round: rows of mixing, from the compiled program, compared with what is needed.

Run `python -m benchmarks.sharding [--quick] [--out DIR]`; half a minute.

Eight devices share the nodes. "needed" is every row that a device's nodes receive from another device, once. The same
program without explicit exchanges, partitioned by XLA alone, is counted for comparison.
"""

import re
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import jdfl
from benchmarks.common import Options, Row, benchmark, row
from benchmarks.shared import remote
from jdfl.algorithms.program import Program
from jdfl.base.keys import typed_key
from jdfl.devices import layout
from jdfl.engine import loop, stepping
from jdfl.engine.placement import placed
from jdfl.network.graph import Network, mix

RESULT = (
    "On a torus, devices receive {torus, m = 1024, 8 devices -> received / needed} times the rows that they need, and"
    " {torus, m = 1024, 8 devices -> by XLA alone / needed} times without explicit exchanges."
)
DEVICES, FEATURES = 8, 64
COLLECTIVES = ("all-gather", "all-reduce", "all-to-all", "collective-permute", "reduce-scatter", "collective-broadcast")
_BYTES = {"f32": 4, "s32": 4, "u32": 4, "pred": 1, "f64": 8}
_LINE = re.compile(rf"= (\(?[^=]*?) ({'|'.join(COLLECTIVES)})(?:-start)?\(")


def compiled(setting: stepping.Setting, mesh: Mesh) -> Any:
    """The compiled program of two rounds without metrics."""
    spread, layout = placed(setting, mesh)
    algorithm, carry, _ = loop.start(spread, (), layout)
    ready = replace(spread, program=algorithm)
    return loop.advance.lower(carry, ready, jnp.int32(2), 2, 1, (), layout).compile().as_text()


def received(text: str, devices: int) -> int:
    """Total bytes that all devices receive where the compiled program exchanges rows of floats [.., n]."""
    total = 0
    for line in text.splitlines():
        found = _LINE.search(line)
        if not found:
            continue
        size = sum(
            _BYTES[kind] * int(np.prod([int(d) for d in dims.split(",") if d]))
            for kind, dims in re.findall(r"(\w+)\[([\d,]*)\]", found[1])
            if kind == "f32" and "," in dims
        )
        if found[2] == "collective-permute":
            total += size * len(re.findall(r"\{\d+,\d+\}", line.split("source_target_pairs=")[1].split("}}")[0] + "}"))
        elif found[2] == "all-gather":
            total += size * (devices - 1)
        else:
            total += 2 * size * (devices - 1)
    return total


def exchanged(network: Network, devices: int, features: int = FEATURES) -> tuple[int, int]:
    """Bytes of one mixing that devices receive, and that they need."""
    m = network.m
    problem = _problem(m, features)
    setting = stepping.setting(Program(jdfl.DPSGD()), problem, network, None, typed_key(0))
    text = compiled(setting, layout.mesh_of(devices, m))
    graph = network.at(jnp.int32(0), jax.random.key(0))
    needed = remote(np.asarray(graph.senders), np.asarray(graph.mask), devices)
    return received(text, devices), 4 * features * sum(needed)


def by_xla(network: Network, devices: int, features: int = FEATURES) -> int:
    """Bytes that devices receive where XLA alone partitions one mixing of rows that are sharded over them."""
    graph, mesh = network.at(jnp.int32(0), jax.random.key(0)), layout.mesh_of(devices, network.m)
    spec = NamedSharding(mesh, PartitionSpec(mesh.axis_names[0]))
    graph = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=spec), graph)
    x = jax.ShapeDtypeStruct((network.m, features), jnp.float32, sharding=spec)
    text: Any = jax.jit(mix, out_shardings=spec).lower(graph, x).compile().as_text()
    return received(text, devices)


def _problem(m: int, n: int) -> Any:
    draw = np.random.default_rng(0)
    return jdfl.problems.linear_regression(draw.standard_normal((m, 2, n)), draw.standard_normal((m, 2)))


@benchmark("What devices exchange in a mixing")
def main(chosen: Options) -> list[Row]:
    layout.simulate(DEVICES)
    m = 64 if chosen.quick else 1024
    networks = {
        "ring": jdfl.network.ring(m),
        "circulant (1, 2, 5)": jdfl.network.circulant(m, (1, 2, 5)),
        "torus": jdfl.network.torus(m),
        "random, degree 4": jdfl.network.k_regular(m, 4),
    }
    rows = []
    for kind, network in networks.items():
        sent, needed = exchanged(network, DEVICES)
        case = f"{kind}, m = {m}, {DEVICES} devices"
        everything = 4 * FEATURES * m * (DEVICES - 1)
        goal = "" if kind.startswith("random") else "<= 1.15"
        rows += [
            row(case, "received / needed", [sent / needed], "x", goal),
            row(case, "all rows to all / needed", [everything / needed], "x"),
            row(case, "by XLA alone / needed", [by_xla(network, DEVICES) / needed], "x"),
        ]
    return rows


if __name__ == "__main__":
    main()
