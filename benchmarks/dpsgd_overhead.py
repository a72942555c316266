"""The cost of a round of D-PSGD compared with a short hand-written script, and with reading the data twice.

Run `python -m benchmarks.dpsgd_overhead [--quick] [--out DIR]`. Least squares with full gradients: each gradient reads
the features twice, for A x and for A' r, which takes all of the time on a machine that is limited by memory.
"""

import gc
import resource
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

import jdfl
from benchmarks.common import Options, Row, benchmark, interleaved, ratios, rounds_of, row
from benchmarks.machine import read_max, read_sum

RESULT = "With 128 nodes, a round takes {m=128 n=1000 q=500 -> jdfl / by hand} times as long as one of the script."
LIMIT = (
    "For m=32 half of the 64 MB of data fit in a cache of 32 MB and are read faster than from memory, so the limit is "
    "shorter, and mixing and the overhead of the loop matter more. The hand-written script, which does nothing else, "
    "takes as long as jdfl."
)
LR = 1e-2


@partial(jax.jit, static_argnames="rounds", donate_argnames="x")
def by_hand(x: Array, A: Array, b: Array, W: tuple[Array, Array, Array], rounds: int) -> Array:
    """D-PSGD and nothing else: x <- W x - lr A'(A x - b) / q, neighbours gathered slot by slot."""
    senders, weight, self_weight = W

    def one(_: int, x: Array) -> Array:
        r = jnp.einsum("mqn,mn->mq", A, x) - b
        g = jnp.einsum("mqn,mq->mn", A, r) / A.shape[1]
        mixed = self_weight[:, None] * x
        for j in range(senders.shape[1]):
            mixed = mixed + weight[:, j, None] * x[senders[:, j]]
        return mixed - LR * g

    return lax.fori_loop(0, rounds, one, x)


def resident() -> int:
    """Bytes of memory that this process uses now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def peak(m: int, n: int, q: int) -> float:
    """The peak memory of a run including its data, divided by the bytes of the data; compiled beforehand.

    It is sampled every millisecond.
    """

    def run() -> int:
        rows = jax.random.split(jax.random.key(0), m)
        features = lax.map(lambda key: jax.random.normal(key, (q, n)), rows)  # one node at a time, to save memory
        problem = jdfl.problems.linear_regression(features, features[:, :, 0])
        jdfl.run(jdfl.DPSGD(lr=LR), problem, jdfl.network.k_regular(m, 8), steps=50)
        return features.nbytes

    run()
    gc.collect()
    before, most, over = resident(), [0], threading.Event()

    def watch() -> None:
        while not over.wait(0.001):
            most[0] = max(most[0], resident())

    watcher = threading.Thread(target=watch)
    watcher.start()
    size = run()
    over.set()
    watcher.join()
    return (most[0] - before) / size


def peak_in_process(m: int, n: int, q: int) -> float:
    """`peak` in a separate process."""
    words = [sys.executable, "-m", "benchmarks.dpsgd_overhead", "--peak", *map(str, (m, n, q))]
    return float(subprocess.run(words, check=True, capture_output=True, text=True).stdout.splitlines()[-1])


@benchmark("D-PSGD on least squares, full gradients, 8-regular network", goals=False)
def main(chosen: Options) -> list[Row]:
    """All figures."""
    n, q, rounds, trials = (100, 50, 3, 1) if chosen.quick else (1000, 500, 10, 5)
    rows = []
    for m in (16,) if chosen.quick else (32, 128):
        draw = np.random.default_rng(0)
        A = draw.standard_normal((m, q, n), np.float32)
        b = draw.standard_normal((m, q), np.float32)
        problem = jdfl.problems.linear_regression(A, b)
        network = jdfl.network.k_regular(m, 8, format="padded")
        graph = network.graph
        features, targets = problem.data
        x = [jnp.zeros((m, n), jnp.float32)]

        def hand(x: list[Array] = x, data: Any = (features, targets), graph: Any = graph) -> Array:
            x[0] = by_hand(x[0], *data, (graph.senders, graph.weight, graph.self_weight), rounds)
            return x[0]

        variants = {
            "jdfl": rounds_of(jdfl.DPSGD(lr=LR), problem, network, rounds),
            "by hand": hand,
            "sum": lambda A=features: [read_sum(A) for _ in range(2 * rounds)],
            "max": lambda A=features: [read_max(A) for _ in range(2 * rounds)],
        }
        seconds = interleaved(variants, 3 if chosen.quick else 15)
        np.testing.assert_allclose(variants["jdfl"]().x, hand(), rtol=1e-3, atol=1e-5)
        per_round = {name: [s / rounds for s in found] for name, found in seconds.items()}
        limit = [min(pair) for pair in zip(per_round["sum"], per_round["max"])]
        case, size = f"m={m} n={n} q={q}", features.nbytes / 1e9
        rows += [
            row(case, "a round of jdfl", [1e3 * s for s in per_round["jdfl"]], "ms"),
            row(case, "a round of the script by hand", [1e3 * s for s in per_round["by hand"]], "ms"),
            row(case, "jdfl / by hand", ratios(per_round["jdfl"], per_round["by hand"]), "x", "<= 1.05"),
            row(case, "the features read twice", [1e3 * s for s in limit], "ms"),
            row(case, "bandwidth of reading", [2 * size / s for s in limit], "GB/s"),
            row(case, "read twice / a round of jdfl", ratios(limit, per_round["jdfl"]), "x", ">= 0.85"),
            row(case, "memory of a run / data", [peak_in_process(m, n, q) for _ in range(trials)], "x", "<= 1.3"),
        ]
    return rows


if __name__ == "__main__":
    if sys.argv[1:2] == ["--peak"]:
        print(peak(*map(int, sys.argv[2:])))
    else:
        main()
