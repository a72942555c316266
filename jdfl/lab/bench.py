"""The runs that tuning looks at: every point of a grid with every tuning seed, scored at a budget."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from jdfl.batch import sweep
from jdfl.lab.curves import better, last_within, long_form
from jdfl.lab.entries import Plan, Tuning
from jdfl.metrics import Metric
from jdfl.problems import Problem
from jdfl.stopping import StopRule

Announce = Callable[[str, str], object]  # (label, what is done with it)


class Target(NamedTuple):
    """A budget at which algorithms are compared, and so tuned: an amount of `by`; infinite for "stop"."""

    by: str
    budget: float


@dataclass(frozen=True)
class Trial:
    """The runs of one point with all tuning seeds."""

    point: dict[str, float]
    frames: tuple[pd.DataFrame, ...]
    extension: int  # 0: of the first grid


@dataclass(frozen=True)
class Bench:
    """What all tuning runs share."""

    problem: Problem
    tuning: Tuning
    measure: Metric
    every: int
    stop: StopRule | None
    batch: int | None
    announce: Announce

    def asked(self) -> list[tuple[str, float | None]]:
        """The amounts and budgets of all tables, that of `by` first; None: still to be found."""
        by = self.tuning.by
        found: dict[tuple[str, float | None], None] = {(by, None if by == "stop" else self.tuning.budget): None}
        for x, amounts in self.tuning.also.items():
            given = [float(amount) for amount in amounts]
            found |= dict.fromkeys((x, amount) for amount in (given or [None] * (x != by)))
        return list(found if self.stop is None else found | {("stop", None): None})

    def trials(self, plan: Plan, points: list[dict[str, float]], extension: int) -> list[Trial]:
        """Run points with all tuning seeds, as long as reported runs."""
        keys = list(self.tuning.keys)
        with warnings.catch_warnings():  # a grid has points that make no sense
            warnings.simplefilter("ignore")
            results = sweep(
                plan.at(points[0]),
                self.problem,
                plan.network,
                over=points,
                keys=keys,
                steps=plan.steps,
                every=self.every,
                stop=self.stop,
                metrics=[self.measure],
                batch=self.batch,
            )
        size = len(keys)
        parts = [results[i * size : (i + 1) * size] for i in range(len(points))]
        return [
            Trial(point, tuple(long_form("", [run]) for run in runs), extension) for point, runs in zip(points, parts)
        ]

    def score(self, trial: Trial, target: Target) -> float:
        """The mean over seeds, lower is better; infinite if a run diverged (or, where that counts, did not stop)."""
        found: list[Any] = []
        for frame in trial.frames:
            if target.by == "stop":
                found.append(frame["round"].iloc[-1] if frame["ending"].iloc[0] == "stop rule" else np.inf)
                continue
            record = last_within(frame, target.by, target.budget)
            name = self.measure.__name__
            found.append(np.inf if record is None else better(name) * record[name])
        mean = float(np.mean(found))
        return mean if np.isfinite(mean) else np.inf
