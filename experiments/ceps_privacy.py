"""CEPS paper, Table III and Figure 2, at meaningful privacy budgets: a guarantee over all releases of a node.

Example 1 with three kinds of noise:

- private: every example's gradient is clipped, noise is kept in u, the first u included, sigma_i is public, and noise
  is calibrated for (epsilon, DELTA) for one replaced record over all releases of a run of ROUNDS rounds; the report of
  the worst node is shown. Messages, 1BCS or not, are computed from the noisy u alone.
- literal, as published: noise for epsilon at delta = .5 in one release, u_i = .1 assumed. There is no guarantee.
- assumed: that noise kept in u, gradients not clipped, ROUNDS rounds, since the paper's rule never fires. There is no
  guarantee either. "study" is an independent re-implementation's objective.

For the last two, the composition of three releases is given under the assumption that u_i = .1 and the first u is
noisy.

Public are the sizes q_i, the normal distribution of features, and the noise of the targets: sigma_i comes from
L_i = (1 + sqrt(n / q_i))^2, the edge of the Marchenko-Pastur law, and the clip is 4 noise sqrt(n). At w*, six gradients
in a hundred thousand exceed it, and at 0 most do. Private runs have the planned length, without the paper's stop rule.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

import jax.numpy as jnp
import numpy as np

import jdfl
from experiments.ceps_table3 import CASES, network_of, run_variant
from experiments.common import Made, Options, Row, bars, experiment, row
from jdfl.algorithms.ceps_paper import PAPER_DELTA
from jdfl.codecs import Codec
from jdfl.privacy import gaussian_epsilon
from jdfl.problems import Problem

DELTA = 1e-6
ROUNDS = 30  # about where the paper's rule stops
RELEASES = 3  # per node in a run, at most
EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, math.inf)
CLIP_EPSILONS, CLIPS = (4.0, 16.0), (0.35, 0.7, 1.4, 2.8)  # the clip's sweep, in multiples of the rule
NO_NOISE = 1e-6  # the multiplier for epsilon = inf: below the rounding of u, and without a separate compilation
NOISE = 0.5  # of Example 1's targets
SHOWN = (
    *("objective", "objective, study", "support", "rounds", "releases"),
    *("guaranteed epsilon", "noise / sensitivity", "would be, at 1e-05"),
)
NEAR = 0.02  # of f(w*)
LITERAL = {0.25: 0.129, 0.5: 0.127, 0.75: 0.126, 1.0: None, 2.0: None}  # the paper's objective of DP-Perf, m = 32
STUDY = {0.5: 0.326, 1.0: 0.128, 2.0: 0.126}


@dataclass(frozen=True)
class Series:
    """One private setting, to be run at every epsilon."""

    name: str
    m: int
    records: tuple[int, int]
    rate: float = 0.2
    stride: float = 1.0  # step size relative to the paper's
    rounds: int = ROUNDS
    codec: Codec = field(default_factory=jdfl.Dense)
    clips: tuple[float, ...] = ()
    n: int = 1000
    s: int = 10

    def problem(self, seed: int) -> Problem:
        return jdfl.problems.example1(m=self.m, n=self.n, s=self.s, rows=self.records, noise=NOISE, seed=seed)

    def algorithm(self, problem: Problem) -> jdfl.CEPS:
        """CEPS with public constants; its multiplier is calibrated later."""
        edge = (1 + np.sqrt(self.n / np.asarray(problem.sizes))) ** 2
        return jdfl.CEPS(
            s=self.s,
            rate=self.rate,
            codec=self.codec,
            sigma=jnp.asarray(edge / (self.m * (2 * self.rate + 0.1) * self.stride), jnp.float32),
            clip=4 * NOISE * math.sqrt(self.n),
            mechanism=jdfl.Gaussian(1.0),
        )


PAPER = Series("32 nodes of 250-750 records", 32, (250, 750), clips=CLIPS)
SERIES = (
    PAPER,
    replace(PAPER, name="... 1BCS", codec=jdfl.OneBit(), clips=()),
    replace(PAPER, name="... 60 rounds", rounds=60, clips=()),
    replace(PAPER, name="... r = 1, larger step size", rate=1.0, stride=2.0),  # the best of some that were tried here
    Series("8 nodes of 1,000-3,000 records", 8, (1000, 3000)),
    Series("8 nodes of 2,500-7,500 records", 8, (2500, 7500)),
)


@dataclass(frozen=True)
class Cell:
    """One setting with the results of its seeds."""

    kind: str  # "private", "literal" or "assumed"
    series: str
    epsilon: float
    factor: float  # of the clip's rule
    columns: dict[str, list[float]]
    paper: dict[str, float | None]

    def __str__(self) -> str:
        clip = "" if self.factor == 1 else f", clip x {self.factor:g}"
        return f"{self.kind}, {self.series}{clip}, eps={self.epsilon:g}"


def network_for(m: int, seed: int) -> jdfl.network.Static:
    """Erdos-Renyi with p = .45, padded so that all seeds share one compilation."""
    return network_of(replace(CASES[0], m=m), seed)


def private(series: Series, seed: int, epsilons: Sequence[float], problem: Problem) -> list[Cell]:
    """One seed of a series at every epsilon, and some epsilons with other clips."""
    network, algorithm, rounds = network_for(series.m, seed), series.algorithm(problem), series.rounds

    def enough(epsilon: float) -> float:
        """The multiplier with which the run is (epsilon, DELTA)-DP."""
        if math.isinf(epsilon):
            return NO_NOISE
        found = jdfl.calibrate(algorithm, problem, network, steps=rounds, epsilon=epsilon, delta=DELTA, key=seed)
        return float(found.mechanism.multiplier)

    points = [(epsilon, 1.0) for epsilon in epsilons]
    points += [(epsilon, factor) for epsilon in CLIP_EPSILONS if epsilon in epsilons for factor in series.clips]
    noise = {epsilon: enough(epsilon) for epsilon in epsilons}
    results = jdfl.sweep(
        algorithm,
        problem,
        network,
        over=[
            {"clip": float(algorithm.clip or 1.0) * factor, "mechanism.multiplier": noise[epsilon]}
            for epsilon, factor in points
        ],
        keys=[seed],
        steps=rounds,
        every=rounds,
        metrics=["objective", "support_recovery"],
    )
    cells = []
    for (epsilon, factor), result in zip(points, results):
        columns = measured(result, problem)
        if math.isfinite(epsilon):
            told = jdfl.account(result, delta=DELTA)
            columns |= {"guaranteed epsilon": [told.epsilon], "noise / sensitivity": [told.noise_multiplier]}
            columns["largest noise in an entry"] = [told.noise_multiplier * told.sensitivity]
        cells.append(Cell("private", series.name, epsilon, factor, columns, {}))
    return cells


def measured(result: jdfl.Result, problem: Problem) -> dict[str, list[float]]:
    """Measurements for every kind of noise; all of them use the data, and are not covered by any guarantee."""
    zero = float(jnp.mean(problem.values_at(jnp.zeros((problem.n,), problem.dtype))))
    return {
        "objective": [result.final["objective"]],
        "f(0)": [zero],
        "f(w*)": [jdfl.problems.value_at_truth(problem)],
        "support": [result.final["support_recovery"]],
        "rounds": [float(result.rounds)],
        "releases": [float(result.releases.max())],
    }


def published(seed: int, problem: Problem, literal: Sequence[float], assumed: Sequence[float]) -> list[Cell]:
    """The paper's noise for its epsilon in one release: as printed, with its stop rule, and kept in u."""
    runs = [
        ("literal", epsilon, run_variant(replace(CASES[0], m=problem.m, epsilon=epsilon), "DP-Perf", seed, problem))
        for epsilon in literal
    ]
    for epsilon, result in zip(assumed, kept_noise(seed, problem, assumed) if assumed else []):
        runs.append(("assumed", epsilon, result))
    cells = []
    for kind, epsilon, result in runs:
        if result.guarantee.claimed:
            raise RuntimeError(f"Expected no guarantee for {kind} noise, got {result.guarantee}.")
        columns = measured(result, problem)
        mu = math.sqrt(RELEASES) / float(jdfl.classical_gaussian(epsilon, PAPER_DELTA).multiplier)
        columns |= {f"would be, at {delta:g}": [gaussian_epsilon(mu, delta)] for delta in (DELTA, 1e-5)}
        told = {"objective": LITERAL.get(epsilon)} if kind == "literal" else {"objective, study": STUDY.get(epsilon)}
        if kind == "assumed":
            columns["objective, study"] = list(columns["objective"])
        cells.append(Cell(kind, "NO GUARANTEE", epsilon, 1.0, columns, told))
    return cells


def kept_noise(seed: int, problem: Problem, epsilons: Sequence[float]) -> list[jdfl.Result]:
    noise = [float(jdfl.classical_gaussian(one, PAPER_DELTA).multiplier) for one in epsilons]
    return jdfl.sweep(
        replace(jdfl.CEPS.paper(10, epsilon=1.0, one_bit=False), noise="kept"),
        problem,
        network_for(problem.m, seed),
        over={"mechanism.multiplier": noise},
        keys=[seed],
        steps=ROUNDS,
        every=ROUNDS,
        metrics=["objective", "support_recovery"],
    )


def collect(
    series: Sequence[Series],
    seeds: int,
    epsilons: Sequence[float],
    *,
    literal: Sequence[float] = tuple(LITERAL),
    assumed: Sequence[float] = tuple(STUDY),
) -> list[Cell]:
    """Everything over all seeds; the published kinds on the problems of the first series."""
    found: dict[str, Cell] = {}
    for seed in range(seeds):
        for size, some in groupby(series, lambda one: (one.m, one.records)):  # one large dataset at a time
            group = list(some)
            problem = group[0].problem(seed)
            cells = [cell for one in group for cell in private(one, seed, epsilons, problem)]
            if literal and size == (series[0].m, series[0].records):
                cells += published(seed, problem, literal, assumed)
            for cell in cells:
                before = found.setdefault(str(cell), cell)
                if before is not cell:
                    for column, values in cell.columns.items():
                        before.columns[column].extend(values)
    return list(found.values())


def table(cells: Sequence[Cell]) -> list[Row]:
    return [
        row(str(cell), column, cell.paper.get(column), values)
        for cell in cells
        for column, values in cell.columns.items()
    ]


@experiment(seeds=3)
def main(chosen: Options) -> Made:
    """All series; with `--quick` the paper's nodes alone at three epsilons."""
    if chosen.quick:
        cells = collect([replace(PAPER, clips=())], chosen.seeds, (1.0, 8.0, 32.0), literal=(0.5, 2.0), assumed=())
    else:
        cells = collect(SERIES, chosen.seeds, EPSILONS)
    rows = table(cells)
    shown = [one for one in rows if one.column in SHOWN]
    hidden = [one for one in rows if one.column not in SHOWN]
    title = "CEPS on Example 1 with noise that is private, and with the paper's"
    return Made({title: shown}, bars(rows, ["objective"], "objective", marks="f(w*)"), hidden)
