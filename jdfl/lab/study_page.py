"""The page of a study: its points, and metrics against the values that were tried."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from jdfl.config.study import StudyConfig, to_yaml
from jdfl.engine import provenance
from jdfl.engine.result import BAD
from jdfl.lab import charts
from jdfl.lab.groups import REFUSED
from jdfl.lab.page import Chart, Code, Fold, Part, Section, Table, page

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
    """Write the page of a study; returns its path."""
    fields = [line.partition("=")[0].strip() for line in config.over]
    numeric = [name for name in fields if pd.api.types.is_numeric_dtype(table[name]) and table[name].dtype != bool]
    how = "All combinations" if config.random is None else f"{config.random} points drawn at random"
    parts: list[Part] = [f"{how} of {'; '.join(config.over)}, with {config.seeds} seed(s) each."]
    parts += [left] if left else []
    refused = table[table["ending"] == REFUSED]
    if len(refused):
        why = Table(["point", "reason"], refused[["point", "reason"]].astype(object).to_numpy().tolist())
        parts += [f"{len(refused)} points were refused.", Fold("Which ones, and why", [why])]
    sections = [Section("Points that were tried", parts)]
    done = table[~table["ending"].isin([REFUSED, *BAD])]
    if numeric and metrics and len(done):
        words = "Mean over runs, with a band from the smallest to the largest value; runs that diverged are left out."
        words += " So are values of none." * bool(table[numeric].isna().any(axis=None))
        lines = _lines(done, numeric, [name for name in fields if name not in numeric], metrics)
        sections.append(Section("Metrics against the values that were tried", [words, lines]))
    some = "" if len(rows) <= _POINTS else f"The best {_POINTS} of {len(rows)}."
    sections.append(Section("Points, the best first", [some, spent, Table(heads, rows[:_POINTS])]))
    sections.append(Section("Settings", [Fold("As study.yaml", [Code(to_yaml(config))])]))
    hashes = table["provenance"].dropna() if "provenance" in table else ()
    foot = f"Made by jdfl; provenance {provenance.total(map(str, hashes))}."
    return page(path, f"Study of {config.base.algorithm.kind} on {config.base.problem.kind}", sections, foot)


def _lines(done: pd.DataFrame, numeric: Sequence[str], named: Sequence[str], metrics: Sequence[str]) -> Chart:
    """Every metric against every numeric setting, with a line for every combination of the other settings."""
    values = [[row[name] for name in named] for row in done.to_dict("records")]
    told = [", ".join("none" if one is None or one != one else str(one) for one in row) or "all" for row in values]
    views: dict[tuple[str, str], pd.DataFrame] = {}
    for y in metrics:
        for x in numeric:
            grouped = done.assign(label=told, x=done[x]).groupby(["label", "x"])[y]
            found = grouped.agg(mean="mean", low="min", high="max").reset_index()
            views[x, y] = found[np.isfinite(found["mean"])]
    alt = f"{', '.join(metrics)} against {', '.join(numeric)}"
    return charts.curves(views, {name: name for name in numeric}, alt)
