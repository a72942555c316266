"""The robustness atlas: rules against attacks on several graphs, with several shares of attackers and seeds.

25 nodes learn logistic regression with 100 parameters for 200 rounds (`jdfl.RobustDSGD` with momentum); every rule is
given the most attackers that are around one honest node. Numbers are means over the honest nodes of the accuracy of
their own models on a test set, and the accuracy of the worst. --quick has one share of attackers and two seeds, 1,100
cells; the full atlas has three shares, and 58 seeds make it 95,700.

What is done is kept in DIR/robustness_atlas_jobs, one file per rule, attack and seed range: the same command goes on
after it was cut off. `--cell cs-plus/dissensus/two-worlds/0.16/0` runs one cell through `jdfl.run` and prints its
numbers. DIR/robustness_atlas.html has the heat maps.
"""

import hashlib
import json
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import product
from multiprocessing import active_children, get_context
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from matplotlib.figure import Figure

from experiments import robustness_cells as cells
from experiments.common import Made, Options, end_with_parent, experiment, origin, row, save_figure
from experiments.robustness_cells import ATTACKS, FRACTIONS, GRAPHS, RULES, Cell
from jdfl.lab.page import Image, Section, Table, page
from jdfl.store.jobs import Jobs

NAME = "robustness_atlas"
PROCESSES = 2  # in one, two programs that run at the same time may wait for each other for ever
QUICK = (0.16,)
Places = tuple[tuple[str, float, int], ...]
Found: TypeAlias = dict[Cell, dict[str, float]]


def places(quick: bool, seeds: int) -> Places:
    """The graphs, shares and seeds of every rule and attack."""
    return tuple(product(GRAPHS, QUICK if quick else FRACTIONS, range(seeds)))


def computed(folder: Path, where: Places) -> Found:
    """All cells; those that are kept in the folder are not computed again."""
    folder.mkdir(parents=True, exist_ok=True)
    with ProcessPoolExecutor(PROCESSES, get_context("spawn"), end_with_parent) as pool:
        try:
            parts = list(pool.map(partial(of_rule, folder, where), RULES))
        except BaseException:  # or the rules that wait would be computed before a signal ends the script
            for worker in active_children():
                worker.kill()
            raise
    return {cell: values for part in parts for cell, values in part.items()}


def of_rule(folder: Path, where: Places, rule: str) -> Found:
    code = hashlib.sha256(b"".join(Path(str(one.__file__)).read_bytes() for one in (cells, sys.modules[__name__])))
    same = f"{code.hexdigest()[:12]}-{hashlib.sha256(repr(where).encode()).hexdigest()[:12]}"
    jobs, found = Jobs(folder), Found()
    for attack in ATTACKS:

        def make(place: Path, attack: str = attack) -> None:
            numbers = cells.group(rule, attack, where)
            (place / "cells.json").write_text(json.dumps(numbers), encoding="utf-8")

        kept = jobs.done(f"{rule}-{attack}-{same}", make)
        numbers = json.loads((kept / "cells.json").read_text(encoding="utf-8"))
        found |= {Cell(rule, attack, *one): values for one, values in zip(where, numbers)}
    return found


def table(found: Found, measure: str, **chosen: Any) -> np.ndarray:
    """The means [rules, attacks] of a measure over the cells with some values, such as `graph="random"`."""
    total = np.full((len(RULES), len(ATTACKS)), np.nan)
    for (i, rule), (j, attack) in product(enumerate(RULES), enumerate(ATTACKS)):
        values = [
            numbers[measure]
            for cell, numbers in found.items()
            if (cell.rule, cell.attack) == (rule, attack) and all(getattr(cell, a) == b for a, b in chosen.items())
        ]
        total[i, j] = np.mean(values)
    return total


def drawn(found: Found, measure: str, of: Sequence[tuple[str, dict[str, Any]]]) -> Figure:
    """Heat maps, one per title and choice of cells."""
    drawing = Figure(figsize=(4.6 * len(of) + 1.2, 4.6), layout="constrained")
    axes = np.atleast_1d(drawing.subplots(1, len(of), sharey=True))
    shown: Any = None
    for axis, (title, chosen) in zip(axes, of):
        values = table(found, measure, **chosen)
        shown = axis.imshow(values, cmap="viridis", vmin=0.5, vmax=1, aspect="auto")
        for (i, j), value in np.ndenumerate(values):
            colour = "white" if value < 0.8 else "black"
            axis.text(j, i, f"{100 * value:.0f}", ha="center", va="center", fontsize=6, color=colour)
        axis.set_title(title)
        axis.set_xticks(range(len(ATTACKS)), [one.title for one in ATTACKS.values()], rotation=60, ha="right")
    axes[0].set_yticks(range(len(RULES)), [one.title for one in RULES.values()])
    drawing.colorbar(shown, ax=list(axes), label=measure)
    return drawing


def _values(found: Found, rule: str, attack: str, measure: str) -> list[float]:
    """The means over graphs and shares, by seed."""
    seeds = sorted({cell.seed for cell in found})
    some = {cell: values for cell, values in found.items() if (cell.rule, cell.attack) == (rule, attack)}
    return [float(np.mean([v[measure] for cell, v in some.items() if cell.seed == seed])) for seed in seeds]


def _page(out: Path, found: Found, *figures: Path) -> Path:
    """The page with heat maps, the weakest attack of every rule, and the command of a cell."""
    values = table(found, "worst accuracy")
    worst = [
        (RULES[rule].title, list(ATTACKS.values())[int(np.argmin(line))].title, f"{line.min():.3f}")
        for rule, line in zip(RULES, values)
    ]
    return page(
        out / f"{NAME}.html",
        "Robustness atlas",
        [
            Section(
                "Accuracy of honest nodes",
                [
                    *(Image(one, f"heat map of rules and attacks, {one.stem}") for one in figures),
                    Table(["rule", "worst attack", "accuracy of the worst node"], worst),
                    f"One cell: python -m experiments.{NAME} --cell {cells.EXAMPLE}",
                ],
            )
        ],
        f"provenance {origin().hash}",
    )


@experiment(flags={"--cell": {"help": f"run one cell, such as {cells.EXAMPLE}"}})
def main(chosen: Options) -> Made:
    if chosen.more["cell"] is not None:
        numbers = cells.run_one(Cell.of(chosen.more["cell"]))
        print("\n".join(f"{name:<16} {value:.6g}" for name, value in numbers.items()))
        sys.exit()
    begun = time.perf_counter()
    found = computed(chosen.out / f"{NAME}_jobs", places(chosen.quick, chosen.seeds))
    seconds = time.perf_counter() - begun
    rows = [
        row(f"{RULES[rule].title}, {ATTACKS[attack].title}", measure, None, _values(found, rule, attack, measure))
        for rule, attack in product(RULES, ATTACKS)
        for measure in ("accuracy", "worst accuracy")
    ]
    print(f"{len(found)} cells in {seconds:.0f} s, {len(found) / seconds:.1f} a second, compilation included")
    path, graphs = chosen.out / f"{NAME}.png", chosen.out / f"{NAME}_graphs.png"
    figure = drawn(found, "accuracy", [("mean over honest nodes, all graphs", {})])
    save_figure(figure, path)
    save_figure(drawn(found, "worst accuracy", [(graph, {"graph": graph}) for graph in GRAPHS]), graphs)
    print("written:", _page(chosen.out, found, path, graphs))
    return Made({"Accuracy of honest nodes, over all graphs, shares and seeds": rows}, figure)
