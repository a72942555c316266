"""A comparison: one problem, the same seeds for all, all tuned with the same effort, values beside what they cost."""

import dataclasses
import functools
import warnings
from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pandas as pd

from jdfl.algorithms.algorithm import Algorithm
from jdfl.base import arguments, checks
from jdfl.engine.accountant import account, adjustable, ledger_of_run
from jdfl.engine.batch import repeat
from jdfl.engine.booking import Room
from jdfl.engine.data_ledger import DataLedger
from jdfl.engine.metrics import Metric, default_metrics, resolve
from jdfl.engine.result import Result
from jdfl.engine.stopping import StopRule
from jdfl.lab import intended
from jdfl.lab.comparison import Comparison
from jdfl.lab.curves import AXES, LABELS, long_form
from jdfl.lab.entries import Announce, Entry, Terms, Tuning, calibrated, plans
from jdfl.lab.grids import Plan
from jdfl.lab.table import better, number
from jdfl.lab.tuning import Choice, Target, Tuned, tune_all
from jdfl.network.graph import Network
from jdfl.privacy import PrivacyReport, exposing
from jdfl.privacy.together import Together
from jdfl.problems import Problem, check_problem

_TUNING = Tuning()
Point: TypeAlias = tuple[tuple[str, float], ...]  # values by field


@arguments.checked
def compare(
    entries: Mapping[str, Algorithm | Entry],
    problem: Problem,
    network: Network,
    *,
    keys: Sequence[int],
    steps: int,
    tune: Tuning | None = _TUNING,
    metrics: Sequence[str | Metric] | None = None,
    every: int = 1,
    stop: StopRule | None = None,
    measure: str | Metric = "objective",
    batch: int | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    ledger: DataLedger | None = None,
    progress: Announce | None = None,
) -> Comparison:
    """Compare algorithms on one problem, after tuning them all in the same way.

    Every algorithm is tuned first, as `tune` says, on seeds of its own, and then run with every seed of `keys`. Every
    budget that tables and figures show has its own choice of values and its own reported runs, the same ones where the
    choice is the same: what is returned is the comparison at `tune.by`, with those at the other budgets of `tune` in
    its `views`. At a budget that nothing was tuned at, nobody is ranked and the table says so. Compiles two programs
    per algorithm, and one per extension of a grid.

    With an `epsilon` the comparison is at equal privacy: every algorithm that adds noise by a mechanism gets the least
    that makes its reported runs (epsilon, `delta`)-differentially private, as `calibrate` does, whatever its multiplier
    was. Tables tell what each has spent, in whole runs, of the worst node and seed, and what publishing all of them
    costs, and rank nobody where epsilons do not promise the same (records or nodes, replaced or removed, against whom).
    Tuning looks at the same data: what is tuned has no epsilon, unless the problem declares "tuning" public; nor has an
    lr of a default grid, in units of 1 / L, unless it declares "curvature", too.

    Args:
        entries: algorithms by label, or an `Entry` with a network, a grid or a number of rounds of its own.
        problem: what the nodes learn.
        network: who hears whom.
        keys: the seeds of the reported runs, all different and none of those of `tune`.
        steps: the most rounds of a run, at least 1.
        tune: how all are tuned; None: values as given.
        metrics: what is recorded, by name or as functions; None: all that the problem can give.
        every: rounds between two records, at least 1.
        stop: the rule that may end a run before, in force in tuning runs, too.
        measure: the metric that tuning judges by: a name, or a function of which less is better.
        batch: how many tuning runs go side by side, as for `sweep`; reported runs go one after another, so that their
            seconds are their own.
        epsilon: what every reported run may spend; None: noise as given.
        delta: as for `account`.
        ledger: the ledger of the data, as for `run`. All runs, those of tuning, too, have to fit into it before the
            first one begins, so that grids may not be extended: `extend` of `tune` has to be 0.
        progress: called with a label and what begins with it.

    Warns of algorithms that are not tuned or have one point only, whose best value lies on the edge of its grid, whose
    points are all alike, whose rounds the budget of `tune.by` does not pay for, or of whose grid no point works: these
    two have no results. Tables, figures and pages mark all of these at every budget, and do not rank the last three.
    With an `epsilon` it also warns of those without noise, or with noise by a schedule, which stay as they are. Raises
    ValueError for settings that make no sense, before anything is run, and for noise of which no epsilon can be told
    where `epsilon` asks for one.
    """
    checks.whole(1, steps=steps, every=every)
    if batch is not None:
        checks.whole(1, batch=batch)
    if delta is not None:
        checks.fraction(delta=delta)
    if tune is not None:
        arguments.settings(tune, "tune.")
    check_problem(problem)
    if epsilon is not None:
        checks.positive("It is what every run may spend.", epsilon=epsilon)
    chosen = default_metrics(problem) if metrics is None else resolve(metrics, problem)
    (judge,) = resolve([measure], problem, "measure")
    if judge not in chosen:
        chosen = resolve([*chosen, judge], problem)
    for metric in chosen:
        if metric.__name__ in (*LABELS, *AXES):
            raise ValueError(f"Expected another name than {metric.__name__!r}, a column of the curves. Rename it.")
    announce: Announce = progress or (lambda label, what: None)
    terms = Terms(problem, network, keys, steps, every, stop, tune, judge, batch, epsilon, delta, announce, ledger)
    planned = plans(entries, terms)
    untuned = Target("round" if stop is None else "stop", np.inf)
    choices = [Choice(untuned, dict.fromkeys(planned, Tuned({}, {}, 0, {})), pd.DataFrame({"label": list(planned)}))]
    how: Any = {"keys": list(keys), "every": every, "stop": stop, "metrics": chosen, "batch": 1}

    @functools.cache  # what was run already, at whatever budget its values were chosen
    def reported(label: str, point: Point) -> Reported:
        plan = dataclasses.replace(planned[label], algorithm=planned[label].at(dict(point)))
        algorithm = calibrated(plan, terms)
        announce(label, "running")
        runs = repeat(algorithm, problem, plan.network, steps=plan.steps, ledger=ledger, **how)
        if plan.grid:  # of which values were chosen by looking at other runs on the same data
            shown = [exposing(run.guarantee, plan.derived, problem.public) for run in runs]
            runs = [dataclasses.replace(run, guarantee=guarantee) for run, guarantee in zip(runs, shown)]
        told = [account(run, delta=delta) for run in runs if run.guarantee.claimed]
        worst = max(told, key=attrgetter("epsilon"), default=None)
        one = Reported(algorithm, runs, long_form(label, runs), worst)
        done.append(one)
        return one

    done: list[Reported] = []
    with Room(ledger) as room:
        room.keep(lambda: intended.of_all(planned, terms))
        if tune is not None:
            choices = tune_all(planned, terms, tune)
        _warn(choices[0].tuned)
        if epsilon is not None:
            _warn_noiseless(planned)
        room.keep(lambda: intended.of_chosen(planned, terms, choices))
        made = [
            {label: reported(label, tuple(how.values.items())) for label, how in tuned.items() if not how.failure}
            for _, tuned, _ in choices
        ]
    names = [metric.__name__ for metric in chosen]
    empty = pd.DataFrame(columns=[*LABELS, "round", *names, "communications", "bytes", "gradients", "seconds"])
    found: list[Comparison] = []
    for (target, tuned, points), runs in zip(choices, made):
        one = Comparison(
            results={label: runs[label].results if label in runs else [] for label in planned},
            tuning=points,
            curves=pd.concat([one.curves for one in runs.values()], ignore_index=True) if runs else empty,
            algorithms={label: runs.get(label, plan).algorithm for label, plan in planned.items()},
            tuned=tuned,
            measure=judge.__name__,
            by=target.by,
            seeds=tuple(map(int, keys)),
            tuning_seeds=() if tune is None else tuple(map(int, tune.keys)),
            criterion="" if tune is None else _criterion(judge.__name__, tune, target),
            networks={label: _name(plan.network) for label, plan in planned.items()},
            title=f"{problem.name} (m = {problem.m} nodes, n = {problem.n} parameters)",
            epsilon=epsilon,
            privacy={label: one.privacy for label, one in runs.items() if one.privacy is not None},
            budget=None if tune is None else target.budget,
        )
        found.append(one)
    ledgers = [ledger_of_run(run) if run.guarantee.claimed else None for one in done for run in one.results]
    together = Together.of(ledgers, min((one.privacy.delta for one in done if one.privacy is not None), default=0.0))
    standing = room.standing()
    first, *others = (dataclasses.replace(one, together=together, standing=standing) for one in found)
    first = dataclasses.replace(first, views=tuple(others))
    _warn_short(first)
    return first


class Reported(NamedTuple):
    """The reported runs of an algorithm with its chosen values."""

    algorithm: Algorithm
    results: list[Result]
    curves: pd.DataFrame
    privacy: PrivacyReport | None


def _criterion(measure: str, tune: Tuning, target: Target) -> str:
    """What tuning went by, in words."""
    over = f"over {len(tune.keys)} seeds that are not the reported ones"
    if target.by == "stop":
        return f"fewest rounds to the stop rule, mean {over}"
    extreme = "lowest" if better(measure) > 0 else "highest"
    return f"{extreme} mean {measure.replace('_', ' ')} at {AXES[target.by]} ≤ {number(target.budget)} {over}"


def _name(network: Network) -> str:
    return getattr(network, "name", type(network).__name__)


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
            f"Noise not set for epsilon: {', '.join(as_given)}. The table tells what each of them spends, or that it "
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
