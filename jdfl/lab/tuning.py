"""A sweep per algorithm over its grid, the best point at every budget, and grids that are extended at their edge."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd

from jdfl.engine.batch import across
from jdfl.lab import curves
from jdfl.lab.curves import Short, axes_of, common, long_form
from jdfl.lab.entries import Budget, Grid, Plan, Point, Terms, Tuning, beyond_edges, grid_text, quiet
from jdfl.lab.table import better, number

Side = Literal["lowest", "highest"]
_SMALL = 2**24  # examples times parameters up to which compiling takes longer than idle lanes
_ALIKE = 1e-6  # relative difference up to which points of a grid are the same


class Target(NamedTuple):
    """A budget at which algorithms are compared, and so tuned: an amount of `by`; infinite for "stop"."""

    by: str
    budget: float


@dataclass(frozen=True)
class Tuned:
    """How the values of an algorithm were chosen."""

    values: Point  # the chosen point
    grid: Grid  # with what extensions added; empty: not tuned
    runs: int  # tuning runs
    edge: dict[str, Side]  # fields whose chosen value is on the edge of the grid, though there are values beyond
    failure: str = ""  # why no point could be chosen
    alike: str = ""  # what all points that work have in common, where that is so: the choice means nothing
    lone: str = ""  # which point was the only one; empty where there were several to choose from
    ties: int = 1  # points as good as the chosen one, itself among them
    short: Short | None = None  # what one round takes, where that is the failure
    steps: int = 0  # rounds of its runs; 0: as the experiment says


class Choice(NamedTuple):
    """What tuning found at one budget."""

    target: Target
    tuned: dict[str, Tuned]  # by label
    points: pd.DataFrame  # a row per point, one for what is not tuned


class _Search:
    """The tuning runs of one algorithm, and what they say at a budget."""

    def __init__(self, label: str, plan: Plan, terms: Terms, tune: Tuning) -> None:
        self.label, self.plan, self.terms = label, plan, terms
        self.seeds = len(tune.keys)
        self.points: list[Point] = []
        self.extensions: list[int] = []  # of every point; 0: of the first grid
        self.records = pd.DataFrame()  # of all runs, with the place of their point as label
        self._known: dict[tuple[Target, int], pd.DataFrame] = {}

    def run(self, points: list[Point], extension: int, what: str) -> None:
        """Run points with all tuning seeds, as long as reported runs."""
        terms, trials, problem = self.terms, len(self.plan.tuning), self.plan.tuning[0].problem
        terms.announce(self.label, what)
        # Small problems have one program for a grid and its extensions.
        small = problem.weight.size * problem.n <= _SMALL
        with quiet():
            results = across(
                self.plan.at(points[0]),
                self.plan.tuning,
                over=points,
                steps=self.plan.steps,
                metrics=[terms.measure],
                width=self.extensions.count(0) if small else len(points),
                names=[(self.label, point) for point in points],
                **terms.how,
            )
        places = [len(self.points) + i // trials for i in range(len(results))]
        frames = [long_form(str(place), [run]) for place, run in zip(places, results)]
        self.records = pd.concat([self.records, *frames] if self.points else frames, ignore_index=True)
        self.points += points
        self.extensions += [extension] * len(points)

    def at(self, target: Target) -> pd.DataFrame:
        """The rows of `curves.at`, one per point in the order of their values, with the `place` of the point.

        Lower is better in `score`, the mean over seeds: infinite where a run diverged, or did not stop.
        """
        known = target, len(self.points)
        if known not in self._known:
            name, stop = self.terms.measure.__name__, target.by == "stop"
            found = curves.at(self.records, "round" if stop else target.by, [name], target.budget)
            values = curves.to_stop(self.records) if stop else found
            mean = values["round"] if stop else better(name) * found[name]
            complete = np.isfinite(mean) & (values["seeds"] == self.seeds)
            found = found.assign(score=mean.where(complete, np.inf), place=range(len(found)))
            order = sorted(range(len(found)), key=lambda place: tuple(self.points[place].values()))
            self._known[known] = found.iloc[order]
        return self._known[known]

    def extend(self, targets: list[Target], times: int) -> None:
        """Add the points beyond the edges that the best ones of some budget are on, as often as may be."""
        for extension in range(1, times + 1):
            further: list[Point] = []
            for target in targets:
                best, grid = self._best(target), self._grid()
                beyond = {} if best is None or self._alike(target) else beyond_edges(self.plan, best, grid)
                wider = grid | {path: (*grid[path], *values) for path, values in beyond.items()}
                for point in (dict(zip(wider, values)) for values in product(*wider.values())) if beyond else ():
                    if point not in self.points and point not in further and self.plan.allows(point):
                        further.append(point)
            if not further:
                return
            self.run(further, extension, "tuning on, beyond the edge of the grid")

    def choose(self, target: Target) -> Tuned:
        """The best point at a budget."""
        if not self.plan.grid:
            return Tuned({}, {}, 0, {})
        grid, best, found = self._grid(), self._best(target), self.at(target)
        runs = len(self.points) * self.seeds
        if best is not None:
            beyond = beyond_edges(self.plan, best, grid)
            edge: dict[str, Side] = {
                path: "lowest" if values[0] < best[path] else "highest" for path, values in beyond.items()
            }
            scores = self._working(target)
            only = f"only 1 of {len(self.points)} points works" if len(self.points) > 1 else "one point only"
            lone, ties = only if len(scores) == 1 else "", int(np.sum(scores == scores.min()))
            return Tuned(best, grid, runs, edge, alike=self._alike(target), lone=lone, ties=ties)
        if target.by != "stop" and found["needs"].notna().any() and not found["seeds"].any():
            after, needs = found.loc[found["needs"].idxmin(), ["after", "needs"]]
            lacking = Short(float(after), float(needs))
            return Tuned({}, grid, runs, {}, lacking.words(*target), short=lacking)
        what = "reached the stop rule with every seed" if target.by == "stop" else "stayed finite with every seed"
        return Tuned({}, grid, runs, {}, f"no point of the grid {grid_text(grid)} {what} ({runs} runs)")

    def rows(self, tuned: Tuned, target: Target) -> Iterable[dict[str, Any]]:
        """A row per point, in the order of the values, and which one was chosen."""
        sign = 1 if target.by == "stop" else better(self.terms.measure.__name__)
        found = self.at(target)
        for place, score, diverged in zip(*(found[name].tolist() for name in ("place", "score", "diverged"))):
            chosen = not tuned.failure and self.points[place] == tuned.values
            yield {
                "label": self.label,
                **self.points[place],
                "mean": sign * score,
                "diverged": diverged,
                "runs": self.seeds,
                "extension": self.extensions[place],
                "chosen": chosen,
                "edge": ", ".join(f"{side} {path}" for path, side in tuned.edge.items()) if chosen else "",
            }

    def _grid(self) -> Grid:
        return {path: tuple(sorted({point[path] for point in self.points})) for path in self.plan.grid}

    def _best(self, target: Target) -> Point | None:
        """That with the lowest finite score; of equal ones the middle one in the order of the values."""
        found = self.at(target)
        equal = found["place"][found["score"] == found["score"].min()].tolist()
        return self.points[equal[len(equal) // 2]] if np.isfinite(found["score"].min()) else None

    def _working(self, target: Target) -> np.ndarray:
        """The scores of the points that work: finite, or of points that went on where others stopped."""
        scores, diverged = (self.at(target)[name].to_numpy(float) for name in ("score", "diverged"))
        return scores[np.isfinite(scores) | ((target.by == "stop") & (diverged == 0))]

    def _alike(self, target: Target) -> str:
        """What all points that work have, in words, where it is the same; empty where they differ or one is alone."""
        scores, name, stop = self._working(target), self.terms.measure.__name__, target.by == "stop"
        if len(scores) < 2 or not np.isfinite(scores).all() or np.ptp(scores) > _ALIKE * np.max(np.abs(scores)):
            return ""
        what = "rounds to the stop rule" if stop else name.replace("_", " ")
        points = f"all {len(scores)} points of the grid" + " that work" * (len(scores) < len(self.points))
        return f"{points} have the same {what}, {number(float(scores[0]) * (1 if stop else better(name)))}"


def tune_all(plans: dict[str, Plan], terms: Terms, tune: Tuning) -> list[Choice]:
    """Tune every plan that has a grid at every budget that is shown, that of `by` first, from the same tuning runs."""
    searches = {label: _Search(label, plan, terms, tune) for label, plan in plans.items()}
    for i, search in enumerate(searches.values()):  # what is not tuned may still limit a common budget
        search.run(search.plan.taken(), 0, f"tuning ({i + 1} of {len(searches)})")
    records = [
        one.records.assign(seed=one.records["label"] + "-" + one.records["seed"].astype(str), label=label)
        for label, one in searches.items()
    ]
    targets = _targets(pd.concat(records, ignore_index=True), terms.budgets)
    for label, plan in list(plans.items()):
        most = plan.steps * terms.longer
        while (steps := min(most, _needed(searches[label], targets))) > plans[label].steps:
            plans[label] = replace(plan, steps=steps)
            searches[label] = _Search(label, plans[label], terms, tune)
            searches[label].run(plan.taken(), 0, f"tuning over {steps:,} rounds, which the budget takes")
    for search in searches.values():
        if search.plan.grid:
            search.extend(targets, tune.extend)
    fields = dict.fromkeys(path for plan in plans.values() for path in plan.grid)
    columns = ["label", *fields, "mean", "diverged", "runs", "extension", "chosen", "edge"]
    found: list[Choice] = []
    for target in targets:
        tuned = {label: replace(one.choose(target), steps=one.plan.steps) for label, one in searches.items()}
        rows = [row for label, search in searches.items() for row in search.rows(tuned[label], target)]
        found.append(Choice(target, tuned, pd.DataFrame(rows, columns=columns)))
    return found


def _needed(search: _Search, targets: Sequence[Target]) -> int:
    """The rounds that the budgets take, of the runs that ended because all their rounds were done."""
    steps, (terms, every) = search.plan.steps, (search.terms, search.terms.every)
    if terms.epsilon is not None or terms.ledger is not None:
        return steps
    needed = float(steps)
    for _, run in search.records.groupby(["label", "seed"], sort=False):
        for x, budget in targets:
            if x != "stop" and run["ending"].iloc[0] == "steps" and np.isfinite(used := curves.share(run, x, budget)):
                needed = max(needed, steps / used * 1.02 + 1)
    return steps if needed == steps else -(-math.ceil(needed) // every) * every


def _targets(records: pd.DataFrame, budgets: Sequence[Budget]) -> list[Target]:
    """The budgets of all tables, in the order given; except the first one, none of an amount that no method spends."""
    counted = axes_of(records)
    found: dict[Target, None] = {}
    for x, amount in budgets:
        if x not in (*counted, "stop"):
            known = ", ".join(name for name in counted if name != "seconds")
            raise ValueError(f"Expected an amount that is counted, got budget = {x!r}. Counted here: {known}.")
        target = np.inf if x == "stop" else common(records, x) if amount is None else amount
        if target > 0 or not found:
            found[Target(x, target)] = None
    return list(found)
