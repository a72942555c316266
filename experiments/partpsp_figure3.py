"""DPPS paper, Figure 3: the mean real sensitivity (RAS) over the shared part and over the network's degree.

Ten nodes train the perceptron with PartPSP, b = 5, global averaging in every 4th round, noise by Eq. 22 with C' = .95
and lambda = .55 for every shared part and network. RAS is the mean over rounds of the largest l1 distance between two
nodes' messages before noise. Everything is in the published code's reading (`experiments.partpsp_common`): 120 rounds,
gradients clipped to 200 in l1, which hardly ever happens, and the wirings of its files, whose numbers are the paper's
here. Means without the first four rounds are given too.

`1 layer, text` is our reading, which keeps the norm of the start: most of its RAS is that of the first four rounds.
`1 layer, real S` is the published one with the true distances as S. With all layers shared, noise overwhelms the runs:
accuracy is that of random guessing, as in the published files. Three seeds of everything take about 5 minutes of
processor time.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure

import jdfl
from experiments.common import Made, Options, Row, experiment, row
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
from experiments.partpsp_paper import FIGURE3

B, CONSTANT, CONTRACTION = 5.0, 0.95, 0.55
CLIP, FIRST, WITHIN = 200.0, 4, 0.15
QUICK = ("2-Out", "6-Out", "10-Out")


class Found(NamedTuple):
    """A network and a part over seeds; for runs that overflow, the rounds before."""

    ras: list[float]
    later: list[float]  # without the first four rounds
    accuracy: list[float]
    violations: list[float]  # share of rounds in which Eq. 22 is below the true distance
    overflows: int  # runs


def measured(task: Task, shared: str, net: Any, source: Any, seeds: int) -> Found:
    found, task = Found([], [], [], [], 0), replace(task, clip=CLIP)
    constants: dict[str, Any] = {"constant": CONSTANT, "contraction": CONTRACTION, "reading": task.reading}
    dpps = jdfl.DPPS(b=B, noise_rate=NOISE_RATE, sensitivity=source, **constants)
    for seed in range(seeds):
        problem = problem_of(task, shared, seed=seed)
        seen, accuracy = watched(task, problem, net, dpps, steps=rounds_of(task, problem)[0], key=seed)
        here = np.all(np.isfinite(seen), axis=1)
        found.ras.append(float(seen[here, 0].mean()))
        found.later.append(float(seen[FIRST:][here[FIRST:], 0].mean()))
        found.accuracy.append(100 * accuracy)
        found.violations.append(100 * float(np.mean(seen[here, 1] < seen[here, 0])))
        found = found._replace(overflows=found.overflows + (not here.all()))
    return found


def rows_of(cells: Mapping[tuple[str, str], Found], *, compared: bool) -> list[Row]:
    """The rows of the table, network by network; the paper's numbers where data are `compared` to its own."""
    made = []
    for (part, name), found in cells.items():
        case, base, (paper, later) = f"{part}, {name}", cells[part, "2-Out"], published(part, name, compared)
        ratio = None if paper is None else paper / FIGURE3[part][2][0]
        made.append(row(case, "RAS", paper, found.ras))
        made.append(row(case, "RAS without the first four", later, found.later))
        made.append(row(case, "RAS / RAS of 2-Out", ratio, np.divide(found.ras, base.ras).tolist()))
        made.append(row(case, "rounds with S too small, %", None, found.violations))
        made.append(row(case, "accuracy, %", None, found.accuracy))
        if found.overflows:
            made.append(row(case, "runs that overflow", None, [found.overflows]))
    return made


def published(part: str, name: str, compared: bool) -> tuple[float | None, float | None]:
    """The published RAS, and the one without the first four rounds; None where there is none."""
    degree = 0 if name == "EXP" else int(name.removesuffix("-Out"))
    return FIGURE3.get(part, {}).get(degree, (None, None)) if compared else (None, None)


def draw(cells: Mapping[tuple[str, str], Found], title: str) -> Figure:
    """RAS over the degree, and the ratios; crosses: the paper's."""
    fig = Figure(figsize=(9.6, 4.2), layout="constrained")
    left, right = fig.subplots(1, 2)
    for place, part in enumerate(dict.fromkeys(part for part, _ in cells)):
        line = {int(name[:-4]): found.ras for (p, name), found in cells.items() if p == part and name != "EXP"}
        degrees, means = list(line), np.array([np.mean(values) for values in line.values()])
        style = "o-" if part in PARTS else "o--"
        left.plot(degrees, means, style, color=f"C{place}", label=part)
        paper = np.array([FIGURE3[part][d][0] for d in degrees]) if part in PARTS else None
        if paper is not None:
            left.plot(degrees, paper, "x", color=f"C{place}")
        if part != "all layers":
            right.plot(degrees, means / means[0], style, color=f"C{place}", label=part)
            if paper is not None:
                right.plot(degrees, paper / paper[0], "x", color=f"C{place}")
    left.set(xlabel="degree d of d-Out", ylabel="RAS (crosses: the paper)", yscale="log", title=title)
    left.title.set_fontsize(8)
    right.set(xlabel="degree d of d-Out", ylabel="RAS(d) / RAS(2)", ylim=(0, None))
    for axis in (left, right):
        axis.legend(frameon=False, fontsize=8)
        axis.grid(alpha=0.3)
    return fig


@experiment(seeds=3)
def main(chosen: Options) -> Made:
    """All degrees and parts; with `--quick` three degrees and 20,000 images."""
    ours, nets = shortened(mlp_task(quick=chosen.quick)), networks()
    names = list(QUICK) if chosen.quick else sorted(nets, key=lambda name: name == "EXP")
    tasks = {part: published_task(WIRINGS[part], short=True, quick=chosen.quick) for part in PARTS}
    cells = {
        (part, name): measured(tasks[part], shared, nets[name], "eq22", chosen.seeds)
        for part, shared in PARTS.items()
        for name in names
    }
    if not chosen.quick:
        for name in names:
            cells["1 layer, text", name] = measured(ours, "partpsp-1", nets[name], "eq22", chosen.seeds)
            cells["1 layer, real S", name] = measured(tasks["1 layer"], "partpsp-1", nets[name], "real", chosen.seeds)
    title = f"Mean real sensitivity, {ours.title}"
    rows = rows_of(cells, compared=ours.data == "mnist")
    return Made({f"{title} (10 nodes, b = 5, noise by Eq. 22 unless marked as real S)": rows}, draw(cells, title))
