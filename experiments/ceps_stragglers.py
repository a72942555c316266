"""CEPS with slow, absent or late nodes: the paper's claim of robustness, in simulated time.

Example 1 of the CEPS paper on a complete network, without noise, with exact messages (Perf). In section III a node
combines the first t_i = r |N_i| neighbours to respond. Times of a gradient are exponential, log-normal or Pareto in
every round, and some nodes are permanently slow, by a factor that is drawn once. A message takes a tenth of a second.

There are four ways to choose N_i^k: all neighbours, a random fifth, the first fifth to respond, and the first half. The
table has the objective after all rounds, the seconds of simulated time that a node needs on average until the objective
has fallen to a tenth of its initial value, and the messages until then. Then, with a random fifth: nodes that
participate in a share of the rounds, lost messages, nodes that fail and come back, and stale z_j.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

import jdfl
from experiments.common import Made, Options, Row, bars, experiment, row
from jdfl import network as nw

FALLEN = 0.1  # of the initial objective
LATENCY = nw.FixedTime(0.1)
TIMES: dict[str, nw.Times] = {
    "exponential": nw.ExponentialTime(1.0),
    "log-normal": nw.LogNormalTime(1.0, 1.0),
    "Pareto": nw.ParetoTime(1.0, 1.5),
}
SLOWNESS = nw.ParetoTime(1.0, 2.0)  # one node in four is twice as slow as the fastest, one in a hundred ten times
CHOICES = {"all": (1.0, False), "random fifth": (0.2, False), "first fifth": (0.2, True), "first half": (0.5, True)}
FAULTS: dict[str, Callable[[Any], Any]] = {
    "no faults": lambda net: net,
    "half participate": lambda net: nw.node_participation(net, 0.5),
    "one in five participates": lambda net: nw.node_participation(net, 0.2),
    "30 % lost": lambda net: nw.link_loss(net, 0.3),
    "60 % lost, in bursts of 10 rounds": lambda net: nw.bursty_loss(net, 0.15, 0.1),
    "a quarter down, for 20 rounds": lambda net: nw.outages(net, 1 / 60, 1 / 20),
    "stale by up to 3 rounds": lambda net: nw.delays(net, 3, 0.75),
    "stale by up to 15 rounds": lambda net: nw.delays(net, 15, 15 / 16),
}


@dataclass(frozen=True)
class Size:
    """The size of the problem and the length of its runs."""

    m: int
    n: int
    s: int
    rows: tuple[int, int]
    steps: int


FULL, SMALL = Size(32, 1000, 10, (250, 750), 150), Size(8, 60, 4, (40, 60), 60)


def algorithm(size: Size, rate: float) -> jdfl.CEPS:
    """CEPS without noise, with step sizes that do not depend on the number of combined neighbours."""
    return jdfl.CEPS(s=size.s, rate=rate, sigma_rule="safe")


def run(size: Size, rate: float, net: Any, seed: int) -> jdfl.Result:
    problem = jdfl.problems.example1(size.m, size.n, size.s, size.rows, seed=seed)
    metrics = ["objective", "objective_local", "support_recovery"]
    return jdfl.run(algorithm(size, rate), problem, net, key=seed, steps=size.steps, metrics=metrics)


def until(history: pd.DataFrame, column: str) -> float:
    """The value of a cost column when the objective has fallen far enough; NaN where it never does."""
    there = history["objective"] <= FALLEN * history["objective"].iloc[0]
    return float(history[column].to_numpy()[there.to_numpy().argmax()]) if there.any() else np.nan


def told(case: str, results: Sequence[jdfl.Result], *, timed: bool) -> list[Row]:
    """The rows of a case; numbers that are missing for some seed are left out."""
    histories = [one.history for one in results]
    found = {
        "objective": [one.final["objective"] for one in results],
        "nodes' own": [one.final["objective_local"] for one in results],
        "support": [one.final["support_recovery"] for one in results],
        "rounds": [until(one, "round") for one in histories],
        "messages": [until(one, "messages") for one in histories],
    }
    if timed:
        found["seconds"] = [until(one, "network_seconds") for one in histories]
        found["seconds, slowest node"] = [until(one, "network_seconds_last") for one in histories]
    return [row(case, name, None, values) for name, values in found.items() if np.all(np.isfinite(values))]


def collect(size: Size, seeds: int, quick: bool) -> list[Row]:
    rows: list[Row] = []
    for name, times in [("Pareto", TIMES["Pareto"])] if quick else TIMES.items():
        for choice, (rate, first) in CHOICES.items():
            net = nw.timed(nw.complete(size.m), times, latency=LATENCY, slowness=SLOWNESS, first=first)
            results = [run(size, rate, net, seed) for seed in range(seeds)]
            rows += told(f"{name}, {choice}", results, timed=True)
    for fault, made in list(FAULTS.items())[:: 3 if quick else 1]:
        results = [run(size, 0.2, made(nw.complete(size.m)), seed) for seed in range(seeds)]
        rows += told(fault, results, timed=False)
    return rows


@experiment()
def main(chosen: Options) -> Made:
    """All of it, or one distribution of times and some faults on a small problem with `--quick`."""
    rows = collect(SMALL if chosen.quick else FULL, chosen.seeds, chosen.quick)
    return Made({"CEPS with stragglers and faults (Example 1)": rows}, bars(rows, ["seconds"], "simulated seconds"))
