"""Comparisons at equal epsilon: the noise that every algorithm needs for it, and what its runs have spent."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any

from jdfl.accountant import account, adjustable, calibrate, check_account, ledger_of_run, noise_place, planned_releases
from jdfl.base import Algorithm
from jdfl.lab.entries import Plan
from jdfl.privacy import PrivacyReport, exposing
from jdfl.privacy.together import Together
from jdfl.problems import Problem
from jdfl.result import Result
from jdfl.runner import planned
from jdfl.stopping import StopRule


def calibrated(
    plan: Plan,
    problem: Problem,
    keys: Sequence[int],
    epsilon: float | None,
    delta: float | None,
    stop: StopRule | None = None,
) -> Algorithm:
    """The plan's algorithm with the least noise for (`epsilon`, `delta`) in a run with any of the seeds `keys`.

    `epsilon` None, or no multiplier of the noise: as it is. ValueError where nothing can be claimed.
    """
    if epsilon is None or not adjustable(plan.algorithm):
        return plan.algorithm
    if hidden := [name for name in plan.derived if name not in problem.public]:
        public = (*problem.public, *hidden)
        unit, own = "", ""
        if "curvature" in hidden:
            unit = ", with an lr in units of one over the largest curvature of the nodes' records"
            own = " A grid of your own, tune={'lr': [...]} of its Entry or --grids lr=..., needs no curvature."
        raise ValueError(
            f"Expected values that were not chosen by looking at the same data with epsilon = {epsilon!r}, got a grid "
            f"of {', '.join(plan.grid)}{unit}: nothing can be claimed then. Give values and tune=None, or take "
            f"{' and '.join(hidden)} as public: problem.declared({', '.join(map(repr, public))}), "
            f"--problem.public {','.join(public)}.{own}"
        )
    arguments = plan.algorithm, problem, plan.network
    how: Any = {"steps": plan.steps, "epsilon": epsilon, "delta": delta, "stop": stop}
    counts = {planned_releases(*arguments, steps=plan.steps, key=key).tobytes(): key for key in keys}
    found = [calibrate(*arguments, **how, key=key) for key in counts.values()]
    return max(found, key=attrgetter(f"{noise_place(plan.algorithm)}.multiplier"))


def with_noise(
    plans: Mapping[str, Plan],
    problem: Problem,
    keys: Sequence[int],
    epsilon: float | None,
    delta: float | None,
    stop: StopRule | None = None,
) -> dict[str, Plan]:
    """All plans with `calibrated` algorithms; ValueError names the entry, also where `delta` makes no sense."""
    found: dict[str, Plan] = {}
    for label, plan in plans.items():
        try:
            found[label] = replace(plan, algorithm=calibrated(plan, problem, keys, epsilon, delta, stop))
            if delta is not None:
                ready = planned(found[label].algorithm, problem, plan.network, plan.steps)
                check_account(ready, problem, delta=delta, accounting="sound")
        except ValueError as error:
            raise ValueError(f"In entries[{label!r}]: {error}") from error
    return found


def after_tuning(runs: Sequence[Result], plan: Plan, problem: Problem) -> list[Result]:
    """Runs whose values were chosen by looking at others on the same data, from a grid that may come from it, too."""
    return [replace(run, guarantee=exposing(run.guarantee, plan.derived, problem.public)) for run in runs]


def together(results: Sequence[Result], reports: Iterable[PrivacyReport]) -> Together | None:
    """What publishing all `results` costs, at the least delta of the `reports`; None where none claims anything."""
    ledgers = [ledger_of_run(run) if run.guarantee.claimed else None for run in results]
    return Together.of(ledgers, min((one.delta for one in reports), default=0.0))


def spent(results: Mapping[str, Sequence[Result]], delta: float | None) -> dict[str, PrivacyReport]:
    """By label, where something may be claimed: the report of the run with the largest epsilon."""
    reports = {
        label: [account(run, delta=delta) for run in runs if run.guarantee.claimed] for label, runs in results.items()
    }
    return {label: max(told, key=attrgetter("epsilon")) for label, told in reports.items() if told}
