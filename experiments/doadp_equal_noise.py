"""At equal noise, the number of entries that DO-ADP sends does not affect the average.

Run `python -m experiments.doadp_equal_noise [--quick] [--seeds N] [--records Q | --data NAME] [--out DIR]`; a minute on
two cores.

The average of the nodes moves only by the momenta of active nodes, whatever the codec drops. With the same noise,
samples and activity, k / d affects only the gradients, through the distances between nodes. So what the paper gains
from sparser messages is the smaller noise that its theorem allows, and the bytes.

Runs with one seed draw the same noise and samples whatever their settings.
"""

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from experiments import doadp_common as common
from experiments.common import Made, Options, Row, experiment, row

NAME = "doadp_equal_noise"
SHARES = (1.0, 0.3, 0.05)
P, EPSILON, GOAL = 0.8, 0.1, 1e-3
STUDY = 0.13213  # f(average) - f* for all three, by an independent study


def collect(here: common.Task, seeds: int) -> tuple[list[Row], dict[float, list[Any]]]:
    multiplier, _ = common.calibrated(here, P, 0.3, EPSILON, "paper")
    curves = {
        share: [common.curve(here, common.method(P, share, multiplier), seed) for seed in range(seeds)]
        for share in SHARES
    }
    rows: list[Row] = []
    for share, runs in curves.items():
        apart = [
            float(np.max(np.abs(run["suboptimality"] / base["suboptimality"] - 1)))
            for run, base in zip(runs, curves[1.0])
        ]
        told = {
            "f(average) - f*": common.last(runs),
            "largest relative difference": apart,
            "consensus_error": [float(run["consensus_error"].iloc[-1]) for run in runs],
            "GB": [float(run["gigabytes"].iloc[-1]) for run in runs],
        }
        rows += [
            row(f"k/d = {share:g}", column, STUDY if column.startswith("f(") else None, values)
            for column, values in told.items()
        ]
    return rows, curves


def draw(here: common.Task, curves: dict[float, list[Any]]) -> Figure:
    """The three curves over rounds, and the distances between them."""
    fig = Figure(figsize=(10, 4), layout="constrained")
    first, second = fig.subplots(1, 2)
    for share, colour in zip(SHARES, common.COLOURS):
        common.band(first, curves[share], "round", f"k/d = {share:g}", colour)
        apart = np.abs(curves[share][0]["suboptimality"] / curves[1.0][0]["suboptimality"] - 1)
        second.plot(curves[share][0]["round"], apart, color=colour)
    common.idle(first, here)
    second.axhline(GOAL, color="black", linestyle=":")
    second.set_yscale("log")
    first.set_ylabel("f(average) - f*")
    second.set_ylabel("relative difference from k/d = 1")
    for axis in (first, second):
        axis.set_xlabel("round")
    fig.legend(*first.get_legend_handles_labels(), loc="outside upper center", ncols=4, frameon=False)
    return fig


@experiment(seeds=3, few=1, flags=common.FLAGS)
def main(chosen: Options) -> Made:
    here = common.chosen_task(chosen)
    rows, curves = collect(here, chosen.seeds)
    return Made({f"{here.problem.name}: equal noise, p = {P:g} (study and ours)": rows}, draw(here, curves))


if __name__ == "__main__":
    main()
