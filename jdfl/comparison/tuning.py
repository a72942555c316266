"""A sweep per algorithm over its grid, the choice of a point, and grids that go on where the best is on their edge."""

import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any, Literal

import numpy as np
import pandas as pd

from jdfl.batch import sweep
from jdfl.comparison.curves import axes_of, better, last_within, long_form, reach
from jdfl.comparison.entries import Plan, Tuning
from jdfl.metrics import Metric
from jdfl.problems import Problem
from jdfl.stopping import StopRule

Side = Literal["lowest", "highest"]
Announce = Callable[[str, str], object]  # (label, what is done with it)
_FURTHER = 3  # values that an extension adds


@dataclass(frozen=True)
class Tuned:
    """How an algorithm came by its values."""

    values: dict[str, float]  # the chosen point
    grid: dict[str, tuple[float, ...]]  # with what extensions added; empty: not tuned
    runs: int  # tuning runs
    edge: dict[str, Side]  # fields whose chosen value is on the edge of the grid, though there are values beyond
    failure: str = ""  # why no point could be chosen


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

    def trials(self, plan: Plan, steps: int, points: list[dict[str, float]], extension: int) -> list[Trial]:
        """Run points; of the rounds between, records are kept only where a budget may fall."""
        keys, ends = list(self.tuning.keys), self.tuning.by in ("round", "stop")
        with warnings.catch_warnings():  # a grid has points that make no sense
            warnings.simplefilter("ignore")
            results = sweep(
                plan.at(points[0]),
                self.problem,
                plan.network,
                over=points,
                keys=keys,
                steps=steps,
                every=steps if ends else self.every,
                stop=self.stop,
                metrics=[self.measure],
                batch=self.batch,
            )
        size = len(keys)
        parts = [results[i * size : (i + 1) * size] for i in range(len(points))]
        return [
            Trial(point, tuple(long_form("", [run]) for run in runs), extension) for point, runs in zip(points, parts)
        ]

    def score(self, trial: Trial, budget: float) -> float:
        """The mean over seeds, lower is better; infinite if a run diverged (or, where that counts, did not stop)."""
        found: list[Any] = []
        for frame in trial.frames:
            if self.tuning.by == "stop":
                found.append(frame["round"].iloc[-1] if frame["ending"].iloc[0] == "stop rule" else np.inf)
                continue
            record = last_within(frame, self.tuning.by, budget)
            name = self.measure.__name__
            found.append(np.inf if record is None else better(name) * record[name])
        mean = float(np.mean(found))
        return mean if np.isfinite(mean) else np.inf


def tune_all(plans: Mapping[str, Plan], bench: Bench) -> tuple[dict[str, Tuned], pd.DataFrame, float]:
    """Tune every plan that has a grid, all at the same budget; also a table with a row per point, and the budget."""
    by, given = bench.tuning.by, bench.tuning.budget
    steps = {label: bench.tuning.steps or plan.steps for label, plan in plans.items()}
    if by == "round":
        rounds = min(steps.values())
        steps = dict.fromkeys(steps, rounds if given is None else min(rounds, max(1, int(given))))
    trials: dict[str, list[Trial]] = {}
    for label, plan in plans.items():
        if plan.grid or by not in ("round", "stop"):  # what is not tuned may still limit the common budget
            bench.announce(label, "tuning")
            trials[label] = bench.trials(plan, steps[label], plan.taken(bench.problem), 0)
    budget = np.inf if by == "stop" else float(min(steps.values()))
    if by not in ("round", "stop"):
        records = pd.concat(_named(trials), ignore_index=True)
        counted = axes_of(records)
        if by not in counted:
            known = ", ".join(name for name in counted if name != "seconds")
            raise ValueError(f"Expected an amount that is counted, got by = {by!r}. Counted here: {known}.")
        budget = reach(records, by) if given is None else given
    found: dict[str, Tuned] = {}
    rows: list[dict[str, Any]] = []
    for label, plan in plans.items():
        if not plan.grid:
            found[label] = Tuned({}, {}, 0, {})
            continue
        found[label] = _choose(label, plan, steps[label], trials[label], bench, budget)
        rows += _rows(label, found[label], trials[label], bench, budget)
    fields = dict.fromkeys(path for plan in plans.values() for path in plan.grid)
    columns = ["label", *fields, "mean", "diverged", "runs", "extension", "chosen", "edge"]
    return found, pd.DataFrame(rows, columns=columns if rows else None), budget


def _named(trials: Mapping[str, list[Trial]]) -> Iterable[pd.DataFrame]:
    """All records, with labels and with a seed of its own for every run."""
    for label, some in trials.items():
        for i, trial in enumerate(some):
            yield from (frame.assign(label=label, seed=f"{i}-{frame['seed'].iloc[0]}") for frame in trial.frames)


def _choose(label: str, plan: Plan, steps: int, trials: list[Trial], bench: Bench, budget: float) -> Tuned:
    """The best point; `trials` grows with what extensions run."""
    extension = 0
    while True:
        best = _best(trials, bench, budget)
        grid = {path: tuple(sorted({trial.point[path] for trial in trials})) for path in plan.grid}
        edge = {} if best is None else _edge(plan, bench.problem, best.point, grid)
        further = _further(plan, bench.problem, grid, edge, trials) if extension < bench.tuning.extend else []
        if not further:
            break
        extension += 1
        bench.announce(label, "tuning on, beyond the edge of the grid")
        trials += bench.trials(plan, steps, further, extension)
    runs = len(trials) * len(list(bench.tuning.keys))
    if best is not None:
        return Tuned(best.point, grid, runs, edge)
    what = "reached the stop rule with every seed" if bench.tuning.by == "stop" else "stayed finite with every seed"
    return Tuned({}, grid, runs, {}, f"no point of the grid {grid_text(grid)} {what} ({runs} runs)")


def _best(trials: list[Trial], bench: Bench, budget: float) -> Trial | None:
    """The lowest finite score; of equal ones the middle point in the order of the values."""
    scores = [bench.score(trial, budget) for trial in trials]
    if not np.isfinite(min(scores)):
        return None
    equal = [trial for trial, score in zip(trials, scores) if score == min(scores)]
    return sorted(equal, key=lambda trial: tuple(trial.point.values()))[len(equal) // 2]


def _edge(plan: Plan, problem: Problem, point: dict[str, float], grid: dict[str, tuple[float, ...]]) -> dict[str, Side]:
    """Fields whose value is the lowest or highest of several, and beyond which the algorithm takes values."""
    found: dict[str, Side] = {}
    for path, values in grid.items():
        side: Side | None = {values[0]: "lowest", values[-1]: "highest"}.get(point[path])  # pyright: ignore
        if side and len(values) > 1 and plan.allows(point | {path: _beyond(values, side)[0]}, problem):
            found[path] = side
    return found


def _beyond(values: tuple[float, ...], side: Side) -> list[float]:
    """Further values in the ratio of the last two, or by their difference where one is not positive."""
    end, before = (values[0], values[1]) if side == "lowest" else (values[-1], values[-2])
    k = np.arange(1, _FURTHER + 1)
    return list(map(float, end * (end / before) ** k if min(end, before) > 0 else end + (end - before) * k))


def _further(
    plan: Plan, problem: Problem, grid: dict[str, tuple[float, ...]], edge: dict[str, Side], trials: list[Trial]
) -> list[dict[str, float]]:
    """Points that were not tried, of the grid that goes on beyond the edges."""
    wider = grid | {path: (*grid[path], *_beyond(grid[path], side)) for path, side in edge.items()}
    tried = [trial.point for trial in trials]
    points = [dict(zip(wider, values)) for values in product(*wider.values())] if edge else []
    return [point for point in points if point not in tried and plan.allows(point, problem)]


def _rows(label: str, tuned: Tuned, trials: list[Trial], bench: Bench, budget: float) -> Iterable[dict[str, Any]]:
    sign = 1 if bench.tuning.by == "stop" else better(bench.measure.__name__)
    for trial in sorted(trials, key=lambda trial: tuple(trial.point.values())):
        chosen = not tuned.failure and trial.point == tuned.values
        yield {
            "label": label,
            **trial.point,
            "mean": sign * bench.score(trial, budget),
            "diverged": sum(frame["ending"].iloc[0] == "diverged" for frame in trial.frames),
            "runs": len(trial.frames),
            "extension": trial.extension,
            "chosen": chosen,
            "edge": ", ".join(f"{side} {path}" for path, side in tuned.edge.items()) if chosen else "",
        }


def grid_text(grid: Mapping[str, tuple[float, ...]]) -> str:
    """A grid in words."""
    return ", ".join(
        f"{path} = {values[0]:.3g}" + (f" ... {values[-1]:.3g} ({len(values)} values)" if len(values) > 1 else "")
        for path, values in grid.items()
    )
