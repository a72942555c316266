"""At equal noise, the number of entries that DO-ADP sends does not affect the average.

Run `python -m experiments.doadp_equal_noise [--quick] [--seeds N] [--records Q | --data NAME] [--out DIR]`; a minute on
two cores.

The average of the nodes moves only by the momenta of active nodes, whatever the codec drops. With the same noise,
samples and activity, k / d affects only the gradients, through the distances between nodes. So what the paper gains
from sparser messages is the smaller noise that its theorem allows, and the bytes.

Runs with one seed draw the same noise and samples whatever their settings.
"""

import numpy as np

from experiments import doadp_common as common
from experiments.common import Made, Options, Row, bars, experiment, row

SHARES = (1.0, 0.3, 0.05)
P, EPSILON = 0.8, 0.1
STUDY = 0.13213  # f(average) - f* for all three, by an independent study


def collect(here: common.Task, seeds: int) -> list[Row]:
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
    return rows


@experiment(seeds=3, few=1, flags=common.FLAGS)
def main(chosen: Options) -> Made:
    here = common.chosen_task(chosen)
    rows = collect(here, chosen.seeds)
    fig = bars(rows, ["f(average) - f*"], "f(average) - f*")
    return Made({f"{here.problem.name}: equal noise, p = {P:g} (study and ours)": rows}, fig)
