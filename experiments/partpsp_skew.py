"""PartPSP under label skew: when sharing a layer helps, on all classes and on a node's own classes.

Run `python -m experiments.partpsp_skew [--quick] [--seeds N] [--out DIR]`. The perceptron of Table II on 4-Out, split
at random, by Dirichlet(alpha) per class, and with one label per node. "global" is the accuracy on the test set, "own"
that on test examples distributed over classes like a node's training examples, both averaged over the nodes.

Nodes then have from a few to thousands of examples. For all splits, batches of 100 are drawn with replacement, which
works for the smallest node too, and runs have 720 rounds, with learning rates decreasing in the same rounds as in
Table II.

The study has one label per node, on the global test set: 10 to 11 % for every PartPSP variant and LocalOnly (10.5 in
the table), 91.8 % for noiseless SGP. 30 runs of 10 seconds on two cores.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from rich import print as say

import jdfl
from experiments.common import Row, options, row, save, save_figure, show
from experiments.partpsp_common import SHARED, Task, alone, images, method, mlp_task, networks, problem_of, trained
from jdfl.problems.datasets import load

NAME = "partpsp_skew"
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
MARGIN = 0.5  # points; accuracies that are closer are considered equal


def task_of(split: str, *, quick: bool) -> Task:
    """The perceptron on images with this split."""
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


def collect(splits: Sequence[str], seeds: int, *, quick: bool) -> tuple[list[Row], list[str]]:
    """All numbers, and a verdict per split."""
    rows, verdicts = [], []
    for split in splits:
        task, means = task_of(split, quick=quick), {}
        for name in METHODS:
            found = [measured(name, task, seed) for seed in range(seeds)]
            case = f"{task.title}: {name}"
            mine = [row(case, column, None, [one[column] for one in found]) for column in METRICS]
            means |= {(name, one.column): one.mean for one in mine}
            rows += mine
            if split == "one label" and not quick and task.data == "mnist" and STUDY[name] is not None:
                rows.append(row(case, "global, study", STUDY[name], [one["global"] for one in found]))
            say(f"{case}: " + ", ".join(f"{one.column} {one.mean:.1f}" for one in mine))
        sizes = np.asarray(problem_of(task, "partpsp-1").sizes)
        verdicts.append(f"{task.title} (nodes of {sizes.min():,} to {sizes.max():,}): {verdict(means)}")
    return rows, verdicts


def verdict(means: Mapping[tuple[str, str], float]) -> str:
    """The effect of sharing one layer, and everything, relative to local training; and of noise relative to none."""

    def against(name: str, other: str, column: str) -> str:
        gap = means[name, column] - means[other, column]
        word = "as good" if abs(gap) <= MARGIN else "better" if gap > 0 else "worse"
        return f"{word} ({means[name, column]:.1f} to {means[other, column]:.1f} %) on {column} classes"

    parts = []
    for said, name, other in (
        ("one layer shared against local training", "PartPSP-1", "LocalOnly"),
        ("everything shared against local training", "SGP", "LocalOnly"),
        ("one layer shared at b = 3 against the same layer frozen", PRIVATE, "frozen, 1 shared"),
    ):
        parts.append(f"{said} is {' and '.join(against(name, other, column) for column in METRICS)}")
    return "; ".join(parts) + "."


def draw(rows: Sequence[Row], splits: Sequence[str], path: str) -> None:
    """A panel per accuracy: the methods over the splits."""
    fig = Figure(figsize=(9, 4.2), layout="constrained")
    axes = fig.subplots(1, 2, sharey=True)
    for axis, column in zip(axes, METRICS):
        for name in METHODS:
            values = [one.mean for one in rows if one.column == column and one.case.endswith(f": {name}")]
            axis.plot(values, "o-" if "frozen" not in name and name != "LocalOnly" else "s--", label=name)
        axis.set_xticks(range(len(splits)), splits, rotation=30, ha="right")
        axis.set_title(f"{column} classes")
    axes[0].set_ylabel("accuracy, %")
    fig.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=3, frameon=False)
    save_figure(fig, path)


def main(arguments: Sequence[str] | None = None) -> list[Row]:
    """Print the table and the verdicts, write the JSON and the figure."""
    given = options(__doc__ or "", seeds=1, arguments=arguments)
    splits = QUICK if given.quick else tuple(SPLITS)
    rows, verdicts = collect(splits, given.seeds, quick=given.quick)
    show("Label skew: accuracy, % (study and ours)", rows)
    for said in verdicts:
        say(said)
    save(rows, given.out, NAME)
    draw(rows, splits, str(given.out / f"{NAME}.png"))
    return rows


if __name__ == "__main__":
    main()
    sys.exit(0)
