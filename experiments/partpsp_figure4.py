"""DPPS paper, Figure 4: the mean real sensitivity (RAS) over the number of nodes, for d-Out of several degrees and EXP.

PartPSP, the perceptron with one shared layer, b = 5, global averaging in every 4th round, noise by Eq. 22 with C' = .95
and lambda = .55, all in the published code's reading. The nodes share the 60,000 images, and RAS is the mean of the
first 20 rounds, as in the code that draws the figure; the paper's numbers are those of the files published with it.

The paper's claim is that RAS hardly depends on N while d is far below N. Here that means: for N >= 4 d the largest mean
RAS of a degree is at most 1.25 times the smallest. Two further means are of the same rounds: `without the first four`,
and `after a mean of all`, the first round of the cycles after that, in which nothing but gradients differs. The latter
grow with N, since the largest of more differences is larger. 3 minutes of processor time for a seed.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from matplotlib.figure import Figure

import jdfl
from experiments.common import Made, Options, Row, experiment, row
from experiments.partpsp_common import (
    NOISE_RATE,
    SYNCHRONISED,
    Task,
    networks,
    problem_of,
    published_task,
    watched,
)
from experiments.partpsp_paper import FIGURE4

B, CONSTANT, CONTRACTION = 5.0, 0.95, 0.55
SIZES, NETWORKS = (10, 20, 30, 40, 50), tuple(FIGURE4)
ROUNDS, FAR, MOST = 20, 4, 1.25  # of the mean; the criterion: N >= FAR d, largest / smallest
WHOLE, LATER, ALIKE = "", ", without the first four", ", after a mean of all"  # which rounds
Cells = Mapping[tuple[str, int], list[float]]  # by network and N, over seeds


def task_of() -> Task:
    """The published one, to be tested on a few images; rates do not fall in so few rounds."""
    return replace(published_task("residual-10", short=True), test_examples=100)


def mean_distances(m: int, net: str, seed: int) -> dict[str, float]:
    """RAS of one run, over all its rounds and over some; ValueError where it overflows."""
    task = task_of()
    problem = problem_of(task, "partpsp-1", m=m, seed=seed)
    constants: dict[str, Any] = {"constant": CONSTANT, "contraction": CONTRACTION}
    dpps = jdfl.DPPS(b=B, noise_rate=NOISE_RATE, sensitivity="eq22", reading=task.reading, **constants)
    seen, _ = watched(task, problem, networks(m)[net], dpps, steps=ROUNDS, key=seed)
    if not np.isfinite(seen).all():
        raise ValueError(f"Expected a run without overflow, got one with m = {m}, {net}, seed = {seed}.")
    distances = seen[:, 0]
    rounds = {WHOLE: distances, LATER: distances[SYNCHRONISED:], ALIKE: distances[SYNCHRONISED::SYNCHRONISED]}
    return {which: float(np.mean(some)) for which, some in rounds.items()}


def far(net: str, m: int) -> bool:
    """Whether the degree is far below N; EXP has one neighbour in a round, like 2-Out."""
    return m >= FAR * (2 if net == "EXP" else int(net.removesuffix("-Out")))


def spread(cells: Cells, net: str, *, distant: bool) -> float:
    """Largest over smallest mean RAS of a network, over all N or those far above its degree; 1 for a single N."""
    means = [np.mean(values) for (one, m), values in cells.items() if one == net and (far(net, m) or not distant)]
    return float(max(means, default=1.0) / min(means, default=1.0))


def rows_of(cells: Cells, which: str = WHOLE, *, compared: bool = False) -> list[Row]:
    """A row per network, a column per N, and the spreads; the paper's where data are `compared` to its own."""
    made = []
    for (net, m), values in cells.items():
        paper = FIGURE4[net][SIZES.index(m)] if compared and which == WHOLE else None
        made.append(row(f"{net}{which}", f"N = {m}", paper, values))
    for net in dict.fromkeys(net for net, _ in cells):
        made.append(row(f"{net}{which}", f"largest / smallest, N >= {FAR} d", None, [spread(cells, net, distant=True)]))
        made.append(row(f"{net}{which}", "largest / smallest", None, [spread(cells, net, distant=False)]))
    return made


def draw(cells: Cells, title: str) -> Figure:
    """RAS over N, a line per network with the paper's as crosses; hollow where d is too close to N."""
    fig = Figure(figsize=(6.4, 4.4), layout="constrained")
    axis = fig.subplots()
    sizes = list(dict.fromkeys(m for _, m in cells))
    for place, net in enumerate(NETWORKS):
        line = {m: np.mean(values) for (one, m), values in cells.items() if one == net}
        axis.plot(list(line), list(line.values()), color=f"C{place}", label=net)
        for m, value in line.items():
            axis.plot(m, value, "o", color=f"C{place}", fillstyle="full" if far(net, m) else "none")
        axis.plot(sizes, [FIGURE4[net][SIZES.index(m)] for m in sizes], "x", color=f"C{place}")
    axis.set(xlabel="number of nodes N", ylabel="RAS, first 20 rounds", ylim=(0, None), title=title)
    axis.set_xticks(sizes, [str(m) for m in sizes])
    axis.legend(frameon=False, title=f"filled: N ≥ {FAR} d; crosses: the paper", ncols=2, fontsize=8)
    axis.grid(alpha=0.3)
    return fig


@experiment(seeds=2)
def main(chosen: Options) -> Made:
    """All sizes; with `--quick`, and on digits, 10 and 20 nodes."""
    task = task_of()
    few = chosen.quick or task.data == "digits"
    found = {
        (net, m): [mean_distances(m, net, seed) for seed in range(chosen.seeds)]
        for m in (SIZES[:2] if few else SIZES)
        for net in (NETWORKS[:3] if few else NETWORKS)
    }
    kinds = {
        which: {place: [one[which] for one in runs] for place, runs in found.items()} for which in (WHOLE, LATER, ALIKE)
    }
    compared = task.data == "mnist"
    rows = [one for which, cells in kinds.items() for one in rows_of(cells, which, compared=compared)]
    title = f"Mean real sensitivity, {task.title}, one layer"
    return Made({f"{title} (b = 5, noise by Eq. 22)": rows}, draw(kinds[WHOLE], title))
