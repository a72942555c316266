"""What is compared and how it is tuned: entries, grids, and everything that can be refused before a run."""

import dataclasses
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any, Literal, get_args

import numpy as np

from jdfl import checks
from jdfl.algorithms.algorithm import Algorithm
from jdfl.network.graph import Network
from jdfl.problems import Problem
from jdfl.runner import check_counters, check_run, check_settings
from jdfl.stepping import with_field
from jdfl.stopping import StopRule

MOST_EXTENSIONS = 100  # of a grid, by three values each
By = Literal["round", "communications", "bytes", "gradients", "examples", "network_seconds", "stop"]
Values = Mapping[str, Sequence[float]]

GRIDS = {  # by the name of the field; lr in units of 1 / L
    "lr": tuple(2.0**k for k in range(-6, 2)),
    "gamma": (0.05, 0.1, 0.2, 0.4, 0.7, 1.0),
    "step_scale": (0.25, 0.5, 1.0, 2.0, 4.0, 8.0),
}
ALSO = ("round", "bytes", "gradients")  # amounts that pages show, each with a tuning of its own
_AROUND = tuple(2.0**k for k in range(-3, 4))  # another field: in units of the value that it has


@dataclass(frozen=True)
class Entry:
    """An algorithm of a comparison, with what it does not share with the others."""

    algorithm: Any
    network: Any = None  # None: that of the comparison
    tune: Values | None = None  # values by field; None: the algorithm's `tuned` fields on their default grids
    steps: int | None = None  # None: those of the comparison


@dataclass(frozen=True)
class Tuning:
    """How every algorithm finds its step: all points of a grid with every seed of `keys`, in one compiled program.

    Best is the point with the lowest mean of the comparison's measure (the highest, for accuracies) over the tuning
    seeds, which are not the reported ones; a point with a run that diverged is never chosen; of equally good points the
    middle one is, and a method whose points that work are all equally good is marked and never ranked.

    The measure is taken at the budget that is compared: `budget` of `by`, in the unit of that amount (rounds, bytes
    of all nodes, gradients of all nodes, simulated seconds); None: the largest that all algorithms reach in their
    rounds, but, of all amounts except rounds, at least what ten rounds of each cost. "stop" takes the rounds until
    the stop rule fires instead. `also` names further amounts and their budgets (none: found as for `by`): each has a
    choice and reported runs of its own, which tables and figures over that amount show; with a stop rule, the rounds
    to it are such an amount, too. A best point on the edge of its grid makes the grid go on there, with three more
    values in the same ratio, or one close to the end of what the algorithm takes where that ratio leads beyond it, up
    to `extend` times.

    `grids` holds values by field, for all algorithms that tune it. Default grids: lr is 1/64 to 2 times 1 / L in powers
    of 2, L the largest curvature of the nodes' losses, where there is a bound on it; gamma .05 to 1; step_scale 1/4 to
    8; others 1/8 to 8 times what they are.
    """

    keys: Sequence[int] = (1_000_001, 1_000_002)
    by: By = "round"
    budget: float | None = None
    also: Mapping[str, Sequence[float]] = field(default_factory=lambda: dict.fromkeys(ALSO, ()))
    grids: Values = field(default_factory=dict[str, Sequence[float]])
    extend: int = 2


@dataclass(frozen=True)
class Plan:
    """An entry with its network and its grid; no grid: not tuned."""

    algorithm: Algorithm
    network: Network
    steps: int
    grid: dict[str, tuple[float, ...]]
    given: bool  # the grid is somebody's choice, so a value that makes no sense is refused, not left out
    derived: tuple[str, ...] = ()  # what the chosen values are computed from (names of jdfl.privacy.DERIVED)

    def taken(self, problem: Problem) -> list[dict[str, float]]:
        """The points of the grid, of a default one those that the algorithm takes; one that changes nothing if none."""
        points = [dict(zip(self.grid, values)) for values in product(*self.grid.values())]
        return points if self.given else [point for point in points if self.allows(point, problem)] or points

    def at(self, point: Mapping[str, float]) -> Any:
        """The algorithm with a point's values."""
        algorithm = self.algorithm
        for path, value in point.items():
            algorithm = with_field(algorithm, path, value)
        return algorithm

    def allows(self, point: Mapping[str, float], problem: Problem) -> bool:
        """Whether the algorithm takes these values."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                check_settings(self.at(point), problem, self.network)
        except ValueError:
            return False
        return True


def plans(
    entries: Mapping[str, Any],
    problem: Problem,
    network: Network,
    keys: Sequence[int],
    steps: int,
    every: int,
    stop: StopRule | None,
    tune: Tuning | None,
) -> dict[str, Plan]:
    """The entries with everything filled in, after all checks that need no run."""
    if not checks.is_a(entries, Mapping) or not entries:
        raise ValueError(f"Expected a mapping of labels to algorithms, got entries = {entries!r}. Name at least one.")
    check_seeds(keys=keys)
    if tune is not None:
        _check_tuning(tune, keys, stop)
    found: dict[str, Plan] = {}
    for label, given in entries.items():
        entry = given if isinstance(given, Entry) else Entry(given)
        if not checks.is_a(label, str) or not label:
            raise ValueError(f"Expected text as the label of an entry, got {label!r}. Give every algorithm a name.")
        if isinstance(entry.algorithm, type) or not all(hasattr(entry.algorithm, n) for n in ("step", "init", "check")):
            checks.refuse("an algorithm or an Entry", f"entries[{label!r}]", given, "For example jdfl.CEPS().")
        grid, derived = ({}, ()) if tune is None else _grid(label, entry, problem, tune)
        at = Plan(
            entry.algorithm,
            network if entry.network is None else entry.network,
            steps if entry.steps is None else entry.steps,
            grid,
            entry.tune is not None or bool(tune and set(grid) & set(tune.grids)),
            derived,
        )
        try:
            with warnings.catch_warnings():  # the run itself warns again
                warnings.simplefilter("ignore")
                _check_plan(at, problem, every, stop)
        except ValueError as error:
            raise ValueError(f"In entries[{label!r}]: {error}") from error
        found[label] = at
    fields = {path for plan in found.values() for path in plan.grid}
    for path in () if tune is None else tune.grids:
        checks.one_of(sorted(fields), "No algorithm tunes another field; give it as Entry(..., tune=...).", grids=path)
    return found


def _check_plan(plan: Plan, problem: Problem, every: int, stop: StopRule | None) -> None:
    """Refuse what no run of the plan could do; of a grid that somebody gave, every point."""
    taken = plan.taken(problem)
    check_run(plan.at(taken[0]), problem, plan.network, plan.steps, every, stop)
    check_counters(plan.network, plan.steps)
    for point in taken[1:]:
        check_settings(plan.at(point), problem, plan.network)


def check_seeds(**named: Any) -> None:
    """Every named value is a list of different seeds; raises ValueError."""
    for name, seeds in named.items():
        if not checks.is_a(seeds, Sequence | np.ndarray) or checks.is_a(seeds, str) or not len(seeds):
            raise ValueError(f"Expected a list of seeds, got {name} = {seeds!r}. For five seeds write range(5).")
        for seed in seeds:
            checks.whole(0, 2**32 - 1, f"It is one of the seeds {name}.", seed=seed)
        if len(set(seeds)) < len(list(seeds)):
            raise ValueError(f"Expected different seeds, got {name} = {list(seeds)!r}. A repeated run is no evidence.")


def _check_tuning(tune: Tuning, keys: Sequence[int], stop: StopRule | None) -> None:
    if not checks.is_a(tune, Tuning):
        raise ValueError(f"Expected a Tuning or None, got tune = {tune!r}. For example jdfl.Tuning(by='bytes').")
    check_seeds(**{"tune.keys": tune.keys})
    shared = sorted(set(keys) & set(tune.keys))
    if shared:
        raise ValueError(
            f"Expected tuning seeds other than the reported ones, got {shared} in both keys and tune.keys. Values "
            "chosen on the reported runs would look better than they are; give others."
        )
    checks.one_of(get_args(By), by=tune.by)
    if tune.by == "stop" and stop is None:
        raise ValueError("Expected a stop rule to tune for, got by = 'stop' and stop = None. Give stop, or another by.")
    if tune.by == "stop" and tune.budget is not None:
        raise ValueError(
            f"Expected no budget with by = 'stop', got budget = {tune.budget!r}. A run to its stop rule has "
            "none; leave it out, or give another by."
        )
    if tune.budget is not None:
        checks.positive("It is an amount of `by`.", budget=tune.budget)
    if not checks.is_a(tune.also, Mapping):
        raise ValueError(f"Expected budgets by amount, got also = {tune.also!r}. For example {{'bytes': [1e5, 1e6]}}.")
    for x, amounts in tune.also.items():
        checks.one_of([one for one in get_args(By) if one != "stop"], also=x)
        if isinstance(amounts, str) or not checks.is_a(amounts, Iterable):
            raise ValueError(f"Expected a list of budgets for {x!r} in also, got {amounts!r}. Empty: one is found.")
        for amount in amounts:
            checks.positive(f"It is a budget of {x!r} in also.", also=amount)
    checks.whole(0, MOST_EXTENSIONS, "It is how often a grid may be extended.", **{"tune.extend": tune.extend})


def _grid(
    label: str, entry: Entry, problem: Problem, tune: Tuning
) -> tuple[dict[str, tuple[float, ...]], tuple[str, ...]]:
    """Sorted values by field, and what the values that are chosen among them are computed from."""
    if entry.tune is not None and not checks.is_a(entry.tune, Mapping):
        raise ValueError(f"Expected values by field in the grid of {label!r}, got tune = {checks.shown(entry.tune)}.")
    own: tuple[str, ...] = getattr(entry.algorithm.__class__, "tuned", ())
    fields = own if entry.tune is None else tuple(entry.tune)
    grid: dict[str, tuple[float, ...]] = {}
    curved = False
    for path in fields:
        if path == "lr" and hasattr(getattr(entry.algorithm, "optimizer", None), "update"):
            continue  # a transformation with a rate of its own
        present = _present(label, entry.algorithm, path)
        given = (tune.grids if entry.tune is None else entry.tune).get(path)
        grid[path] = (
            _default(label, path, present, entry.algorithm, problem) if given is None else _values(label, path, given)
        )
        curved |= given is None and _unit(path, entry.algorithm, problem) > 0
    return grid, (("tuning", "curvature") if curved else ("tuning",) if grid else ())


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
            "the compiled program: compare them as entries of their own."
        )
    return target


def _values(label: str, path: str, values: Any) -> tuple[float, ...]:
    if isinstance(values, str) or not checks.is_a(values, Iterable) or np.ndim(found := list(values)) != 1 or not found:
        raise ValueError(
            f"Expected a list of numbers for {path!r} in the grid of {label!r}, got {checks.shown(values)}."
        )
    checks.finite(f"They are the grid of {label!r}.", **{path: np.asarray(found, float)})
    return tuple(sorted({float(value) for value in found}))


def _unit(path: str, algorithm: Any, problem: Problem) -> float:
    """The largest curvature of the nodes, in whose inverse a default grid is laid; 0: in no such unit."""
    plain = getattr(algorithm, "optimizer", None) is None
    return float(np.max(np.asarray(problem.curvature))) if path == "lr" and plain else 0.0


def _default(label: str, path: str, present: Any, algorithm: Any, problem: Problem) -> tuple[float, ...]:
    remedy = f"Give its values: Entry(..., tune={{{path!r}: [...]}})."
    if (steepest := _unit(path, algorithm, problem)) > 0:
        return tuple(value / steepest for value in GRIDS[path])
    if path != "lr" and path in GRIDS and getattr(algorithm, "optimizer", None) is None:
        return GRIDS[path]
    if present is None or not float(present) > 0:
        raise ValueError(f"Expected {path!r} > 0 to lay a grid around for {label!r}, got {present!r}. {remedy}")
    return tuple(float(present) * factor for factor in _AROUND)
