"""DPPS paper, Table II: what a trained start of the large models changes.

Weights trained on ImageNet, from which a ResNet-18 can start, are not available here; the published code's transformers
start from weights trained on CIFAR-10 itself. Two starts of each model are compared: at random, and after a training
without noise over 12 epochs, on images of CIFAR-10 for the ResNet, which then learns Fashion-MNIST, and on the same
images for the transformer. A start that has seen the data is a release of them that no epsilon of the run covers.

All is on 4-Out, with noise scaled by the real sensitivity, as in Table II. "start" is the accuracy before the first
round. The models are "reduced" where there is no accelerator (`experiments.partpsp_common`): the paper's numbers are
given, but only the differences between the starts are comparable. `--quick`: PartPSP-1 with the transformer at b = 3.
"""

from collections.abc import Sequence
from dataclasses import replace

import jax.numpy as jnp
from jax import Array

import jdfl
from experiments.common import Made, Options, Row, bars, experiment, row
from experiments.partpsp_common import (
    SHARED,
    Task,
    images,
    method,
    networks,
    on_accelerator,
    percent,
    problem_of,
    resnet_task,
    trained,
    vit_task,
)
from experiments.partpsp_paper import ACCURACY, Cell
from experiments.partpsp_table2 import level
from jdfl.engine.metrics import accuracy

NETWORK = "4-Out"
METHODS = ("PartPSP-1", "SGPDP")
LEVELS: tuple[float | None, ...] = (1.0, 3.0, None)


def learned(task: Task, shared: str, seed: int) -> Array:
    """The mean parameters [n] of the nodes, in the order of the preset `shared`, after training without noise."""
    problem = replace(problem_of(task, shared, seed=seed), shared=0)  # nodes agree on all of them
    result = trained(method("SGPDP", task, problem, jdfl.DPPS()), task, problem, networks()[NETWORK], key=seed)
    return jnp.mean(result.params, axis=0)


def elsewhere(task: Task, *, small: bool) -> Task:
    """The task on CIFAR-10, with the same parameters; the task itself where there is no such data."""
    data = images("cifar10")
    if data == "digits":
        return task
    model = jdfl.models.resnet18(shape=(32, 32, 3), width=8 if small else 64)
    return replace(task, title=f"{task.title}, of CIFAR-10", data=data, model=model)


def compare(
    model: str, task: Task, source: Task, methods: Sequence[str], levels: Sequence[float | None], seeds: int
) -> list[Row]:
    """Final accuracies in per cent from both starts, and those of the starts."""
    rows: list[Row] = []
    for name in methods:
        found: dict[tuple[str, str], list[float]] = {}
        for seed in range(seeds):
            at_random = problem_of(task, SHARED[name], seed=seed)
            start = learned(source, SHARED[name], seed)
            for case, problem in (("random", at_random), ("trained", replace(at_random, start=start))):
                begin = jnp.broadcast_to(problem.initial_params()[0], problem.initial_params().shape)
                found.setdefault((case, "start"), []).append(100 * float(accuracy(begin, problem)))
                for b in levels:
                    algorithm = method(name, task, problem, jdfl.DPPS(b=b, sensitivity="real"))
                    result = trained(algorithm, task, problem, networks()[NETWORK], key=seed)
                    found.setdefault((case, level(b)), []).append(percent(result, problem))
        papers = {level(b): ACCURACY[Cell(model, NETWORK, name, b)] for b in levels}
        rows += [
            row(f"{task.title}, {name}: {case}", column, papers.get(column), values)
            for (case, column), values in found.items()
        ]
        rows += [
            row(f"{task.title}, {name}: trained - random", level(b), None, paired(found, level(b))) for b in levels
        ]
    return rows


def paired(found: dict[tuple[str, str], list[float]], column: str) -> list[float]:
    return [a - b for a, b in zip(found["trained", column], found["random", column], strict=True)]


@experiment(seeds=3)
def main(chosen: Options) -> Made:
    """Both models; with `--quick` one run of the transformer."""
    small = chosen.quick or not on_accelerator()
    vit = vit_task(small=small)
    cases = [("vit", vit, vit)]
    if not chosen.quick:
        resnet = resnet_task(0.1, small=small)
        cases = [("resnet", resnet, elsewhere(resnet, small=small)), *cases]
    methods, levels = (METHODS[:1], (3.0,)) if chosen.quick else (METHODS, LEVELS)
    rows = [one for case in cases for one in compare(*case, methods, levels, chosen.seeds)]
    shown = [one for one in rows if one.case.endswith((": random", ": trained"))]
    columns = list(dict.fromkeys(one.column for one in shown))
    return Made({"Table II: starts": rows}, bars(shown, columns, "accuracy, %"))
