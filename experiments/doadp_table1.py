"""Table I of the DO-ADP paper with numbers: which methods save communication, and what privacy that buys.

Run `python -m experiments.doadp_table1 [--quick] [--records Q | --data NAME] [--out DIR]`; a minute on two cores.

Communication: bytes of real messages in a few rounds, over those of whole vectors to all neighbours. Privacy: the noise
for epsilon = .01 over that of the same method when it sends everything in every round (smaller is better; 1: no gain).
As published: DP-DDA by hidden activity, DO-ADP by Theorem 1. Sound: activity is public, and what is sent is chosen from
the data. DPDO and CPGT protect a node's whole data, so their noise is not comparable with the others'.
"""

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from matplotlib.figure import Figure

import jdfl
from experiments import doadp_common as common
from experiments.common import Row, row, save, save_figure, show
from experiments.doadp_figure3 import EPSILON, RATE, Entry, entries

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
    """One row per method."""
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


def verdict(rows: Sequence[Row]) -> list[str]:
    """Whether the paper's ticks are right."""
    cell = {(one.case, one.column): one for one in rows}
    saves = all((cell[name, SAVES].mean < 0.99) == bool(told[0]) for name, told in PAPER.items())
    kept = {name: cell[name, SOUND].mean for name in ("DP-DDA", "DO-ADP")}
    return [
        f"communication saving: {'as in the paper' if saves else 'NOT as in the paper'}",
        f"noise that inactivity soundly saves: DP-DDA (p = {RATE:g}) {1 - kept['DP-DDA']:.0%}, DO-ADP (p = .8) "
        f"{1 - kept['DO-ADP']:.0%}; published: {1 - cell['DP-DDA', PUBLISHED].mean:.0%} and "
        f"{1 - cell['DO-ADP', PUBLISHED].mean:.0%}",
    ]


def draw(rows: Sequence[Row], path: Path) -> None:
    """Bars of all columns."""
    fig = Figure(figsize=(8, 3.5), layout="constrained")
    axis = fig.subplots()
    for place, (column, colour) in enumerate(zip((SAVES, PUBLISHED, SOUND), common.COLOURS)):
        values = [one.mean for one in rows if one.column == column]
        axis.bar([i + 0.27 * (place - 1) for i in range(len(values))], values, 0.25, color=colour, label=column)
    axis.axhline(1, color="black", linestyle=":")
    axis.set_xticks(range(len(PAPER)), list(PAPER))
    axis.set_ylabel("relative to sending everything in every round")
    fig.legend(loc="outside upper center", ncols=3, frameon=False, fontsize=7)
    save_figure(fig, path)


def main(arguments: Sequence[str] | None = None) -> list[Row]:
    """Print the table and the verdicts, write the JSON and the figure."""
    chosen, here = common.given(__doc__ or "", seeds=1, arguments=arguments)
    rows = collect(here)
    show(f"{here.problem.name}: Table I with numbers (paper's tick and ours)", rows)
    print("\n".join(verdict(rows)))
    draw(rows, chosen.out / f"{NAME}.png")
    print("written:", save(rows, chosen.out, NAME), chosen.out / f"{NAME}.png")
    return rows


if __name__ == "__main__":
    main(sys.argv[1:])
