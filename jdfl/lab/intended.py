"""The runs of a comparison that the ledger of its data keeps room for, before they are made."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from jdfl.engine.batch import keys_of
from jdfl.engine.booking import intents
from jdfl.engine.data_ledger import Intent
from jdfl.engine.trials import Trial
from jdfl.lab.entries import Terms, calibrated
from jdfl.lab.grids import Plan, Point
from jdfl.lab.tuning import Choice


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
