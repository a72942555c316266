"""What is compared, the grids of values that tuning tries, and everything that can be refused before a run."""

import dataclasses
import secrets
import warnings
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import product
from operator import attrgetter
from typing import Any, Literal, cast, get_args

import numpy as np

from jdfl.algorithms.algorithm import Algorithm
from jdfl.algorithms.program import planned
from jdfl.base import checks, suggest
from jdfl.engine.accountant import adjustable, calibrate, check_account, noise_place, planned_releases
from jdfl.engine.data_ledger import DataLedger
from jdfl.engine.metrics import REGISTRY, Metric
from jdfl.engine.spending import guarantee_of
from jdfl.engine.start import check_counters, check_run, check_settings
from jdfl.engine.stepping import with_field
from jdfl.engine.stopping import StopRule
from jdfl.engine.trials import Trial, paired_trials
from jdfl.privacy import exposing
from jdfl.store.jobs import Jobs, JobsWarning

Announce = Callable[[str, str], object]  # (label, what is done with it)
MOST_EXTENSIONS = 100  # of a grid, by three values each
By = Literal["round", "communications", "bytes", "gradients", "examples", "network_seconds", "stop"]
DEFAULT = ("round", "bytes", "gradients")  # amounts that are compared at where no budget is given
Budget = tuple[str, float | None]  # an amount or "stop", and how much of it; None: found from the tuning runs
Values = Mapping[str, Sequence[float]]
Grid = dict[str, tuple[float, ...]]
Point = dict[str, float]  # values by field
GRIDS = {  # by the name of the field; lr in units of 1 / L
    "lr": tuple(2.0**k for k in range(-6, 2)),
    "gamma": (0.05, 0.1, 0.2, 0.4, 0.7, 1.0),
    "step_scale": (0.25, 0.5, 1.0, 2.0, 4.0, 8.0),
}
_AROUND = tuple(2.0**k for k in range(-3, 4))  # another field: in units of the value that it has
_FURTHER = 3  # values that an extension adds
_HALVINGS = 8  # of a step that the algorithm does not take
_LEAST = 0.01  # relative difference from which a shortened step is one


@suggest.init
@dataclass(frozen=True)
class Entry:
    """A method of an experiment that does not share everything with the others.

    Give it in place of an algorithm. `tune` maps fields, "lr" or "codec.gamma", to the values that are tried, all
    combinations of them; an empty mapping: the algorithm is not tuned.
    """

    algorithm: Any
    network: Any = None  # a network, or a function of a trial's key; None: that of the experiment
    tune: Values | None = None  # values by field; None: the algorithm's `tuned` fields on their default grids
    steps: int | None = None  # maximum number of rounds; None: that of the experiment


@suggest.init
@dataclass(frozen=True)
class Tuning:
    """How the values of every method are chosen: all points of a grid in every tuning trial, in one compiled program.

    The best point has the lowest mean of the experiment's measure (the highest, for accuracies) over the tuning trials,
    at the budget that is compared. Tuning trials are never reported ones. A point with a run that diverged is not
    chosen. Among equally good points the middle one is chosen; a method all of whose working points are equally good is
    marked and not ranked. A best point on the edge of its grid extends the grid there, by three more values in the same
    ratio, or by one value close to the limit of what the algorithm accepts.

    Default grids: lr is 1/64 to 2 times 1 / L in powers of 2, where L is the largest curvature of the nodes' losses in
    the tuning trials and a bound on it is known; gamma is 0.05 to 1; step_scale is 1/4 to 8; other fields are 1/8 to 8
    times their present value.

    Args:
        keys: The keys of the tuning trials, at least one, none of them the key of a reported trial.
        grids: Values by field, for all methods that tune the field; other fields have their default grids.
        extend: The number of times, at least 0, that a grid may be extended.
    """

    keys: Sequence[int] = (1_000_001, 1_000_002)
    grids: Values = field(default_factory=dict[str, Sequence[float]])
    extend: int = 2


@dataclass(frozen=True)
class Terms:
    """What all methods of an experiment share."""

    trials: Sequence[Trial]  # the reported ones
    steps: int
    tuning: Sequence[Trial] = ()  # those that tuning looks at
    every: int = 1
    stop: StopRule | None = None
    tune: Tuning | None = None
    budgets: Sequence[Budget] = ()  # that are compared at, in this order
    measure: Metric = REGISTRY["objective"]  # what tuning minimises or, for accuracies, maximises
    batch: int | None = None  # runs side by side
    epsilon: float | None = None
    delta: float | None = None
    announce: Announce = lambda label, what: None
    ledger: DataLedger | None = None  # which all runs join, those of tuning included
    jobs: Jobs | None = None  # where runs are kept as soon as they are done
    token: str = field(default_factory=lambda: secrets.token_hex(8))  # of all runs in a ledger
    metrics: tuple[Metric, ...] = ()  # what reported runs record
    shown: tuple[str, ...] = ()  # metrics that tables show; empty: the measure
    longer: int = 1  # factor on their rounds up to which runs go on that end before a budget

    @property
    def how(self) -> dict[str, Any]:
        """What runs of tuning and reported ones have in common, for `across`."""
        return {name: getattr(self, name) for name in ("every", "stop", "batch", "ledger", "jobs", "token")}


@contextmanager
def quiet() -> Generator[None]:
    """Nothing inside warns, but of jobs: a grid has points that make no sense."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", JobsWarning)
        yield


@dataclass(frozen=True)
class Plan:
    """A method with its trials and its grid; no grid: not tuned."""

    algorithm: Algorithm
    trials: tuple[Trial, ...]  # the reported ones
    tuning: tuple[Trial, ...]
    steps: int
    grid: Grid
    given: bool  # the grid was given, so a value that makes no sense is refused, not left out
    derived: tuple[str, ...] = ()  # what the chosen values are computed from (names of jdfl.privacy.DERIVED)

    @property
    def different(self) -> list[Trial]:
        """A trial for every pair of problem and network that there is in tuning or reported trials."""
        every = (*self.trials, *self.tuning)
        return list({(id(one.problem), id(one.network)): one for one in every}.values())

    def taken(self) -> list[Point]:
        """The points of the grid, of a default one those that the algorithm takes; one that changes nothing if none."""
        points = [dict(zip(self.grid, values)) for values in product(*self.grid.values())]
        if self.given or not self.grid:
            return points
        first, *others = self.different
        taken = [point for point in points if self.allows(point, [first])]
        for trial in others:  # a limit that depends on the trial, as one of the step size, bounds values from one side
            if taken and not (self.allows(taken[0], [trial]) and self.allows(taken[-1], [trial])):
                taken = [point for point in taken if self.allows(point, [trial])]
        return taken or points

    def at(self, point: Mapping[str, float]) -> Any:
        """The algorithm with a point's values."""
        algorithm = self.algorithm
        for path, value in point.items():
            algorithm = with_field(algorithm, path, value)
        return algorithm

    def allows(self, point: Mapping[str, float], trials: Sequence[Trial] | None = None) -> bool:
        """Whether the algorithm takes these values."""
        try:
            with quiet():
                for trial in self.different if trials is None else trials:
                    check_settings(self.at(point), trial.problem, trial.network, self.steps)
        except ValueError:
            return False
        return True


def plans(methods: Mapping[str, Any], terms: Terms) -> dict[str, Plan]:
    """The methods with all settings filled in, after every check that needs no run, of every point of their grids."""
    tune = terms.tune
    found: dict[str, Plan] = {}
    for label, given in methods.items():
        entry = given if isinstance(given, Entry) else Entry(given)
        if not checks.is_a(label, str) or not label:
            raise ValueError(f"Expected text as the labels of methods, got {label!r}. Give every method a name.")
        if isinstance(entry.algorithm, type) or not all(hasattr(entry.algorithm, n) for n in ("step", "init", "check")):
            checks.refuse("an algorithm or an Entry", f"methods[{label!r}]", given, "For example jdfl.CEPS().")
        with _named(label):
            trials, tuning = (_over(entry.network, some) for some in (terms.trials, terms.tuning))
        grid, derived = ({}, ()) if tune is None else laid(label, entry.algorithm, entry.tune, tune.grids, tuning)
        steps = terms.steps if entry.steps is None else entry.steps
        chosen = entry.tune is not None or bool(tune and set(grid) & set(tune.grids))
        plan = found[label] = Plan(entry.algorithm, trials, tuning, steps, grid, chosen, derived)
        with _named(label), quiet():  # the run itself warns again
            first, *others = plan.taken()
            for trial in plan.different:
                check_run(plan.at(first), trial.problem, trial.network, steps, terms.every, terms.stop)
                check_counters(trial.network, steps)
                for point in others if plan.given else ():
                    check_settings(plan.at(point), trial.problem, trial.network, steps)
    fields = {path for plan in found.values() for path in plan.grid}
    for path in () if tune is None else tune.grids:
        checks.one_of(sorted(fields), "No method tunes another field; give it as Entry(..., tune=...).", grids=path)
    for label, plan in found.items():
        with _named(label):
            found[label] = replace(plan, algorithm=calibrated(plan, terms))
            if terms.delta is not None:
                first = plan.trials[0]
                ready = planned(found[label].algorithm, first.problem, first.network, plan.steps)
                check_account(ready, first.problem, delta=terms.delta, accounting="sound")
    return found


def _over(network: Any, trials: Sequence[Trial]) -> tuple[Trial, ...]:
    """The trials over a network of a method's own, given as it is or as a function of a trial's key."""
    if network is not None:
        trials = [trial._replace(network=sample_input(network, trial.key, "network")) for trial in trials]
    return tuple(paired_trials(trials))


def sample_input(given: Any, key: Any, name: str) -> Any:
    """A problem or network of one trial: what is given, or what a function gives for a seed made of the trial's key."""
    what = f"a {name}, or a function of a seed that returns one,"
    if hasattr(given, "m") and not isinstance(given, type):
        return given
    if isinstance(given, type) or not callable(given):
        checks.refuse(what, name, given)
    place = ("problem", "network").index(name)
    seed = int(np.random.SeedSequence([int(key), place]).generate_state(1)[0])
    try:
        found = given(seed)
    except Exception as error:  # a person's own function fails in its own ways
        raise ValueError(
            f"Expected {name}({seed}) of trial {key} to return a {name}, got {type(error).__name__}: "
            f"{checks.message(error)}"
        ) from error
    if not hasattr(found, "m"):
        checks.refuse(f"{name}({seed}) to return a {name}", name, found)
    return found


def calibrated(plan: Plan, terms: Terms) -> Algorithm:
    """The plan's algorithm, if it has a noise multiplier with the least noise for (epsilon, delta) in all trials."""
    problem = plan.trials[0].problem
    if terms.epsilon is None or not adjustable(plan.algorithm):
        return plan.algorithm
    if not set(plan.derived) <= set(problem.public):
        ready = planned(plan.algorithm, problem, plan.trials[0].network, plan.steps)
        guarantee = exposing(guarantee_of(ready, problem, terms.stop), plan.derived, problem.public)
        own = ", with an lr in units of one over the largest curvature" if "curvature" in plan.derived else ""
        if guarantee.derived:  # all that is missing, so that one declaration is enough
            raise ValueError(
                f"Expected nothing from the records without noise with epsilon = {terms.epsilon!r}, got a grid of "
                f"{', '.join(plan.grid)}{own}: {', '.join(guarantee.derived)} (see Problem.declared). "
                f"{guarantee.remedy} Or give the values, with tuning=None."
                + (" A grid tune={'lr': [...]} of given values needs no curvature." if own else "")
            )
    how: Any = {"steps": plan.steps, "epsilon": terms.epsilon, "delta": terms.delta, "stop": terms.stop}
    different: dict[Any, Trial] = {}
    for trial in plan.trials:
        counts = planned_releases(plan.algorithm, trial.problem, trial.network, steps=plan.steps, key=trial.key)
        different[counts.tobytes(), id(trial.problem), id(trial.network)] = trial
    found = [calibrate(plan.algorithm, one.problem, one.network, **how, key=one.key) for one in different.values()]
    return max(found, key=attrgetter(f"{noise_place(plan.algorithm)}.multiplier"))


@contextmanager
def _named(label: str) -> Generator[None]:
    """A ValueError inside names the method of this `label`."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"In methods[{label!r}]: {error}") from error


def check_seeds(name: str, seeds: Any) -> None:
    """Refuse anything but a list of different seeds."""
    if not checks.is_a(seeds, Sequence | np.ndarray) or checks.is_a(seeds, str) or not len(seeds):
        raise ValueError(f"Expected a list of seeds, got {name} = {seeds!r}. For five seeds write range(5).")
    for seed in seeds:
        checks.integer(0, 2**32 - 1, f"It is one of the seeds {name}.", seed=seed)
    if len(set(seeds)) < len(list(seeds)):
        raise ValueError(f"Expected different seeds, got {name} = {list(seeds)!r}. A repeated run is no evidence.")


def check_tuning(tune: Tuning, keys: Sequence[int]) -> None:
    """Refuse tuning trials that are reported, and extensions that are no small number."""
    check_seeds("tuning.keys", tune.keys)
    shared = sorted(set(keys) & set(tune.keys))
    if shared:
        raise ValueError(
            f"Expected tuning trials other than the reported ones, got {shared} in both trials and tuning.keys. Values "
            "chosen on the reported trials would look better than they are; give others."
        )
    checks.integer(0, MOST_EXTENSIONS, "It is how often a grid may be extended.", **{"tuning.extend": tune.extend})


def budgets_of(budget: Mapping[str, Any] | None, stop: StopRule | None) -> list[Budget]:
    """The budgets that are compared at, each with its own tuning, in the order given."""
    given: Mapping[str, Any] = dict.fromkeys(DEFAULT) if budget is None else budget
    if not given:
        raise ValueError(f"Expected at least one budget, got budget = {budget!r}. For example budget={{'bytes': 1e6}}.")
    found: list[Budget] = []
    for x, amounts in given.items():
        checks.one_of(get_args(By), budget=x)
        listed: list[Any] = [amounts]
        if checks.is_a(amounts, Sequence | np.ndarray) and not isinstance(amounts, str):
            listed = list(cast(Sequence[Any], amounts)) or [None]
        for amount in listed:
            if amount is not None:
                checks.positive(f"It is a number of {x}.", **{f"budget[{x!r}]": amount})
            found.append((x, None if amount is None else float(amount)))
    stops = [amount for x, amount in found if x == "stop"]
    if stops and stop is None:
        raise ValueError("Expected a stop rule, got budget = 'stop' and stop = None. Give stop, or another budget.")
    if any(amount is not None for amount in stops):
        raise ValueError(
            f"Expected no amount for the budget 'stop', got {given['stop']!r}. A run to its stop rule has none; write "
            "budget={'stop': None}."
        )
    return found if stop is None or stops else [*found, ("stop", None)]


def laid(
    label: str, algorithm: Any, own: Values | None, grids: Values, trials: Sequence[Trial]
) -> tuple[Grid, tuple[str, ...]]:
    """Sorted values by field, and what the values that are chosen among them are computed from."""
    if own is not None and not checks.is_a(own, Mapping):
        raise ValueError(f"Expected values by field in the grid of {label!r}, got tune = {checks.text(own)}.")
    optimizer = getattr(algorithm, "optimizer", None)
    grid: Grid = {}
    derived = ("tuning",)
    fields: Iterable[str] = getattr(algorithm.__class__, "tuned", ()) if own is None else own
    for path in fields:
        if path == "lr" and (hasattr(optimizer, "update") or (own is None and callable(algorithm.lr))):
            continue  # a transformation with its own rate, or a schedule
        present = _present(label, algorithm, path)
        given = (grids if own is None else own).get(path)
        in_curvature = given is None and path == "lr" and optimizer is None
        if given is not None:
            grid[path] = _values(label, path, given)
        elif in_curvature and (steepest := max(float(np.max(np.asarray(one.problem.curvature))) for one in trials)) > 0:
            grid[path] = tuple(value / steepest for value in GRIDS[path])
            derived = ("tuning", "curvature")
        elif path != "lr" and path in GRIDS and optimizer is None:
            grid[path] = GRIDS[path]
        elif present is not None and float(present) > 0:
            grid[path] = tuple(float(present) * factor for factor in _AROUND)
        else:
            raise ValueError(
                f"Expected {path!r} > 0 to lay a grid around for {label!r}, got {present!r}. Give its values: "
                f"Entry(..., tune={{{path!r}: [...]}})."
            )
        usual = getattr(type(algorithm), path, present)
        if given is None and present != usual and present not in grid[path]:
            warnings.warn(
                f"Tuning chooses {path} of {label} from {grid_text({path: grid[path]})}, in place of the given "
                f"{present!r}. Keep it by jdfl.Entry(..., tune={{}}), or tuning=None for all methods.",
                stacklevel=2,
            )
    return grid, derived if grid else ()


def _present(label: str, algorithm: Any, path: str) -> Any:
    """The value that a field has; refuses what is not there or no number that may vary in one compiled program."""
    target, static = algorithm, False
    for name in path.split("."):
        known = {one.name: one for one in dataclasses.fields(target)} if dataclasses.is_dataclass(target) else {}
        if name not in known:
            raise ValueError(
                f"Expected fields of {type(algorithm).__name__} in the grid of {label!r}, got {path!r}. "
                f"Known here: {', '.join(known)}."
            )
        static = not known[name].metadata.get("pytree_node", True)
        target = getattr(target, name)
    number = target is None or (checks.is_a(target, int | float | np.number) and not isinstance(target, bool))
    if static or not number:
        raise ValueError(
            f"Expected a field with a number to tune for {label!r}, got {path!r} = {target!r}. Sizes and flags change "
            "the compiled program: compare them as separate entries."
        )
    return target


def _values(label: str, path: str, values: Any) -> tuple[float, ...]:
    if isinstance(values, str) or not checks.is_a(values, Iterable) or np.ndim(found := list(values)) != 1 or not found:
        raise ValueError(
            f"Expected a list of numbers for {path!r} in the grid of {label!r}, got {checks.text(values)}."
        )
    checks.finite(f"They are the grid of {label!r}.", **{path: np.asarray(found, float)})
    return tuple(sorted({float(value) for value in found}))


def beyond_edges(plan: Plan, point: Point, grid: Grid) -> dict[str, list[float]]:
    """By field whose value is the lowest or highest of several: values beyond it that the algorithm takes, if any."""
    found: dict[str, list[float]] = {}
    for path, values in grid.items():
        place, last = values.index(point[path]), len(values) - 1
        if last > 0 and place in (0, last):
            found[path] = _steps(plan, point, path, before=values[1 if place == 0 else -2])
    return {path: values for path, values in found.items() if values}


def _steps(plan: Plan, point: Point, path: str, before: float) -> list[float]:
    """Further values in the ratio of the last two, or by their difference where one is not positive."""
    end = point[path]

    def at(t: float) -> float:  # t = 1: a step of the grid
        return float(end * np.power(end / before, t) if min(end, before) > 0 else end + (end - before) * t)

    def takes(value: float) -> bool:
        return plan.allows(point | {path: value})

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


def grid_text(grid: Mapping[str, tuple[float, ...]]) -> str:
    """A grid in words."""
    return ", ".join(
        f"{path} = {values[0]:.3g}" + (f" ... {values[-1]:.3g} ({len(values)} values)" if len(values) > 1 else "")
        for path, values in grid.items()
    )
