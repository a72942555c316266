"""Asynchronous methods: events a second from the drawn clocks to the last model, and the time of planning them.

Also how much memory runs are predicted to need, in a fresh process, whose allocator gives memory back at once. A
prediction is made when events are about to be drawn, and when they are about to be executed; the larger one counts.

Run `python -m benchmarks.events [--quick] [--out DIR]`; seven minutes on two cores.
"""

import gc
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import jax
import numpy as np

import jdfl
from benchmarks.common import Options, Row, benchmark, interleaved, row
from jdfl import events
from jdfl import network as nw
from jdfl.engine import placement, waves
from jdfl.events import plan, timeline
from jdfl.events.method import HAPPENED

RESULT = (
    "AD-PSGD with 10,000 nodes executes {AD-PSGD, m=10,000 n=20, 1,000,361 events -> million events a second} million"
    " events a second; one event after another takes {AD-PSGD, m=10,000 n=20 -> one event after another / waves} "
    "times as long."
)
_RESIDENT = Path("/proc/self/clear_refs")  # of Linux
METHODS: dict[str, events.AsyncMethod] = {
    "AD-PSGD": events.ADPSGD(lr=0.01),
    "SwarmSGD": events.SwarmSGD(lr=0.01),
    "AGP": events.AGP(lr=0.001),
    "SWIFT": events.SWIFT(lr=0.01),
    "asynchronous CHOCO-SGD": events.AsyncCHOCO(lr=0.01, codec=jdfl.Dense()),
    "FedAsync": events.FedAsync(lr=0.01),
}
MEMORY = {  # nodes, parameters and seconds: many events of small models, and few of large ones
    "AD-PSGD": [(10**5, 20, 100), (10**5, 1000, 1)],
    "SwarmSGD": [(10**5, 20, 100)],
    "AGP": [(10**5, 20, 20), (4 * 10**4, 1000, 1)],
    "SWIFT": [(10**5, 20, 20), (4 * 10**4, 1000, 1)],
    "asynchronous CHOCO-SGD": [(10**5, 20, 50)],
    "FedAsync": [(10**5, 20, 50), (4 * 10**4, 1000, 1)],
}


def least_squares(m: int, n: int) -> jdfl.problems.LinearRegression:
    """A problem of one example a node: all but the engine costs little."""
    draw = np.random.default_rng(0)
    A, b = draw.standard_normal((m, 1, n), np.float32), draw.standard_normal((m, 1), np.float32)
    return jdfl.problems.linear_regression(A, b)


def network(m: int) -> nw.Timed:
    """Every node has 8 neighbours, and exponential times of mean 1."""
    return nw.timed(nw.k_regular(m, 8), nw.ExponentialTime(1.0))


def running(method: events.AsyncMethod, m: int, n: int, seconds: int) -> Callable[[], jax.Array]:
    """A whole run without metrics, of about m times `seconds` events."""
    given = replace(method, period=float(seconds)), least_squares(m, n), network(m)
    return lambda: jdfl.run(*given, key=1, steps=1, metrics=[]).state[HAPPENED]


def speed(method: events.AsyncMethod, m: int, n: int, seconds: int, repeats: int, goal: str = "") -> list[Row]:
    """Million events a second."""
    work = running(method, m, n, seconds)
    number = int(work())
    taken = interleaved({"all": work}, repeats)["all"]
    rates = [number / second / 1e6 for second in taken]
    return [row(f"{method.title}, m={m:,} n={n}, {number:,} events", "million events a second", rates, "", goal)]


def one_by_one(some: timeline.Events, kinds: Sequence[Any]) -> plan.Plan:
    """The plan that executes one event after another."""
    return plan.arranged(some, np.arange(1, len(some) + 1, dtype=np.int32), len(kinds), plan.WIDTHS[:1])


def one_after_another(m: int, n: int, seconds: int, repeats: int) -> list[Row]:
    """How many times longer it takes to execute one event after another."""
    work = running(events.ADPSGD(lr=0.01), m, n, seconds)

    def alone() -> jax.Array:
        with mock.patch.object(waves, "planned", one_by_one):
            return work()

    taken = interleaved({"waves": work, "alone": alone}, repeats)
    ratios = [one / other for one, other in zip(taken["alone"], taken["waves"])]
    return [row(f"AD-PSGD, m={m:,} n={n}", "one event after another / waves", ratios, "x")]


def planning(m: int, seconds: float, goal: str = "") -> list[Row]:
    """Seconds to draw and to plan events."""
    method, key = events.ADPSGD(), jax.random.key(1)
    net = network(m).in_run(key, 0)
    method.events(net, key, 0.1)  # compiles
    begun = time.perf_counter()
    found = method.events(net, key, seconds)
    drawn = time.perf_counter()
    planned = plan.planned(found, method.kinds)
    ended = time.perf_counter()
    case = f"AD-PSGD, m={m:,}, {len(found):,} events in {planned.waves} waves"
    return [
        row(case, "drawing", [drawn - begun], "s"),
        row(case, "planning", [ended - drawn], "s"),
        row(case, "both", [ended - begun], "s", goal),
    ]


def predicted_and_measured(name: str, m: int, n: int, seconds: int) -> tuple[float, float]:
    """Bytes that a run needs besides its problem and network: as predicted, and by the largest resident memory."""
    method, of_a_node = METHODS[name], running(METHODS[name], m, 1, 1)
    given, found = (replace(method, period=float(seconds)), least_squares(m, n), network(m)), list[float]()

    def foretold(number: float, seconds: float, room: int | None, each: int) -> None:
        found.append(number * each)

    def before(setting: placement.stepping.Setting, some: timeline.Events) -> None:
        kept = sum(np.unique(column).nbytes if 0 in column.strides else column.nbytes for column in columns(some))
        found.append(kept + sum(waves.estimate_of_events(setting, some).values()))

    of_a_node()  # compiles what draws events
    gc.collect()
    _RESIDENT.write_text("5")  # the largest resident memory from now on
    resident = _status("VmRSS")
    with mock.patch.object(timeline, "check_number", foretold), mock.patch.object(waves, "require_events", before):
        jax.block_until_ready(jdfl.run(*given, key=1, steps=1, metrics=[]).state)
    return max(found[0], found[-1]), _status("VmHWM") - resident


def columns(some: timeline.Events) -> list[np.ndarray]:
    """The arrays of events."""
    return [some.time, some.kind, some.actor, some.count, some.rows, some.data]


def _status(name: str) -> int:
    """A number of bytes that Linux reports of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))


def memory(name: str, m: int, n: int, seconds: int) -> list[Row]:
    """The memory of a run, predicted and measured; nothing on systems that do not say how much was used."""
    if not _RESIDENT.exists():
        return []
    command = [sys.executable, "-m", "benchmarks.events", "--memory", name, str(m), str(n), str(seconds)]
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "1048576", "MALLOC_TRIM_THRESHOLD_": "1048576"}
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout
    predicted, measured = json.loads(done.splitlines()[-1])
    case = f"{METHODS[name].title}, m={m:,} n={n}, {seconds} s: {measured / 2**20:,.0f} MiB"
    return [row(case, "memory, predicted / measured", [predicted / measured], "x")]


@benchmark("Asynchronous methods")
def main(chosen: Options) -> list[Row]:
    ad_psgd = events.ADPSGD(lr=0.01)
    if chosen.quick:
        rows = [*speed(ad_psgd, 200, 20, 5, 2), *one_after_another(200, 20, 5, 2), *planning(200, 5.0)]
        rows += memory("AD-PSGD", 200, 20, 5)
    else:
        rows = [
            *speed(ad_psgd, 10**4, 20, 100, 5, ">= 1"),
            *speed(ad_psgd, 10**5, 20, 10, 5, ">= 1"),
            *speed(ad_psgd, 10**6, 20, 5, 3, ">= 1"),
            *speed(ad_psgd, 1024, 1000, 200, 5, ">= 0.1"),
            *(one for name, method in METHODS.items() if name != "AD-PSGD" for one in speed(method, 10**4, 20, 20, 3)),
            *one_after_another(10**4, 20, 10, 3),
            *planning(10**5, 100.0, "<= 10"),
            *(one for name in METHODS for case in MEMORY[name] for one in memory(name, *case)),
        ]
    return rows


if __name__ == "__main__":
    if sys.argv[1:2] == ["--memory"]:
        print(json.dumps(predicted_and_measured(sys.argv[2], *map(int, sys.argv[3:]))))
    else:
        main()
