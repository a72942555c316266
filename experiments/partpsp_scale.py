"""DPPS paper, Figure 2: which readings of the paper make its scale, and what every one of them changes.

Run `python -m experiments.partpsp_scale [--quick] [--seeds N] [--out DIR] [--weights DIR]`. PartPSP on 2-Out with one
and two shared layers, b = 5, C' = .78, lambda = .55 and .62, 120 rounds as in the files published with the code. The
paper's numbers are those of these files. A case is one reading:

- `ours`, which follows the text, and then one change after the other until it is the published code's;
- the published code's with one change: its own value of each explanation is put back, or another is tried.

Columns: the largest l1 distance between two nodes' messages in round 0, its peak, its mean with and without the first
four rounds, the peak over the published one, and the share of rounds with S below it.

The code's authors have published the initial values of their network with two shared layers, Com2FrontBottFFN.pth and
Com2BackBottFFN.pth. With `--weights DIR`, a folder with these two files, the case `authors' start` begins there. Before
there is noise, which they leave without a seed, nothing is random then: round 0 is theirs.

All of it takes about 15 minutes of processor time.
"""

import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

import jdfl
from experiments.common import Made, Options, Row, bars, experiment, row
from experiments.partpsp_common import (
    NOISE_RATE,
    PARTS,
    WIRINGS,
    Task,
    mlp_task,
    networks,
    problem_of,
    published_task,
    rounds_of,
    shortened,
    watched,
)
from experiments.partpsp_paper import FIGURE2
from jdfl.problems import NeuralProblem

B, CONSTANT, CONTRACTION = 5.0, 0.78, {"1 layer": 0.55, "2 layers": 0.62}
FIRST = 4  # rounds that are left out
OURS, CODE, START = "ours", "code", "authors' start"


@dataclass(frozen=True)
class Reading:
    """Everything that is tried."""

    task: Task
    net: str = "2-Out"
    every: int = 5
    m: int = 10
    sensitivity: str = "eq22"
    noise_rate: float = NOISE_RATE


def readings(part: str, *, quick: bool) -> dict[str, Reading]:
    """All readings by name, for one or two shared layers."""
    code = published_task(WIRINGS[part], short=True, quick=quick)
    ours = shortened(mlp_task(quick=quick))
    wired = published_task("residual-784", short=True, quick=quick)
    path = [
        (OURS, ours),
        ("+ the start dropped", replace(ours, reading="no start")),
        ("+ pixels in [0, 1]", replace(ours, reading="no start", pixels="0..1")),
        ("+ tanh of the scores", replace(wired, reading="no start", order="drawn")),
        ("+ the code's wiring", replace(code, reading="no start", order="drawn")),
        ("+ the network's largest S", replace(code, order="drawn")),
        (CODE, code),
    ]
    found = {name: Reading(task) for name, task in path}
    linear = jdfl.models.mlp(WIRINGS[part], shape=code.model.shape)
    changed: dict[str, dict[str, Any]] = {
        "start kept (Eq. 22 as in the text)": {"reading": "text"},
        "every node's own S": {"reading": "no start"},
        "pixels in [-1, 1]": {"pixels": "-1..1"},
        "linear scores": {"model": linear},
        "images drawn, not dealt": {"order": "drawn"},
        "clip 10": {"clip": 10.0},
        "batches of 50": {"batch": 50, "epochs": code.epochs // 2},
        "rates .01": {"lr_shared": 0.01},
        "720 rounds, rates fall": {"epochs": 12, "milestones": (4, 9)},
    }
    found |= {f"code, {name}": Reading(replace(code, **change)) for name, change in changed.items()}
    for wiring in ("residual-10", "residual-784", "plain"):
        if wiring != WIRINGS[part]:
            found[f"code, {wiring}"] = Reading(published_task(wiring, short=True, quick=quick))
    return found | {
        "code, EXP": Reading(code, net="EXP"),
        "code, averaging every 4 rounds": Reading(code, every=4),
        "code, 20 nodes": Reading(code, m=20),
        "code, noise by the real distances": Reading(code, sensitivity="real"),
        "code, twice the noise": Reading(code, noise_rate=2 * NOISE_RATE),
    }


QUICK = (OURS, CODE, "code, start kept (Eq. 22 as in the text)", "code, pixels in [-1, 1]")


def seen(part: str, reading: Reading, seed: int, problem: NeuralProblem | None = None) -> np.ndarray:
    task = reading.task
    if problem is None:
        problem = problem_of(task, PARTS[part], m=reading.m, seed=seed)
    dpps = jdfl.DPPS(
        b=B,
        noise_rate=reading.noise_rate,
        sensitivity=reading.sensitivity,  # pyright: ignore[reportArgumentType]
        constant=CONSTANT,
        contraction=CONTRACTION[part],
        reading=task.reading,
    )
    net = networks(reading.m, every=reading.every)[reading.net]
    return watched(task, problem, net, dpps, steps=rounds_of(task, problem)[0], key=seed)[0]


def authors_start(folder: Path, problem: NeuralProblem) -> NeuralProblem:
    """The problem from the authors' initial values with two shared layers; KeyError for other files."""
    values = []
    for file, count in (("Com2FrontBottFFN.pth", 4), ("Com2BackBottFFN.pth", 2)):
        with zipfile.ZipFile(folder / file) as inside:
            (top,) = {name.partition("/")[0] for name in inside.namelist()}
            values += [np.frombuffer(inside.read(f"{top}/data/{k}"), "<f4") for k in range(count)]
    h, p = 10, problem.model.shape[0] * problem.model.shape[1]
    kernels = [values[0].reshape(h, p).T, values[2].reshape(p, h).T, values[4].reshape(h, p).T]
    leaves = [leaf.ravel() for kernel, bias in zip(kernels, values[1::2]) for leaf in (kernel, bias)]
    return replace(problem, start=jnp.asarray(np.concatenate(leaves)))


def rows_of(cells: Mapping[tuple[str, str], list[np.ndarray]]) -> list[Row]:
    made = []
    for (part, name), runs in cells.items():
        case, paper = f"{part}, {name}", FIGURE2[part, "2-Out"]
        real = [one[:, 0] for one in runs]
        made += [
            row(case, "round 0", paper.first, [one[0] for one in real]),
            row(case, "peak", paper.peak, [one.max() for one in real]),
            row(case, "mean", paper.mean, [one.mean() for one in real]),
            row(case, "mean without the first four", paper.later, [one[FIRST:].mean() for one in real]),
            row(case, "peak / published", 1, [one.max() / paper.peak for one in real]),
            row(case, "mean / published", 1, [one.mean() / paper.mean for one in real]),
            row(case, "rounds with S too small, %", 0, [100 * float(np.mean(one[:, 1] < one[:, 0])) for one in runs]),
        ]
    return made


@experiment(seeds=3, flags={"--weights": {"type": Path, "help": "the folder of the authors' two files"}})
def main(chosen: Options) -> Made:
    """All readings; with `--quick` four of them, on 20,000 images."""
    cells = {
        (part, name): [seen(part, reading, seed) for seed in range(chosen.seeds)]
        for part in CONTRACTION
        for name, reading in readings(part, quick=chosen.quick).items()
        if not chosen.quick or name in QUICK
    }
    if chosen.more["weights"] is not None:
        reading = readings("2 layers", quick=chosen.quick)[CODE]
        problem = authors_start(chosen.more["weights"], problem_of(reading.task, PARTS["2 layers"]))
        cells["2 layers", START] = [seen("2 layers", reading, seed, problem) for seed in range(chosen.seeds)]
    title = f"Real distances, {mlp_task(quick=chosen.quick).title}, 2-Out, b = 5"
    rows = rows_of(cells)
    fig = bars(rows, ["peak / published"], "peak / published")
    return Made({f"{title} (the files published with the code, and ours)": rows}, fig)
