"""The folder of a comparison: its data, tables, curves, a figure and a page."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from jdfl.lab import charts, words
from jdfl.lab.curves import AXES, BAND, axes_of, band, metrics_of
from jdfl.lab.entries import DEFAULT
from jdfl.lab.page import Code, Fold, Part, Section, Table, page
from jdfl.lab.table import Format, Grid
from jdfl.results import stored
from jdfl.results.folder import environment
from jdfl.results.summary import as_paragraphs, privacy_of
from jdfl.store import manifest
from jdfl.store.files import placed, placed_folder, tidy, write

if TYPE_CHECKING:
    from jdfl.lab.comparison import Comparison


_TABLES: dict[str, Format] = {"table.txt": "text", "table.md": "markdown", "table.tex": "latex"}
_DATA = "comparison.json comparison.npz curves.csv curves.parquet tuning.csv equal_costs.csv environment.json"
_PAGES = "provenance.json figure.png figure.pdf report.html manifest.json"
FILES = (*_TABLES, *_DATA.split(), *_PAGES.split())


def write_comparison(comparison: "Comparison", folder: str | Path, config_yaml: str, *, overwrite: bool) -> Path:
    """`fill` a folder that is renamed when it is complete."""
    with placed_folder(folder, overwrite=overwrite) as partial:
        fill(comparison, partial, config_yaml)
    return Path(folder)


def fill(comparison: "Comparison", folder: Path, config_yaml: str, *, apart: Sequence[str] = ()) -> None:
    """Write FILES, config.yaml where there are settings, and at last the manifest into a folder that is there."""
    views = (comparison, *comparison.views)
    tuned = [one for one in views if one.budget is not None]
    parts = [_marked(one, one.curves).assign(tuned_by=one.by, tuned_at=one.budget) for one in tuned]
    records = pd.concat(parts, ignore_index=True) if parts else _marked(comparison, comparison.curves)
    points = [_marked(one, one.tuning).assign(by=one.by, budget=one.budget) for one in views]
    runs = {label: [run.provenance.as_dict() for run in comparison.runs(label)] for label in comparison.results}
    contents = {
        "curves.csv": records,
        "curves.parquet": records,
        "tuning.csv": pd.concat(points, ignore_index=True),
        "equal_costs.csv": comparison.equal_costs().reset_index(),
        **{name: comparison.table(format) for name, format in _TABLES.items()},
        "environment.json": environment(),
        "provenance.json": {"hash": comparison.provenance, "runs": runs},
    }
    for name, content in (contents | ({"config.yaml": config_yaml} if config_yaml else {})).items():
        write(folder / name, content)
    stored.write_value(folder, "comparison", comparison)
    axes = axes_of(comparison.curves)
    amounts = [name for name in axes if comparison.tuned_at(name)] or axes
    fig, _ = comparison.plot(amounts, width="page")
    for suffix in ("png", "pdf"):
        with placed(folder / f"figure.{suffix}") as path:
            fig.savefig(path)
    write_page(comparison, folder / "report.html", config_yaml)
    tidy(folder)
    write(folder / manifest.NAME, manifest.of(folder, apart=apart))


def write_page(comparison: "Comparison", path: str | Path, config_yaml: str = "") -> Path:
    """Write the page of a comparison; returns its path."""
    foot = f"Made by jdfl; provenance {comparison.provenance}."
    return page(path, f"Comparison on {comparison.setting}", list(_sections(comparison, config_yaml)), foot)


def _marked(comparison: "Comparison", rows: pd.DataFrame) -> pd.DataFrame:
    """Rows with the mark of their label in a column."""
    return rows.assign(mark=rows["label"].map({label: comparison.mark(label) for label in comparison.results}))


def _sections(comparison: "Comparison", config_yaml: str) -> Iterator[Section]:
    grid, views = comparison.grid(), comparison.views
    yield Section("Result", ["\n\n".join(grid.caption), _table(grid)])
    yield Section("Curves", _curves(comparison))
    others = [(one.by, one.grid()) for one in views]  # each with its own tuning
    if comparison.budget is None:  # without tuning: the usual amounts
        others += [(x, comparison.grid(by=x)) for x in DEFAULT if x != comparison.by]
    for x, other in others:
        title = "Rounds to the stop rule" if x == "stop" else f"At equal {AXES[x]}"
        yield Section(title, ["\n\n".join(other.caption[1:]), _table(other)])
    if comparison.criterion:
        yield Section("Tuning", [part for one in (comparison, *views) for part in _tuning(one)])
    statements = {
        label: comparison.privacy[label].statement()
        if label in comparison.privacy
        else privacy_of(runs[0])["statement"]
        for label, runs in comparison.results.items()
        if runs
    }
    yield Section("Privacy", [Fold(label, [as_paragraphs(text)]) for label, text in statements.items()])
    if config_yaml:
        yield Section("Settings", [Fold("As config.yaml", [Code(config_yaml)])])


def _curves(comparison: "Comparison") -> list[Part]:
    axes, metrics = axes_of(comparison.curves), metrics_of(comparison.curves)
    axes = [x for x in axes if comparison.tuned_at(x)] or axes
    metrics.sort(key=lambda name: name != comparison.measure)
    about = (
        f"Mean over trials, and a band: {BAND}. Runs that diverged are left out. Seconds are the wall time of "
        "the simulation without compilation, spread evenly over the rounds."
    )
    alt = f"{', '.join(metrics)} of every algorithm against {', '.join(axes)}"
    drawn = (((x, y), band(comparison.view(x).curves, x, y)) for y in metrics for x in axes)
    views = [(x, comparison.view(x), label) for x in axes for label in comparison.results]
    marks = [f"{AXES[x]}: {label}, {mark}" for x, view, label in views if (mark := view.mark(label))]
    names = {x: words.axis(comparison, x).replace("\n", " ") for x in axes}
    return [about, *([f"Marked: {'; '.join(marks)}."] if marks else []), charts.curves(drawn, names, alt)]


def _tuning(comparison: "Comparison") -> list[Part]:
    tuning = _marked(comparison, comparison.tuning).rename(columns={"mean": f"mean {comparison.measure}"})
    cells = [
        ["" if value != value else value if isinstance(value, str | bool) else f"{value:.4g}" for value in row]
        for row in tuning.astype(object).itertuples(index=False)
    ]
    about = (
        f"{comparison.criterion[:1].upper()}{comparison.criterion[1:]}. All points that were tried; the mean of a "
        "point is infinite if a run diverged or, in tuning for the stop rule, did not stop."
    )
    return [about, Table(list(tuning.columns), cells)]


def _table(grid: Grid) -> Table:
    marks = {"best": " (best)", "tie": " (not distinguishable from the best)", "": ""}
    return Table(grid.headers, [[cell.text + marks[cell.mark] for cell in row] for row in grid.rows])
