"""The DO-ADP paper's training of a CNN on MNIST at 20 nodes: settings, noise and runs.

W. Huo et al., Decentralized Optimization with Amplified Privacy via Efficient Communication, section VI.B, has the
circulant graph with offsets 1, 2, 3, alpha = .01, gamma = .05, beta = .15, the columns (p, k/d), and epsilon. It does
not give the network's layers, the clip G, delta_0, the batch or the number of rounds T. Ours are `jdfl.models.cnn3`
(4,850 parameters, tanh), G = 1, delta_0 = 1e-5, one image per round as in Theorem 1, and T = 6,000 rounds, two epochs,
from standardised pixels, whose means and deviations are declared public. They are the same in all columns. scikit-
learn's digits stand in where MNIST is not available; the choice of their test images is declared public, too.
"""

import warnings
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import pandas as pd
from jax import Array
from rich import print as say

import jdfl
from experiments.doadp_common import NODES, busiest, network
from jdfl.codecs import Dense, Sparse
from jdfl.engine.metrics import average
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
        """The column's heading."""
        return f"p = {self.p:g}, k/d = {self.share:g}"


COLUMNS = (Column(1.0, 1.0), Column(0.8, 1.0), Column(1.0, 0.4), Column(0.8, 0.4))


class Noise(NamedTuple):
    """The accounting and the epsilon that determine the noise; None and 0: no noise."""

    accounting: str
    epsilon: float

    def __str__(self) -> str:
        """The case of a table."""
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
    """The seeds of runs, splits and networks."""
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
    """Theorem 1 for a column."""
    return method(column).theorem(problem_of(study, 0), study.rounds)
