"""A comparison: one problem, the same seeds for all, all tuned with the same effort, values beside what they cost."""

import dataclasses
import warnings
from collections.abc import Mapping, Sequence

import pandas as pd

from jdfl import checks
from jdfl.accountant import adjustable
from jdfl.base import Algorithm
from jdfl.batch import repeat
from jdfl.comparison.comparison import Comparison
from jdfl.comparison.curves import AXES, LABELS, better, long_form
from jdfl.comparison.entries import Entry, Plan, Tuning, plans
from jdfl.comparison.spent import calibrated, spent, with_noise
from jdfl.comparison.table import number
from jdfl.comparison.tuning import Announce, Bench, Tuned, tune_all
from jdfl.metrics import Metric, default_metrics, resolve
from jdfl.network.graph import Network
from jdfl.problems import Problem
from jdfl.result import Result
from jdfl.stopping import StopRule

_TUNING = Tuning()


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
    progress: Announce | None = None,
) -> Comparison:
    """Compare algorithms on one problem, after tuning them all in the same way.

    `entries` maps labels to algorithms, or to an `Entry` with a network, a grid or a number of rounds of its own. Every
    one is run for `steps` rounds with every seed of `keys`, recording `metrics` every `every` rounds; what
    `tune` says is done first, on other seeds, judging by `measure` (a name, or a function of which less is better).
    `stop` is in force in tuning runs too. `batch` is how many tuning runs go side by side, as for `sweep`; reported
    runs go one after another, so that their seconds are their own. `progress` is called with a label and what begins
    with it. Compiles two programs per algorithm, and one per extension of a grid.

    `epsilon` compares at equal privacy: every algorithm that adds noise by a mechanism gets the least that makes its
    reported runs (epsilon, `delta`)-differentially private, as `calibrate` does, whatever its multiplier was. Tables
    tell what each has spent, in whole runs, of the worst node and seed; `delta` is as for `account`. Tuning looks at
    the same data, which no epsilon of a run includes.

    Warns of algorithms that are not tuned, whose best value lies on the edge of its grid, or of whose grid no point
    works: those have no results, and every table says so; with an `epsilon` also of those without noise, or with noise
    by a schedule, which stay as they are. Raises ValueError for settings that make no sense, before anything is run,
    and for noise of which no epsilon can be told where `epsilon` asks for one.
    """
    checks.whole(1, steps=steps, every=every)
    if epsilon is not None:
        checks.positive("It is what every run may spend.", epsilon=epsilon)
    chosen = default_metrics(problem) if metrics is None else resolve(metrics, problem)
    (judge,) = resolve([measure], problem)
    if judge not in chosen:
        chosen = resolve([*chosen, judge], problem)
    for metric in chosen:
        if metric.__name__ in (*LABELS, *AXES):
            raise ValueError(f"Expected another name than {metric.__name__!r}, a column of the curves. Rename it.")
    planned = plans(entries, problem, network, keys, steps, every, stop, tune)
    planned = with_noise(planned, problem, keys, epsilon, delta)
    announce: Announce = progress or (lambda label, what: None)

    tuned, points, criterion = dict.fromkeys(planned, Tuned({}, {}, 0, {})), pd.DataFrame(), ""
    if tune is not None:
        bench = Bench(problem, tune, judge, every, stop, batch, announce)
        tuned, points, budget = tune_all(planned, bench)
        criterion = _criterion(judge.__name__, tune, budget)
    _warn(tuned)
    if epsilon is not None:
        _warn_noiseless(planned)

    results: dict[str, list[Result]] = {}
    algorithms: dict[str, Algorithm] = {}
    frames: list[pd.DataFrame] = []
    for label, plan in planned.items():
        at = dataclasses.replace(plan, algorithm=plan.at(tuned[label].values))
        algorithms[label], results[label] = calibrated(at, problem, keys, epsilon, delta), []
        if tuned[label].failure:
            continue
        announce(label, "running")
        results[label] = repeat(
            algorithms[label],
            problem,
            plan.network,
            keys=list(keys),
            steps=plan.steps,
            every=every,
            stop=stop,
            metrics=chosen,
            batch=1,
        )
        frames.append(long_form(label, results[label]))
    names = [metric.__name__ for metric in chosen]
    empty = pd.DataFrame(columns=[*LABELS, "round", *names, "communications", "bytes", "gradients", "seconds"])
    found = Comparison(
        results=results,
        tuning=points,
        curves=pd.concat(frames, ignore_index=True) if frames else empty,
        algorithms=algorithms,
        tuned=tuned,
        measure=judge.__name__,
        by=_axis(tune, stop),
        seeds=tuple(map(int, keys)),
        tuning_seeds=() if tune is None else tuple(map(int, tune.keys)),
        criterion=criterion,
        networks={label: _name(plan.network) for label, plan in planned.items()},
        title=f"{problem.name} (m = {problem.m} nodes, n = {problem.n} parameters)",
        epsilon=epsilon,
        privacy=spent(results, delta),
    )
    _warn_idle(found)
    return found


def _criterion(measure: str, tune: Tuning, budget: float) -> str:
    """What tuning went by, in words."""
    over = f"over {len(tune.keys)} seeds that are not the reported ones"
    if tune.by == "stop":
        return f"fewest rounds to the stop rule, mean {over}"
    extreme = "lowest" if better(measure) > 0 else "highest"
    return f"{extreme} mean {measure.replace('_', ' ')} at {AXES[tune.by]} ≤ {number(budget)} {over}"


def _name(network: Network) -> str:
    return getattr(network, "name", type(network).__name__)


def _axis(tune: Tuning | None, stop: StopRule | None) -> str:
    """What tables are at equal amounts of, unless told otherwise."""
    if stop is not None:
        return "stop"
    return "round" if tune is None else tune.by


def _warn(tuned: Mapping[str, Tuned]) -> None:
    untouched = [label for label, how in tuned.items() if not how.grid]
    if untouched:
        warnings.warn(
            f"Not tuned: {', '.join(untouched)}. Their settings are as given, so beating them shows little.",
            stacklevel=3,
        )
    for label, how in tuned.items():
        if how.failure:
            warnings.warn(f"{label} has no results: {how.failure}. Give it another grid.", stacklevel=3)
        for path, side in how.edge.items():
            warnings.warn(
                f"The best {path} of {label}, {how.values[path]:.3g}, is the {side} of its grid, so better ones may "
                "lie beyond. Widen the grid.",
                stacklevel=3,
            )


def _warn_noiseless(planned: Mapping[str, Plan]) -> None:
    as_given = [label for label, plan in planned.items() if not adjustable(plan.algorithm)]
    if as_given:
        warnings.warn(
            f"Noise not set for epsilon: {', '.join(as_given)}. The table tells what each of them spends, or that it "
            "promises nothing; give those without noise a mechanism and a clip to compare them at equal epsilon.",
            stacklevel=3,
        )


def _warn_idle(found: Comparison) -> None:
    """Warn where the common budget is so small that a value is that of the start."""
    if found.by in ("round", "stop"):
        return
    at = found.at(found.by)
    idle = [label for label, rounds in zip(at.index.astype(str), at["round"].to_numpy(float)) if rounds == 0]
    if idle:
        warnings.warn(
            f"At the common budget, {number(at['budget'].iloc[0])} {found.by}, not one round is done by "
            f"{', '.join(idle)}. Give those that spend little more rounds, Entry(..., steps=...), or compare by "
            "another amount.",
            stacklevel=3,
        )
