"""An experiment: methods that are tuned alike and run on the same trials, with their results and costs."""

import functools
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from jdfl.algorithms.algorithm import Algorithm
from jdfl.base import arguments, checks, suggest
from jdfl.engine.accountant import account, adjustable, ledger_of_run
from jdfl.engine.batch import across, keys_of
from jdfl.engine.booking import Room, intents
from jdfl.engine.data_ledger import DataLedger, Intent
from jdfl.engine.metrics import Metric, default_metrics, resolve
from jdfl.engine.progress import Progress, announced
from jdfl.engine.provenance import versions
from jdfl.engine.result import Result
from jdfl.engine.stopping import StopRule
from jdfl.engine.trials import Trial
from jdfl.lab.comparison import Comparison
from jdfl.lab.curves import AXES, LABELS, long_form
from jdfl.lab.entries import (
    Announce,
    Entry,
    Plan,
    Point,
    Terms,
    Tuning,
    budgets_of,
    calibrated,
    check_seeds,
    check_tuning,
    plans,
    sample_input,
)
from jdfl.lab.table import better, number
from jdfl.lab.tuning import Choice, Target, Tuned, tune_all
from jdfl.network.graph import Network
from jdfl.privacy import PrivacyReport, exposing
from jdfl.privacy.report import Together
from jdfl.problems import Problem, check_problem, solved, suboptimality_floor
from jdfl.problems.yardsticks import solvable
from jdfl.store.jobs import Jobs, opened

_SOLVED = 2000  # parameters up to which minima are computed without being asked for
Chosen = tuple[tuple[str, float], ...]  # values by field


@suggest.init
@dataclass(frozen=True, kw_only=True, repr=False)
class Experiment:
    """Methods that are tuned alike and compared on the same trials.

    A trial is one draw of everything random: data, network, and the randomness of the algorithms. All methods of a
    trial share its data, its network and its key (common random numbers), so that differences between methods are
    paired by trial. `problem` and `network` may be functions of a seed, an int made of the trial's key: every trial
    then has its own data, data partition or network, and intervals cover their variation. Objects are the same in all
    trials, and intervals cover the algorithms' randomness alone. Trials of equal shapes are lanes of one compiled
    program.

    Every method is tuned first, as `tuning` says, on trials that are not reported. Every budget has its own choice of
    values and its own reported runs; equal choices share their runs.

    Args:
        problem: What the nodes learn: a problem, or a function of a seed that returns one.
        network: The communication network: a network, or a function of a seed that returns one.
        methods: Algorithms by label, or an `Entry` for a method with its own network, grid or number of rounds.
        steps: Number of rounds of a run, at least 1. A method whose rounds end before a budget goes on until it,
            for up to `longer` times this number; tables and figures mark runs that end before it nevertheless.
        trials: Number of reported trials, with the keys 0, 1, ..., or their keys, all different.
        budget: What all methods get equal amounts of: a mapping from amounts (round, communications, bytes, gradients,
            examples, network_seconds, stop) to one budget, a list of budgets, or None: the largest amount that all
            methods reach. Except for rounds, it then pays for at least ten rounds of each. The first one is shown
            first. "stop" compares the rounds until the stop rule fires. None: rounds, bytes and gradients.
        tuning: How all methods are tuned; None: values as given.
        measure: The metric that tuning judges by and that leads in tables and figures: a name, or a function whose
            smaller values are better. None: `suboptimality` where the minimum is known and there is a method with one
            model for all nodes, or else `objective`.
        metrics: What is recorded and shown by tables, by name or as functions. None: all that the problem can give;
            tables show the measure.
        every: Rounds between two records, at least 1.
        stop: The rule that may end a run early, also in tuning runs.
        batch: Number of runs that are computed side by side, as for `sweep`.
        epsilon: Privacy budget of every reported run: each method that adds noise by a mechanism gets the least noise
            that makes its reported runs (epsilon, `delta`)-differentially private; None: noise as given.
        delta: As for `account`.
        longer: A run that ends before a budget goes on, up to `longer` times `steps`; 1: it does not. With `epsilon`
            or `ledger`, which are for a number of rounds, no run goes on.
        ledger: The ledger of the data, as for `run`. All runs, those of tuning included, have to fit into it before the
            first one begins, so that `extend` of `tuning` has to be 0.
    """

    problem: Problem | Callable[[int], Problem]
    network: Network | Callable[[int], Network]
    methods: Mapping[str, Algorithm | Entry]
    steps: int
    trials: int | Sequence[int] = 10
    budget: Mapping[str, float | Sequence[float] | None] | None = None
    tuning: Tuning | None = field(default_factory=Tuning)
    measure: str | Metric | None = None
    metrics: Sequence[str | Metric] | None = None
    every: int = 1
    stop: StopRule | None = None
    batch: int | None = None
    epsilon: float | None = None
    delta: float | None = None
    longer: int = 10
    ledger: DataLedger | None = None

    def __repr__(self) -> str:
        drawn = [name for name in ("problem", "network") if not hasattr(getattr(self, name), "m")]
        trials = self.trials if isinstance(self.trials, int) else len(self.trials)
        redrawn = f", each with a {' and a '.join(drawn)} of its own" if drawn else ""
        methods = ", ".join(self.methods)
        return f"Experiment: {methods}\n{trials} trials of {self.steps} rounds{redrawn}; .run() compares"

    def trial(self, key: int) -> Trial:
        """The data and the network of one trial, as its runs use them.

        Args:
            key: The trial's key, a whole number from 0.

        Raises:
            ValueError: For a key out of range, an invalid problem, and whatever `problem` or `network` refuses itself.
        """
        checks.integer(0, 2**32 - 1, key=key)
        problem, network = sample_input(self.problem, key, "problem"), sample_input(self.network, key, "network")
        check_problem(problem)
        return Trial(key, problem, network)

    def run(
        self,
        *,
        progress: bool | Progress | Announce | None = None,
        folder: str | Path | None = None,
        retry: int = 0,
    ) -> Comparison:
        """Tune all methods, run all trials, and compare.

        Compiles two programs per method, one for tuning and one for all reported trials, and one per extension of a
        grid.

        Args:
            progress: None or True: what is under way is shown in terminals and notebooks; False: nothing is shown; a
                `Progress` with other settings; or a function that is called with a label and what begins for it.
            folder: A folder in which the runs of every program are kept as soon as they are done, so that the same call
                goes on with the others after it was cut off. It is made if its parent folder exists, refused while
                another process works in it, and can be removed when the comparison is there. None: nothing is kept.
            retry: How often a program that fails is tried again, with a `folder`.

        Returns:
            The comparison at the first budget, with those at the other budgets in its `views`.

        Warns of methods that are not tuned or have one point only, whose best value lies on the edge of its grid, whose
        points are all alike, whose rounds the first budget does not pay for, or whose grid has no point that works: the
        last two have no results. Tables, figures and pages mark all of these, and do not rank the last three. With an
        `epsilon` it also warns of methods without noise, or with scheduled noise, which stay as they are. Raises
        ValueError for settings that make no sense, before anything is run. With a `folder` it raises HeldError where
        another process works in it, ValueError for one that was begun with other code or libraries, and
        FailedJobsError for a program that fails.
        """
        checks.integer(0, retry=retry)
        if folder is None:
            if retry:
                raise ValueError(f"Expected a folder for what is tried again, got retry = {retry!r} without one.")
            return self.made(None, progress)
        place = Path(arguments.argument("folder", folder, str | Path))
        place.mkdir(exist_ok=True)
        with opened(place, {"work": "experiment", "versions": versions()}, retry=int(retry)) as jobs:
            return self.made(jobs, progress)

    def made(self, jobs: Jobs | None, progress: bool | Progress | Announce | None = None) -> Comparison:
        """As `run`, with jobs in a folder that is opened.

        Args:
            jobs: Where runs are kept; None: nowhere.
            progress: As for `run`.
        """
        with announced(progress) as announce:
            return _compared(self.methods, self._terms(announce, jobs))

    def remade(self, comparison: Comparison, label: str) -> list[Result]:
        """The reported runs of a method made again, with the values that tuning chose, and without the ledger.

        Args:
            comparison: The outcome of this experiment.
            label: The method.
        """
        terms = replace(self._terms(lambda label, what: None, None), ledger=None)
        plan, tuned = plans({label: self.methods[label]}, terms)[label], comparison.tuned[label]
        return _reported_runs(label, replace(plan, steps=tuned.steps or plan.steps), terms, tuned.values)[1]

    def _terms(self, announce: Announce, jobs: Jobs | None) -> Terms:
        """What all methods share; ValueError for settings that make no sense."""
        arguments.settings(self)
        if not self.methods:
            raise ValueError(f"Expected a mapping of labels to algorithms, got methods = {self.methods!r}. Name one.")
        keys = range(self.trials) if isinstance(self.trials, int) else self.trials
        if isinstance(self.trials, int):
            checks.integer(1, 100_000, trials=self.trials)
        check_seeds("trials", keys)
        checks.integer(1, steps=self.steps, every=self.every, longer=self.longer)
        if self.batch is not None:
            checks.integer(1, batch=self.batch)
        if self.delta is not None:
            checks.fraction(delta=self.delta)
        if self.epsilon is not None:
            checks.positive("It is the privacy budget of every run.", epsilon=self.epsilon)
        tune = self.tuning
        if tune is not None:
            arguments.settings(tune, "tuning.")
            check_tuning(tune, keys)
        trials, tuning = ([self.trial(int(key)) for key in some] for some in (keys, () if tune is None else tune.keys))
        problem = trials[0].problem
        chosen = default_metrics(problem) if self.metrics is None else resolve(self.metrics, problem)
        measure = self.measure
        if measure is None:
            names = [metric.__name__ for metric in chosen]
            known = self.metrics is None and all(_minimum_known(trial.problem) for trial in (*trials, *tuning))
            methods = [getattr(one, "algorithm", one) for one in self.methods.values()]
            known = known and not all(getattr(one, "personal", "") == "models" for one in methods)  # above no minimum
            measure = "suboptimality" if known or "suboptimality" in names else "objective"
        (judge,) = resolve([measure], problem, "measure")
        shown = () if self.metrics is None else tuple(metric.__name__ for metric in chosen)
        if judge not in chosen:
            chosen = resolve([*chosen, judge], problem)
        for metric in chosen:
            if metric.__name__ in (*LABELS, *AXES):
                raise ValueError(f"Expected another name than {metric.__name__!r}, a column of the curves. Rename it.")
        if tune is None and self.budget is not None:
            raise ValueError(f"Expected no budget without tuning, got budget = {self.budget!r}. Leave one of them out.")
        same = ("steps", "every", "stop", "batch", "epsilon", "delta", "ledger", "longer")
        given: dict[str, Any] = {name: getattr(self, name) for name in same}
        if jobs is not None:
            given["token"] = jobs.token
        return Terms(
            trials=trials,
            tuning=tuning,
            tune=tune,
            budgets=[] if tune is None else budgets_of(self.budget, self.stop),
            measure=judge,
            metrics=chosen,
            announce=announce,
            jobs=jobs,
            shown=shown,
            **given,
        )


def _minimum_known(problem: Problem) -> bool:
    """Whether the minimum of the objective is given, or found in moments."""
    if problem.optimum is not None or not solvable(problem) or problem.n > _SOLVED:
        return problem.optimum is not None
    try:
        return solved(problem).optimum is not None
    except (ValueError, RuntimeError):  # no unique one, or none that the solver proves
        return False


def compare(
    methods: Mapping[str, Algorithm | Entry],
    problem: Problem | Callable[[int], Problem],
    network: Network | Callable[[int], Network],
    *,
    progress: bool | Progress | Announce | None = None,
    folder: str | Path | None = None,
    retry: int = 0,
    **settings: Any,
) -> Comparison:
    """Tune methods, run them on the same trials, and compare: `Experiment(...).run()` in one call.

    Args:
        methods: As for `Experiment`, and so are `problem` and `network`.
        progress: As for `Experiment.run`, and so are `folder`, `retry` and what is raised.
        settings: The other settings of `Experiment`; `steps` is required.
    """
    experiment = Experiment(problem=problem, network=network, methods=methods, **settings)
    return experiment.run(progress=progress, folder=folder, retry=retry)


class _Reported(NamedTuple):
    """The reported runs of an algorithm with its chosen values."""

    algorithm: Algorithm
    results: list[Result]
    curves: pd.DataFrame
    privacy: PrivacyReport | None


def _compared(methods: Mapping[str, Any], terms: Terms) -> Comparison:
    """Tune all methods and run the reported trials at every budget."""
    tune, measure = terms.tune, terms.measure.__name__
    planned = plans(methods, terms)
    untuned = Target("round" if terms.stop is None else "stop", np.inf)
    choices = [Choice(untuned, dict.fromkeys(planned, Tuned({}, {}, 0, {})), pd.DataFrame({"label": list(planned)}))]
    done: list[_Reported] = []

    @functools.cache  # runs are shared by all budgets that choose the same values
    def reported(label: str, point: Chosen) -> _Reported:
        terms.announce(label, "running")
        plan = planned[label]
        algorithm, runs = _reported_runs(label, plan, terms, dict(point))
        if plan.grid:  # whose values were chosen by looking at other runs on the same data
            shown = [
                exposing(run.guarantee, plan.derived, trial.problem.public) for run, trial in zip(runs, plan.trials)
            ]
            runs = [replace(run, guarantee=guarantee) for run, guarantee in zip(runs, shown)]
        reports = [account(run, delta=terms.delta) for run in runs if run.guarantee.claimed]
        worst = max(reports, key=attrgetter("epsilon"), default=None)
        done.append(_Reported(algorithm, runs, long_form(label, runs), worst))
        return done[-1]

    with Room(terms.ledger, terms.jobs and terms.jobs.folder) as room:
        room.keep(lambda: _intents_of_all(planned, terms))
        if tune is not None:
            choices = tune_all(planned, terms, tune)
        _warn(choices[0].tuned)
        as_given = [label for label, plan in planned.items() if not adjustable(plan.algorithm)]
        if terms.epsilon is not None and as_given:
            warnings.warn(
                f"Noise not set for epsilon: {', '.join(as_given)}. The table shows what each of them spends, or that "
                "it promises nothing; give those without noise a mechanism and a clip to compare them at equal "
                "epsilon.",
                stacklevel=2,
            )
        room.keep(lambda: _intents_of_chosen(planned, terms, choices))
        made = [
            {label: reported(label, tuple(how.values.items())) for label, how in tuned.items() if not how.failure}
            for _, tuned, _ in choices
        ]
    names, problem = [metric.__name__ for metric in terms.metrics], terms.trials[0].problem
    empty = pd.DataFrame(columns=[*LABELS, "round", *names, "communications", "bytes", "gradients", "seconds"])
    data = len({id(trial.problem) for plan in planned.values() for trial in plan.trials}) > 1
    links = any(len({id(trial.network) for trial in plan.trials}) > 1 for plan in planned.values())
    redrawn = tuple(name for name, differs in (("data", data), ("network", links)) if differs)
    ledgers = [ledger_of_run(run) if run.guarantee.claimed else None for one in done for run in one.results]
    smallest = min((one.privacy.delta for one in done if one.privacy is not None), default=0.0)
    floor = None  # the level below which suboptimality says nothing, of all reported trials
    if "suboptimality" in names:
        problems = {id(trial.problem): trial.problem for trial in terms.trials}
        floor = max(suboptimality_floor(solved(one)) for one in problems.values())
    shared: dict[str, Any] = {
        "measure": measure,
        "seeds": tuple(int(trial.key) for trial in terms.trials),
        "tuning_seeds": () if tune is None else tuple(map(int, tune.keys)),
        "networks": {label: _network_name(plan) for label, plan in planned.items()},
        "title": f"{problem.name} (m = {problem.m} nodes, n = {problem.n} parameters)",
        "floor": floor,
        "redrawn": redrawn,
        "epsilon": terms.epsilon,
        "together": Together.of(ledgers, smallest, same_data="data" not in redrawn),
        "shown": terms.shown,
        "standing": room.standing(),
    }
    first, *others = [
        Comparison(
            results={label: runs[label].results if label in runs else [] for label in planned},
            tuning=points,
            curves=pd.concat([one.curves for one in runs.values()], ignore_index=True) if runs else empty,
            algorithms={label: runs.get(label, plan).algorithm for label, plan in planned.items()},
            tuned=tuned,
            by=target.by,
            criterion="" if tune is None else _criterion(measure, tune, target),
            privacy={label: one.privacy for label, one in runs.items() if one.privacy is not None},
            budget=None if tune is None else target.budget,
            **shared,
        )
        for (target, tuned, points), runs in zip(choices, made)
    ]
    first = replace(first, views=tuple(others))
    if first.by != "stop":
        for label, needs in first.at(first.by)["needs"].items():
            if np.isfinite(needs) and first.results[str(label)]:
                warnings.warn(f"{label}: {first.mark(str(label))}. Give a larger budget.", stacklevel=2)
    return first


def _reported_runs(label: str, plan: Plan, terms: Terms, values: Mapping[str, float]) -> tuple[Algorithm, list[Result]]:
    """The algorithm of a method with these values, and with the noise that the terms ask for, and its reported runs."""
    algorithm = calibrated(replace(plan, algorithm=plan.at(values)), terms)
    how: Any = {"metrics": terms.metrics, "names": [(label, values)], **terms.how}
    with warnings.catch_warnings():
        if values:  # tuning measured what hints about step sizes are about
            warnings.simplefilter("ignore", checks.HintWarning)
        return algorithm, across(algorithm, plan.trials, over={}, steps=plan.steps, **how)


def _criterion(measure: str, tune: Tuning, target: Target) -> str:
    """The criterion of tuning, in words."""
    over = f"over {len(tune.keys)} trials that are not reported"
    if target.by == "stop":
        return f"fewest rounds to the stop rule, mean {over}"
    extreme = "lowest" if better(measure) > 0 else "highest"
    return f"{extreme} mean {measure.replace('_', ' ')} at {AXES[target.by]} ≤ {number(target.budget)} {over}"


def _network_name(plan: Plan) -> str:
    """The name of a method's network; without the seed, where every trial draws another one."""
    network: Any = plan.trials[0].network
    name: str = getattr(network, "name", type(network).__name__)
    drawn = len({id(trial.network) for trial in plan.trials}) > 1
    return re.sub(r"(, )?\bseed=\d+", "", name) if drawn else name


def _warn(tuned: Mapping[str, Tuned]) -> None:
    untouched = [
        f"{label} ({how.lone})" if how.lone else label for label, how in tuned.items() if how.lone or not how.grid
    ]
    lines: list[str] = []
    if untouched:
        lines.append(f"Not tuned: {', '.join(untouched)}. Nothing was chosen for them, so beating them shows little.")
    for label, how in tuned.items():
        remedy = "Give it another grid." if how.short is None else "Give a larger budget, or compare by another amount."
        if how.failure:
            lines.append(f"{label} has no results: {how.failure}. {remedy}")
        if how.alike:
            lines.append(
                f"Tuning chose nothing for {label}: {how.alike}, so it is not ranked. Give another budget or grid."
            )
        for path, side in how.edge.items():
            lines.append(
                f"The best {path} of {label}, {how.values[path]:.3g}, is the {side} of its grid, so better ones may "
                "lie beyond. Widen the grid."
            )
    for line in lines:
        warnings.warn(line, stacklevel=3)


def _intents_of_all(plans: Mapping[str, Plan], terms: Terms) -> list[Intent]:
    """All runs of tuning, and as many reported ones as there may be, those with the least noise of each grid."""
    tune, found = terms.tune, list[Intent]()
    if tune is not None and tune.extend and any(plan.grid for plan in plans.values()):
        raise ValueError(
            f"Expected tuning whose runs are known beforehand with a ledger, got tune.extend = {tune.extend}. Give "
            "jdfl.Tuning(extend=0), or --extend 0: no grid goes on beyond its edge then."
        )
    for label, plan in plans.items():
        points = plan.taken()
        if tune is not None:
            found += _intents(label, plan, terms, points, tuning=True)
        # The least noise of the runs of a point, in units of the sensitivity, decides how much it spends.
        reported = [_intents(label, plan, terms, [point]) for point in points]
        reported.sort(key=lambda runs: min(getattr(run.guarantee.event, "noise_multiplier", 0.0) for run in runs))
        found += [run for runs in reported[: max(1, len(terms.budgets))] for run in runs]
        terms.announce(label, "keeping room in the ledger")
    return found


def _intents_of_chosen(plans: Mapping[str, Plan], terms: Terms, choices: Sequence[Choice]) -> list[Intent]:
    """The reported runs of all values that tuning chose, each once."""
    found: list[Intent] = []
    for label, plan in plans.items():
        tuned = [choice.tuned[label] for choice in choices]
        points = {tuple(how.values.items()): how.values for how in tuned if not how.failure}
        found += _intents(label, plan, terms, list(points.values()))
    return found


def _intents(label: str, plan: Plan, terms: Terms, points: Sequence[Point], *, tuning: bool = False) -> list[Intent]:
    """The planned runs of some points of a method: the reported ones, or those of tuning, whose noise is as given."""
    found, known = list[Intent](), dict[Any, Any]()
    for point in points:
        algorithm, trials = plan.at(point), plan.tuning if tuning else plan.trials
        if not tuning:
            algorithm = calibrated(replace(plan, algorithm=algorithm), terms)
        for trial, key in zip(trials, keys_of([trial.key for trial in trials], [(label, point)], terms.token)):
            given = algorithm, trial.problem, trial.network, terms.stop
            found += intents(*given, keys=[key], steps=plan.steps, derived=plan.derived, known=known)
    return found
