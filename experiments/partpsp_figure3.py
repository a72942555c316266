"""DPPS paper, Figure 3: the mean real sensitivity (RAS) over the shared part and over the network's degree.

Run `python -m experiments.partpsp_figure3 [--quick] [--seeds N] [--out DIR]`. Ten nodes train the perceptron with
PartPSP, b = 5, global averaging in every 4th round, noise by Eq. 22 with C' = .95 and lambda = .55 for every shared
part and network, as in the paper. RAS is the mean over rounds of the largest l1 distance between two nodes' messages
before noise. Ratios to 2-Out do not depend on scale: they are what is compared with the paper.

The S that scales the noise decides the ratios: with the true distances as S they are different, which is shown for one
layer. RAS is that of the rounds before learning rates first decrease (300 of 720 on MNIST), where almost all of it
arises; only the runs with one layer, whose ratios the paper has, continue to the end. With all layers shared, noise
overwhelms the runs: accuracy is that of random guessing, and distances are those of networks that learn nothing,
different from seed to seed. Two seeds of everything take about 6 minutes of processor time.
"""

import sys
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure

import jdfl
from experiments.common import Options, Row, options, row, save, save_figure, show
from experiments.partpsp_common import NOISE_RATE, PARTS, Task, mlp_task, networks, problem_of, rounds_of, watched

NAME = "partpsp_figure3"
B, CONSTANT, CONTRACTION = 5.0, 0.95, 0.55
PAPER = {"4-Out": 0.70, "6-Out": 0.49, "8-Out": 0.29, "10-Out": 0.114}  # RAS(d) / RAS(2), one layer, code's files
WITHIN = 0.15
QUICK = ("2-Out", "6-Out", "10-Out")


class Found(NamedTuple):
    """A network and a part over seeds; for runs that overflow, the rounds before."""

    ras: list[float]  # of the rounds at the initial learning rates
    whole: list[float]  # of all rounds, where they were run
    accuracy: list[float]
    violations: list[float]  # share of rounds in which Eq. 22 is below the true distance
    overflows: int  # runs


def measured(task: Task, shared: str, net: Any, source: Any, seeds: int, *, whole: bool = False) -> Found:
    """Every seed has its own split, start and noise; runs end with the initial rates unless they are `whole`."""
    found = Found([], [], [], [], 0)
    dpps = jdfl.DPPS(b=B, noise_rate=NOISE_RATE, sensitivity=source, constant=CONSTANT, contraction=CONTRACTION)
    for seed in range(seeds):
        problem = problem_of(task, shared, seed=seed)
        rounds, (first, *_) = rounds_of(task, problem)
        seen, accuracy = watched(task, problem, net, dpps, steps=rounds if whole else first, key=seed)
        here = np.all(np.isfinite(seen), axis=1)
        found.ras.append(float(seen[:first][here[:first], 0].mean()))
        if whole:
            found.whole.append(float(seen[here, 0].mean()))
        found.accuracy.append(100 * accuracy)
        found.violations.append(100 * float(np.mean(seen[here, 1] < seen[here, 0])))
        found = found._replace(overflows=found.overflows + (not here.all()))
    return found


def rows_of(cells: Mapping[tuple[str, str], Found], *, compared: bool) -> list[Row]:
    """The rows of the table, network by network; the paper's numbers where data are `compared` to its own."""
    made = []
    for (part, name), found in cells.items():
        case, base = f"{part}, {name}", cells[part, "2-Out"]
        made.append(row(case, "RAS", None, found.ras))
        made.append(row(case, "RAS / RAS of 2-Out", None, np.divide(found.ras, base.ras).tolist()))
        if found.whole:
            paper = PAPER.get(name) if compared else None
            made.append(row(case, "RAS / RAS of 2-Out, all rounds", paper, np.divide(found.whole, base.whole).tolist()))
        made.append(row(case, "rounds with S too small, %", None, found.violations))
        made.append(row(case, "accuracy, %", None, found.accuracy))
        if found.overflows:
            made.append(row(case, "runs that overflow", None, [found.overflows]))
    return made


def claims(cells: Mapping[tuple[str, str], Found], *, compared: bool) -> list[str]:
    """The paper's claims about its figure, and whether they hold here."""
    mean = {case: float(np.mean(found.ras)) for case, found in cells.items() if case[0] in PARTS}
    names = list(dict.fromkeys(name for _, name in mean))
    parts = [part for part in PARTS if (part, names[0]) in mean]
    degrees = [name for name in names if name.endswith("-Out")]
    more = [f"{b} on {n}" for n in names for a, b in pairwise(parts) if mean[a, n] >= mean[b, n]]
    denser = [f"{part}, {b}" for part in parts for a, b in pairwise(degrees) if mean[part, a] <= mean[part, b]]
    base = cells["1 layer", "2-Out"].whole
    off = {n: np.mean(np.divide(cells["1 layer", n].whole, base)) / PAPER[n] - 1 for n in degrees if n in PAPER}
    told = ", ".join(f"{name} {value:+.0%}" for name, value in off.items())
    made = [
        f"{_word(not more)} RAS falls as less is shared: {'not for ' + ', '.join(more) if more else 'everywhere'}",
        f"{_word(not denser)} RAS falls with the degree: {'not for ' + ', '.join(denser) if denser else 'always'}",
    ]
    if compared:
        near = all(abs(x) <= WITHIN for x in off.values())
        made.append(f"{_word(near)} one layer, ratios within {WITHIN:.0%} of the paper's: {told}")
    return made


def _word(holds: bool) -> str:
    return "true " if holds else "FALSE"


def draw(cells: Mapping[tuple[str, str], Found], chosen: Options, title: str) -> None:
    """DIR/NAME.png: RAS over the degree, and the ratios with the paper's."""
    fig = Figure(figsize=(9.6, 4.2), layout="constrained")
    left, right = fig.subplots(1, 2)
    for part in dict.fromkeys(part for part, _ in cells):
        line = {int(name[:-4]): found.ras for (p, name), found in cells.items() if p == part and name != "EXP"}
        degrees, means = list(line), np.array([np.mean(values) for values in line.values()])
        style = "--" if "real" in part else "-"
        left.plot(degrees, means, f"o{style}", label=part)
        if part.startswith("1 layer"):
            long = [np.mean(cells[part, f"{d}-Out"].whole or cells[part, f"{d}-Out"].ras) for d in degrees]
            right.plot(degrees, np.divide(long, long[0]), f"o{style}", label=part)
    right.plot([int(name[:-4]) for name in PAPER], list(PAPER.values()), "x", color="#D55E00", label="paper, 1 layer")
    left.set(xlabel="degree d of d-Out", ylabel="RAS", yscale="log", title=title)
    right.set(xlabel="degree d of d-Out", ylabel="RAS(d) / RAS(2)", ylim=(0, None))
    for axis in (left, right):
        axis.legend(frameon=False)
        axis.grid(alpha=0.3)
    save_figure(fig, chosen.out / f"{NAME}.png")


def main(arguments: Sequence[str] | None = None) -> list[Row]:
    """All degrees and parts; with `--quick` three degrees and 20,000 images."""
    chosen = options("DPPS paper, Figure 3", seeds=2, arguments=arguments)
    task, nets = mlp_task(quick=chosen.quick), networks()
    names = list(QUICK) if chosen.quick else sorted(nets, key=lambda name: name == "EXP")
    cells = {}
    for part, shared in PARTS.items():
        for name in names:
            cells[part, name] = measured(task, shared, nets[name], "eq22", chosen.seeds, whole=part == "1 layer")
    if not chosen.quick:
        for name in names:
            cells["1 layer, real S", name] = measured(task, "partpsp-1", nets[name], "real", chosen.seeds)
    compared = task.data == "mnist"
    rows = rows_of(cells, compared=compared)
    title = f"Mean real sensitivity, {task.title}"
    show(f"{title} (10 nodes, b = 5, noise by Eq. 22 unless marked as real S)", rows)
    print("\n".join(claims(cells, compared=compared)))
    draw(cells, chosen, title)
    print("written:", save(rows, chosen.out, NAME), chosen.out / f"{NAME}.png")
    return rows


if __name__ == "__main__":
    main(sys.argv[1:])
