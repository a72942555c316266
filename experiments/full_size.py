"""DPPS paper, Table II at full size: ResNet-18 on Fashion-MNIST and a vision transformer on CIFAR-10, run by run.

Run `python -m experiments.full_size [--cells night|all] [--minutes M] [--quick] [--out DIR]`. Before anything else it
measures a round of every model on this device and says how long the rest will take. Checkpoints are written to
DIR/full_size/RUN every M minutes: the same command goes on after it was interrupted or killed, and does not repeat what
is done. The two newest checkpoints of a ResNet take 1 GB, until its run ends and only RUN.json is kept.

`all` is the table: two learning rates of the ResNet and the transformer, four networks, four methods and four levels of
noise, one seed, 192 runs for an accelerator, where it is the default. `night` is the default elsewhere: four of these
runs in full, on 4-Out at b = 3, which two cores finish in a night: PartPSP-1 with GroupNorm, with BatchNorm, as
published, and with the transformer, where SGPDP is the fourth.

Noise is scaled by the real sensitivity, as in the paper: an oracle, so no privacy is claimed. All models start at
random: weights trained on ImageNet are not available here, and the published code's transformers start from weights
trained on CIFAR-10 itself; `partpsp_start` has what that changes. BatchNorm has local statistics: means and variances
of a node's own batch, which are never sent. `--quick` has one run of a small transformer.
"""

import json
import re
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import jax
from rich import print as say

import jdfl
from experiments.common import Made, Options, Row, bars, experiment, refuse, row, save
from experiments.partpsp_common import (
    RESNET_RATES,
    SHARED,
    Task,
    method,
    networks,
    on_accelerator,
    problem_of,
    resnet_task,
    rounds_of,
    vit_task,
)
from experiments.partpsp_paper import ACCURACY, NETWORKS, Cell
from experiments.partpsp_table2 import LEVELS, level
from jdfl.engine.metrics import accuracy
from jdfl.lab.files import placed

NAME = "full_size"
CHUNK = 5  # rounds between two records, when a checkpoint may be due; one takes seconds on two cores
PASS = 3  # a forward and a backward pass take as long as so many forward passes
STATUSES = {"interrupted": 130, "terminated": 143}
BATCHES = 100  # of a test on 10,000 images


@dataclass(frozen=True)
class Run:
    """One cell of the table."""

    model: str
    task: Task
    method: str
    network: str = "4-Out"
    b: float | None = 3.0

    @property
    def case(self) -> str:
        return f"{self.task.title}, {self.network}: {self.method}"

    @property
    def folder(self) -> str:
        return re.sub(r"[^A-Za-z0-9.-]+", "-", f"{self.case} {level(self.b)}").strip("-")

    def parts(self) -> tuple[Any, Any, Any]:
        problem = problem_of(self.task, SHARED[self.method])
        dpps = jdfl.DPPS(b=self.b, sensitivity="real")
        return method(self.method, self.task, problem, dpps), problem, networks()[self.network]

    def rounds(self, problem: Any) -> int:
        return rounds_of(self.task, problem)[0]


def night() -> list[Run]:
    """Runs that two cores finish in a night, models in turn."""
    vit = vit_task(small=False)
    return [
        Run("resnet", resnet_task(0.1, small=False), "PartPSP-1"),
        Run("vit", vit, "PartPSP-1"),
        Run("vit", vit, "SGPDP"),
        Run("resnet", resnet_task(0.1, small=False, norm="batch"), "PartPSP-1"),
    ]


def everything() -> list[Run]:
    tasks = [("resnet", resnet_task(rate, small=False)) for rate in RESNET_RATES] + [("vit", vit_task(small=False))]
    return [
        Run(model, task, name, net, b) for model, task in tasks for net in NETWORKS for name in SHARED for b in LEVELS
    ]


def kept(run: Run, out: Path) -> list[Row]:
    """The rows of a run that is over; none of others."""
    path = out / f"{run.folder}.json"
    return [Row(**one) for one in json.loads(path.read_text(encoding="utf-8"))] if path.is_file() else []


def keep(run: Run, rows: Sequence[Row], out: Path) -> None:
    """Keep the rows of a run that is over instead of its checkpoints."""
    with placed(out / f"{run.folder}.json") as partial:
        partial.write_text(json.dumps([asdict(one) for one in rows]) + "\n", encoding="utf-8")
    shutil.rmtree(out / run.folder)


def done(run: Run, out: Path) -> int:
    """Rounds of a run that is not over which are done."""
    try:
        return jdfl.read_checkpoint(out / run.folder, *run.parts()).rounds
    except FileNotFoundError:
        return 0


def seconds_of_a_round(run: Run) -> float:
    """Seconds of a round on this device, without compilation: those of the second chunk of rounds of a short run."""
    times: list[float] = []

    def note(_: jdfl.Snapshot) -> None:
        times.append(time.monotonic())

    algorithm, problem, network = run.parts()
    given: dict[str, Any] = {"key": 0, "steps": 2, "every": 1, "metrics": ["consensus_error"]}
    whole(run, jdfl.run(algorithm, problem, network, callbacks=[note], options=jdfl.Options(chunk=1), **given))
    return times[1] - times[0]


def whole(run: Run, result: jdfl.Result) -> jdfl.Result:
    """The result, unless a signal has cut it off, which ends the script with the status of other commands."""
    if result.ending in STATUSES:
        print(f"{run.case}: {result.reason}. What is kept stays, and the same command goes on.", file=sys.stderr)
        sys.exit(STATUSES[result.ending])
    return result


def expected(runs: Sequence[Run], out: Path) -> str:
    """How long what is left will take here, in words, from a measured round of each model."""
    times: dict[str, float] = {}
    total, left = 0.0, 0
    for run in runs:
        if not kept(run, out):
            times[run.task.title] = times.get(run.task.title) or seconds_of_a_round(run)
            rest = run.rounds(run.parts()[1]) - done(run, out)
            total += (rest + BATCHES / PASS) * times[run.task.title]
            left += 1
    each = ", ".join(f"{seconds:.2g} s a round of {title}" for title, seconds in times.items())
    return f"expected: {total / 3600:.1f} h for {left} of {len(runs)} runs{f' ({each})' * bool(each)}"


def trained(run: Run, out: Path, minutes: float) -> jdfl.Result:
    """The run, from its newest checkpoint on; its accuracy, which takes as long as many rounds, is not recorded."""
    algorithm, problem, network = run.parts()
    folder, steps = out / run.folder, run.rounds(problem)
    before = jdfl.read_checkpoint(folder, algorithm, problem, network) if done(run, out) else None
    return jdfl.run(
        algorithm,
        problem,
        network,
        key=0,
        steps=steps,
        every=CHUNK,
        metrics=["consensus_error"],
        callbacks=[jdfl.Progress(run.case, lines=60.0), jdfl.Checkpoints(folder, minutes=minutes)],
        resume=before,
        options=jdfl.Options(chunk=CHUNK),
    )


def lines(run: Run, result: jdfl.Result) -> list[Row]:
    _, problem, _ = run.parts()
    paper = ACCURACY[Cell(run.model, run.network, run.method, run.b)]
    return [
        row(run.case, level(run.b), paper, [100 * float(jax.jit(accuracy)(result.params, problem))]),
        row(run.case, f"{level(run.b)}: rounds", None, [result.rounds]),
        row(run.case, f"{level(run.b)}: seconds", None, [result.seconds]),
    ]


@experiment(
    seeds=1,
    at_once=False,
    flags={
        "--cells": {"choices": ("night", "all"), "default": "all" if on_accelerator() else "night"},
        "--minutes": {"type": float, "default": 10.0, "help": "between checkpoints"},
    },
)
def main(chosen: Options) -> Made:
    """Say how long it takes, and run what is left."""
    if chosen.seeds != 1:
        refuse(f"Expected --seeds 1, as the table has, got {chosen.seeds}.")
    runs = {"night": night, "all": everything}[chosen.more["cells"]]()
    if chosen.quick:
        runs = [Run("vit", vit_task(small=True), "PartPSP-1")]
    out = chosen.out / NAME
    out.mkdir(exist_ok=True)
    say(expected(runs, out))
    rows: list[Row] = []
    for run in runs:
        mine = kept(run, out)
        if not mine:
            mine = lines(run, whole(run, trained(run, out, chosen.more["minutes"])))
            keep(run, mine, out)
        rows += mine
        save(rows, chosen.out, NAME)
    return Made({"Table II at full size": rows}, bars(rows, list(map(level, LEVELS)), "accuracy, %"))


if __name__ == "__main__":
    main()
