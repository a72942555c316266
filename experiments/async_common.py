"""What the experiments of asynchronous methods share: clocks of nodes, and three problems with a target of each.

Axes: m nodes.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

import jdfl
from jdfl import network as nw
from jdfl.engine import metrics
from jdfl.problems import Problem, optimum

NARROW = nw.LogNormalTime(1.0, 0.05)  # 1 s, and a deviation of 5 %


@dataclass(frozen=True)
class Clock:
    """How long nodes compute: a distribution of times with mean 1, and a factor on those of one node."""

    name: str
    times: nw.Times = NARROW
    slow: float = 1.0

    def network(self, base: Any, latency: float = 0.0, pace: float = 1.0) -> nw.Timed:
        """The network with these times.

        Args:
            base: The fixed network.
            latency: Seconds of a message.
            pace: Factor on all times of a gradient.
        """
        factors = np.full(base.m, pace)
        factors[0] *= self.slow
        return nw.timed(base, self.times, latency=nw.FixedTime(latency), slowness=factors)


EQUAL = Clock("equal")
EXPONENTIAL = Clock("exponential", nw.ExponentialTime(1.0))
LOG_NORMAL = Clock("log-normal", nw.LogNormalTime(math.exp(-0.5), 1.0))
PARETO = Clock("Pareto", nw.ParetoTime(1 / 3, 1.5))


def one_slow(factor: float) -> Clock:
    """Nearly equal clocks, and one node that takes `factor` times as long."""
    return Clock(f"one node {factor:g} times slower", NARROW, factor)


@dataclass(frozen=True)
class Task:
    """A problem, the objective that runs have to reach, and the middle of the step sizes that are tried."""

    make: Callable[[int], Problem]  # the problem of a seed; all seeds share shapes
    share: float  # of the gap between the start's objective and the least one, what is left at the target
    lr: float

    @cache  # noqa: B019 (tasks live as long as the script)
    def drawn(self, seed: int) -> tuple[Problem, float]:
        """The problem of a seed, and the objective to reach; the least one of a perceptron counts as 0."""
        problem = self.make(seed)
        least = 0.0 if isinstance(problem, jdfl.problems.NeuralProblem) else optimum(problem).value
        start = float(metrics.objective(problem.initial_params(), problem))
        return problem, least + self.share * (start - least)


def tasks(m: int) -> dict[str, Task]:
    """Example 1 of the CEPS paper, logistic regression, and a perceptron with one hidden layer."""
    model = jdfl.models.mlp("plain", shape=(8, 8, 1), hidden=32)
    return {
        "Example 1": Task(lambda seed: jdfl.problems.example1(m, 100, 10, (60, 100), seed=seed), 0.005, 0.06),
        "logistic regression": Task(
            lambda seed: jdfl.problems.classification("breast_cancer", m, seed=seed), 0.03, 0.5
        ),
        "perceptron": Task(
            lambda seed: jdfl.problems.neural_classification("digits", m, model=model, seed=seed), 0.1, 0.3
        ),
    }
