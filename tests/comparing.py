"""What differs between two folders of comparisons or of studies, but for times; nothing where they are equal."""

from pathlib import Path
from typing import cast

import numpy as np
import pandas as pd

import jdfl
from jdfl.lab.comparison import Comparison
from jdfl.store import manifest

_OF_COMPARISONS = ("table.txt", "table.md", "table.tex", "tuning.csv", "provenance.json", "config.yaml")


def comparisons(one: Path, other: Path) -> list[str]:
    """Of two comparisons, by `jdfl compare`."""
    found = _files(one, other, _OF_COMPARISONS) + _tables(one, other, "curves.parquet")
    if found:
        return found
    mine, theirs = (cast(Comparison, jdfl.load(folder)) for folder in (one, other))
    for label, runs in mine.results.items():
        for a, b in zip(runs, theirs.results[label], strict=True):
            same = np.array_equal(a.params, b.params) and a.history.equals(b.history) and a.totals == b.totals
            found += [] if same else [f"a run of {label}"]
    return found


def studies(one: Path, other: Path) -> list[str]:
    """Of two studies, by `jdfl sweep`."""
    return _files(one, other, ("study.yaml", "table.md")) + [
        line for name in ("results.parquet", "curves.parquet") for line in _tables(one, other, name)
    ]


def _files(one: Path, other: Path, same: tuple[str, ...]) -> list[str]:
    names = [{str(path.relative_to(folder)) for path in folder.rglob("*")} for folder in (one, other)]
    found = [f"only in one of them: {name}" for name in sorted(names[0] ^ names[1])]
    found += [
        name for name in same if name in names[0] & names[1] if (one / name).read_bytes() != (other / name).read_bytes()
    ]
    return found + [line for folder in (one, other) for line in manifest.differences(folder)[0]]


def _tables(one: Path, other: Path, name: str) -> list[str]:
    if not ((one / name).is_file() and (other / name).is_file()):
        return [f"{name} is missing"]
    mine, theirs = (pd.read_parquet(folder / name).drop(columns=_TIMES, errors="ignore") for folder in (one, other))
    return [] if mine.equals(theirs) else [name]


_TIMES = ["seconds", "compile_seconds"]
