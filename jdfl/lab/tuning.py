"""A sweep per algorithm over its grid, the best point at every budget, and grids that go on beyond their edge."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd

from jdfl.lab.bench import Bench, Target, Trial
from jdfl.lab.curves import Short, axes_of, better, common, number, short
from jdfl.lab.entries import Plan
from jdfl.problems import Problem

Side = Literal["lowest", "highest"]
_FURTHER = 3  # values that an extension adds
_HALVINGS = 8  # of a step that the algorithm does not take
_LEAST = 0.01  # relative difference from which a shortened step is one
_ALIKE = 1e-6  # relative difference up to which points of a grid are the same


@dataclass(frozen=True)
class Tuned:
    """How an algorithm came by its values."""

    values: dict[str, float]  # the chosen point
    grid: dict[str, tuple[float, ...]]  # with what extensions added; empty: not tuned
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


def tune_all(plans: Mapping[str, Plan], bench: Bench) -> list[Choice]:
    """Tune every plan that has a grid at every budget that is shown, that of `by` first, from the same tuning runs."""
    trials: dict[str, list[Trial]] = {}
    for label, plan in plans.items():  # what is not tuned may still limit a common budget
        bench.announce(label, "tuning")
        trials[label] = bench.trials(plan, plan.taken(bench.problem), 0)
    targets = _targets(bench, pd.concat(_named(trials), ignore_index=True))
    for label, plan in plans.items():
        if plan.grid:
            _extend(label, plan, trials[label], bench, targets)
    found: list[Choice] = []
    fields = dict.fromkeys(path for plan in plans.values() for path in plan.grid)
    columns = ["label", *fields, "mean", "diverged", "runs", "extension", "chosen", "edge"]
    for target in targets:
        tuned: dict[str, Tuned] = {}
        rows: list[dict[str, Any]] = []
        for label, plan in plans.items():
            tuned[label] = _choose(plan, trials[label], bench, target) if plan.grid else Tuned({}, {}, 0, {})
            rows += _rows(label, tuned[label], trials[label], bench, target)
        found.append(Choice(target, tuned, pd.DataFrame(rows, columns=columns)))
    return found


def _targets(bench: Bench, records: pd.DataFrame) -> list[Target]:
    """The budgets of all tables; of amounts that nobody spends, none but that of `by`."""
    counted = axes_of(records)
    found: dict[Target, None] = {}
    for x, given in bench.asked():
        if x not in (*counted, "stop"):
            known = ", ".join(name for name in counted if name != "seconds")
            raise ValueError(f"Expected an amount that is counted, got by = {x!r}. Counted here: {known}.")
        budget = np.inf if x == "stop" else common(records, x) if given is None else float(given)
        if budget > 0 or not found:
            found[Target(x, budget)] = None
    return list(found)


def _named(trials: Mapping[str, list[Trial]]) -> Iterable[pd.DataFrame]:
    """All records, with labels and with a seed of its own for every run."""
    for label, some in trials.items():
        for i, trial in enumerate(some):
            yield from (frame.assign(label=label, seed=f"{i}-{frame['seed'].iloc[0]}") for frame in trial.frames)


def _extend(label: str, plan: Plan, trials: list[Trial], bench: Bench, targets: Sequence[Target]) -> None:
    """Add the points beyond the edges that the best ones of some budget are on, as often as may be."""
    for extension in range(1, bench.tuning.extend + 1):
        grid, further = _grid(plan, trials), list[dict[str, float]]()
        for target in targets:
            best, alike = _best(trials, bench, target), _alike(trials, bench, target)
            beyond = {} if best is None or alike else _beyond(plan, bench.problem, best.point, grid)
            points = _further(plan, bench.problem, grid, beyond, trials)
            further += [point for point in points if point not in further]
        if not further:
            return
        bench.announce(label, "tuning on, beyond the edge of the grid")
        trials += bench.trials(plan, further, extension)


def _choose(plan: Plan, trials: list[Trial], bench: Bench, target: Target) -> Tuned:
    """The best point at a budget."""
    grid, best = _grid(plan, trials), _best(trials, bench, target)
    runs = len(trials) * len(list(bench.tuning.keys))
    if best is not None:
        beyond = _beyond(plan, bench.problem, best.point, grid)
        edge: dict[str, Side] = {
            path: "lowest" if values[0] < best.point[path] else "highest" for path, values in beyond.items()
        }
        alike, scores = _alike(trials, bench, target), _scores(trials, bench, target)
        only = f"only 1 of {len(trials)} points works" if len(trials) > 1 else "one point only"
        lone, ties = only if len(scores) == 1 else "", scores.count(min(scores))
        return Tuned(best.point, grid, runs, edge, alike=alike, lone=lone, ties=ties)
    if target.by != "stop" and (lacking := short((f for one in trials for f in one.frames), *target)):
        return Tuned({}, grid, runs, {}, lacking.told(*target), short=lacking)
    what = "reached the stop rule with every seed" if target.by == "stop" else "stayed finite with every seed"
    return Tuned({}, grid, runs, {}, f"no point of the grid {grid_text(grid)} {what} ({runs} runs)")


def _grid(plan: Plan, trials: list[Trial]) -> dict[str, tuple[float, ...]]:
    return {path: tuple(sorted({trial.point[path] for trial in trials})) for path in plan.grid}


def _best(trials: list[Trial], bench: Bench, target: Target) -> Trial | None:
    """The lowest finite score; of equal ones the middle point in the order of the values."""
    scores = [bench.score(trial, target) for trial in trials]
    if not np.isfinite(min(scores)):
        return None
    equal = [trial for trial, score in zip(trials, scores) if score == min(scores)]
    return sorted(equal, key=lambda trial: tuple(trial.point.values()))[len(equal) // 2]


def _scores(trials: list[Trial], bench: Bench, target: Target) -> list[float]:
    """The scores of the points that work: finite ones, and those of points that went on beside others that stopped."""
    scores = [bench.score(trial, target) for trial in trials]
    goes_on = [target.by == "stop" and not _diverged(trial) for trial in trials]
    return [score for score, on in zip(scores, goes_on) if on or np.isfinite(score)]


def _diverged(trial: Trial) -> int:
    return sum(frame["ending"].iloc[0] == "diverged" for frame in trial.frames)


def _alike(trials: list[Trial], bench: Bench, target: Target) -> str:
    """What all points that work have, in words, where it is the same; empty where they differ or there is only one."""
    scores = np.array(_scores(trials, bench, target))
    if len(scores) < 2 or not np.isfinite(scores).all() or np.ptp(scores) > _ALIKE * np.max(np.abs(scores)):
        return ""
    stop = target.by == "stop"
    what = "rounds to the stop rule" if stop else bench.measure.__name__.replace("_", " ")
    value = float(scores[0]) * (1 if stop else better(bench.measure.__name__))
    points = f"all {len(scores)} points of the grid" + " that work" * (len(scores) < len(trials))
    return f"{points} have the same {what}, {number(value)}"


def _beyond(
    plan: Plan, problem: Problem, point: dict[str, float], grid: dict[str, tuple[float, ...]]
) -> dict[str, list[float]]:
    """By field whose value is the lowest or highest of several: values beyond it that the algorithm takes, if any."""
    found: dict[str, list[float]] = {}
    for path, values in grid.items():
        place, last = values.index(point[path]), len(values) - 1
        if last > 0 and place in (0, last):
            found[path] = _steps(plan, problem, point, path, before=values[1 if place == 0 else -2])
    return {path: values for path, values in found.items() if values}


def _steps(plan: Plan, problem: Problem, point: dict[str, float], path: str, before: float) -> list[float]:
    """Further values in the ratio of the last two, or by their difference where one is not positive.

    Where the algorithm does not take the first of them: one value close to the end of what it takes, found by halving,
    or a round number near it; none if that is hardly beyond the grid.
    """
    end = point[path]

    def at(t: float) -> float:  # t = 1: a step of the grid
        return float(end * np.power(end / before, t) if min(end, before) > 0 else end + (end - before) * t)

    def takes(value: float) -> bool:
        return plan.allows(point | {path: value}, problem)

    if takes(at(1)):
        return [at(k) for k in range(1, _FURTHER + 1)]
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if takes(at(middle)) else (low, middle)
    last, plain = at(low), float(f"{at(low):.1g}")
    if abs(last - end) <= _LEAST * max(abs(last), abs(end)):
        return []
    return [plain if min(last, at(1)) < plain < max(last, at(1)) and takes(plain) else last]


def _further(
    plan: Plan,
    problem: Problem,
    grid: dict[str, tuple[float, ...]],
    beyond: dict[str, list[float]],
    trials: list[Trial],
) -> list[dict[str, float]]:
    """Points that were not tried, of the grid that goes on beyond the edges."""
    wider = grid | {path: (*grid[path], *values) for path, values in beyond.items()}
    tried = [trial.point for trial in trials]
    points = [dict(zip(wider, values)) for values in product(*wider.values())] if beyond else []
    return [point for point in points if point not in tried and plan.allows(point, problem)]


def _rows(label: str, tuned: Tuned, trials: list[Trial], bench: Bench, target: Target) -> Iterable[dict[str, Any]]:
    sign = 1 if target.by == "stop" else better(bench.measure.__name__)
    for trial in sorted(trials, key=lambda trial: tuple(trial.point.values())):
        chosen = not tuned.failure and trial.point == tuned.values
        yield {
            "label": label,
            **trial.point,
            "mean": sign * bench.score(trial, target),
            "diverged": _diverged(trial),
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
