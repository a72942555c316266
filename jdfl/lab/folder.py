"""The folder of a comparison: its data, tables, curves, a figure and a page."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from jdfl.lab import charts, words
from jdfl.lab.curves import AXES, axes_of, metrics_of
from jdfl.lab.entries import DEFAULT
from jdfl.lab.page import Code, Fold, Part, Section, Table, page
from jdfl.lab.table import ENTIRE, Format, Grid
from jdfl.lab.table import write as write_table
from jdfl.results import stored
from jdfl.results.folder import environment
from jdfl.results.summary import as_paragraphs, privacy_of
from jdfl.store import manifest
from jdfl.store.files import placed, tidy, write

if TYPE_CHECKING:
    from jdfl.lab.comparison import Comparison

_ABOUT = (
    "Runs that diverged are left out. Seconds are the wall time of the simulation without compilation, spread evenly "
    "over the rounds."
)
_TABLES: dict[str, Format] = {"table.txt": "text", "table.md": "markdown", "table.tex": "latex"}
_DATA = "comparison.json comparison.npz curves.csv curves.parquet tuning.csv equal_costs.csv environment.json"
_PAGES = "provenance.json figure.png figure.pdf report.html manifest.json"
FILES = (*_TABLES, *_DATA.split(), *_PAGES.split())


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
        **{name: write_table(comparison.grid(), format, room=ENTIRE) for name, format in _TABLES.items()},
        "environment.json": environment(),
        "provenance.json": {"hash": comparison.provenance, "runs": runs},
    }
    for name, content in (contents | ({"config.yaml": config_yaml} if config_yaml else {})).items():
        write(folder / name, content)
    stored.write_value(folder, "comparison", comparison)
    fig, _ = comparison.plot(_amounts(comparison), width="page")
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


def _amounts(comparison: "Comparison") -> list[str]:
    """What methods were tuned at equal amounts of, or the usual amounts where nothing is tuned."""
    return [
        name
        for name in axes_of(comparison.curves)
        if comparison.tuned_at(name) and (comparison.budget is not None or name in (comparison.by, *DEFAULT))
    ] or ["round"]


def _sections(comparison: "Comparison", config_yaml: str) -> Iterator[Section]:
    tuned, axes = comparison.budget is not None, _amounts(comparison)
    metrics = metrics_of(comparison.curves)
    first, *few = charts.chosen(metrics, [words.headline(comparison), *comparison.shown])
    given = [(comparison, comparison.by), *((one, one.by) for one in comparison.views)]  # each with its own tuning
    given += [] if tuned else [(comparison, x) for x in DEFAULT if x != comparison.by]
    for one, x in given:
        grid = one.grid(by=x)
        parts: list[Part] = [words.conclusion(one, x), _table(grid), Fold("How it was compared", grid.caption)]
        if one is comparison and x == comparison.by:
            parts.insert(1, _chart(comparison, axes, first))
        title = "Rounds to the stop rule" if x == "stop" else f"At equal {AXES[x]}"
        yield Section("Result" if len(parts) > 3 else title, parts)
    if few:
        about = f"Other metrics that are drawn, of {len(metrics)} in curves.csv. {_ABOUT}"
        drawn = [Fold(name.replace("_", " "), [_chart(comparison, axes, name)]) for name in few]
        yield Section("Other metrics", [about, *drawn])
    if comparison.criterion:
        every = [Fold(f"By {AXES.get(one.by, 'the stop rule')}", _tuning(one)) for one, _ in given]
        yield Section("Tuning", every)
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


def _chart(comparison: "Comparison", axes: Sequence[str], y: str) -> Part:
    """The figures of `plot`."""
    figures = {(AXES[x], y): comparison.plot(x, y).fig for x in axes}
    return charts.drawn(figures, f"{y.replace('_', ' ')} of every algorithm against {', '.join(axes)}")


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
