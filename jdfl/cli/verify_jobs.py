"""`jdfl verify` of a sweep or a comparison: check every file, make some parts again and compare the numbers."""

import dataclasses
import warnings
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd

import jdfl
from jdfl.base import checks
from jdfl.cli import compare, flags
from jdfl.cli.verify import damaged_files
from jdfl.config.study import from_yaml
from jdfl.engine.compiling import use_cache
from jdfl.lab.comparison import Comparison
from jdfl.lab.points import run_group
from jdfl.lab.study import CURVES, RUNS, Study, writable
from jdfl.store.jobs import Jobs

_ABOUT = """Check every file of a sweep or a comparison, make a part of it again, and compare the numbers bit for bit.

A part is a group of points of a sweep, or a method of a comparison with the values that tuning chose."""

_EXAMPLES = """examples:
  jdfl verify runs/NAME                                all files, and the first part
  jdfl verify runs/NAME --parts 100                    all files, and 100 parts, or all if there are fewer

exit status: 0 the same, 1 not the same, 2 a mistake in the settings, or nothing is finished yet
"""
_FREE = ["seconds", "compile_seconds", "provenance", "ledger"]  # columns that differ, or follow from the others


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """What is made again."""

    parts: int = 1
    """Number of parts that are made again."""


def parse_again(args: list[str]) -> tuple[Path, Options]:
    """The folder and the options behind the arguments of `jdfl verify`."""
    how: dict[str, Any] = {"prog": "jdfl verify DIR", "about": _ABOUT, "examples": _EXAMPLES}
    return Path(args[0]), flags.parse_options(args[1:], Options, **how)


def again(folder: Path, options: Options) -> int:
    """Compare and report; returns the exit status."""
    checks.whole(1, parts=options.parts)
    use_cache()
    damaged = damaged_files(folder)
    for line in damaged:
        print(f"NOT the same: {line}")
    parts = _of_study(folder) if (folder / "study.yaml").is_file() else _of_comparison(folder)
    made, different = 0, list[str]()
    for name, find in islice(parts, options.parts):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = find()
        made += 1
        different += [f"{name}: {found}"] if found else []
    for line in different:
        print(f"NOT the same: {line}")
    if different or damaged:
        return 1
    if not made:
        raise ValueError(f"Expected a sweep or a comparison with a finished part, got {folder}, without one.")
    print(f"the same: {made} part{'s' * (made > 1)}, made again, bit for bit")
    return 0


def _of_study(folder: Path) -> Iterator[tuple[str, Callable[[], str]]]:
    """Every finished group: a name, and what finds its first difference from when it is made again."""
    study, jobs = Study.of(from_yaml(flags.read(str(folder / "study.yaml"))), folder), Jobs(folder)
    for i, group in enumerate(study.groups):
        if (place := jobs.find(group.name)) is not None:

            def find(group: Any = group, place: Path = place) -> str:
                pairs = zip((RUNS, CURVES), run_group(group, jobs.token))
                return next(filter(None, (_first(pd.read_parquet(place / name), now) for name, now in pairs)), "")

            yield f"group {i}", find


def _of_comparison(folder: Path) -> Iterator[tuple[str, Callable[[], str]]]:
    """Every method that has runs, as `_of_study`."""
    if not (folder / "comparison.json").is_file():
        return
    before = cast(Comparison, jdfl.load(folder))
    experiment = compare.experiment_of(folder)
    for label, runs in before.results.items():
        if runs:

            def find(label: str = label, runs: Any = runs) -> str:
                for was, now in zip(runs, experiment.remade(before, label), strict=True):
                    if found := _first(was.history, now.history):
                        return found
                    if not np.array_equal(was.params, now.params, equal_nan=True):
                        return f"the parameters of seed {now.labels['seed']}"
                return ""

            yield label, find


def _first(was: pd.DataFrame, now: pd.DataFrame) -> str:
    """The first number that is not the same, in words; empty if all are."""
    was, now = (writable(table).drop(columns=_FREE, errors="ignore") for table in (was, now))
    if list(was.columns) != list(now.columns) or len(was) != len(now):
        return f"{len(was)} rows of {', '.join(was.columns)} are {len(now)} of {', '.join(now.columns)}"
    for name in was.columns:
        for row, (one, other) in enumerate(zip(was[name].tolist(), now[name].tolist())):
            if one != other and not (one != one and other != other):
                return f"{name} in row {row} was {one!r}, is {other!r}"
    return ""
