"""Tuned methods and their reported runs, put together as a comparison at every budget."""

import dataclasses
import functools
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pandas as pd

from jdfl.algorithms.algorithm import Algorithm
from jdfl.base import checks
from jdfl.engine.accountant import account, adjustable, ledger_of_run
from jdfl.engine.batch import across, keys_of
from jdfl.engine.booking import Room, intents
from jdfl.engine.data_ledger import Intent
from jdfl.engine.metrics import Metric
from jdfl.engine.result import Result
from jdfl.engine.trials import Trial
from jdfl.events import AsyncMethod
from jdfl.lab.comparison import Comparison
from jdfl.lab.curves import AXES, LABELS, long_form
from jdfl.lab.entries import Terms, Tuning, calibrated, plans
from jdfl.lab.first_events import Lanes, of_run
from jdfl.lab.grids import Plan, Point
from jdfl.lab.table import better, number
from jdfl.lab.tuning import Choice, Target, Tuned, tune_all
from jdfl.privacy import PrivacyReport, exposing
from jdfl.privacy.report import Together
from jdfl.problems import solved, suboptimality_floor

Chosen: TypeAlias = tuple[tuple[str, float], ...]  # values by field


class Reported(NamedTuple):
    """The reported runs of an algorithm with its chosen values."""

    algorithm: Algorithm
    results: list[Result]
    curves: pd.DataFrame
    privacy: PrivacyReport | None


def ran(methods: Mapping[str, Any], terms: Terms, metrics: tuple[Metric, ...]) -> Comparison:
    """Tune all methods and run the reported trials at every budget."""
    tune, ledger, epsilon, delta = terms.tune, terms.ledger, terms.epsilon, terms.delta
    planned = plans(methods, terms)
    untuned = Target("round" if terms.stop is None else "stop", np.inf)
    choices = [Choice(untuned, dict.fromkeys(planned, Tuned({}, {}, 0, {})), pd.DataFrame({"label": list(planned)}))]

    @functools.cache  # runs are shared by all budgets that choose the same values
    def reported(label: str, point: Chosen) -> Reported:
        terms.announce(label, "running")
        algorithm, runs = reported_runs(label, planned[label], terms, metrics, dict(point))
        plan = planned[label]
        if plan.grid:  # whose values were chosen by looking at other runs on the same data
            shown = [
                exposing(run.guarantee, plan.derived, trial.problem.public) for run, trial in zip(runs, plan.trials)
            ]
            runs = [dataclasses.replace(run, guarantee=guarantee) for run, guarantee in zip(runs, shown)]
        told = [account(run, delta=delta) for run in runs if run.guarantee.claimed]
        worst = max(told, key=attrgetter("epsilon"), default=None)
        one = Reported(algorithm, runs, long_form(label, runs), worst)
        done.append(one)
        return one

    done: list[Reported] = []
    with Room(ledger, terms.jobs and terms.jobs.folder) as room:
        room.keep(lambda: of_all(planned, terms))
        if tune is not None:
            choices = tune_all(planned, terms, tune)
        _warn(choices[0].tuned)
        if epsilon is not None:
            _warn_noiseless(planned)
        room.keep(lambda: of_chosen(planned, terms, choices))
        made = [
            {label: reported(label, tuple(how.values.items())) for label, how in tuned.items() if not how.failure}
            for _, tuned, _ in choices
        ]
    names, problem = [metric.__name__ for metric in metrics], terms.trials[0].problem
    empty = pd.DataFrame(columns=[*LABELS, "round", *names, "communications", "bytes", "gradients", "seconds"])
    found: list[Comparison] = []
    for (target, tuned, points), runs in zip(choices, made):
        one = Comparison(
            results={label: runs[label].results if label in runs else [] for label in planned},
            tuning=points,
            curves=pd.concat([one.curves for one in runs.values()], ignore_index=True) if runs else empty,
            algorithms={label: runs.get(label, plan).algorithm for label, plan in planned.items()},
            tuned=tuned,
            measure=terms.measure.__name__,
            by=target.by,
            seeds=tuple(int(trial.key) for trial in terms.trials),
            tuning_seeds=() if tune is None else tuple(map(int, tune.keys)),
            criterion="" if tune is None else _criterion(terms.measure.__name__, tune, target),
            networks={label: _name(plan) for label, plan in planned.items()},
            title=f"{problem.name} (m = {problem.m} nodes, n = {problem.n} parameters)",
            floor=_floor(names, terms),
            redrawn=_redrawn(planned),
            epsilon=epsilon,
            privacy={label: one.privacy for label, one in runs.items() if one.privacy is not None},
            budget=None if tune is None else target.budget,
            shown=terms.shown,
        )
        found.append(one)
    ledgers = [ledger_of_run(run) if run.guarantee.claimed else None for one in done for run in one.results]
    smallest = min((one.privacy.delta for one in done if one.privacy is not None), default=0.0)
    together = Together.of(ledgers, smallest, same_data="data" not in _redrawn(planned))
    standing = room.standing()
    first, *others = (dataclasses.replace(one, together=together, standing=standing) for one in found)
    first = dataclasses.replace(first, views=tuple(others), timelines=_timelines(first, planned))
    _warn_short(first)
    return first


def reported_runs(
    label: str, plan: Plan, terms: Terms, metrics: tuple[Metric, ...], values: Mapping[str, float]
) -> tuple[Algorithm, list[Result]]:
    """The algorithm of a method with these values, and with the noise that the terms ask for, and its reported runs."""
    algorithm = calibrated(dataclasses.replace(plan, algorithm=plan.at(dict(values))), terms)
    how: Any = {"every": terms.every, "stop": terms.stop, "metrics": metrics, "batch": terms.batch}
    how |= {"ledger": terms.ledger, "jobs": terms.jobs, "names": [(label, values)], "token": terms.token}
    with warnings.catch_warnings():
        if values:  # tuning measured what hints about step sizes are about
            warnings.simplefilter("ignore", checks.HintWarning)
        return algorithm, across(algorithm, plan.trials, over={}, steps=plan.steps, **how)


def _timelines(comparison: Comparison, planned: Mapping[str, Plan]) -> dict[str, Lanes]:
    """The first events of the asynchronous methods, in their first trials, by label."""
    found: dict[str, Lanes] = {}
    for label, runs in comparison.results.items():
        method, trial = comparison.algorithms[label], planned[label].trials[0]
        if runs and isinstance(method, AsyncMethod):
            lanes = of_run(method, trial.problem, trial.network, trial.key)
            found[label] = lanes.until(runs[0].rounds * float(method.period))
    return found


def _floor(metrics: Sequence[str], terms: Terms) -> float | None:
    """The level below which `suboptimality` says nothing, of all reported trials."""
    if "suboptimality" not in metrics:
        return None
    problems = {id(trial.problem): solved(trial.problem) for trial in terms.trials}
    return max(suboptimality_floor(problem) for problem in problems.values())


def _redrawn(planned: Mapping[str, Plan]) -> tuple[str, ...]:
    """What differs between the trials besides the algorithms' randomness: "data", "network"."""
    every = [trial for plan in planned.values() for trial in plan.trials]
    data = len({id(trial.problem) for trial in every}) > 1
    links = any(len({id(trial.network) for trial in plan.trials}) > 1 for plan in planned.values())
    return tuple(name for name, differs in (("data", data), ("network", links)) if differs)


def _criterion(measure: str, tune: Tuning, target: Target) -> str:
    """The criterion of tuning, in words."""
    over = f"over {len(tune.keys)} trials that are not reported"
    if target.by == "stop":
        return f"fewest rounds to the stop rule, mean {over}"
    extreme = "lowest" if better(measure) > 0 else "highest"
    return f"{extreme} mean {measure.replace('_', ' ')} at {AXES[target.by]} ≤ {number(target.budget)} {over}"


def _name(plan: Plan) -> str:
    """The name of a method's network; without the seed, where every trial draws another one."""
    network: Any = plan.trials[0].network
    name: str = getattr(network, "name", type(network).__name__)
    drawn = len({id(trial.network) for trial in plan.trials}) > 1
    return re.sub(r"(, )?\bseed=\d+", "", name) if drawn else name


def _warn(tuned: Mapping[str, Tuned]) -> None:
    lone = {label: f"{label} ({how.lone})" if how.lone else label for label, how in tuned.items()}
    untouched = [lone[label] for label, how in tuned.items() if how.lone or not how.grid]
    told: list[str] = []
    if untouched:
        told.append(f"Not tuned: {', '.join(untouched)}. Nothing was chosen for them, so beating them shows little.")
    for label, how in tuned.items():
        remedy = "Give it another grid." if how.short is None else "Give a larger budget, or compare by another amount."
        if how.failure:
            told.append(f"{label} has no results: {how.failure}. {remedy}")
        if how.alike:
            told.append(
                f"Tuning chose nothing for {label}: {how.alike}, so it is not ranked. Give another budget or grid."
            )
        for path, side in how.edge.items():
            told.append(
                f"The best {path} of {label}, {how.values[path]:.3g}, is the {side} of its grid, so better ones may "
                "lie beyond. Widen the grid."
            )
    for line in told:
        warnings.warn(line, stacklevel=3)


def _warn_noiseless(planned: Mapping[str, Plan]) -> None:
    as_given = [label for label, plan in planned.items() if not adjustable(plan.algorithm)]
    if as_given:
        warnings.warn(
            f"Noise not set for epsilon: {', '.join(as_given)}. The table shows what each of them spends, or that it "
            "promises nothing; give those without noise a mechanism and a clip to compare them at equal epsilon.",
            stacklevel=3,
        )


def _warn_short(found: Comparison) -> None:
    """Warn of algorithms that are not tuned, and whose rounds the budget does not pay for."""
    if found.by == "stop":
        return
    for label, needs in found.at(found.by)["needs"].items():
        if np.isfinite(needs) and found.results[str(label)]:
            warnings.warn(f"{label}: {found.mark(str(label))}. Give a larger budget.", stacklevel=3)


def of_all(plans: Mapping[str, Plan], terms: Terms) -> list[Intent]:
    """All runs of tuning, and as many reported ones as there may be, those with the least noise of each grid."""
    tune, found = terms.tune, list[Intent]()
    if tune is not None and tune.extend and any(plan.grid for plan in plans.values()):
        raise ValueError(
            f"Expected tuning whose runs are known beforehand with a ledger, got tune.extend = {tune.extend}. Give "
            "jdfl.Tuning(extend=0), or --extend 0: no grid goes on beyond its edge then."
        )
    shown = max(1, len(terms.budgets))
    for label, plan in plans.items():
        points = plan.taken()
        if tune is not None:
            found += _runs(label, plan, terms, [(plan.at(point), point, plan.tuning) for point in points])
        reported = [_reported(label, plan, terms, [point]) for point in points]
        found += [run for runs in sorted(reported, key=_noise)[:shown] for run in runs]
        terms.announce(label, "keeping room in the ledger")
    return found


def of_chosen(plans: Mapping[str, Plan], terms: Terms, choices: Sequence[Choice]) -> list[Intent]:
    """The reported runs of all values that tuning chose, each once."""
    found: list[Intent] = []
    for label, plan in plans.items():
        tuned = [choice.tuned[label] for choice in choices]
        points = {tuple(how.values.items()): how.values for how in tuned if not how.failure}
        found += _reported(label, plan, terms, list(points.values()))
    return found


def _reported(label: str, plan: Plan, terms: Terms, points: Sequence[Point]) -> list[Intent]:
    algorithms = [calibrated(replace(plan, algorithm=plan.at(point)), terms) for point in points]
    made = [(algorithm, point, plan.trials) for algorithm, point in zip(algorithms, points)]
    return _runs(label, plan, terms, made)


def _runs(label: str, plan: Plan, terms: Terms, made: Sequence[tuple[Any, Point, Sequence[Trial]]]) -> list[Intent]:
    """The runs of these algorithms, each with its point and the trials given with it."""
    found, known = list[Intent](), dict[Any, Any]()
    for algorithm, point, trials in made:
        for trial, key in zip(trials, keys_of([trial.key for trial in trials], [(label, point)], terms.token)):
            given = algorithm, trial.problem, trial.network, terms.stop
            found += intents(*given, keys=[key], steps=plan.steps, derived=plan.derived, known=known)
    return found


def _noise(runs: Sequence[Intent]) -> float:
    """The least noise of these runs, in units of the sensitivity."""
    return min(getattr(run.guarantee.event, "noise_multiplier", 0.0) for run in runs)
