"""The page of a study: its points, and what was measured against what was tried."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from jdfl import provenance
from jdfl.config.study import StudyConfig, to_yaml
from jdfl.lab import charts
from jdfl.lab.page import Chart, Code, Fold, Part, Section, Table, page
from jdfl.lab.study_run import REFUSED

_POINTS = 500  # rows of the table


def write_page(
    path: Path,
    config: StudyConfig,
    table: pd.DataFrame,
    metrics: Sequence[str],
    heads: Sequence[str],
    rows: Sequence[Sequence[str]],
    spent: str = "",
    left: str = "",
) -> Path:
    """Write the page of a study whose runs are in `table`; `heads` and `rows` are its points, the best first.

    `spent` is what publishing all of them costs, `left` what is not done, in words.
    """
    tried = list(config.over)
    how = "All combinations" if config.random is None else f"{config.random} points drawn at random"
    parts: list[Part] = [f"{how} of {'; '.join(tried)}, with {config.seeds} seed(s) each."]
    parts += [left] if left else []
    refused = [[row["point"], row["reason"]] for row in table.to_dict("records") if row["ending"] == REFUSED]
    if refused:
        parts.append(f"{len(refused)} points were refused.")
        parts.append(Fold("Which, and why", [Table(["point", "reason"], refused)]))
    sections = [Section("What was tried", parts)]
    lines = _lines(table, [line.partition("=")[0].strip() for line in tried], metrics)
    if lines is not None:
        words = "Mean over runs, and the band from the least to the largest; runs that diverged are left out."
        words += " So are values of none, which have no place among numbers." * _has_none(table, tried)
        sections.append(Section("Against what was tried", [words, lines]))
    some = "" if len(rows) <= _POINTS else f"The best {_POINTS} of {len(rows)}."
    sections.append(Section("Points, the best first", [some, spent, Table(heads, rows[:_POINTS])]))
    sections.append(Section("Settings", [Fold("As study.yaml", [Code(to_yaml(config))])]))
    hashes = table["provenance"].dropna() if "provenance" in table else ()
    foot = f"Made by jdfl; provenance {provenance.total(map(str, hashes))}."
    return page(path, f"Study of {config.base.algorithm.kind} on {config.base.problem.kind}", sections, foot)


def _has_none(table: pd.DataFrame, tried: Sequence[str]) -> bool:
    """Whether none is tried of a setting of numbers."""
    fields = [line.partition("=")[0].strip() for line in tried]
    return any(pd.api.types.is_numeric_dtype(table[name]) and bool(table[name].isna().any()) for name in fields)


def _lines(table: pd.DataFrame, fields: Sequence[str], metrics: Sequence[str]) -> Chart | None:
    """Every metric against every field of numbers, a line for every combination of what is tried by name."""
    done = table[~table["ending"].isin([REFUSED, "diverged"])]
    numeric = [name for name in fields if pd.api.types.is_numeric_dtype(table[name]) and table[name].dtype != bool]
    if not numeric or not metrics or done.empty:
        return None
    named = [name for name in fields if name not in numeric]
    label = (
        [
            ", ".join("none" if value is None or value != value else str(value) for value in row) or "all"
            for row in zip(*(done[name] for name in named))
        ]
        if named
        else "all"
    )
    views: dict[tuple[str, str], pd.DataFrame] = {}
    for y in metrics:
        for x in numeric:
            grouped = done.assign(label=label, x=done[x]).groupby(["label", "x"])[y]
            found = grouped.agg(mean="mean", low="min", high="max").reset_index()
            views[x, y] = found[np.isfinite(found["mean"])]
    axes = {name: name for name in numeric}
    return charts.curves(views, axes, f"{', '.join(metrics)} against {', '.join(numeric)}")
