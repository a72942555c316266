"""DO-ADP paper, Table II and Figure 4: a three-layer CNN on MNIST at 20 nodes, with the paper's and with sound noise.

It takes fifty minutes on two cores.

Every column is trained with the noise of Theorem 1 ("paper"), which scales with p sqrt(k / d), with noise that makes
the run (epsilon, 1e-5)-differentially private ("sound"; a record replaced, activity public, one of q images drawn),
which is the same for all k / d, and with none. "Do nothing" is the initial network.

The longer the runs, the more the columns differ, since noise grows with T and the signal does not.

The paper gives the circulant graph with offsets 1, 2, 3, alpha = .01, gamma = .05, beta = .15, the columns (p, k/d),
and epsilon, but not the network's layers, the clip G, delta_0, the batch or the number of rounds T. Ours are
`jdfl.models.cnn3` (4,850 parameters, tanh), G = 1, delta_0 = 1e-5, one image per round as in Theorem 1, and T = 6,000
rounds, two epochs, from standardised pixels, whose means and deviations are declared public. They are the same in all
columns. scikit-learn's digits stand in where MNIST is not available; the choice of their test images is declared
public, too.
"""

import warnings
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import pandas as pd
from jax import Array
from matplotlib.figure import Figure
from rich import print as say

import jdfl
from experiments.common import Made, Options, Row, experiment, row
from experiments.doadp_common import COLOURS, NODES, busiest, network
from experiments.partpsp_common import images
from jdfl.codecs import Dense, Sparse
from jdfl.engine.metrics import average
from jdfl.lab.table import half_widths
from jdfl.problems import NeuralProblem, neural_classification

RATE, STEP, MOMENTUM = 0.01, 0.05, 0.15  # alpha, gamma, beta
CLIP, DELTA, ROUNDS = 1.0, 1e-5, 6000  # G, delta_0 and the delta of the sound runs, T
LOOKED_AT = 100  # of every node's images, for the training loss
WORKERS = 2  # seeds at a time
LEVELS = (1.0, 0.9, 0.8)  # epsilon


class Column(NamedTuple):
    """A column of Table II: the probability that a node is active, and the share of its entries that it sends."""

    p: float
    share: float

    def __str__(self) -> str:
        return f"p = {self.p:g}, k/d = {self.share:g}"


COLUMNS = (Column(1.0, 1.0), Column(0.8, 1.0), Column(1.0, 0.4), Column(0.8, 0.4))


class Noise(NamedTuple):
    """The accounting and the epsilon that determine the noise; None and 0: no noise."""

    accounting: str
    epsilon: float

    def __str__(self) -> str:
        return f"{self.accounting}, eps = {self.epsilon:g}" if self.epsilon else self.accounting


NOISELESS = Noise("noiseless", 0.0)
STYLES = {"paper": "-", "sound": "--", "noiseless": ":"}
Key = tuple[Noise, Column]
Histories = dict[Key, list[pd.DataFrame]]  # over seeds


@dataclass(frozen=True)
class Study:
    """What is trained, and for how long."""

    data: str
    rounds: int = ROUNDS
    records: int = 10  # besides the start
    levels: tuple[float, ...] = LEVELS
    seeds: int = 5


def training_loss(w: Array, problem: Any) -> Array:
    """The mean loss of every node's first images at the average of the parameters [m, n]."""
    few = [leaf[:, :LOOKED_AT].reshape(-1, *leaf.shape[2:]) for leaf in problem.data]
    return jnp.mean(problem.losses(average(w), tuple(few)))


@lru_cache(maxsize=WORKERS)
def problem_of(study: Study, seed: int) -> NeuralProblem:
    """The images over the nodes; the seed splits them and draws the network."""
    made = neural_classification(study.data, NODES, model="cnn3", standardise=True, seed=seed, init_seed=seed)
    return made.declared(*made.derived)


def method(column: Column, *, noisy: bool = True) -> jdfl.DOADP:
    """DO-ADP with the paper's settings and ours; its noise is calibrated later."""
    mechanism = jdfl.Gaussian(1.0) if noisy else None
    return jdfl.DOADP(
        lr=RATE,
        gamma=STEP,
        beta=MOMENTUM,
        p=column.p,
        codec=Dense() if column.share == 1 else Sparse(share=column.share, index="enumerative"),
        gradients=jdfl.Gradients(batch=1, clip=CLIP, mechanism=mechanism),
        delta0=DELTA,
    )


def multipliers(study: Study) -> dict[Key, float]:
    """The noise of every column in units of 2 G, by both accountings.

    Sound noise depends only on how often a node is active: it is calibrated for the seed whose busiest node is active
    most often.
    """
    problem, net, found = problem_of(study, 0), network(), {}
    for p in sorted({column.p for column in COLUMNS}):
        alike = [column for column in COLUMNS if column.p == p]
        plan = method(alike[0])
        key = busiest(plan, problem, study.rounds, study.seeds)
        for epsilon in study.levels:
            target: dict[str, Any] = {"steps": study.rounds, "epsilon": epsilon}
            sound = jdfl.calibrate(plan, problem, net, **target, delta=DELTA, key=key)
            for column in alike:
                with warnings.catch_warnings():  # `conditions` reports them
                    warnings.simplefilter("ignore", UserWarning)
                    paper = jdfl.calibrate(method(column), problem, net, **target, accounting="paper")
                found[Noise("paper", epsilon), column] = float(paper.gradients.mechanism.multiplier)
                found[Noise("sound", epsilon), column] = float(sound.gradients.mechanism.multiplier)
    return found


def seeds(study: Study) -> range:
    return range(study.seeds)


def of_seed(study: Study, levels: Mapping[Key, float], seed: int) -> dict[Key, jdfl.Result]:
    """All runs of a seed: four programs, since the codec and the presence of noise are compiled in."""
    problem, found = problem_of(study, seed), {}
    given: dict[str, Any] = {"steps": study.rounds, "every": max(1, study.rounds // study.records), "batch": 1}
    given |= {"metrics": ["accuracy", training_loss], "keys": [seed]}
    for share in sorted({column.share for column in COLUMNS}):
        quiet = [(NOISELESS, column) for column in COLUMNS if column.share == share]
        noisy = [key for key in levels if key[1].share == share]
        for keys in (noisy, quiet):
            over = [{"p": column.p} for _, column in keys]
            if keys is noisy:
                over = [point | {"gradients.mechanism.multiplier": levels[key]} for point, key in zip(over, keys)]
            plan = method(keys[0][1], noisy=keys is noisy)
            found |= dict(zip(keys, jdfl.sweep(plan, problem, network(), over=over, **given), strict=True))
    return found


def trained(study: Study, levels: Mapping[Key, float]) -> tuple[Histories, dict[Key, float]]:
    """All runs, and the sound epsilon of the first seed's with the paper's noise, of the outer columns."""
    found: Histories = {}
    spent: dict[Key, float] = {}
    with ThreadPoolExecutor(WORKERS) as pool:  # a seed keeps one core busy
        every = list(pool.map(lambda seed: of_seed(study, levels, seed), seeds(study)))
    for seed, results in zip(seeds(study), every):
        for key, result in results.items():
            found.setdefault(key, []).append(result.history)
            if seed == 0 and key[0].accounting == "paper" and key[1] in (COLUMNS[0], COLUMNS[-1]):
                spent[key] = jdfl.account(result, delta=DELTA).epsilon
        means = (f"{noise} {ends(found, noise)[-1].mean():.1f} %" for noise in kinds(found))
        say(f"seed {seed}, mean of the columns: " + "; ".join(means))
    return found, spent


def kinds(found: Histories) -> list[Noise]:
    """The noises that occur, by accounting and decreasing epsilon."""
    return sorted(
        {noise for noise, _ in found}, key=lambda noise: (list(STYLES).index(noise.accounting), -noise.epsilon)
    )


def ends(found: Histories, noise: Noise, place: int = -1) -> np.ndarray:
    """Test accuracies in per cent [seeds, columns] at the end, or at the start (place 0)."""
    columns = [[100 * float(history["accuracy"].iloc[place]) for history in found[noise, c]] for c in COLUMNS]
    return np.array(columns).T


def theorem_of(study: Study, column: Column) -> Any:
    return method(column).theorem(problem_of(study, 0), study.rounds)


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
