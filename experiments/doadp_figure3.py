"""Figure 3 of the DO-ADP paper: DPDO, DP-DDA, CPGT and DO-ADP at one value of epsilon with different meanings.

Run `python -m experiments.doadp_figure3 [--quick] [--seeds N] [--records Q | --data NAME] [--out DIR]`; four minutes on
two cores.

The paper compares all methods at epsilon = .01. What that protects differs, and every curve states it:

- DPDO and CPGT: a node's whole data, replaced, delta = 0, all messages (CPGT: of these rounds; DPDO: of any number).
- DP-DDA and DO-ADP: one record, replaced. With the noise that their papers' arguments allow this is no guarantee:
  DP-DDA's requires that nobody sees the activity, DO-ADP's Theorem 1 assumes a wrong sensitivity. With sound noise it
  is.

Curves show the nodes' own models, mean_i f_i(x_i) - f*. CPGT's noise on messages takes from one node what it gives to
another, so it does not change their average, which no node knows; the table also has f(average) - f*.

So the left panel is the paper's comparison, and the right one shows the two methods with the same guarantee,
(.01, 1e-6) for a record. Both have the lines "do nothing" and "no noise". DP-DDA activates 24 % of the nodes, CPGT
sends 12 % of the entries of both its messages, as in the paper. Its other settings are not given. Here step sizes add
up to the same in all methods (alpha times the rounds), DPDO has q = 1 - 2 / T, p = 1 - 1 / T and a ball of radius 10,
CPGT constant noise.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from matplotlib.figure import Figure

import jdfl
from experiments import doadp_common as common
from experiments.common import Made, Options, Row, experiment, row
from jdfl.algorithms.cpgt import calibrated
from jdfl.privacy import Sampled, noise_multiplier

NAME = "doadp_figure3"
EPSILON, RATE, SHARE, RADIUS = 0.01, 0.24, 0.12, 10.0
OWN, AVERAGE = "mean f_i(x_i) - f*", "f(average) - f*"
NODE = "a node's data replaced, delta = 0"
RECORD = f"one record replaced, delta = {common.DELTA:g}"


@dataclass(frozen=True)
class Entry:
    """A curve, and the meaning of its epsilon."""

    name: str
    algorithm: Any
    promise: str
    colour: str
    panels: tuple[int, ...]
    style: str = "-"

    @property
    def label(self) -> str:
        return f"{self.name}: {self.promise}"


def entries(here: common.Task, seeds: int = 1) -> list[Entry]:
    """All curves, with noise for the rounds of the task."""
    steps, problem, net = here.steps, here.problem, common.network()
    lr = jdfl.DOADP.lr
    node = jdfl.Gradients(batch=1, clip=common.LONGEST, per="batch")
    record = jdfl.Gradients(batch=1, clip=common.LONGEST, mechanism=jdfl.Gaussian(1.0))
    dpdo = jdfl.DPDO(c=2 * lr, q=1 - 2 / steps, p=1 - 1 / steps, radius=RADIUS, epsilon=EPSILON, gradients=node)
    codec = jdfl.Sparse(share=SHARE, index="enumerative")
    cpgt = calibrated(jdfl.CPGT(lr=lr, gamma=0.05, gradients=node, codec=codec), problem, steps, EPSILON)
    dda = jdfl.DPDDA(lr=lr * np.sqrt(steps) / 2, p=RATE, gradients=record)
    hidden = Sampled("poisson", round(RATE / here.records * 10**9), 10**9)
    most = noise_multiplier("gaussian", EPSILON, common.DELTA, steps, sampled=hidden)
    key = common.busiest(dda, problem, steps, seeds)
    dda_sound: Any = jdfl.calibrate(dda, problem, net, steps=steps, epsilon=EPSILON, delta=common.DELTA, key=key)
    adp = {how: common.calibrated(here, 0.8, 0.3, EPSILON, how, seeds)[0] for how in ("paper", "sound")}
    theorem = "one record replaced, delta = .0045 (Theorem 1), NO GUARANTEE"
    return [
        Entry("DPDO", dpdo, NODE + ", any number of rounds", "#CC79A7", (0,)),
        Entry("CPGT", cpgt, NODE, "#E69F00", (0,)),
        Entry("DP-DDA, published", _with(dda, most), RECORD + ", hidden activity, NO GUARANTEE", "#0072B2", (0,), "--"),
        Entry("DO-ADP, published", common.method(0.8, 0.3, adp["paper"]), theorem, "#D55E00", (0,), "--"),
        Entry("DP-DDA, sound", dda_sound, RECORD, "#0072B2", (1,)),
        Entry("DO-ADP, sound", common.method(0.8, 0.3, adp["sound"]), RECORD, "#D55E00", (1,)),
        Entry("DO-ADP, no noise", common.method(0.8, 0.3, None), "nobody", "grey", (0, 1), "--"),
    ]


def _with(algorithm: Any, multiplier: float) -> Any:
    return replace(algorithm, gradients=replace(algorithm.gradients, mechanism=jdfl.Gaussian(multiplier)))


def collect(here: common.Task, seeds: int) -> tuple[list[Row], dict[str, tuple[Entry, list[Any]]]]:
    rows, curves = [], {}
    for entry in entries(here, seeds):
        runs = [common.curve(here, entry.algorithm, seed) for seed in range(seeds)]
        curves[entry.name] = (entry, runs)
        dense = 4 * here.problem.n * 6 * common.NODES  # bytes per round of whole vectors to six neighbours
        share = float(runs[0]["bytes"].iloc[-1]) / dense / here.steps
        rows += [
            row(entry.name, OWN, None, common.last(runs, "own")),
            row(entry.name, AVERAGE, None, common.last(runs)),
            row(entry.name, "bytes, of whole vectors", None, [share]),
        ]
    nothing = [here.zero - here.best]
    return [*rows, row("do nothing", OWN, None, nothing), row("do nothing", AVERAGE, None, nothing)], curves


def draw(here: common.Task, curves: dict[str, tuple[Entry, list[Any]]]) -> Figure:
    """Both panels, over bytes."""
    fig = Figure(figsize=(11, 6), layout="constrained")
    for panel, axis in enumerate(fig.subplots(1, 2)):
        for entry, runs in curves.values():
            if panel in entry.panels:
                common.band(axis, runs, "gigabytes", entry.label, entry.colour, y="own", linestyle=entry.style)
        common.idle(axis, here)
        axis.set(yscale="log", xlabel="sent by all nodes, GB", ylabel="mean of f_i(x_i) - f*")
        axis.set_title(f"epsilon = {EPSILON:g}, " + ("as published" if panel == 0 else "equal guarantees"), fontsize=10)
        axis.legend(fontsize=7, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.14))
    return fig


@experiment(few=1, flags=common.FLAGS)
def main(chosen: Options) -> Made:
    here = common.chosen_task(chosen)
    rows, curves = collect(here, chosen.seeds)
    return Made({f"{here.problem.name}: the methods at epsilon = {EPSILON:g}": rows}, draw(here, curves))
