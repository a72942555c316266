"""Comparisons at equal epsilon: the noise that every algorithm needs for it, and what its runs have spent."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from operator import attrgetter

from jdfl.accountant import account, adjustable, calibrate, check_account, noise_place, planned_releases
from jdfl.base import Algorithm
from jdfl.comparison.entries import Plan
from jdfl.privacy import PrivacyReport
from jdfl.problems import Problem
from jdfl.result import Result
from jdfl.runner import planned


def calibrated(
    plan: Plan, problem: Problem, keys: Sequence[int], epsilon: float | None, delta: float | None
) -> Algorithm:
    """The plan's algorithm with the least noise for (`epsilon`, `delta`) in a run with any of the seeds `keys`.

    `epsilon` None, or no multiplier of the noise: as it is. ValueError where nothing can be claimed.
    """
    if epsilon is None or not adjustable(plan.algorithm):
        return plan.algorithm
    arguments = plan.algorithm, problem, plan.network
    counts = {planned_releases(*arguments, steps=plan.steps, key=key).tobytes(): key for key in keys}
    found = [calibrate(*arguments, steps=plan.steps, epsilon=epsilon, delta=delta, key=key) for key in counts.values()]
    return max(found, key=attrgetter(f"{noise_place(plan.algorithm)}.multiplier"))


def with_noise(
    plans: Mapping[str, Plan], problem: Problem, keys: Sequence[int], epsilon: float | None, delta: float | None
) -> dict[str, Plan]:
    """All plans with `calibrated` algorithms; ValueError names the entry, also where `delta` makes no sense."""
    found: dict[str, Plan] = {}
    for label, plan in plans.items():
        try:
            found[label] = replace(plan, algorithm=calibrated(plan, problem, keys, epsilon, delta))
            if delta is not None:
                ready = planned(found[label].algorithm, problem, plan.network, plan.steps)
                check_account(ready, problem, delta=delta, accounting="sound")
        except ValueError as error:
            raise ValueError(f"In entries[{label!r}]: {error}") from error
    return found


def spent(results: Mapping[str, Sequence[Result]], delta: float | None) -> dict[str, PrivacyReport]:
    """By label, where something may be claimed: the report of the run with the largest epsilon."""
    reports = {
        label: [account(run, delta=delta) for run in runs if run.guarantee.claimed] for label, runs in results.items()
    }
    return {label: max(told, key=attrgetter("epsilon")) for label, told in reports.items() if told}
