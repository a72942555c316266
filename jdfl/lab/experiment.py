"""An experiment: methods that are tuned alike and run on the same trials, with their results and costs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from jdfl.algorithms.algorithm import Algorithm
from jdfl.base import arguments, checks, suggest
from jdfl.engine.data_ledger import DataLedger
from jdfl.engine.metrics import Metric, default_metrics, resolve
from jdfl.engine.progress import Progress, announced
from jdfl.engine.provenance import versions
from jdfl.engine.result import Result
from jdfl.engine.stopping import StopRule
from jdfl.engine.trials import Trial
from jdfl.lab.comparison import Comparison
from jdfl.lab.curves import AXES, LABELS
from jdfl.lab.entries import Announce, Entry, Terms, Tuning, budgets_of, check_seeds, check_tuning, drawn, plans
from jdfl.lab.reported import ran, reported_runs
from jdfl.network.graph import Network
from jdfl.problems import Problem, check_problem, solved
from jdfl.problems.yardsticks import solvable
from jdfl.store.jobs import Jobs, opened

_SOLVED = 2000  # parameters up to which minima are computed without being asked for


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
            examples, network_seconds, stop) to one budget, a list of budgets, or None for the largest that all methods
            reach, but, of all amounts except rounds, at least what ten rounds of each cost. The first one is shown
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
        longer: The factor on `steps` up to which runs go on that end before a budget; 1: none does. With `epsilon` or
            `ledger`, which are for a number of rounds, none does either.
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
        checks.whole(0, 2**32 - 1, key=key)
        problem, network = drawn(self.problem, key, "problem"), drawn(self.network, key, "network")
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
        checks.whole(0, retry=retry)
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
            terms, metrics = self._terms(announce, jobs)
            return ran(self.methods, terms, metrics)

    def remade(self, comparison: Comparison, label: str) -> list[Result]:
        """The reported runs of a method made again, with the values that tuning chose, and without the ledger.

        Args:
            comparison: The outcome of this experiment.
            label: The method.
        """
        terms, metrics = self._terms(lambda label, what: None, None)
        terms = replace(terms, ledger=None)
        plan = plans({label: self.methods[label]}, terms)[label]
        plan = replace(plan, steps=comparison.tuned[label].steps or plan.steps)
        return reported_runs(label, plan, terms, metrics, comparison.tuned[label].values)[1]

    def _terms(self, announce: Announce, jobs: Jobs | None) -> tuple[Terms, tuple[Metric, ...]]:
        """What all methods share, and what is recorded; ValueError for settings that make no sense."""
        arguments.settings(self)
        if not self.methods:
            raise ValueError(f"Expected a mapping of labels to algorithms, got methods = {self.methods!r}. Name one.")
        keys = range(self.trials) if isinstance(self.trials, int) else self.trials
        if isinstance(self.trials, int):
            checks.whole(1, 100_000, trials=self.trials)
        check_seeds(trials=keys)
        checks.whole(1, steps=self.steps, every=self.every, longer=self.longer)
        if self.batch is not None:
            checks.whole(1, batch=self.batch)
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
            given = [getattr(one, "algorithm", one) for one in self.methods.values()]
            known = known and not all(getattr(one, "personal", "") == "models" for one in given)  # above no minimum
            measure = "suboptimality" if known or "suboptimality" in names else "objective"
        (judge,) = resolve([measure], problem, "measure")
        if judge not in chosen:
            chosen = resolve([*chosen, judge], problem)
        for metric in chosen:
            if metric.__name__ in (*LABELS, *AXES):
                raise ValueError(f"Expected another name than {metric.__name__!r}, a column of the curves. Rename it.")
        budgets = budgets_of(self.budget, self.stop) if tune is not None else []
        if tune is None and self.budget is not None:
            raise ValueError(f"Expected no budget without tuning, got budget = {self.budget!r}. Leave one of them out.")
        terms = Terms(
            trials=trials,
            steps=self.steps,
            tuning=tuning,
            every=self.every,
            stop=self.stop,
            tune=tune,
            budgets=budgets,
            measure=judge,
            batch=self.batch,
            epsilon=self.epsilon,
            delta=self.delta,
            announce=announce,
            ledger=self.ledger,
            jobs=jobs,
            longer=int(self.longer),
            shown=() if self.metrics is None else tuple(metric.__name__ for metric in resolve(self.metrics, problem)),
            **({} if jobs is None else {"token": jobs.token}),
        )
        return terms, chosen


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
        methods: Algorithms by label, or an `Entry`, as for `Experiment`.
        problem: What the nodes learn: a problem, or a function of a seed that returns one.
        network: The communication network: a network, or a function of a seed that returns one.
        progress: As for `Experiment.run`, and so are `folder` and `retry`.
        folder: Where runs are kept as soon as they are done.
        retry: How often a program that fails is tried again.
        settings: The other settings of `Experiment`; `steps` is required.

    Raises:
        ValueError: As `Experiment.run` does.
    """
    experiment = Experiment(problem=problem, network=network, methods=methods, **settings)
    return experiment.run(progress=progress, folder=folder, retry=retry)
