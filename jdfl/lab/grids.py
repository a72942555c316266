"""Grids of values: default ones, what an algorithm takes of them, and how they go on beyond their edges."""

import dataclasses
import warnings
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from jdfl.algorithms.algorithm import Algorithm
from jdfl.base import checks
from jdfl.engine.start import check_settings
from jdfl.engine.stepping import with_field
from jdfl.engine.trials import Trial
from jdfl.store.jobs import JobsWarning

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
        kept = [point for point in points if self.allows(point, [first])]
        for trial in others:  # a limit that depends on the trial, as one of the step size, bounds values from one side
            if kept and not (self.allows(kept[0], [trial]) and self.allows(kept[-1], [trial])):
                kept = [point for point in kept if self.allows(point, [trial])]
        return kept or points

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
                    check_settings(self.at(point), trial.problem, trial.network)
        except ValueError:
            return False
        return True


def laid(
    label: str, algorithm: Any, own: Values | None, grids: Values, trials: Sequence[Trial]
) -> tuple[Grid, tuple[str, ...]]:
    """Sorted values by field, and what the values that are chosen among them are computed from."""
    if own is not None and not checks.is_a(own, Mapping):
        raise ValueError(f"Expected values by field in the grid of {label!r}, got tune = {checks.shown(own)}.")
    optimizer = getattr(algorithm, "optimizer", None)
    grid: Grid = {}
    derived = ("tuning",)
    fields: Iterable[str] = getattr(algorithm.__class__, "tuned", ()) if own is None else own
    for path in fields:
        if path == "lr" and hasattr(optimizer, "update"):
            continue  # a transformation with its own rate
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
            f"Expected a list of numbers for {path!r} in the grid of {label!r}, got {checks.shown(values)}."
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
