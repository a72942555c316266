"""Points of a sweep: values of float fields of an algorithm."""

from collections.abc import Mapping, Sequence
from dataclasses import fields as fields_of
from dataclasses import is_dataclass
from itertools import product
from typing import Any

import jax
import numpy as np

from jdfl.algorithms.algorithm import Algorithm
from jdfl.base import checks
from jdfl.engine.stepping import with_field


def points_of(
    algorithm: Algorithm, over: Mapping[str, Sequence[float]] | Sequence[Mapping[str, float]]
) -> list[dict[str, float]]:
    """The values of every run; one point without fields when nothing is swept."""
    points: list[dict[str, Any]]
    given: Any = over
    if checks.is_a(over, Mapping):
        lists: dict[str, Any] = dict(given)
        for path, values in lists.items():
            if not checks.is_a(values, Sequence | np.ndarray | jax.Array) or isinstance(values, str | bytes):
                raise ValueError(f"Expected a list of values for {path!r} in over, got {checks.shown(values)}.")
        points = [dict(zip(lists, row)) for row in product(*lists.values())]
        fields = list(lists)
    else:
        if not checks.is_a(over, Sequence) or not all(checks.is_a(point, Mapping) for point in over):
            raise ValueError(
                f"Expected fields with their lists of values, or a list of points, got over = {checks.shown(over)}. "
                "For example over={'lr': [0.1, 0.2]} or over=[{'lr': 0.1}, {'lr': 0.2}]."
            )
        points = [dict(point) for point in given]
        fields = list(points[0]) if points else []
        for place, point in enumerate(points):
            if point.keys() != set(fields):
                raise ValueError(
                    f"Expected the fields {fields} in every point of over, got {list(point)} in over[{place}]."
                )
    for path in fields:
        _check_field(algorithm, path)
    for point in points:
        for path, value in point.items():
            if np.ndim(value) or isinstance(value, bool) or not checks.is_a(value, _NUMBER):
                raise ValueError(f"Expected numbers for {path!r} in over, got {checks.shown(value)}.")
    return [{path: float(point[path]) for path in fields} for point in points]


_NUMBER = int | float | np.integer | np.floating | np.ndarray | jax.Array


def _check_field(algorithm: Algorithm, path: object) -> None:
    """Raise ValueError for a path that is no float field of the algorithm."""
    target, static = algorithm, False
    for name in str(path).split("."):
        if not isinstance(path, str) or not hasattr(target, name):
            raise ValueError(f"Expected a field of {type(algorithm).__name__} in over, got {path!r}.")
        known = {one.name: one for one in fields_of(target)} if is_dataclass(target) else {}
        static = name in known and not known[name].metadata.get("pytree_node", True)
        target = getattr(target, name)
    if static or isinstance(target, bool) or not isinstance(target, (float, np.floating)):
        raise ValueError(
            f"Expected a float field in over, got {path!r} = {checks.shown(target)}. Write a number as a float (1.0, "
            "not 1); sizes, flags and exact noise change the compiled program, so run them one by one."
        )


def at(algorithm: Algorithm, point: Mapping[str, float]) -> Algorithm:
    """The algorithm with the values of a point."""
    for path, value in point.items():
        algorithm = with_field(algorithm, path, value)
    return algorithm
