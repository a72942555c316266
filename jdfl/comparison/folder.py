"""The folder of a comparison: tables, curves, figure and a page, whole or not there."""

import shutil
from pathlib import Path
from uuid import uuid4

from jdfl import report, results
from jdfl.comparison import curves
from jdfl.comparison.comparison import Comparison
from jdfl.comparison.curves import AXES, axes_of, metrics_of
from jdfl.comparison.table import Grid
from jdfl.report import Code, Fold, Part, Section, Table, charts
from jdfl.summary import as_paragraphs, privacy_of

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
    comparison.curves.to_csv(folder / "curves.csv", index=False)
    comparison.curves.to_parquet(folder / "curves.parquet", index=False)
    comparison.tuning.to_csv(folder / "tuning.csv", index=False)
    (folder / "table.txt").write_text(comparison.table("text"), encoding="utf-8")
    (folder / "table.md").write_text(comparison.table("markdown"), encoding="utf-8")
    (folder / "table.tex").write_text(comparison.table("latex"), encoding="utf-8")
    comparison.equal_costs().to_csv(folder / "equal_costs.csv")
    for suffix in ("png", "pdf"):
        comparison.figure(folder / f"figure.{suffix}")
    results.write_json(folder / "environment.json", results.environment())
    runs = {label: [run.provenance.as_dict() for run in found] for label, found in comparison.results.items()}
    results.write_json(folder / "provenance.json", {"hash": comparison.provenance, "runs": runs})
    if config_yaml:
        (folder / "config.yaml").write_text(config_yaml, encoding="utf-8")
    _page(comparison, folder, config_yaml)


def _page(comparison: Comparison, folder: Path, config_yaml: str) -> None:
    grid = comparison.grid()
    sections = [Section("Result", ["\n\n".join(grid.caption), _table(grid)]), Section("Curves", _curves(comparison))]
    for x in ("round", "bytes", "gradients"):
        if x != comparison.by:
            other = comparison.grid(by=x)
            sections.append(Section(f"At equal {AXES[x]}", [other.caption[1], _table(other)]))
    if len(comparison.tuning):
        sections.append(Section("Tuning", _tuning(comparison)))
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
    report.page(folder / "report.html", title, sections, f"Made by jdfl; provenance {comparison.provenance}.")


def _curves(comparison: Comparison) -> list[Part]:
    axes, metrics = axes_of(comparison.curves), metrics_of(comparison.curves)
    metrics.sort(key=lambda name: name != comparison.measure)
    about = (
        "Mean over seeds and their range; runs that diverged are left out. Seconds are the simulation's wall time, "
        "compilation excluded, spread evenly over the rounds."
    )
    alt = f"{', '.join(metrics)} of every algorithm against {', '.join(axes)}"
    return [about, charts.curves(curves.views(comparison.curves, axes, metrics), AXES, alt)]


def _tuning(comparison: Comparison) -> list[Part]:
    tuning = comparison.tuning.drop(columns=["edge"]).rename(columns={"mean": f"mean {comparison.measure}"})
    cells = [
        ["" if value != value else value if isinstance(value, (str, bool)) else f"{value:.4g}" for value in row]
        for row in tuning.astype(object).itertuples(index=False)
    ]
    about = (
        "All points that were tried, with seeds that are not the reported ones; an infinite mean is that of a "
        "point where a run diverged or, where that is what counts, did not stop."
    )
    return [about, Table(list(tuning.columns), cells)]


def _table(grid: Grid) -> Table:
    marks = {"best": " (best)", "tie": " (within one sd of the best)", "": ""}
    return Table(grid.headers, [[cell.text + marks[cell.mark] for cell in row] for row in grid.rows])
