"""Asynchronous and synchronous methods at equal simulated seconds, when one node is slow or times are random.

16 nodes in a ring, as in the experiments of SWIFT, with gradients of 8 examples; a gradient takes one second on average
and a message a tenth. A run ends when the objective at the mean of the nodes' models has fallen to its target: a share
of the gap at the start of 0.005 for Example 1 of the CEPS paper, 0.03 for logistic regression (breast_cancer), and 0.1
for a perceptron with 32 hidden units (digits).

All-reduce SGD is D-PSGD in which all nodes take the mean of all in every round and wait for all. The step size of every
method is the one of a common grid with which two other seeds reach the target soonest with equal clocks; it is the same
for all clocks. Both nodes of a meeting of SwarmSGD take its steps, though time passes for one of them only: all its
clocks take twice as long, so that its nodes, too, compute one gradient a second.

Where one of m nodes is f times slower, messages take l, and nothing else slows a method down, a round takes (f + l) /
(1 + l) times as long, and nodes that do not wait finish (m - 1 + (1 + l) / (f + l)) / m times as many gradients. These
are the implied slowdowns, next to the measured ones. The last case has the times of SWIFT's Table 3, 1.0 and 1.6 s per
epoch for SWIFT and D-SGD as the README of its authors' code has them: messages take 0.6 of a gradient.

--quick has Example 1, two clocks, two step sizes and two seeds.
"""

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np

import jdfl
from experiments.async_common import EQUAL, LOG_NORMAL, PARETO, Clock, Task, one_slow, tasks
from experiments.common import Made, Options, Row, bars, experiment, row
from jdfl import events
from jdfl import network as nw

M, LATENCY = 16, 0.1
LONGEST = 300  # seconds or rounds; the objective is looked at after every one
TUNING = (1001, 1002)  # seeds
POWERS = range(-2, 3)  # of two, times the middle of a task
BATCH = jdfl.Gradients(batch=8)
ALL, DPSGD = "all-reduce SGD", "D-PSGD"
METHODS: dict[str, Any] = {
    ALL: jdfl.DPSGD(gradients=BATCH),
    DPSGD: jdfl.DPSGD(gradients=BATCH),
    "AD-PSGD": events.ADPSGD(gradients=BATCH),
    "SwarmSGD": events.SwarmSGD(gradients=BATCH),
    "SWIFT": events.SWIFT(gradients=BATCH),
    "AGP": events.AGP(gradients=BATCH),
    "asynchronous CHOCO-SGD": events.AsyncCHOCO(gradients=BATCH, gamma=1.0, codec=jdfl.Dense()),
}
SLOW = (4, 10, 100)
CLOCKS = {one.name: one for one in (EQUAL, LOG_NORMAL, PARETO, *map(one_slow, SLOW))}
SWIFTS, EPOCHS = "times of SWIFT's Table 3", (1.0, 1.6)  # seconds of an epoch of SWIFT, and of D-SGD
Runs = dict[tuple[str, str, str], list[jdfl.Result]]


def until(task: Task, label: str, lr: float, clock: Clock, seed: int, latency: float = LATENCY) -> jdfl.Result:
    """A run that ends at the task's target, or after its longest time."""
    problem, target = task.drawn(seed)
    method = replace(METHODS[label], lr=lr)
    network: Any = clock.network(nw.ring(M), latency, 2.0 if label == "SwarmSGD" else 1.0)
    network = nw.synchronised(network, every=1) if label == ALL else network
    stop = jdfl.objective_below(target)
    given: Any = {"steps": LONGEST, "every": LONGEST, "stop": stop, "metrics": ["objective"]}
    with warnings.catch_warnings():  # of step sizes with which methods diverge
        warnings.simplefilter("ignore")
        return jdfl.run(method, problem, network, key=seed, **given)


def seconds(result: jdfl.Result) -> float:
    """Simulated seconds until the target; infinite where it was not reached."""
    return result.final["network_seconds"] if result.ending == "stop rule" else np.inf


def tuned(task: Task, label: str, quick: bool) -> float:
    """The step size with which the tuning seeds reach the target soonest, in sum, with equal clocks."""
    tried = [task.lr * 2.0**power for power in (POWERS[:-1:2] if quick else POWERS)]
    seeds = TUNING[:1] if quick else TUNING
    return min(tried, key=lambda lr: sum(seconds(until(task, label, lr, EQUAL, seed)) for seed in seeds))


def collected(some: dict[str, Task], clocks: Sequence[str], seeds: int, quick: bool) -> tuple[Runs, list[Row]]:
    """All runs by task, clock and method, and rows with the tuned step sizes."""
    found: Runs = {}
    rows: list[Row] = []
    for (name, task), label in product(some.items(), METHODS):
        lr = tuned(task, label, quick)
        rows.append(row(f"{name}, {label}", "step size", None, [lr]))
        for clock in clocks:
            found[name, clock, label] = [until(task, label, lr, CLOCKS[clock], seed) for seed in range(seeds)]
        if label in (DPSGD, "SWIFT"):
            late = EPOCHS[1] - EPOCHS[0]
            found[name, SWIFTS, label] = [until(task, label, lr, EQUAL, seed, late) for seed in range(seeds)]
        print(f"{name}, {label}: step size {lr:g}", flush=True)
    return found, rows


def implied(slow: float, label: str) -> float:
    """How many times longer a method takes with one slow node, if only the pace of gradients matters."""
    share = (1 + LATENCY) / (slow + LATENCY)
    return 1 / share if label in (ALL, DPSGD) else M / (M - 1 + share)


def rows_of(found: Runs) -> Iterator[Row]:
    """Seconds, gradients and speed-ups; those of a case with runs that did not reach the target are left out."""
    times = {place: np.array([seconds(one) for one in runs]) for place, runs in found.items()}
    for (name, clock, label), runs in found.items():
        case, mine = f"{name}, {clock}, {label}", times[name, clock, label]
        yield row(case, "reached", None, np.isfinite(mine).astype(float).tolist())
        if not np.isfinite(mine).all():
            continue
        yield row(case, "seconds", None, mine.tolist())
        yield row(case, "gradients a node", None, [one.totals.gradients / M for one in runs])
        for other in (ALL, DPSGD):
            if (name, clock, other) in times:
                ratios = times[name, clock, other] / mine
                paper = EPOCHS[1] / EPOCHS[0] if clock == SWIFTS and label == "SWIFT" else None
                yield row(case, f"{other} / this", paper, ratios.tolist())
        if clock in CLOCKS and np.isfinite(times[name, EQUAL.name, label]).all():
            slowdown = mine / times[name, EQUAL.name, label]
            yield row(case, "slowdown", None, slowdown.tolist())
            if CLOCKS[clock].slow > 1:
                expected = implied(CLOCKS[clock].slow, label)
                yield row(case, "implied slowdown", None, [expected])
                yield row(case, "slowdown / implied", None, (slowdown / expected).tolist())


@experiment(seeds=3)
def main(chosen: Options) -> Made:
    some, clocks = tasks(M), list(CLOCKS)
    if chosen.quick:
        some, clocks = {"Example 1": some["Example 1"]}, [EQUAL.name, one_slow(10).name]
    found, rows = collected(some, clocks, chosen.seeds, chosen.quick)
    rows += rows_of(found)
    return Made({"Simulated seconds to the target": rows}, bars(rows, [f"{ALL} / this"], f"seconds of {ALL} / seconds"))
