"""One-bit messages: time to encode and decode one with every kind of Phi, compared with a NumPy loop on one thread.

Run `python -m benchmarks.decoding [--quick] [--out DIR]`; two minutes on two cores.
"""

import os
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from threadpoolctl import threadpool_limits

import jdfl
from benchmarks.common import Options, Row, benchmark, interleaved, ratios, row
from jdfl.base import struct
from jdfl.codecs import Wire, transmit
from jdfl.devices import layout
from tests.reference.ceps import one_bit

RESULT = (
    "For 1,024 messages with a shared Phi the loop takes "
    "{1024 messages, n=1000 d=500 s=10 -> numpy, one thread / shared Phi} times as long as jdfl on one device, and "
    "{1024 messages, n=1000 d=500 s=10 -> numpy, one thread / shared Phi, 2 devices} times as long as on two."
)
S = 10
KINDS: dict[str, dict[str, Any]] = {
    "Phi per sender": {},
    "shared Phi": {"shared": True},
    "signs from a seed": {"ensemble": "rademacher"},
    "double Hadamard": {"ensemble": "hadamard"},
    "sparse Phi": {"ensemble": "sparse"},
}
LIMIT = (
    "A message takes 11.7 iterations. On one device an iteration of the shared Phi takes 20 to 23 us, including 8.6 "
    "for the product with Phi', at 116 GFLOP/s; the choice of the support, the matrices of the Newton steps and "
    "Cholesky run on one core, however many there are. Blocks of 4 to 128 messages, six forms of those matrices, three "
    "of Phi_T x and two of the choice were tried; the best of all together gives 1.1 to 1.2 times the speed. With a "
    "device per core both cores do all of it."
)


def sparse_rows(m: int, n: int) -> np.ndarray:
    """Rows [m, n] with S nonzeros of 0.5 to 2, like the true parameters of Example 1."""
    draw, rows = np.random.default_rng(0), np.zeros((m, n), np.float32)
    for one in rows:
        one[draw.choice(n, S, replace=False)] = draw.uniform(0.5, 2, S) * draw.choice([-1, 1], S)
    return rows


def spread(mesh: Mesh, wire: Wire, *rows: Array) -> Callable[[], Array]:
    """`transmit` with the nodes sharded over the devices of a mesh; `rows` are all but the wire, [m, ...]."""
    one, each = PartitionSpec(), PartitionSpec(*mesh.axis_names)
    specs = jax.tree.map(lambda own: each if own else one, struct.per_node(wire)), *(each for _ in rows)
    places = jax.tree.map(lambda spec: NamedSharding(mesh, spec), specs)
    send = jax.shard_map(transmit, mesh=mesh, in_specs=specs, out_specs=each, check_vma=False)
    return partial(jax.jit(send), *jax.device_put((wire, *rows), places))


def compared(m: int, n: int, d: int, repeats: int, loop: int) -> list[Row]:
    """Time per message of m, and of the NumPy loop, which processes `loop` of them."""
    rows, node = sparse_rows(m, n), jnp.arange(m, dtype=jnp.int32)
    x, keys = jnp.asarray(rows), jax.random.split(jax.random.key(0), len(node))
    everyone, send, found = jnp.ones((m,), jnp.bool_), jax.jit(transmit), {}
    mesh = layout.mesh_of(jax.device_count(), m)
    for kind, choice in KINDS.items():
        codec = jdfl.OneBit(d=d, inverse="paper", **choice)
        prepared = jax.jit(codec.prepare, static_argnums=(2, 3, 4))(jax.random.key(1), node, n, S, jnp.float32)
        found[kind] = partial(send, prepared, keys, x, everyone)
        found[f"{kind}, {mesh.size} devices"] = spread(mesh, prepared, keys, x, everyone)
    phi = np.random.default_rng(1).standard_normal((d, n)).astype(np.float32)

    def by_numpy() -> None:
        with threadpool_limits(1):
            for one in rows[:loop]:
                one_bit(one, phi, S, cap=12)

    seconds = interleaved(found | {"numpy": by_numpy}, repeats)
    seconds["numpy"] = [time * m / loop for time in seconds["numpy"]]
    case, lines = f"{m} messages, n={n} d={d} s={S}", []
    for kind, times in seconds.items():
        lines.append(row(case, f"{kind}, a message", [1e3 * time / m for time in times], "ms"))
    for kind, work in found.items():
        error = np.linalg.norm(np.asarray(work()) - rows, axis=1) / np.linalg.norm(rows, axis=1)
        goal = ">= 20" if kind.startswith("shared Phi") else ""
        lines.append(row(case, f"numpy, one thread / {kind}", ratios(seconds["numpy"], seconds[kind]), "x", goal))
        lines.append(Row(case, f"{kind}, relative error", float(error.mean()), ""))
    return lines


@benchmark("One-bit messages", goals=False)
def main(chosen: Options) -> list[Row]:
    layout.simulate(os.cpu_count() or 1)
    if chosen.quick:
        rows = compared(8, 100, 50, 2, 4)
    else:
        rows = [*compared(128, 1000, 500, 5, 32), *compared(1024, 1000, 500, 3, 32)]
    return rows


if __name__ == "__main__":
    main()
