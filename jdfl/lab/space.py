"""The points of a study: all combinations of values of settings, or points drawn at random."""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import numpy as np

from jdfl.base import checks
from jdfl.config import RunConfig, yaml_text

_MOST = 100_000  # points


@dataclass(frozen=True)
class Range:
    """A distribution: uniform, log-uniform, or uniform over whole numbers, both ends included."""

    kind: str  # uniform, log, int
    low: float
    high: float

    def draw(self, rng: np.random.Generator) -> float | int:
        """One value of the distribution."""
        if self.kind == "int":
            return int(rng.integers(int(self.low), int(self.high) + 1))
        if self.kind == "log":
            return math.exp(rng.uniform(math.log(self.low), math.log(self.high)))
        return float(rng.uniform(self.low, self.high))


Field = list[Any] | Range


def field_of(line: str) -> tuple[str, Field]:
    """The dotted path and the values behind a line such as "algorithm.lr=0.1,0.2" or "algorithm.lr=log:1e-3:1".

    Raises ValueError for anything else.
    """
    path, sign, text = line.partition("=")
    path, text = path.strip(), text.strip()
    if not sign or not path or not text:
        raise ValueError(
            f"Expected setting=value,value,... or setting=uniform:LOW:HIGH (or log, int), got {line!r}. "
            "For example algorithm.lr=0.05,0.1,0.2."
        )
    kind, *ends = text.split(":")
    if kind in ("uniform", "log", "int"):
        return path, _range(path, kind, ends)
    values = [yaml_text.scalar(part.strip()) for part in text.split(",")]
    if len({repr(value) for value in values}) < len(values):
        raise ValueError(f"Expected every value of {path} once, got {text!r}.")
    return path, values


def _range(path: str, kind: str, ends: Sequence[str]) -> Range:
    try:
        low, high = (yaml_text.number(float, end) for end in ends)
    except ValueError:
        raise ValueError(f"Expected {kind}:LOW:HIGH for {path}, got {':'.join([kind, *ends])!r}.") from None
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise ValueError(f"Expected finite ends LOW < HIGH for {path}, got {low:g} and {high:g}.")
    if kind == "log" and low <= 0:
        raise ValueError(f"Expected LOW > 0 for the logarithms of {path}, got {low:g}. Use uniform.")
    if kind == "int" and not (low.is_integer() and high.is_integer()):
        raise ValueError(f"Expected whole numbers for {path}, got {low:g} and {high:g}. Use uniform.")
    return Range(kind, low, high)


def points(lines: Sequence[str], random: int | None, seed: int) -> list[dict[str, Any]]:
    """The points of a study, each a mapping from dotted path to value."""
    fields: dict[str, Field] = {}
    for path, field in map(field_of, lines):
        if path in fields:
            raise ValueError(f"Expected every setting once, got {path} twice. Give all its values in one place.")
        fields[path] = field
    lists = [field for field in fields.values() if not isinstance(field, Range)]
    if random is None and len(lists) < len(fields):
        drawn = next(path for path, field in fields.items() if isinstance(field, Range))
        raise ValueError(f"Expected random = N, the number of points to draw, for the distribution of {drawn}.")
    if random is not None:
        checks.whole(1, random=random)
    count = math.prod(map(len, lists)) if random is None else random
    if count > _MOST:
        raise ValueError(f"Expected at most {_MOST} points, got {count}. Give fewer values, or draw some at random.")
    if random is None:
        return [dict(zip(fields, values)) for values in itertools.product(*lists)]
    rng = np.random.default_rng(seed)
    return [{path: _drawn(field, rng) for path, field in fields.items()} for _ in range(random)]


def _drawn(field: Field, rng: np.random.Generator) -> Any:
    return field.draw(rng) if isinstance(field, Range) else field[int(rng.integers(len(field)))]


def config_at(base: RunConfig, point: Mapping[str, Any]) -> RunConfig:
    """The configuration with the values of a point."""
    plain = yaml_text.plain(base)
    for path, value in sorted(point.items(), key=lambda item: item[0].count(".")):
        target = plain
        *above, name = path.split(".")
        for i, step in enumerate(above):
            target = target.get(step)
            if not checks.is_a(target, dict):
                raise ValueError(f"Unknown setting {path}: {'.'.join(above[: i + 1])} has no settings of its own here.")
        here = target.get(name)
        if not (checks.is_a(here, dict) and here.get("kind") == value):  # the same kind keeps its settings
            target[name] = {"kind": value} if checks.is_a(here, dict) and isinstance(value, str) else value
    made = yaml_text.from_plain(RunConfig, plain)
    for path in point:
        _check_kept(path, _at(base, path), _at(made, path), point)
    return made


def _at(config: Any, path: str) -> Any:
    """The value of a configuration at a dotted path; None if its kinds have no such setting."""
    for name in path.split("."):
        config = getattr(config, name, None)
    return config


def _check_kept(path: str, before: Any, after: Any, point: Mapping[str, Any]) -> None:
    """Refuse another kind that would reset a setting of the same name to its default: ValueError naming the setting."""
    if not is_dataclass(before) or not is_dataclass(after) or type(before) is type(after):
        return
    for one in fields(before):
        value = getattr(before, one.name)
        if value != one.default and hasattr(after, one.name) and f"{path}.{one.name}" not in point:
            raise ValueError(
                f"Expected {path}.{one.name} among the tried settings together with {path}, got "
                f"{yaml_text.plain(value)!r} for one kind only: another kind has "
                f"{yaml_text.plain(getattr(after, one.name))!r}. Add it, even with a single value: "
                f"--over {path}.{one.name}=..."
            )
