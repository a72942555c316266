"""DPPS paper, Figure 4: the mean real sensitivity (RAS) over the number of nodes, for d-Out of several degrees.

Run `python -m experiments.partpsp_figure4 [--quick] [--seeds N] [--out DIR]`. PartPSP, the perceptron with one shared
layer, b = 5, global averaging in every 4th round, noise by Eq. 22 with C' = .95 and lambda = .55. Every node has 600
images, whatever the number of nodes, so that its data do not change with N. Runs have 60 rounds at the initial learning
rates: after 60 of the 300 rounds in `experiments.partpsp_figure3`, ratios between the degrees 2 to 8 are within 3 per
cent of their final values.

The paper has no numbers for it. Its claim is that RAS hardly depends on N while d is far below N. Here that means: for
N >= 4 d the largest mean RAS of a degree is at most 1.25 times the smallest. It does not hold: RAS grows by a quarter
to a third when nodes double. It holds in the first cycle between two synchronisations, where Eq. 22 starts with the
norm of the common start and noise is nearly all of a distance: `first cycle`. Later the gradients count, which differ
more the more nodes are compared: `after a mean of all`, the mean distance in the first round of the other cycles.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from matplotlib.figure import Figure

import jdfl
from experiments.common import Options, Row, options, row, save, save_figure, show
from experiments.partpsp_common import (
    NOISE_RATE,
    SYNCHRONISED,
    Task,
    mlp_task,
    networks,
    problem_of,
    rounds_of,
    watched,
)

NAME = "partpsp_figure4"
B, CONSTANT, CONTRACTION = 5.0, 0.95, 0.55
SIZES, DEGREES = (10, 20, 40, 80), (2, 4, 6, 8)
EACH, EPOCHS = 600, 24  # images per node; learning rates first decrease after 10 of 24 epochs
FAR, MOST = 4, 1.25  # the criterion: N >= FAR d, largest / smallest
WHOLE, BEGUN, ALIKE = "", ", first cycle", ", after a mean of all"  # which rounds
Cells = Mapping[tuple[int, int], list[float]]  # by degree and N, over seeds


def task_of(m: int, *, quick: bool) -> Task:
    """600 images per node; of digits 70, which suffice for 20 nodes."""
    task = mlp_task()
    each = 70 if task.data == "digits" else EACH
    return replace(task, examples=each * m, test_examples=100, epochs=EPOCHS // 2 if quick else EPOCHS)


def mean_distances(m: int, degree: int, seed: int, *, quick: bool) -> dict[str, float]:
    """RAS of one run, over all its rounds and over some; ValueError where it overflows."""
    task = task_of(m, quick=quick)
    problem = problem_of(task, "partpsp-1", m=m, seed=seed)
    dpps = jdfl.DPPS(b=B, noise_rate=NOISE_RATE, sensitivity="eq22", constant=CONSTANT, contraction=CONTRACTION)
    steps = rounds_of(task, problem)[1][0]
    seen, _ = watched(task, problem, networks(m)[f"{degree}-Out"], dpps, steps=steps, key=seed)
    if not np.isfinite(seen).all():
        raise ValueError(f"Expected a run without overflow, got one with m = {m}, d = {degree}, seed = {seed}.")
    distances = seen[:, 0]
    rounds = {WHOLE: distances, BEGUN: distances[:SYNCHRONISED], ALIKE: distances[SYNCHRONISED::SYNCHRONISED]}
    return {which: float(np.mean(some)) for which, some in rounds.items()}


def spread(cells: Cells, degree: int, *, far: bool) -> float:
    """Largest over smallest mean RAS of a degree, over all N or those far above it; 1 for a single N."""
    means = [np.mean(values) for (d, m), values in cells.items() if d == degree and (m >= FAR * d or not far)]
    return float(max(means, default=1.0) / min(means, default=1.0))


def rows_of(cells: Cells, which: str = WHOLE) -> list[Row]:
    """A row per degree, a column per N, and the spreads."""
    made = [row(f"{degree}-Out{which}", f"N = {m}", None, values) for (degree, m), values in cells.items()]
    for degree in dict.fromkeys(d for d, _ in cells):
        case = f"{degree}-Out{which}"
        made.append(row(case, f"largest / smallest, N >= {FAR} d", None, [spread(cells, degree, far=True)]))
        made.append(row(case, "largest / smallest", None, [spread(cells, degree, far=False)]))
    return made


def claim(cells: Cells, which: str = WHOLE) -> str:
    """Whether the criterion is met, and by how much."""
    compared = [d for d in DEGREES if sum(m >= FAR * d for degree, m in cells if degree == d) > 1]
    found = {d: spread(cells, d, far=True) for d in compared}
    word = "true " if max(found.values()) <= MOST else "FALSE"
    told = ", ".join(f"{d}-Out {value:.2f}" for d, value in found.items())
    return f"{word} RAS{which} hardly depends on N (at most {MOST} between N >= {FAR} d): {told}"


def draw(cells: Cells, chosen: Options, title: str) -> None:
    """DIR/NAME.png: RAS over N, a line per degree; hollow where d is too close to N."""
    fig = Figure(figsize=(6.4, 4.4), layout="constrained")
    axis = fig.subplots()
    for place, degree in enumerate(DEGREES):
        line = {m: np.mean(values) for (d, m), values in cells.items() if d == degree}
        axis.plot(list(line), list(line.values()), color=f"C{place}", label=f"{degree}-Out")
        for m, value in line.items():
            axis.plot(m, value, "o", color=f"C{place}", fillstyle="full" if m >= FAR * degree else "none")
    axis.set(xscale="log", xlabel="number of nodes N", ylabel="RAS", ylim=(0, None), title=title)
    sizes = list(dict.fromkeys(m for _, m in cells))
    axis.set_xticks(sizes, [str(m) for m in sizes])
    axis.minorticks_off()
    axis.legend(frameon=False, title=f"filled: N ≥ {FAR} d")
    axis.grid(alpha=0.3)
    save_figure(fig, chosen.out / f"{NAME}.png")


def main(arguments: Sequence[str] | None = None) -> list[Row]:
    """All sizes; with `--quick`, and on digits, 10 and 20 nodes."""
    chosen = options("DPPS paper, Figure 4", seeds=2, arguments=arguments)
    task = task_of(SIZES[0], quick=chosen.quick)
    sizes = SIZES[:2] if chosen.quick or task.data == "digits" else SIZES
    found = {
        (degree, m): [mean_distances(m, degree, seed, quick=chosen.quick) for seed in range(chosen.seeds)]
        for m in sizes
        for degree in DEGREES
    }
    kinds = {
        which: {place: [one[which] for one in runs] for place, runs in found.items()} for which in (WHOLE, BEGUN, ALIKE)
    }
    rows = [one for which, cells in kinds.items() for one in rows_of(cells, which)]
    title = f"Mean real sensitivity, {task.title}, one layer"
    show(f"{title} (b = 5, noise by Eq. 22)", rows)
    for which, cells in kinds.items():
        print(claim(cells, which))
    draw(kinds[WHOLE], chosen, title)
    print("written:", save(rows, chosen.out, NAME), chosen.out / f"{NAME}.png")
    return rows


if __name__ == "__main__":
    main(sys.argv[1:])
