"""CEPS paper, Figures 1 to 3: the objective against rounds for the four variants, over m, epsilon and r.

Lines are means over seeds, bands their 95 % confidence intervals, marks the mean round at which the paper's stop rule
ends a run. Unlike the paper's, the curves continue after it. The paper gives no numbers with its figures except those
of Table III, which are shown too. Objectives are compared at the stop, where the paper's curves end; "closely coincide"
and "negligible" are taken as 5 % of them.
"""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

import jdfl
from experiments.ceps_table3 import CASES, VARIANTS, Case, algorithm_of, network_of, tolerance
from experiments.common import Made, Options, Row, experiment, row
from jdfl.lab.drawing import looks
from jdfl.lab.table import half_widths

ROUNDS = 40
SETTLED = 20  # rounds, after which the objective hardly decreases
CLOSE = 0.05
COMPARED = ("objective at the stop", f"objective, round {ROUNDS}")
FIGURES = {  # cases of Table III, by what changes
    "Fig. 1: m": (CASES[0], CASES[1], CASES[2]),
    "Fig. 2: epsilon": (CASES[3], CASES[0], CASES[4]),
    "Fig. 3: r": (CASES[0], CASES[5], CASES[6]),
}
LOOKS = looks(VARIANTS)


def curves(case: Case, variant: str, seeds: int) -> tuple[np.ndarray, list[int]]:
    """The objective [seeds, rounds + 1], and the rounds after which the paper's rule stops."""
    objectives, stops = [], []
    for seed in range(seeds):
        problem = jdfl.problems.example1(m=case.m, seed=seed)
        result = jdfl.run(
            algorithm_of(case, variant),
            problem,
            network_of(case, seed),
            key=seed,
            steps=ROUNDS,
            metrics=["objective", "consensus_error"],
            options=jdfl.Options(chunk=ROUNDS),
        )
        objectives.append(result.history["objective"].to_numpy())
        every = int(np.max(np.asarray(result.ready.period))) + 1  # by then all nodes have communicated
        agreed = np.flatnonzero(result.history["consensus_error"].to_numpy() <= 10 * tolerance(case, variant))
        stops.append(int(min([k for k in agreed if k >= every], default=ROUNDS)))
    return np.stack(objectives), stops


def collect(figures: dict[str, tuple[Case, ...]], seeds: int) -> tuple[list[Row], dict[tuple[str, str], np.ndarray]]:
    """Rounds and objective at the stop, and at rounds 10, 20, 30, 40; and the curves."""
    rows: list[Row] = []
    found: dict[tuple[str, str], np.ndarray] = {}
    for case in dict.fromkeys(case for cases in figures.values() for case in cases):
        for v, variant in enumerate(VARIANTS):
            objective, stops = curves(case, variant, seeds)
            name = f"{case} {variant}"
            found[str(case), variant] = np.vstack([objective, np.full(ROUNDS + 1, np.mean(stops))])
            at_stop = [float(line[stop]) for line, stop in zip(objective, stops)]
            rows.append(row(name, "rounds", case.rounds[v], stops))
            rises = np.diff(objective[:, SETTLED:], axis=1).max(axis=1)
            rows.append(row(name, f"largest rise after round {SETTLED}", None, rises.tolist()))
            rows.append(row(name, "objective at the stop", case.objective[v], at_stop))
            rows += [row(name, f"objective, round {k}", None, objective[:, k].tolist()) for k in (10, 20, 30, 40)]
    return rows, found


def apart_by(rows: Sequence[Row], cases: Sequence[Case], column: str) -> float:
    """The largest over the smallest objective of all variants in some cases, less one."""
    wanted = {f"{case} {variant}" for case in cases for variant in VARIANTS}
    values = [one.mean for one in rows if one.case in wanted and one.column == column]
    return max(values) / min(values) - 1


def spreads(rows: Sequence[Row], figures: dict[str, tuple[Case, ...]]) -> list[Row]:
    """How far the variants are apart, per cent, in panels and whole figures, at the stop and at the last round."""
    made = []
    for title, cases in figures.items():
        for name, some in [*((f"{title}, {case}", [case]) for case in cases), (f"{title}, all", cases)]:
            made += [
                row(name, f"spread, %, {column}", None, [100 * apart_by(rows, some, column)]) for column in COMPARED
            ]
    return made


def draw(figures: dict[str, tuple[Case, ...]], found: dict[tuple[str, str], np.ndarray]) -> Figure:
    """One row of panels per figure of the paper."""
    fig = Figure(figsize=(12, 3.4 * len(figures)), layout="constrained")
    panels = fig.subplots(len(figures), 3, sharex=True, sharey=True, squeeze=False)
    for line, (title, cases) in zip(panels, figures.items()):
        for axis, case in zip(line, cases):
            for variant, look in LOOKS.items():
                *objective, stop = found[str(case), variant]
                mean, half = np.mean(objective, axis=0), half_widths(np.asarray(objective).T)
                axis.plot(mean, label=variant, **look | {"marker": None})
                own = {"color": look["color"], "alpha": 0.2, "linewidth": 0}
                axis.fill_between(np.arange(ROUNDS + 1), mean - half, mean + half, **own)
                axis.plot(stop[0], mean[round(stop[0])], **look)
            axis.set_yscale("log")
            axis.set_title(f"{title}   ({case})", fontsize=10)
            axis.grid(alpha=0.3, which="both")
        line[0].set_ylabel("objective")
    for axis in panels[-1]:
        axis.set_xlabel("round")
    fig.legend(*panels[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=4, frameon=False)
    return fig


@experiment()
def main(chosen: Options) -> Made:
    """All three figures, or the second with `--quick`."""
    figures = {"Fig. 2: epsilon": FIGURES["Fig. 2: epsilon"]} if chosen.quick else FIGURES
    rows, found = collect(figures, chosen.seeds)
    rows += spreads(rows, figures)
    return Made({"CEPS, Figures 1 to 3 (Example 1)": rows}, draw(figures, found))
