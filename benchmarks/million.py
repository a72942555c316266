"""A million nodes on one machine: time and memory of a round, and the cost of a node as the network grows.

Run `python -m benchmarks.million [--quick] [--out DIR]`; six minutes on two cores.

20 parameters, 10 examples per node, every node receives from 8 others; CEPS selects two thirds of them and sends whole
vectors. Every measurement has its own process, whose memory peak includes everything: data, network, compilation,
rounds.
"""

import json
import resource
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

import jdfl
from benchmarks.common import Options, Row, benchmark, interleaved, row
from benchmarks.floors import floor
from benchmarks.machine import read_max, read_sum
from jdfl.base.keys import typed_key
from jdfl.engine import loop, stepping
from jdfl.engine.start import check_run

RESULT = (
    "A round of D-PSGD with a million nodes takes {D-PSGD, 1,000,000 nodes -> a round} s and {D-PSGD, 1,000,000 nodes"
    " -> peak memory} GiB."
)
LIMIT = (
    "The data of 10,000 nodes, 8 MB, stay in a cache, which is faster than memory. Compared with the bytes that a "
    "round has to move, as fast as data of that size are read, rounds of few and of many nodes differ less."
)
SIZES, QUICK = (10_000, 100_000, 1_000_000), (100, 200)
PARAMETERS, EXAMPLES, HOPS = 20, 10, (1, 2, 3, 4)
REPEATS, NODE_ROUNDS, PERIOD = 5, 1_300_000, 13  # per measurement; CEPS's periods are 10 to 15
ALGORITHMS: dict[str, Any] = {
    "D-PSGD": jdfl.DPSGD(lr=0.01),
    "CEPS-Perf": jdfl.CEPS(s=3, rate=2 / 3, sigma_rule="safe"),
    "DO-ADP": jdfl.DOADP(lr=0.01, gamma=0.3, codec=jdfl.Sparse(share=0.3)),
    "push-sum": jdfl.SGP(lr=0.01),
}


def setting(name: str, m: int) -> stepping.Setting:
    """An algorithm on least squares over a circulant network."""
    truth = jnp.zeros((PARAMETERS,)).at[:3].set(1.0)
    keys = jax.random.split(jax.random.key(0), m)
    draw = partial(jax.random.normal, shape=(EXAMPLES, PARAMETERS))
    features = lax.map(draw, keys, batch_size=1000)  # all at once would take four times their memory
    problem = jdfl.problems.linear_regression(features, jnp.dot(features, truth), truth=truth)
    given = problem, network(name, m)
    program = check_run(ALGORITHMS[name], *given, 10**6, 1, None)
    return stepping.setting(program, *given, None, typed_key(0))


def network(name: str, m: int) -> jdfl.network.Static:
    """Eight neighbours, with the weights that the algorithm needs."""
    return jdfl.network.circulant(m, HOPS, weights="out-degree" if name == "push-sum" else None)


def measured(name: str, m: int) -> dict[str, Any]:
    """Seconds of a round, several times, and this process's peak memory in GiB."""
    began = time.perf_counter()
    ready = setting(name, m)
    algorithm, carry, _ = loop.start(ready, ())
    ready = replace(ready, program=algorithm)
    rounds = PERIOD * max(1, NODE_ROUNDS // (PERIOD * m))
    every, seconds, set_up = 10**6, [], 0.0
    for part in range(REPEATS + 1):
        if part == 1:
            set_up = time.perf_counter() - began
        start = time.perf_counter()
        carry, _ = loop.advance(carry, ready, jnp.int32((part + 1) * rounds), every, 1, ())
        jax.block_until_ready(carry)
        seconds.append((time.perf_counter() - start) / rounds)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    least = floor(ALGORITHMS[name], ready.problem, network(name, m)).total / read_bandwidth(ready.problem.data[0])
    return {"seconds": seconds[1:], "peak": peak, "set up": set_up, "least": least}


def read_bandwidth(x: Array) -> float:
    """Bytes per second at which an array is read."""
    works = {"sum": lambda: read_sum(x), "max": lambda: read_max(x)}
    return x.nbytes / min(min(seconds) for seconds in interleaved(works, REPEATS).values())


def in_process(name: str, m: int) -> dict[str, Any]:
    """`measured` in a separate process."""
    command = [sys.executable, "-m", "benchmarks.million", "--measure", name, str(m)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1])


@benchmark("A million nodes")
def main(chosen: Options) -> list[Row]:
    sizes, rows = QUICK if chosen.quick else SIZES, []
    for name in ALGORITHMS:
        found = {m: in_process(name, m) for m in sizes}
        for m, one in found.items():
            goals = ("< 1", "< 6") if m == 1_000_000 else ("", "")
            case = f"{name}, {m:,} nodes"
            rows += [
                row(case, "a round", one["seconds"], "s", goals[0]),
                row(case, "a node's round", [1e9 * s / m for s in one["seconds"]], "ns"),
                row(case, "peak memory", [one["peak"]], "GiB", goals[1]),
                row(case, "until the first rounds are done", [one["set up"]], "s"),
                row(case, "of the limit of memory", [one["least"] / s for s in one["seconds"]], "x"),
            ]
        cost = {m: float(np.median(one["seconds"])) / m for m, one in found.items()}
        case = f"{name}, from {sizes[0]:,} to {sizes[-1]:,} nodes"
        goal = "" if chosen.quick else "<= 1.5"
        rows.append(
            row(case, "largest / smallest cost of a node", [max(cost.values()) / min(cost.values())], "x", goal)
        )
    return rows


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        print(json.dumps(measured(sys.argv[2], int(sys.argv[3]))))
    else:
        main()
