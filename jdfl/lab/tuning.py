"""A sweep per algorithm over its grid, the best point at every budget, and grids that go on beyond their edge."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd

from jdfl.batch import sweep
from jdfl.lab.curves import Short, axes_of, common, last_within, long_form, short
from jdfl.lab.entries import Terms, Tuning
from jdfl.lab.grids import Grid, Plan, Point, beyond_edges, grid_text, quiet
from jdfl.lab.table import better, number
from jdfl.stopping import StopRule

Side = Literal["lowest", "highest"]
_ALIKE = 1e-6  # relative difference up to which points of a grid are the same


class Target(NamedTuple):
    """A budget at which algorithms are compared, and so tuned: an amount of `by`; infinite for "stop"."""

    by: str
    budget: float


@dataclass(frozen=True)
class Trial:
    """The runs of one point with all tuning seeds."""

    point: Point
    frames: tuple[pd.DataFrame, ...]
    extension: int  # 0: of the first grid

    @property
    def diverged(self) -> int:
        """How many of them diverged."""
        return sum(frame["ending"].iloc[0] == "diverged" for frame in self.frames)


@dataclass(frozen=True)
class Tuned:
    """How an algorithm came by its values."""

    values: Point  # the chosen point
    grid: Grid  # with what extensions added; empty: not tuned
    runs: int  # tuning runs
    edge: dict[str, Side]  # fields whose chosen value is on the edge of the grid, though there are values beyond
    failure: str = ""  # why no point could be chosen
    alike: str = ""  # what all points that work have in common, where that is so: the choice means nothing
    lone: str = ""  # which point was the only one; empty where there were several to choose from
    ties: int = 1  # points as good as the chosen one, itself among them
    short: Short | None = None  # what one round takes, where that is the failure


class Choice(NamedTuple):
    """What tuning found at one budget."""

    target: Target
    tuned: dict[str, Tuned]  # by label
    points: pd.DataFrame  # a row per point, one for what is not tuned


class Search:
    """The tuning runs of one algorithm, and what they say at a budget."""

    def __init__(self, label: str, plan: Plan, terms: Terms, tune: Tuning) -> None:
        self.label, self.plan, self.terms, self.tune = label, plan, terms, tune
        self.trials: list[Trial] = []

    def run(self, points: list[Point], extension: int, what: str) -> None:
        """Run points with all tuning seeds, as long as reported runs."""
        terms, keys = self.terms, list(self.tune.keys)
        terms.announce(self.label, what)
        with quiet():
            results = sweep(
                self.plan.at(points[0]),
                terms.problem,
                self.plan.network,
                over=points,
                keys=keys,
                steps=self.plan.steps,
                every=terms.every,
                stop=terms.stop,
                metrics=[terms.measure],
                batch=terms.batch,
            )
        for i, point in enumerate(points):
            runs = results[i * len(keys) : (i + 1) * len(keys)]
            self.trials.append(Trial(point, tuple(long_form("", [run]) for run in runs), extension))

    def records(self) -> Iterable[pd.DataFrame]:
        """All records, with the label and with a seed of its own for every run."""
        for i, trial in enumerate(self.trials):
            for frame in trial.frames:
                yield frame.assign(label=self.label, seed=f"{i}-{frame['seed'].iloc[0]}")

    def extend(self, targets: list[Target]) -> None:
        """Add the points beyond the edges that the best ones of some budget are on, as often as may be."""
        for extension in range(1, self.tune.extend + 1):
            further: list[Point] = []
            for target in targets:
                best = self._best(target)
                if best is not None and not self._alike(target):
                    further += [point for point in self._further(best.point) if point not in further]
            if not further:
                return
            self.run(further, extension, "tuning on, beyond the edge of the grid")

    def choose(self, target: Target) -> Tuned:
        """The best point at a budget."""
        if not self.plan.grid:
            return Tuned({}, {}, 0, {})
        grid, best, trials = self._grid(), self._best(target), self.trials
        runs = len(trials) * len(list(self.tune.keys))
        if best is not None:
            beyond = beyond_edges(self.plan, self.terms.problem, best.point, grid)
            edge: dict[str, Side] = {
                path: "lowest" if values[0] < best.point[path] else "highest" for path, values in beyond.items()
            }
            scores = self._working(target)
            only = f"only 1 of {len(trials)} points works" if len(trials) > 1 else "one point only"
            lone, ties = only if len(scores) == 1 else "", scores.count(min(scores))
            return Tuned(best.point, grid, runs, edge, alike=self._alike(target), lone=lone, ties=ties)
        if target.by != "stop" and (lacking := short((f for one in trials for f in one.frames), *target)):
            return Tuned({}, grid, runs, {}, lacking.told(*target), short=lacking)
        what = "reached the stop rule with every seed" if target.by == "stop" else "stayed finite with every seed"
        return Tuned({}, grid, runs, {}, f"no point of the grid {grid_text(grid)} {what} ({runs} runs)")

    def rows(self, tuned: Tuned, target: Target) -> Iterable[dict[str, Any]]:
        """A row per point, in the order of the values, and which one was chosen."""
        sign = 1 if target.by == "stop" else better(self.terms.measure.__name__)
        for trial in sorted(self.trials, key=lambda trial: tuple(trial.point.values())):
            chosen = not tuned.failure and trial.point == tuned.values
            yield {
                "label": self.label,
                **trial.point,
                "mean": sign * self._score(trial, target),
                "diverged": trial.diverged,
                "runs": len(trial.frames),
                "extension": trial.extension,
                "chosen": chosen,
                "edge": ", ".join(f"{side} {path}" for path, side in tuned.edge.items()) if chosen else "",
            }

    def _grid(self) -> Grid:
        return {path: tuple(sorted({trial.point[path] for trial in self.trials})) for path in self.plan.grid}

    def _score(self, trial: Trial, target: Target) -> float:
        """The mean over seeds, lower is better; infinite if a run diverged (or, where that counts, did not stop)."""
        name, found = self.terms.measure.__name__, list[float]()
        for frame in trial.frames:
            if target.by == "stop":
                found.append(frame["round"].iloc[-1] if frame["ending"].iloc[0] == "stop rule" else np.inf)
                continue
            record = last_within(frame, target.by, target.budget)
            found.append(np.inf if record is None else better(name) * record[name])
        mean = float(np.mean(found))
        return mean if np.isfinite(mean) else np.inf

    def _best(self, target: Target) -> Trial | None:
        """The lowest finite score; of equal ones the middle point in the order of the values."""
        scores = [self._score(trial, target) for trial in self.trials]
        if not np.isfinite(min(scores)):
            return None
        equal = [trial for trial, score in zip(self.trials, scores) if score == min(scores)]
        return sorted(equal, key=lambda trial: tuple(trial.point.values()))[len(equal) // 2]

    def _working(self, target: Target) -> list[float]:
        """The scores of the points that work: finite, or of points that went on where others stopped."""
        scores = [(self._score(trial, target), target.by == "stop" and not trial.diverged) for trial in self.trials]
        return [score for score, goes_on in scores if goes_on or np.isfinite(score)]

    def _alike(self, target: Target) -> str:
        """What all points that work have, in words, where it is the same; empty where they differ or one is alone."""
        scores, name = np.array(self._working(target)), self.terms.measure.__name__
        if len(scores) < 2 or not np.isfinite(scores).all() or np.ptp(scores) > _ALIKE * np.max(np.abs(scores)):
            return ""
        stop = target.by == "stop"
        what = "rounds to the stop rule" if stop else name.replace("_", " ")
        points = f"all {len(scores)} points of the grid" + " that work" * (len(scores) < len(self.trials))
        return f"{points} have the same {what}, {number(float(scores[0]) * (1 if stop else better(name)))}"

    def _further(self, best: Point) -> list[Point]:
        """Points that were not tried, of the grid that goes on beyond the edges that the best one is on."""
        problem, grid = self.terms.problem, self._grid()
        beyond = beyond_edges(self.plan, problem, best, grid)
        wider = grid | {path: (*grid[path], *values) for path, values in beyond.items()}
        points = [dict(zip(wider, values)) for values in product(*wider.values())] if beyond else []
        tried = [trial.point for trial in self.trials]
        return [point for point in points if point not in tried and self.plan.allows(point, problem)]


def tune_all(plans: Mapping[str, Plan], terms: Terms, tune: Tuning) -> list[Choice]:
    """Tune every plan that has a grid at every budget that is shown, that of `by` first, from the same tuning runs."""
    searches = {label: Search(label, plan, terms, tune) for label, plan in plans.items()}
    for search in searches.values():  # what is not tuned may still limit a common budget
        search.run(search.plan.taken(terms.problem), 0, "tuning")
    records = [frame for search in searches.values() for frame in search.records()]
    targets = _targets(pd.concat(records, ignore_index=True), tune, terms.stop)
    for search in searches.values():
        if search.plan.grid:
            search.extend(targets)
    fields = dict.fromkeys(path for plan in plans.values() for path in plan.grid)
    columns = ["label", *fields, "mean", "diverged", "runs", "extension", "chosen", "edge"]
    found: list[Choice] = []
    for target in targets:
        tuned = {label: search.choose(target) for label, search in searches.items()}
        rows = [row for label, search in searches.items() for row in search.rows(tuned[label], target)]
        found.append(Choice(target, tuned, pd.DataFrame(rows, columns=columns)))
    return found


def _targets(records: pd.DataFrame, tune: Tuning, stop: StopRule | None) -> list[Target]:
    """The budgets of all tables, that of `by` first; of other amounts that nobody spends, none."""
    counted = axes_of(records)
    asked: list[tuple[str, float | None]] = [(tune.by, None if tune.by == "stop" else tune.budget)]
    for x, amounts in tune.also.items():
        given = [float(amount) for amount in amounts]
        asked += [(x, amount) for amount in (given or [None] * (x != tune.by))]
    found: dict[Target, None] = {}
    for x, amount in asked if stop is None else [*asked, ("stop", None)]:
        if x not in (*counted, "stop"):
            known = ", ".join(name for name in counted if name != "seconds")
            raise ValueError(f"Expected an amount that is counted, got by = {x!r}. Counted here: {known}.")
        budget = np.inf if x == "stop" else common(records, x) if amount is None else float(amount)
        if budget > 0 or not found:
            found[Target(x, budget)] = None
    return list(found)
