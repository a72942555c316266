"""Shared parts of the DO-ADP experiments: the paper's logistic regression, its network, its four columns, f*.

W. Huo, C. Liu, K. Ding, K. H. Johansson, L. Shi, section VI.A: 20 nodes on the circulant network of offsets 1, 2, 3
with W = I - L / 7, logistic regression with the regulariser ||x||^2 / (2 q), alpha = .001, gamma = .05, beta = .15,
single samples, six epochs of q rounds each. The paper has epsilon's 400,000 rows, q = 20,000 per node and 120,000
rounds; `--records` sets q, by default 2,000 but in Figure 2: Theorem 1's variance times the number of rounds is the
same for every q, so the total noise is the same. `--data` uses real rows instead. Rows are `epsilon_like`, of norm 1,
so that no gradient has a norm above G = 1.

The paper does not give delta_0; here it is 1e-6, as is the delta of sound guarantees. Both protect a replaced record
against an observer of all messages; the paper's claim has the delta of its proof, at least epsilon / sqrt(5). f* is
that of L-BFGS (the paper's, from an SGD classifier, is above it).

Axes: m nodes.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from matplotlib.axes import Axes

import jdfl
from experiments.common import Options, refuse
from jdfl.privacy import Accounting
from jdfl.problems import LogisticRegression

NODES, EPOCHS, PAPER_RECORDS = 20, 6, 20_000
COLUMNS = ((1.0, 1.0), (0.8, 1.0), (1.0, 0.3), (0.8, 0.3))  # (p, k / d), from most to least communication
COLOURS = ("#E69F00", "#009E73", "#0072B2", "#D55E00")
LONGEST, DELTA = 1.0, 1e-6  # G; delta_0, and the delta of sound guarantees
REAL = ("epsilon", "a9a", "w8a")
RECORDS, POINTS = 2_000, 24  # points of a curve


@dataclass(frozen=True)
class Task:
    """A problem with its optimum."""

    problem: LogisticRegression
    best: float  # f*
    zero: float  # f(0), for doing nothing

    @property
    def records(self) -> int:
        return int(np.min(np.asarray(self.problem.sizes)))

    @property
    def steps(self) -> int:
        """Rounds of six epochs."""
        return EPOCHS * self.records

    @property
    def every(self) -> int:
        """Rounds from one point of a curve to the next."""
        return max(1, self.steps // POINTS)


FLAGS = {  # of the commands
    "--records": {"type": int, "help": f"rows of epsilon_like per node; the paper has {PAPER_RECORDS:,}"},
    "--data": {"default": "epsilon_like", "choices": ("epsilon_like", *REAL), "help": "the rows"},
}


def chosen_task(chosen: Options, most: int = RECORDS) -> Task:
    """The task of the command line; `most` records per node, or 40 with --quick, if not given."""
    data, given = chosen.more["data"], chosen.more["records"]
    if data in REAL and given is not None:
        refuse(f"Expected --records with --data epsilon_like only, got {data}, whose rows are all used.")
    records = (40 if chosen.quick else most) if given is None else given
    if records < 1:
        refuse(f"Expected --records >= 1, got {records}.")
    return real(data) if data in REAL else task(records)


def real(data: str) -> Task:
    """Logistic regression on a dataset of JDFL_DATA, with gradients clipped to norm 1."""
    problem: Any = jdfl.problems.classification(data, NODES, penalty=1.0, test_fraction=0.0)
    problem = replace(problem, penalty=problem.penalty / int(np.min(np.asarray(problem.sizes))))
    return with_optimum(problem)


def task(records: int, features: int = 2000) -> Task:
    """Logistic regression with `records` rows of epsilon_like per node."""
    data = jdfl.problems.epsilon_like(NODES * records, features)
    parts = list(zip(np.split(np.asarray(data.features), NODES), np.split(data.labels, NODES)))
    problem = jdfl.problems.logistic_regression(parts, penalty=1 / records, name=f"{data.name}, {records} per node")
    del data, parts  # at the paper's size 3.2 GB, and the optimum takes twice as much
    return with_optimum(problem)


def with_optimum(problem: LogisticRegression) -> Task:
    zero = float(jdfl.problems.value_at(problem, np.zeros(problem.n)))
    return Task(problem, jdfl.problems.optimum(problem).value, zero)


def network() -> jdfl.network.Static:
    return jdfl.network.circulant(NODES, (1, 2, 3), weights="laplacian")


def method(p: float, share: float, multiplier: float | None) -> jdfl.DOADP:
    """DO-ADP with noise of `multiplier` times 2 G; None: without noise."""
    mechanism = None if multiplier is None else jdfl.Gaussian(multiplier)
    gradients = jdfl.Gradients(batch=1, clip=LONGEST, mechanism=mechanism)
    codec = jdfl.Dense() if share == 1 else jdfl.Sparse(share=share, index="enumerative")
    return jdfl.DOADP(p=p, codec=codec, gradients=gradients, delta0=DELTA)


def busiest(algorithm: Any, problem: Any, steps: int, seeds: int) -> int:
    """The seed in whose run some node makes the most releases: noise that suffices there suffices for all."""
    most = [jdfl.planned_releases(algorithm, problem, network(), steps=steps, key=key).max() for key in range(seeds)]
    return int(np.argmax(most))


def calibrated(
    here: Task, p: float, share: float, epsilon: float, accounting: Accounting, seeds: int = 1
) -> tuple[float, list[str]]:
    """The multiplier of the noise for epsilon in runs of all seeds, and the theorem's conditions that do not hold."""
    plan = method(p, share, 1.0)
    key = 0 if p == 1 or accounting == "paper" else busiest(plan, here.problem, here.steps, seeds)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found: Any = jdfl.calibrate(
            plan,
            here.problem,
            network(),
            steps=here.steps,
            epsilon=epsilon,
            delta=DELTA,
            key=key,
            accounting=accounting,
        )
    return float(found.gradients.mechanism.multiplier), [str(one.message) for one in caught]


def curve(here: Task, algorithm: Any, seed: int, *, steps: int | None = None) -> Any:
    """A run's history with the columns `suboptimality`, f(average) - f*, and `own`, mean_i f_i(x_i) - f*."""
    result = jdfl.run(
        algorithm,
        here.problem,
        network(),
        key=seed,
        steps=here.steps if steps is None else steps,
        every=here.every,
        metrics=["objective", "objective_local", "consensus_error"],
        options=jdfl.Options(chunk=here.every),
    )
    history = result.history
    history["suboptimality"] = history["objective"] - here.best
    history["own"] = history["objective_local"] - here.best
    history["gigabytes"] = history["bytes"] / 1e9
    return history


def name(p: float, share: float) -> str:
    return f"(p, k/d) = ({p:g}, {share:g})"


def band(
    axis: Axes, runs: Sequence[Any], x: str, label: str, colour: str, *, y: str = "suboptimality", **style: Any
) -> None:
    """The mean of several histories, and their range."""
    values = np.array([run[y] for run in runs])
    axis.plot(runs[0][x], values.mean(axis=0), color=colour, label=label, **style)
    if len(runs) > 1:
        axis.fill_between(runs[0][x], values.min(axis=0), values.max(axis=0), color=colour, alpha=0.2, linewidth=0)


def idle(axis: Axes, here: Task) -> None:
    axis.axhline(here.zero - here.best, color="black", linestyle=":", label="do nothing (x = 0)")


def last(runs: Sequence[Any], column: str = "suboptimality") -> list[float]:
    return [float(run[column].iloc[-1]) for run in runs]
