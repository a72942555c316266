"""DO-ADP at d = 2,000: rounds compared with `lax.top_k`, the rounds of its experiments, and their memory.

Run `python -m benchmarks.doadp [--quick] [--out DIR]`; two minutes on two cores.

20 nodes, messages of 600 entries, single samples from 500 per node, Gaussian noise. The variants differ in how the 600
largest entries are found. Memory is the peak of a separate process, for few rounds and for ten times as many.
"""

import resource
import subprocess
import sys
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

import jdfl
from benchmarks.common import Options, Row, benchmark, interleaved, ratios, row
from benchmarks.projection import by_top_k
from jdfl.algorithms.program import planned
from jdfl.base import struct
from jdfl.base.keys import typed_key
from jdfl.codecs import Wire
from jdfl.engine import loop, stepping

RESULT = (
    "A round of 20 nodes with 2,000 parameters takes {[20, 2000], k = 600 -> jdfl, a round} us; with `lax.top_k` it "
    "takes {[20, 2000], k = 600 -> top_k / jdfl} times as long."
)
NODES, RECORDS, FEATURES, SHARE = 20, 500, 2000, 0.3
PAPER_ROUNDS = 120_000
ROUNDS = 300  # of a measurement


@struct.dataclass
class TopK(jdfl.Sparse):
    """Messages of the largest entries, found by `lax.top_k`."""

    def arrived(self, key: Array, x: Array, wire: Wire) -> Array:
        """The decoded vectors x [b, n]."""
        return by_top_k(x, self.size(x.shape[1]))


def setting(records: int) -> tuple[jdfl.DOADP, Any, Any]:
    """Algorithm, problem and network of the paper, on random rows of norm 1."""
    draw = np.random.default_rng(0)
    features = draw.standard_normal((NODES, records, FEATURES), dtype=np.float32)
    features /= np.linalg.norm(features, axis=2, keepdims=True)
    parts = list(zip(features, draw.integers(0, 2, (NODES, records))))
    gradients = jdfl.Gradients(batch=1, clip=1.0, mechanism=jdfl.Gaussian(10.0))
    algorithm = jdfl.DOADP(codec=jdfl.Sparse(share=SHARE), gradients=gradients)
    problem = jdfl.problems.logistic_regression(parts, penalty=1 / records)
    return algorithm, problem, jdfl.network.circulant(NODES, (1, 2, 3), weights="laplacian")


def rounds(algorithm: Any, problem: Any, network: Any, count: int) -> Any:
    """A function that runs `count` rounds and returns the last state."""
    begin = stepping.setting(planned(algorithm, problem, network, count), problem, network, None, typed_key(0))
    prepared, carry, _ = loop.start(begin, ())
    ready = replace(begin, program=prepared)
    held = [carry]

    def work() -> Any:
        again = replace(held[0], rounds=jnp.int32(0))
        held[0], _ = loop.advance(again, ready, jnp.int32(count), count, 1, ())
        return jax.tree.leaves(held[0].state)

    return work


def compared(records: int, count: int, repeats: int) -> list[Row]:
    """Time of a round for every way of finding the largest entries."""
    algorithm, problem, network = setting(records)
    ways = {
        "jdfl": algorithm,
        "top_k": replace(algorithm, codec=TopK(share=SHARE)),
        "k = d": replace(algorithm, codec=jdfl.Dense()),
    }
    work = {name: rounds(way, problem, network, count) for name, way in ways.items()}
    seconds = interleaved(work, repeats)
    case = f"[{NODES}, {FEATURES}], k = {round(SHARE * FEATURES)}"
    lines = [
        row(case, f"{name}, a round", [1e6 * time / count for time in times], "us") for name, times in seconds.items()
    ]
    lines.append(row(case, "top_k / jdfl", ratios(seconds["top_k"], seconds["jdfl"]), "x", ">= 5"))
    return [*lines, row(case, "jdfl / k = d", ratios(seconds["jdfl"], seconds["k = d"]), "x")]


def long_run(records: int, steps: int, goal: str) -> list[Row]:
    """A whole run with 24 records of its metrics."""
    algorithm, problem, network = setting(records)
    every = steps // 24
    result = jdfl.run(
        algorithm,
        problem,
        network,
        key=0,
        steps=steps,
        every=every,
        metrics=["consensus_error"],
        options=jdfl.Options(chunk=every),
    )
    case = f"{steps:,} rounds"
    return [
        row(case, "run", [result.seconds], "s", goal),
        row(case, "compilation", [result.compile_seconds], "s"),
    ]


def peak(records: int, steps: int) -> float:
    """The peak memory of a process that runs `steps` rounds, in MB."""
    command = [sys.executable, "-m", "benchmarks.doadp", "--rounds", str(steps), str(records)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def memory(records: int, steps: int) -> list[Row]:
    """Peak memory for two numbers of rounds."""
    few, many = peak(records, steps), peak(records, 10 * steps)
    case = f"{steps:,} and {10 * steps:,} rounds"
    return [row(case, "peak memory", [few], "MB"), row(case, "of more / of fewer", [many / few], "x", "<= 1.02")]


@benchmark("DO-ADP", goals=False)
def main(chosen: Options) -> list[Row]:
    records, count, repeats = (20, 20, 2) if chosen.quick else (RECORDS, ROUNDS, 9)
    rows = compared(records, count, repeats)
    rows += long_run(records, 240 if chosen.quick else PAPER_ROUNDS, "< 180")
    rows += memory(records, 100 if chosen.quick else 2000)
    return rows


if __name__ == "__main__":
    if sys.argv[1:2] == ["--rounds"]:
        long_run(int(sys.argv[3]), int(sys.argv[2]), "")
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    else:
        main()
