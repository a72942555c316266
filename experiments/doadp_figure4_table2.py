"""DO-ADP paper, Table II and Figure 4: a three-layer CNN on MNIST at 20 nodes, with the paper's and with sound noise.

Run `python -m experiments.doadp_figure4_table2 [--quick] [--seeds N] [--out DIR]`; fifty minutes on two cores. The
settings, and which of them are the paper's, are in `experiments/doadp_cnn.py`.

Every column is trained with the noise of Theorem 1 ("paper"), which scales with p sqrt(k / d), with noise that makes
the run (epsilon, 1e-5)-differentially private ("sound"; a record replaced, activity public, one of q images drawn),
which is the same for all k / d, and with none. "Do nothing" is the initial network.

The longer the runs, the more the columns differ, since noise grows with T and the signal does not.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from rich import print as say

from experiments.common import Made, Options, Row, experiment, row
from experiments.doadp_cnn import (
    CLIP,
    COLUMNS,
    DELTA,
    NOISELESS,
    STYLES,
    Column,
    Histories,
    Key,
    Noise,
    Study,
    ends,
    kinds,
    multipliers,
    theorem_of,
    trained,
)
from experiments.doadp_common import COLOURS
from experiments.partpsp_common import images
from jdfl.lab.table import half_widths

PAPER: Mapping[float, tuple[float, ...]] = {
    1.0: (89.58, 90.26, 90.98, 93.35),
    0.9: (88.06, 90.11, 90.75, 91.27),
    0.8: (87.88, 87.91, 90.11, 90.37),
}


def accuracies(study: Study, found: Histories) -> list[Row]:
    """Table II, and the lines of no noise and of no training."""
    rows = []
    for noise in kinds(found):
        told: Sequence[float | None] = (None,) * len(COLUMNS)
        if noise.accounting == "paper" and study.data == "mnist":
            told = PAPER[noise.epsilon]
        rows += [row(str(noise), str(c), paper, got) for c, paper, got in zip(COLUMNS, told, ends(found, noise).T)]
    start = ends(found, NOISELESS, 0).T
    return rows + [row("do nothing", str(c), None, values) for c, values in zip(COLUMNS, start)]


def prices(study: Study, found: Histories, levels: Mapping[Key, float], spent: Mapping[Key, float]) -> list[Row]:
    """The noise, privacy and communication of every column."""
    noises = [noise for noise in kinds(found) if noise != NOISELESS]
    rows = [row(f"sigma / G, {noise}", str(c), None, [2 * levels[noise, c]]) for noise in noises for c in COLUMNS]
    rows += [row(f"sound epsilon of the noise of {noise}", str(c), None, [x]) for (noise, c), x in spent.items()]
    for column in COLUMNS:
        sent = [float(history["bytes"].iloc[-1]) / 1e6 for history in found[NOISELESS, column]]
        rows.append(row("entries sent, p k/d", str(column), None, [column.p * column.share]))
        rows.append(row("MB sent", str(column), None, sent))
    return rows


def promise(study: Study, noise: Noise, column: Column) -> str:
    """The privacy of a curve: unit, adjacency, epsilon and delta."""
    if noise == NOISELESS:
        return "no privacy"
    if noise.accounting == "sound":
        return f"sound: ({noise.epsilon:g}, {DELTA:g}), record, replace-one"
    delta = theorem_of(study, column).delta(noise.epsilon)
    return f"paper: claims {noise.epsilon:g} at delta = {delta:.2f} of Theorem 1's proof, record, replace-one"


def band(axis: Any, x: np.ndarray, histories: Sequence[pd.DataFrame], name: str, **look: Any) -> None:
    """Mean over seeds, and its 95 % confidence interval."""
    scale = 100 if name == "accuracy" else 1
    y = scale * np.stack([history[name].to_numpy(float) for history in histories])
    axis.plot(x, y.mean(0), **look)
    if len(y) > 1:
        spread = half_widths(y.T)
        axis.fill_between(x, y.mean(0) - spread, y.mean(0) + spread, color=look["color"], alpha=0.15, linewidth=0)


def draw(study: Study, found: Histories) -> Figure:
    """Accuracy and loss against rounds, entries and bytes at the largest epsilon."""
    fig = Figure(figsize=(13, 9), layout="constrained")
    axes = fig.subplots(2, 3, sharey="row")
    shown = [noise for noise in kinds(found) if noise.epsilon in (0.0, max(study.levels))]
    for column, colour in zip(COLUMNS, COLOURS):
        for noise in shown:
            histories = found[noise, column]
            rounds = histories[0]["round"].to_numpy(float)
            sent = np.mean([history["bytes"].to_numpy(float) for history in histories], axis=0) / 1e6
            along = (rounds, rounds * column.p * column.share, sent)
            look = {"color": colour, "linestyle": STYLES[noise.accounting]}
            look["label"] = f"{column}; {promise(study, noise, column)}"
            for line, name in zip(axes, ("accuracy", "training_loss")):
                for axis, x in zip(line, along):
                    band(axis, x, histories, name, **look)
    label = "do nothing: the initial network"
    for line, name, scale in zip(axes, ("accuracy", "training_loss"), (100, 1)):
        start = scale * np.mean([history[name].iloc[0] for history in found[NOISELESS, COLUMNS[0]]])
        for axis in line:
            axis.axhline(start, color="black", linestyle="-.", linewidth=1, label=label)
    for axis, name in zip(axes[1], ("rounds", "rounds times p k/d (entries sent)", "MB sent")):
        axis.set_xlabel(name)
    axes[0, 0].set_ylabel("test accuracy, %")
    axes[1, 0].set_ylabel("training loss")
    axes[1, 0].set_ylim(0, 3)
    fig.suptitle(f"{study.data}: mean ± 95 % CI over {study.seeds} seeds; epsilon, delta of a record that is replaced")
    fig.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=2, fontsize=8, frameon=False)
    return fig


def collect(study: Study) -> tuple[list[Row], list[Row], Histories]:
    """Accuracies, costs, and the underlying runs."""
    levels = multipliers(study)
    found, spent = trained(study, levels)
    return accuracies(study, found), prices(study, found, levels, spent), found


@experiment()
def main(chosen: Options) -> Made:
    """All columns; with `--quick` a few rounds on digits."""
    study = Study("digits", 60, 3, (1.0,), 1) if chosen.quick else Study(images("mnist"), seeds=chosen.seeds)
    say(f"{study.data}: cnn3, T = {study.rounds:,}, batch 1, G = {CLIP:g} (l2), delta_0 = {DELTA:g}, delta = {DELTA:g}")
    for column in COLUMNS:
        conditions = "; ".join(theorem_of(study, column).conditions(max(study.levels)))
        say(f"{column}: {promise(study, Noise('paper', max(study.levels)), column)}; Theorem 1 requires {conditions}")
    made, paid, found = collect(study)
    tables = {f"Table II: test accuracy, %, {study.data}": made, "Noise, privacy and communication": paid}
    return Made(tables, draw(study, found))


if __name__ == "__main__":
    main()
