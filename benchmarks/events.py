"""Asynchronous methods: events a second from the drawn clocks to the last model, and the time of planning them.

Run `python -m benchmarks.events [--quick] [--out DIR]`; four minutes on two cores.
"""

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from unittest import mock

import jax
import numpy as np

import jdfl
from benchmarks.common import Row, interleaved, options, report, row
from jdfl import events
from jdfl import network as nw
from jdfl.engine import waves
from jdfl.events import plan
from jdfl.events.execution import one_by_one
from jdfl.events.method import HAPPENED

NAME = "events"
LIMIT = (
    "With a million nodes the levels of all rows no longer fit into the caches, and the loop over pairs of rows, in "
    "Python, is slower for every event. Tables of bytes and of integers instead of lists were tried: they gain less "
    "than is missing. Checks of the network's links are part of every run, too."
)
METHODS: dict[str, events.AsyncMethod] = {
    "SwarmSGD": events.SwarmSGD(lr=0.01),
    "AGP": events.AGP(lr=0.001),
    "SWIFT": events.SWIFT(lr=0.01),
    "asynchronous CHOCO-SGD": events.AsyncCHOCO(lr=0.01),
    "FedAsync": events.FedAsync(lr=0.01),
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


def one_after_another(m: int, n: int, seconds: int, repeats: int) -> list[Row]:
    """How many times longer it takes to execute one event after another."""
    work = running(events.ADPSGD(lr=0.01), m, n, seconds)

    def alone() -> jax.Array:
        with mock.patch.object(waves, "planned", lambda some, kinds: one_by_one(some, len(kinds))):
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


def main(arguments: Sequence[str] | None = None) -> list[Row]:
    chosen = options("Events", arguments)
    ad_psgd = events.ADPSGD(lr=0.01)
    if chosen.quick:
        rows = [*speed(ad_psgd, 200, 20, 5, 2), *one_after_another(200, 20, 5, 2), *planning(200, 5.0)]
    else:
        rows = [
            *speed(ad_psgd, 10**4, 20, 100, 5, ">= 1"),
            *speed(ad_psgd, 10**5, 20, 10, 5, ">= 1"),
            *speed(ad_psgd, 10**6, 20, 5, 3, ">= 1"),
            *speed(ad_psgd, 1024, 1000, 200, 5, ">= 0.1"),
            *(one for method in METHODS.values() for one in speed(method, 10**4, 20, 20, 3)),
            *one_after_another(10**4, 20, 10, 3),
            *planning(10**5, 100.0, "<= 10"),
        ]
    report("Asynchronous methods", rows, chosen.out, NAME, chosen.quick)
    return rows


if __name__ == "__main__":
    main(sys.argv[1:])
