"""PartPSP under label skew: when sharing a layer helps, on all classes and on a node's own classes.

The perceptron of Table II on 4-Out, split at random, by Dirichlet(alpha) per class, and with one label per node.
"global" is the accuracy on the test set, "own" that on test examples distributed over classes like a node's training
examples, both averaged over the nodes.

Nodes then have from a few to thousands of examples. For all splits, batches of 100 are drawn with replacement, which
works for the smallest node too, and runs have 720 rounds, with learning rates decreasing in the same rounds as in
Table II.

The study has one label per node, on the global test set: 10 to 11 % for every PartPSP variant and LocalOnly (10.5 in
the table), 91.8 % for noiseless SGP. 30 runs of 10 seconds on two cores.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

import jdfl
from experiments.common import Made, Options, Row, bars, experiment, row
from experiments.partpsp_common import SHARED, Task, alone, images, method, mlp_task, networks, problem_of, trained
from jdfl.problems.datasets import load

ROUNDS, QUICK_ROUNDS = 720, 96
SPLITS: Mapping[str, dict[str, Any]] = {
    "iid": {},
    "Dirichlet 1": {"partition": "dirichlet", "alpha": 1.0},
    "Dirichlet .1": {"partition": "dirichlet", "alpha": 0.1},
    "Dirichlet .01": {"partition": "dirichlet", "alpha": 0.01},
    "one label": {"partition": "clients"},  # the labels
}
QUICK = ("iid", "one label")
PRIVATE = "PartPSP-1, b = 3"
METHODS = ("PartPSP-1", "PartPSP-2", "SGP", PRIVATE, "LocalOnly", "frozen, 1 shared")
STUDY = dict.fromkeys(METHODS, 10.5) | {"SGP": 91.8, "frozen, 1 shared": None}
METRICS = {"global": "accuracy", "own": "accuracy_own"}


def task_of(split: str, *, quick: bool) -> Task:
    options = dict(SPLITS[split])
    if options.get("partition") == "clients":
        options["clients"] = tuple(np.asarray(load(images("mnist")).labels).tolist())
    made = mlp_task(quick=quick, **options)
    return replace(made, title=f"{made.title}, {split}", rounds=QUICK_ROUNDS if quick else ROUNDS)


def measured(name: str, task: Task, seed: int) -> dict[str, float]:
    """Both accuracies of a method in per cent."""
    base = name.split(",")[0]
    kind = "SGPDP" if base == "SGP" else base
    problem = problem_of(task, SHARED.get(kind, "partpsp-1"), seed=seed)
    if kind in SHARED:
        dpps = jdfl.DPPS(b=3.0 if name == PRIVATE else None, sensitivity="real")
        algorithm = method(kind, task, problem, dpps)
    else:
        algorithm, problem = alone(problem, task, frozen=base == "frozen")
    result = trained(algorithm, task, problem, networks()["4-Out"], key=seed, metrics=tuple(METRICS.values()))
    return {column: 100 * result.final[metric] for column, metric in METRICS.items()}


def collect(splits: Sequence[str], seeds: int, *, quick: bool) -> list[Row]:
    rows: list[Row] = []
    for split in splits:
        task = task_of(split, quick=quick)
        for name in METHODS:
            found = [measured(name, task, seed) for seed in range(seeds)]
            case = f"{task.title}: {name}"
            rows += [row(case, column, None, [one[column] for one in found]) for column in METRICS]
            if split == "one label" and not quick and task.data == "mnist" and STUDY[name] is not None:
                rows.append(row(case, "global, study", STUDY[name], [one["global"] for one in found]))
    return rows


@experiment(seeds=1)
def main(chosen: Options) -> Made:
    """All splits, or two with `--quick`."""
    splits = QUICK if chosen.quick else tuple(SPLITS)
    rows = collect(splits, chosen.seeds, quick=chosen.quick)
    return Made({"Label skew: accuracy, % (study and ours)": rows}, bars(rows, list(METRICS), "accuracy, %"))
