"""The folder of a comparison: tables, curves, figure and a page, whole or not there."""

import shutil
from pathlib import Path
from uuid import uuid4

from jdfl import report, results
from jdfl.comparison.comparison import Comparison
from jdfl.comparison.curves import AXES
from jdfl.comparison.table import Grid

FILES = (
    "curves.csv",
    "curves.parquet",
    "tuning.csv",
    "table.txt",
    "table.md",
    "table.tex",
    "equal_costs.csv",
    "figure.png",
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
    comparison.figure(folder / "figure.png")
    results.write_json(folder / "environment.json", results.environment())
    runs = {label: [run.provenance.as_dict() for run in found] for label, found in comparison.results.items()}
    results.write_json(folder / "provenance.json", {"hash": comparison.provenance, "runs": runs})
    if config_yaml:
        (folder / "config.yaml").write_text(config_yaml, encoding="utf-8")
    _page(comparison, folder)


def _page(comparison: Comparison, folder: Path) -> None:
    grid = comparison.grid()
    sections = [report.Section("Result", "\n\n".join(grid.caption), _table(grid))]
    for x in ("round", "bytes", "gradients"):
        if x != comparison.by:
            other = comparison.grid(by=x)
            sections.append(report.Section(f"At equal {AXES[x]}", other.caption[1], _table(other)))
    sections += [
        report.Section(
            "Curves",
            "Mean over seeds and their range, by rounds and by what they cost. Seconds are the simulation's wall time, "
            "compilation excluded, spread evenly over the rounds.",
            image=folder / "figure.png",
            alt=f"{comparison.measure} of every algorithm against rounds and costs",
        ),
    ]
    if len(comparison.tuning):
        tuning = comparison.tuning.drop(columns=["edge"]).rename(columns={"mean": f"mean {comparison.measure}"})
        cells = [
            ["" if value != value else value if isinstance(value, (str, bool)) else f"{value:.4g}" for value in row]
            for row in tuning.astype(object).itertuples(index=False)
        ]
        about = (
            "All points that were tried, with seeds that are not the reported ones; an infinite mean is that of a "
            "point where a run diverged or, where that is what counts, did not stop."
        )
        sections.append(report.Section("Tuning", about, report.Table(list(tuning.columns), cells)))
    report.page(folder / "report.html", f"Comparison on {comparison.setting}", sections)


def _table(grid: Grid) -> report.Table:
    marks = {"best": " (best)", "tie": " (within one sd of the best)", "": ""}
    return report.Table(grid.headers, [[cell.text + marks[cell.mark] for cell in row] for row in grid.rows])
