"""The folder of a comparison: tables, curves, figure and a page, whole or not there."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pandas as pd

from jdfl.lab import charts, curves, results, words
from jdfl.lab.comparison import Comparison
from jdfl.lab.curves import AXES, axes_of, metrics_of
from jdfl.lab.entries import ALSO
from jdfl.lab.page import Code, Fold, Part, Section, Table, page
from jdfl.lab.summary import as_paragraphs, privacy_of
from jdfl.lab.table import Grid

FILES = (
    "curves.csv",
    "curves.parquet",
    "tuning.csv",
    "table.txt",
    "table.md",
    "table.tex",
    "equal_costs.csv",
    "figure.png",
    "figure.pdf",
    "report.html",
    "environment.json",
    "provenance.json",
)


def write_comparison(comparison: Comparison, folder: str | Path, config_yaml: str, *, overwrite: bool) -> Path:
    """Write FILES, and config.yaml where there is one, beside the folder first and then rename."""
    folder = Path(folder)
    results.refuse_occupied(folder, overwrite)
    folder.parent.mkdir(parents=True, exist_ok=True)
    partial = folder.parent / f".{folder.name}.{uuid4().hex[:12]}"
    partial.mkdir()
    try:
        _write(comparison, partial, config_yaml)
        results.refuse_occupied(folder, overwrite)
        results.put_in_place(partial, folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return folder


def _write(comparison: Comparison, folder: Path, config_yaml: str) -> None:
    views = (comparison, *comparison.views)
    parts = [
        _marked(one, one.curves).assign(tuned_by=one.by, tuned_at=one.budget) for one in views if one.budget is not None
    ]
    records = pd.concat(parts, ignore_index=True) if parts else _marked(comparison, comparison.curves)
    records.to_csv(folder / "curves.csv", index=False)
    records.to_parquet(folder / "curves.parquet", index=False)
    told = [_marked(one, one.tuning).assign(by=one.by, budget=one.budget) for one in views]
    pd.concat(told, ignore_index=True).to_csv(folder / "tuning.csv", index=False)
    (folder / "table.txt").write_text(comparison.table("text"), encoding="utf-8")
    (folder / "table.md").write_text(comparison.table("markdown"), encoding="utf-8")
    (folder / "table.tex").write_text(comparison.table("latex"), encoding="utf-8")
    comparison.equal_costs().to_csv(folder / "equal_costs.csv")
    for suffix in ("png", "pdf"):
        comparison.figure(folder / f"figure.{suffix}")
    results.write_json(folder / "environment.json", results.environment())
    runs = {label: [run.provenance.as_dict() for run in comparison.runs(label)] for label in comparison.results}
    results.write_json(folder / "provenance.json", {"hash": comparison.provenance, "runs": runs})
    if config_yaml:
        (folder / "config.yaml").write_text(config_yaml, encoding="utf-8")
    _page(comparison, folder, config_yaml)


def _marked(comparison: Comparison, rows: pd.DataFrame) -> pd.DataFrame:
    """Rows with the mark of their label."""
    return rows.assign(mark=rows["label"].map(_marks(comparison)))


def _marks(comparison: Comparison) -> dict[str, str]:
    return {label: comparison.mark(label) for label in comparison.results}


def _page(comparison: Comparison, folder: Path, config_yaml: str) -> None:
    grid = comparison.grid()
    sections = [Section("Result", ["\n\n".join(grid.caption), _table(grid)]), Section("Curves", _curves(comparison))]
    for x, other in _others(comparison):
        title = "Rounds to the stop rule" if x == "stop" else f"At equal {AXES[x]}"
        sections.append(Section(title, ["\n\n".join(other.caption[1:]), _table(other)]))
    if comparison.criterion:
        sections.append(Section("Tuning", [part for one in (comparison, *comparison.views) for part in _tuning(one)]))
    told = {label: report.statement() for label, report in comparison.privacy.items()}
    statements = {
        label: told[label] if label in told else privacy_of(runs[0])["statement"]
        for label, runs in comparison.results.items()
        if runs
    }
    sections.append(Section("Privacy", [Fold(label, [as_paragraphs(text)]) for label, text in statements.items()]))
    if config_yaml:
        sections.append(Section("Settings", [Fold("As config.yaml", [Code(config_yaml)])]))
    title = f"Comparison on {comparison.setting}"
    page(folder / "report.html", title, sections, f"Made by jdfl; provenance {comparison.provenance}.")


def _curves(comparison: Comparison) -> list[Part]:
    axes, metrics = axes_of(comparison.curves), metrics_of(comparison.curves)
    axes = [x for x in axes if comparison.tuned_at(x)] or axes
    metrics.sort(key=lambda name: name != comparison.measure)
    about = (
        "Mean over seeds and their range; runs that diverged are left out. Seconds are the simulation's wall time, "
        "compilation excluded, spread evenly over the rounds."
    )
    alt = f"{', '.join(metrics)} of every algorithm against {', '.join(axes)}"
    lines = [curves.views(comparison.view(x).curves, [x], metrics) for x in axes]
    drawn = {(x, y): frames[x, y] for y in metrics for x, frames in zip(axes, lines)}
    marks = [f"{AXES[x]}: {label}, {mark}" for x in axes for label, mark in _marks(comparison.view(x)).items() if mark]
    names = {x: words.axis(comparison, x).replace("\n", " ") for x in axes}
    return [about, *([f"Marked: {'; '.join(marks)}."] if marks else []), charts.curves(drawn, names, alt)]


def _others(comparison: Comparison) -> Iterator[tuple[str, Grid]]:
    """The tables at other budgets, each of its own tuning; without tuning, at those that are asked for mostly."""
    for one in comparison.views:
        yield one.by, one.grid()
    if comparison.budget is None:
        yield from ((x, comparison.grid(by=x)) for x in ALSO if x != comparison.by)


def _tuning(comparison: Comparison) -> list[Part]:
    tuning = _marked(comparison, comparison.tuning).rename(columns={"mean": f"mean {comparison.measure}"})
    cells = [
        ["" if value != value else value if isinstance(value, (str, bool)) else f"{value:.4g}" for value in row]
        for row in tuning.astype(object).itertuples(index=False)
    ]
    about = (
        f"{comparison.criterion[:1].upper()}{comparison.criterion[1:]}. All points that were tried; an infinite mean "
        "is that of a point where a run diverged or, where that is what counts, did not stop."
    )
    return [about, Table(list(tuning.columns), cells)]


def _table(grid: Grid) -> Table:
    marks = {"best": " (best)", "tie": " (within one sd of the best)", "": ""}
    return Table(grid.headers, [[cell.text + marks[cell.mark] for cell in row] for row in grid.rows])
