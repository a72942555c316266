"""Table I of the DO-ADP paper with numbers: which methods save communication, and what privacy that buys.

Run `python -m experiments.doadp_table1 [--quick] [--records Q | --data NAME] [--out DIR]`; a minute on two cores.

Communication: bytes of real messages in a few rounds, over those of whole vectors to all neighbours. Privacy: the noise
for epsilon = .01 over that of the same method when it sends everything in every round (smaller is better; 1: no gain).
As published: DP-DDA by hidden activity, DO-ADP by Theorem 1. Sound: activity is public, and what is sent is chosen from
the data. DPDO and CPGT protect a node's whole data, so their noise is not comparable with the others'.
"""

from dataclasses import replace

import jdfl
from experiments import doadp_common as common
from experiments.common import Made, Options, Row, bars, experiment, row
from experiments.doadp_figure3 import EPSILON, Entry, entries

NAME = "doadp_table1"
PAPER = {"DPDO": (0, 0), "DP-DDA": (0, 1), "CPGT": (1, 0), "DO-ADP": (1, 1)}  # saves communication, amplifies privacy
ROUNDS = 50
SAVES, PUBLISHED, SOUND = (
    "bytes, of whole vectors (paper: saves)",
    "noise, published (paper: amplifies)",
    "noise, sound",
)


def bytes_share(here: common.Task, entry: Entry) -> float:
    """The share of bytes in a few rounds."""
    result = jdfl.run(
        entry.algorithm, here.problem, common.network(), key=0, steps=ROUNDS, every=ROUNDS, metrics=["consensus_error"]
    )
    return float(result.totals.bytes) / (4 * here.problem.n * 6 * common.NODES * ROUNDS)


def noise_shares(here: common.Task) -> dict[str, tuple[float, float]]:
    """Published and sound noise of DP-DDA and DO-ADP over that of the same method with p = 1 and whole vectors."""
    found = {entry.name: entry.algorithm for entry in entries(here)}

    def multiplier(name: str) -> float:
        return float(found[name].gradients.mechanism.multiplier)

    def whole(how: str) -> float:
        return common.calibrated(here, 1.0, 1.0, EPSILON, "paper" if how == "paper" else "sound")[0]

    always = jdfl.calibrate(
        replace(found["DP-DDA, sound"], p=1.0),
        here.problem,
        common.network(),
        steps=here.steps,
        epsilon=EPSILON,
        delta=common.DELTA,
    ).gradients.mechanism.multiplier
    dda = multiplier("DP-DDA, published") / always, multiplier("DP-DDA, sound") / always
    adp = multiplier("DO-ADP, published") / whole("paper"), multiplier("DO-ADP, sound") / whole("sound")
    return {"DP-DDA": dda, "DO-ADP": adp, "DPDO": (1.0, 1.0), "CPGT": (1.0, 1.0)}


def collect(here: common.Task) -> list[Row]:
    names = {"DPDO": "DPDO", "DP-DDA": "DP-DDA, sound", "CPGT": "CPGT", "DO-ADP": "DO-ADP, sound"}
    found, noise = {entry.name: entry for entry in entries(here)}, noise_shares(here)
    rows = []
    for name, (saves, amplifies) in PAPER.items():
        rows += [
            row(name, SAVES, saves, [bytes_share(here, found[names[name]])]),
            row(name, PUBLISHED, amplifies, [noise[name][0]]),
            row(name, SOUND, None, [noise[name][1]]),
        ]
    return rows


@experiment(seeds=1, few=1, flags=common.FLAGS)
def main(chosen: Options) -> Made:
    here = common.chosen_task(chosen)
    rows = collect(here)
    bare = [replace(one, paper=None) for one in rows]  # the paper's ticks are no numbers
    fig = bars(bare, [SAVES, PUBLISHED, SOUND], "relative to sending everything in every round")
    return Made({f"{here.problem.name}: Table I with numbers (paper's tick and ours)": rows}, fig)
