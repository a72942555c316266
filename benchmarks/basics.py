"""What every change may slow down: the import, first runs, rounds, events, and the memory of a run.

Run `python -m benchmarks.basics [--quick] [--out DIR]`; six minutes on two cores. Every figure is divided by that of a
script or of another package, measured in turn with it, so that it means the same on another machine and on a busy one.
`python -m benchmarks basics --compare` compares it with the record in benchmarks/results.
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jdfl
from benchmarks.common import Options, Row, benchmark, interleaved, ratios, rounds_of, row
from benchmarks.dpsgd_overhead import LR, by_hand, peak_in_process
from benchmarks.events import METHODS, running

RESULT = (
    "Importing jdfl and its runner takes {package -> import / import of jax.numpy} times the processor time of "
    "importing `jax.numpy`."
)
METHODS_FIRST: dict[str, Any] = {
    "D-PSGD": jdfl.DPSGD(lr=1e-4),
    "CHOCO-SGD": jdfl.CHOCO(lr=1e-4),
    "CEPS, one bit": jdfl.CEPS(s=10, sigma_rule="safe", codec=jdfl.OneBit()),
}
IMPORTS = "import time; b = time.process_time(); import {}; print(time.process_time() - b)"
SORTED = 2**20  # numbers


def processor(command: Sequence[str]) -> list[float]:
    """The numbers that a process prints in its last line, such as seconds of the processor."""
    done = subprocess.run([sys.executable, *command], check=True, capture_output=True, text=True)
    return json.loads(f"[{done.stdout.splitlines()[-1]}]")


def imports(repeats: int) -> list[Row]:
    """The processor's time of importing jdfl and what it takes to run, over that of importing JAX."""
    pairs = [
        [processor(["-c", IMPORTS.format(what)])[0] for what in ("jdfl.engine.runner", "jax.numpy")]
        for _ in range(repeats)
    ]
    return [row("package", "import / import of jax.numpy", ratios(*zip(*pairs)), "x")]


def first(name: str, m: int, n: int) -> tuple[float, float]:
    """The processor's seconds of a method's first run, and of compiling and running D-PSGD by hand before it."""
    problem, network = jdfl.problems.example1(m=m, n=n, s=3, rows=(20, 40)), jdfl.network.ring(m, format="padded")
    graph = network.graph
    weights = graph.senders, graph.weight, graph.self_weight
    x = jnp.zeros((m, n))

    def spent(work: Callable[[], Any]) -> float:
        began = time.process_time()
        jax.block_until_ready(work())
        return time.process_time() - began

    hand = spent(lambda: by_hand(x, *problem.data, weights, 10))
    return spent(lambda: jdfl.run(METHODS_FIRST[name], problem, network, key=1, steps=10, metrics=[]).params), hand


def first_runs(repeats: int, m: int, n: int) -> list[Row]:
    """First runs over the compilation of D-PSGD by hand, in processes of their own."""
    rows: list[Row] = []
    for name in METHODS_FIRST:
        words = ["-m", "benchmarks.basics", "--first", name, str(m), str(n)]
        found = [processor(words) for _ in range(repeats)]
        rows.append(row(f"{name}, m={m} n={n}", "first run / compiling by hand", ratios(*zip(*found)), "x"))
    return rows


def rounds(repeats: int, m: int, n: int, q: int, number: int) -> list[Row]:
    """Rounds of some methods over rounds of D-PSGD by hand."""
    draw = np.random.default_rng(0)
    problem = jdfl.problems.linear_regression(
        draw.standard_normal((m, q, n), np.float32), draw.standard_normal((m, q), np.float32)
    )
    network = jdfl.network.k_regular(m, 8, format="padded")
    graph, x = network.graph, [jnp.zeros((m, n), jnp.float32)]

    def hand() -> jax.Array:
        x[0] = by_hand(x[0], *problem.data, (graph.senders, graph.weight, graph.self_weight), number)
        return x[0]

    works = {
        "by hand": hand,
        "D-PSGD": rounds_of(jdfl.DPSGD(lr=LR), problem, network, number),
        "DSGT": rounds_of(jdfl.DSGT(lr=LR), problem, network, number),
        "DO-ADP": rounds_of(jdfl.DOADP(lr=LR, gamma=0.3, codec=jdfl.Sparse(share=0.3)), problem, network, number),
    }
    seconds = interleaved(works, repeats)
    base = seconds.pop("by hand")
    return [row(f"{name}, m={m} n={n} q={q}", "a round / by hand", ratios(s, base), "x") for name, s in seconds.items()]


def event_runs(repeats: int, m: int, period: int) -> list[Row]:
    """The time of a million events over that of sorting a million numbers with NumPy."""
    numbers = np.random.default_rng(0).random(SORTED)
    rows: list[Row] = []
    for name in ("AD-PSGD", "AGP"):
        work = running(METHODS[name], m, 20, period)
        count = int(work())
        seconds = interleaved({"events": work, "sort": lambda: np.sort(numbers)}, repeats)
        found = [one / other * SORTED / count for one, other in zip(seconds["events"], seconds["sort"])]
        rows.append(row(f"{name}, m={m:,} n=20", "an event / a number in a sort", found, "x"))
    return rows


def memory(repeats: int, sizes: Sequence[int], n: int, q: int) -> list[Row]:
    """The peak memory of a run including its data, over the bytes of its data."""
    return [
        row(
            f"m={m} n={n} q={q}",
            "memory of a run / data",
            [peak_in_process(m, n, q) for _ in range(repeats)],
            "x",
            "<= 1.3",
        )
        for m in sizes
    ]


@benchmark("Basics", goals=False)
def main(chosen: Options) -> list[Row]:
    if chosen.quick:
        rows = [
            *imports(1),
            *first_runs(1, 4, 10),
            *rounds(2, 12, 40, 16, 2),
            *event_runs(2, 100, 2),
            *memory(1, [12], 40, 16),
        ]
    else:
        rows = [
            *imports(3),
            *first_runs(3, 32, 1000),
            *rounds(15, 32, 1000, 500, 10),
            *event_runs(5, 10_000, 100),
            *memory(2, (32, 128), 1000, 500),
        ]
    return rows


if __name__ == "__main__":
    if sys.argv[1:2] == ["--first"]:
        print(*first(sys.argv[2], int(sys.argv[3]), int(sys.argv[4])), sep=",")
    else:
        main()
