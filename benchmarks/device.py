"""A GPU or TPU: its memory, noise and selections, rounds of ten methods up to ten million nodes, and CPU results.

Run `python -m benchmarks.device [--quick] [--out DIR]`; about eight minutes on an H100. Without an accelerator only
`--quick` runs, as a check on the CPU.

Every node receives from eight others, whose rows no cache can hold. A method's fraction of the memory bandwidth counts
the bytes that its round must move (`benchmarks.floors`). The compiled program is counted, too, so that the time that a
model gives it (`benchmarks.roofline`) stands next to the measured one. Agreement with the CPU is tested on rounds of
every row of the contract's table, on a small problem and on both backends of one process.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import jdfl
from benchmarks import aot, hlo, roofline
from benchmarks.aot import Size
from benchmarks.common import Options, Row, benchmark, row
from benchmarks.device_parts import REPEATS, ROUNDS
from benchmarks.methods import (
    CHOCO,
    FEW,
    FULL,
    GAUSSIAN,
    HADAMARD,
    MANY,
    METHODS,
    MOST,
    NOISY,
    PLAIN,
    PUSHING,
    SPARSE,
    TRACKING,
    WHOLE,
    WIDE,
    Method,
)
from jdfl import problems
from jdfl.algorithms.program import planned
from jdfl.base.keys import typed_key
from jdfl.engine import loop, stepping

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # several processes share the device
RESULT = (
    "D-PSGD with ten million nodes of 100 parameters does {D-PSGD, m=10,000,000 n=100 q=1 -> rounds a second} rounds "
    "a second, {D-PSGD, m=10,000,000 n=100 q=1 -> least traffic / bandwidth} of what the bandwidth allows."
)
PARTS = "benchmarks.device_parts"
LIMIT = (
    "Larger differences come from a difference in the last bit: a sign, a quantised number or a float16 that is "
    "rounded to the other side makes a different message. On the CPU alone, with some features changed in their last "
    "bit, the row with Hadamard signs differs by 0.24 to 0.37 in seven of eight such runs, and the quantised one by "
    "1.3e-4 in one of eight. Methods without figures found no memory while other processes ran; they are now tried "
    "once more alone."
)
MINUTES = 6  # after which no more methods are started
AGREES = 1e-5  # largest difference of parameters from the CPU's
SECONDS = 0.4  # of each of a timing's repeats, or a round
AT_ONCE = max(2, (os.cpu_count() or 2) // 2)  # processes that prepare methods; they are timed one at a time


class Case(NamedTuple):
    """A method at a size."""

    method: Method
    size: Size

    def __str__(self) -> str:
        """As rows name it."""
        return f"{self.method.name}, m={self.size.m:,} n={self.size.n} q={self.size.q}"


CASES = (
    *(Case(method, WIDE) for method in METHODS[:-2]),
    *(Case(method, FEW) for method in (HADAMARD, GAUSSIAN)),  # a round of many nodes takes seconds
    *(Case(method, MOST) for method in (PLAIN, NOISY, PUSHING, CHOCO)),
    *(Case(method, MANY) for method in (PLAIN, NOISY, PUSHING, WHOLE, SPARSE, HADAMARD)),
    *(Case(method, FULL) for method in (PLAIN, TRACKING)),
)
SMALLEST = Size(64, 40, 2)


def space(size: Size) -> float:
    """Approximate bytes of a process: data that are copied once, and some arrays of the state's size."""
    return 4.0 * size.m * size.n * (2 * size.q + 4)


def network(m: int, directed: bool) -> Any:
    """Eight neighbours whose rows are far apart."""
    offsets = sorted({1, *(max(2, m // part) for part in (7, 5, 3))}) if m > 20 else [1]
    return jdfl.network.circulant(m, offsets, weights="out-degree" if directed else None)


def regression(size: Size) -> Any:
    """Least squares on normal features, drawn on the device; the curvature is an upper estimate, not computed."""
    shape = (size.m, size.q, size.n)
    features = jax.jit(partial(jax.random.normal, shape=shape))(jax.random.key(0))
    truth = jnp.zeros((size.n,)).at[: max(1, size.n // 100)].set(1.0)
    targets = jax.jit(jnp.dot)(features, truth)
    curvature = jnp.full((size.m,), (1 + (size.n / size.q) ** 0.5) ** 2)
    return problems.LinearRegression((features, targets), jnp.ones(shape[:2]), curvature, truth)


def measured(method: Method, size: Size) -> None:
    """Prepare a method, report it, wait for a line of input, and print the measurements with what was compiled."""
    began = time.perf_counter()
    problem, graph = regression(size), network(size.m, method.settings.columns)
    program = planned(method.settings, problem, graph, aot.ROUNDS)
    ready = stepping.setting(program, problem, graph, None, typed_key(0))
    algorithm, carry, _ = loop.start(ready, ())
    ready, held, done = replace(ready, program=algorithm), [carry], [0]
    turn = loop.rounds_per_turn(carry.state)
    made = loop.advance.lower(carry, ready, jnp.int32(0), aot.ROUNDS, 1, ()).compile()
    given = aot.described(made, carry.state, problem, method.settings, aot.per_node(method.settings, size.q), turn)

    def work(rounds: int) -> float:
        done[0] += rounds
        began = time.perf_counter()
        carry, _ = made(held.pop(), ready, jnp.int32(done[0]))
        jax.block_until_ready(carry)
        held.append(carry)
        return time.perf_counter() - began

    work(1)
    print(json.dumps(time.perf_counter() - began), flush=True)
    sys.stdin.readline()
    once = work(1)
    rounds = max(1, min(2000, int(SECONDS / once)))
    seconds = [work(rounds) / rounds for _ in range(REPEATS if once < 2 else 1)]
    peak = (jax.local_devices()[0].memory_stats() or {}).get("peak_bytes_in_use", 0)
    found = {"seconds": seconds, "peak": peak / 2**30, "least": given.needed.total, "expected": given.peak / 2**30}
    print(json.dumps(found | {"cost": _cost(given)}), flush=True)


def _cost(program: aot.Program) -> Any:
    """The kernels of a round and its waits for the host, as JSON; None where they cannot be counted, as on a CPU."""
    if jax.default_backend() != "gpu":
        return None
    try:
        cost = roofline.counted(program, aot.H100).cost
    except hlo.UnknownError as error:  # what was measured counts all the same
        print(error, file=sys.stderr)
        return None
    return [[[one.times, one.bytes, one.ints, one.floats] for one in cost.kernels], cost.syncs]


def predicted(cost: Any, copying: float) -> float:
    """The model's time of a round, with the bandwidth in GB/s that was measured here."""
    kernels = tuple(hlo.Kernel("", "", *numbers) for numbers in cost[0])
    return roofline.seconds(hlo.Cost(kernels, cost[1]), replace(aot.H100, bandwidth=copying * 1e9 / roofline.REACHED))


def asked(*what: Any, by: str = "benchmarks.device") -> subprocess.Popen[str]:
    """A process of another file with the given arguments."""
    command = [sys.executable, "-m", by, *map(str, what)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def answers(case: str, process: subprocess.Popen[str], go: str | None = None) -> Any:
    """The last output of a process; None, with its errors shown, where it fails."""
    said, errors = process.communicate(go)
    if process.returncode:
        print(f"{case}: exit code {process.returncode}\n{errors[-2000:]}", file=sys.stderr)
        return None
    return json.loads(said.splitlines()[-1])


def groups(cases: Sequence[Case], room: float) -> list[list[Case]]:
    """Groups of cases that are prepared simultaneously, as far as memory allows."""
    made: list[list[Case]] = [[]]
    for case in cases:
        if len(made[-1]) == AT_ONCE or sum(space(one.size) for one in made[-1]) + space(case.size) > room:
            made.append([])
        made[-1].append(case)
    return [group for group in made if group]


def timed(cases: Sequence[Case], copying: float, until: float) -> list[Row]:
    """Rounds of every case that starts before the time `until`; `copying` is the memory bandwidth in GB/s.

    A case that fails in a group, for example because of memory, is tried once more alone.
    """
    room = (jax.local_devices()[0].memory_stats() or {}).get("bytes_limit", 2**30)
    rows, waiting = [], groups(cases, room)
    while waiting:
        group = waiting.pop(0)
        if time.perf_counter() > until:
            print("not measured, as the time is over:", "; ".join(map(str, group)))
            continue
        processes = [asked("--measure", METHODS.index(case.method), *case.size) for case in group]
        ready = [process.stdout.readline() for process in processes if process.stdout]
        for case, process, line in zip(group, processes, ready):
            found = answers(str(case), process, "go\n" if line else None)
            if found is not None:
                rows += told(case, found, float(line), copying)
            elif len(group) > 1:
                waiting.append([case])
    return rows


def told(case: Case, found: Any, first: float, copying: float) -> list[Row]:
    """The rows of a case; `first` is the time in seconds until its first round was done."""
    speed = [1 / one for one in found["seconds"]]
    print(f"{case}: {np.median(speed):.4g} rounds/s", flush=True)
    share = [found["least"] * one / 1e9 / copying for one in speed]
    rows = [
        row(str(case), "rounds a second", speed, "1/s"),
        row(str(case), "least traffic / bandwidth", share, "x"),
        row(str(case), "memory at its peak", [found["peak"]], "GiB"),
        row(str(case), "memory at its peak, as compiled", [found["expected"]], "GiB"),
        row(str(case), "until the first round is done", [first], "s"),
    ]
    if found["cost"] is None:
        return rows
    off = [predicted(found["cost"], copying) * one for one in speed]
    model = row(str(case), "time of the model / measured", off, "x")
    return [*rows, replace(model, goal="1.5 either way", met=1 / 1.5 <= model.value <= 1.5)]


def agreement() -> list[Row]:
    """Rounds of small problems on this device and on the CPU, for every row of the contract's table."""
    every = 2 * AT_ONCE
    processes = [asked("compare", first, every, by=PARTS) for first in range(every)]
    found = {}
    for first, process in enumerate(processes):
        found |= answers(f"rows {first}, {first + every}, ... on both", process) or {}
    return judged(found)


def judged(found: Mapping[str, Sequence[float]]) -> list[Row]:
    """The shares of rows that agree, and the differences of those that do not."""
    off = {name: difference for name, (difference, _) in found.items() if not difference <= AGREES}
    shares = {f"parameters within {AGREES:g}": len(off), "counts": sum(unlike for _, unlike in found.values())}
    whole = f"{len(found)} rows of the contract, {ROUNDS} rounds"
    rows = [row(whole, f"{what} as on the CPU", [1 - bad / len(found)], "", ">= 1") for what, bad in shares.items()]
    return [*rows, *(row(name, "difference from the CPU / largest parameter", [one], "x") for name, one in off.items())]


@benchmark("An accelerator")
def main(chosen: Options) -> list[Row]:
    """All figures; without an accelerator none, and a message."""
    if jax.default_backend() == "cpu" and not chosen.quick:
        print("There is no GPU or TPU: JAX's backend is 'cpu'. Install jdfl[cuda] or jdfl[tpu]; --quick runs anywhere.")
        return []
    until, rows = time.perf_counter() + 60 * MINUTES, agreement()
    found = answers("parts of rounds", asked("parts", int(chosen.quick), by=PARTS))
    if found is None:
        raise SystemExit(1)
    copying, more = found
    rows += [Row(**one) for one in more]
    rows += timed([Case(method, SMALLEST) for method in METHODS] if chosen.quick else CASES, copying, until)
    return rows


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        measured(METHODS[int(sys.argv[2])], Size(*map(int, sys.argv[3:6])))
    else:
        main()
