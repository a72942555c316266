"""DPPS paper, Table III: PartPSP with the real sensitivity, with Eq. 22's estimate, and with the certified schedule.

Run `python -m experiments.partpsp_table3 [--quick] [--seeds N] [--out DIR] [--rows mlp,resnet]`. 2-Out and EXP, one and
two layers shared, b = 5, global averaging every 5 rounds; C' and lambda are .85 and .55 for one shared layer, .82 and
.62 for two (ResNet-18: .78 with .53 and .7, those of Fig. 2). The certified schedule needs a clip, and is compared with
the real sensitivity at that clip. The ResNet is clipped in all columns, and "reduced" where there is no accelerator.

In addition to accuracy, the table gives the share of rounds in which the noise was scaled by less than the true
distance between messages, which according to the paper never happens with Eq. 22, and mean true distances, whose
published numbers are those of the files published with the code. The perceptron has two readings, ours and the
published code's without a residual connection, `MLP as published, plain` (`experiments.partpsp_common`), the latter
without clips. 24 runs of 10 seconds on two cores with the perceptron.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

import jdfl
from experiments.common import Made, Options, Row, bars, experiment, row
from experiments.partpsp_common import FLAGS, Task, chosen_rows, method, networks, problem_of, reduced, tasks, trained
from experiments.partpsp_paper import ESTIMATED, TABLE3

B, EVERY = 5.0, 5
LAYERS = (1, 2)  # shared
CONSTANTS = {
    ("mlp", 1): (0.85, 0.55),
    ("mlp", 2): (0.82, 0.62),
    ("resnet", 1): (0.78, 0.53),
    ("resnet", 2): (0.78, 0.7),
}
CLIP = 10.0  # in l1, of certified runs that have none yet
REAL, ESTIMATE, CERTIFIED = "real", "Eq. 22", "certified"
_SOURCES = {REAL: "real", ESTIMATE: "eq22", CERTIFIED: "certified"}


def run(task: Task, net: str, layers: int, source: str, constants: tuple[float, float], seed: int) -> jdfl.Result:
    """One run, with true distances and S of all rounds."""
    name = f"PartPSP-{layers}"
    problem = problem_of(task, f"partpsp-{layers}", seed=seed)
    constant, contraction = constants
    dpps = jdfl.DPPS(
        b=B,
        sensitivity=_SOURCES[source],  # pyright: ignore[reportArgumentType]
        constant=constant,
        contraction=contraction,
        reading=task.reading,
        watch=True,
    )
    return trained(method(name, task, problem, dpps), task, problem, networks(every=EVERY)[net], key=seed)


def columns(task: Task) -> list[tuple[str, str, Task]]:
    """The column's name, the source of S and the task."""
    clipped = task if task.clip is not None else replace(task, clip=CLIP)
    made = [(REAL, REAL, task), (ESTIMATE, ESTIMATE, task)]
    if task.order != "drawn":
        return made
    if task.clip is None:
        made.append((f"{REAL}, clip {CLIP:g}", REAL, clipped))
    return [*made, (f"{CERTIFIED}, clip {clipped.clip:g}", CERTIFIED, clipped)]


def collect(model: str, task: Task, nets: Sequence[str], seeds: int) -> list[Row]:
    rows = []
    for net in nets:
        for layers in LAYERS:
            case = f"{task.title}, {net}, {layers} shared"
            published: dict[str, float] = dict(zip((REAL, ESTIMATE), ESTIMATED[model, net, layers]))
            distances: dict[str, float] = {}
            if task.order != "drawn":
                distances |= zip((REAL, ESTIMATE), TABLE3[net, layers])
            below: list[Row] = []
            for column, source, one in columns(task):
                results = [run(one, net, layers, source, CONSTANTS[model, layers], seed) for seed in range(seeds)]
                accuracy = [100 * result.final["accuracy"] for result in results]
                rows.append(row(case, column, published.get(column), accuracy))
                if column in published:
                    below.append(row(case, f"{column}: mean distance", distances.get(column), list(map(mean, results))))
                if source != REAL:
                    below.append(row(case, f"{source}: S too small, % of rounds", None, list(map(too_small, results))))
            rows += below
    return rows


def too_small(result: jdfl.Result) -> float:
    """The share of rounds, in per cent, in which S was below the true distance."""
    apart, S = np.asarray(result.state.shared.seen).T
    return float(100 * np.mean(apart > S))


def mean(result: jdfl.Result) -> float:
    return float(np.mean(np.asarray(result.state.shared.seen, float)[:, 0]))


@experiment(seeds=1, flags=FLAGS)
def main(chosen: Options) -> Made:
    rows: list[Row] = []
    for model in chosen_rows(chosen, ("mlp", "resnet")):
        for task in tasks(model, quick=chosen.quick)[: 2 if model == "mlp" else 1]:
            nets = ("2-Out",) if chosen.quick or reduced(task) else ("2-Out", "EXP")
            rows += collect(model, task, nets, chosen.seeds)
    names = dict.fromkeys(one.column for one in rows)
    shown = [name for name in names if "too small" not in name and "distance" not in name]
    return Made({"Table III: final accuracy, % (b = 5)": rows}, bars(rows, shown, "accuracy, %"))
