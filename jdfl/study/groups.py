"""Which points of a study go side by side: those that one compiled program can run as lanes.

Points of one problem, network and stop rule whose algorithms differ in floats alone are a group. A run with a budget of
epsilon, or with a limit of its parameters' size, goes alone: lanes have neither.
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

from jdfl.base import Algorithm
from jdfl.config import RunConfig, yaml_text

LANES = 64  # runs of a group at most; what a study loses that is cut off


@dataclass(frozen=True)
class Point:
    """A place in a study."""

    index: int
    values: dict[str, Any]  # by dotted path
    config: RunConfig


@dataclass(frozen=True)
class Group:
    """Points that are run together, with the same seeds."""

    points: tuple[Point, ...]
    seeds: tuple[int, ...]
    side_by_side: bool

    @property
    def name(self) -> str:
        """A name that only the same work has."""
        told = [[point.index, yaml_text.plain(point.config)] for point in self.points]
        return hashlib.sha256(json.dumps([told, self.seeds], sort_keys=True).encode()).hexdigest()[:16]


def groups(points: Sequence[Point], seeds: Sequence[int]) -> list[Group]:
    """The points in groups, none with more than LANES runs unless it is one point; each in the order of its first."""
    found: dict[str, list[Point]] = {}
    for point in points:
        found.setdefault(_key(point.config) or f"alone {point.index}", []).append(point)
    size = max(1, LANES // len(seeds))
    return [
        Group(tuple(one[i : i + size]), tuple(seeds), _free(one[0].config))
        for one in found.values()
        for i in range(0, len(one), size)
    ]


def floats(algorithms: Sequence[Algorithm]) -> dict[str, list[float]]:
    """The fields in which they differ, by dotted path, a value each."""
    rows = [dict(_floats(algorithm, "")) for algorithm in algorithms]
    return {path: [row[path] for row in rows] for path in rows[0] if len({row[path] for row in rows}) > 1}


def _free(config: RunConfig) -> bool:
    return config.privacy.epsilon is None and config.diverged_above is None


def _key(config: RunConfig) -> str:
    """The same for configurations whose runs can be lanes: everything but the algorithm's floats; "" for one alone."""
    if not _free(config):
        return ""
    try:
        algorithm = config.algorithm.build()
    except ValueError:  # which is told when its turn comes
        return ""
    rest = yaml_text.dump(replace(config, algorithm=RunConfig().algorithm))
    stop = None if config.stop is None else config.stop.build(algorithm=algorithm)
    return f"{rest}\n{stop!r}\n{_without_floats(algorithm)}"


def _floats(value: Any, path: str) -> Iterator[tuple[str, float]]:
    """The floats of a dataclass, by dotted path."""
    for field in fields(value):
        one, place = getattr(value, field.name), f"{path}{field.name}"
        if type(one) is float and field.metadata.get("pytree_node", True):
            yield place, one
        elif is_dataclass(one) and not isinstance(one, type):
            yield from _floats(one, f"{place}.")


def _without_floats(value: Any) -> str:
    """A dataclass in words, without its floats."""
    parts = [type(value).__name__]
    for field in fields(value):
        one = getattr(value, field.name)
        if type(one) is float and field.metadata.get("pytree_node", True):
            parts.append(f"{field.name}=*")
        elif is_dataclass(one) and not isinstance(one, type):
            parts.append(f"{field.name}={_without_floats(one)}")
        else:
            parts.append(f"{field.name}={one!r}")
    return f"({' '.join(parts)})"
