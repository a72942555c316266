"""What a person looks at: a figure of one or several runs, and a page that is a single HTML file."""

import base64
import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, MaxNLocator

from jdfl.metrics import COUNTS

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")  # Okabe, Ito, 2008
_DASHES = ("-", "--", ":", "-.")
_WIDE = 20.0  # ratio of values from which a logarithmic axis shows more


def figure(histories: Mapping[str, pd.DataFrame], path: str | Path, provenance: str = "") -> Path:
    """Draw every metric against rounds and against bytes, a line per run, and save it at `path` (PNG by default).

    `histories` maps labels to the `history` of a Result; one run with an empty label gets no legend. Values that are
    not finite are left out; the hash of the `provenance` stands below. Returns the path. ValueError if there is no
    metric to draw.
    """
    runs = dict(histories)
    metrics = list(dict.fromkeys(str(name) for run in runs.values() for name in run.columns if name not in COUNTS))
    if not metrics:
        raise ValueError(f"Expected a history with at least one metric, got {len(runs)} without any.")
    drawing = Figure(figsize=(8.0, 1.0 + 2.1 * len(metrics)), layout="constrained")
    axes = drawing.subplots(len(metrics), 2, squeeze=False, sharex="col", sharey="row")
    for row, metric in zip(axes, metrics):
        for axis, over in zip(row, ("round", "bytes")):
            for i, (label, run) in enumerate(runs.items()):
                if metric in run and over in run:
                    _line(axis, np.asarray(run[over], float), np.asarray(run[metric], float), label, i)
            axis.grid(alpha=0.25)
            axis.spines[["top", "right"]].set_visible(False)
        row[0].set_ylabel(metric.replace("_", " "))
        values = np.concatenate([np.asarray(run[metric], float) for run in runs.values() if metric in run])
        if _wide(values):
            row[0].set_yscale("log")
    axes[-1][0].set_xlabel("round")
    axes[-1][1].set_xlabel("bytes sent by all nodes")
    ends = np.array([run["bytes"].max() for run in runs.values() if "bytes" in run and len(run)], float)
    if _wide(ends):
        axes[-1][1].set_xscale("log")
    else:
        axes[-1][1].xaxis.set_major_locator(MaxNLocator(4))
    axes[-1][1].xaxis.set_major_formatter(EngFormatter(unit="B"))
    if any(runs):
        drawing.legend(*axes[0][0].get_legend_handles_labels(), loc="outside upper left", ncols=3, frameon=False)
    return save_figure(drawing, path, provenance)


def save_figure(drawing: Figure, path: str | Path, provenance: str = "") -> Path:
    """Save a drawing at `path` with the hash of the `provenance` below; returns the path."""
    told, look = f"provenance {provenance}", {"ha": "right", "fontsize": 6, "color": "0.5"}
    if provenance and drawing.get_supxlabel():  # there is a line below already
        drawing.text(0.99, 0.002, told, va="bottom", **look)
    elif provenance:
        drawing.supxlabel(told, x=0.99, **look)
    drawing.savefig(path, dpi=150)
    return Path(path)


def bands(
    panels: Mapping[str, pd.DataFrame], legend: Mapping[str, str], y: str, path: str | Path, provenance: str = ""
) -> Path:
    """Draw a metric of several algorithms, a panel per frame of `panels`, and save it at `path` (PNG by default).

    `panels` maps axis titles to frames with columns label, x, mean, low, high, a row per record: a line for the
    mean and a band from low to high; where all x are 0 a dotted line goes on at the last mean. `legend` maps labels
    to what the legend says of them; `y` is the metric's name, and the hash of the `provenance` stands below. An
    axis is logarithmic where the values are far apart. Returns the path. ValueError without panels.
    """
    if not panels:
        raise ValueError("Expected at least one panel, got none.")
    rows, columns = -(-len(panels) // 3), min(3, len(panels))
    drawing = Figure(figsize=(0.6 + 3.7 * columns, 0.9 + 3.0 * rows), layout="constrained")
    axes = list(drawing.subplots(rows, columns, squeeze=False, sharey=True).flat)
    for axis, (title, frame) in zip(axes, panels.items()):
        ends = []
        for i, (label, name) in enumerate(legend.items()):
            one = frame.loc[frame["label"] == label]
            x, mean, low, high = (np.asarray(one[column], float) for column in ("x", "mean", "low", "high"))
            if len(x) and not np.any(x > 0):  # it spends nothing: where it ends, whatever the others spend
                axis.axhline(mean[-1], color=COLOURS[i % len(COLOURS)], linewidth=1.0, linestyle=(0, (1, 3)))
            _line(axis, x, mean, name, i)
            good = np.isfinite(low) & np.isfinite(high)
            axis.fill_between(x[good], low[good], high[good], color=COLOURS[i % len(COLOURS)], alpha=0.18, linewidth=0)
            ends.append(np.max(x[np.isfinite(x)], initial=0.0))
        if _wide(np.array([end for end in ends if end > 0])):
            axis.set_xscale("log")
        else:
            axis.xaxis.set_major_locator(MaxNLocator(4))
            if max(ends) >= 1e3:
                axis.xaxis.set_major_formatter(EngFormatter(sep=""))
        if _wide(np.asarray(frame["mean"], float)):
            axis.set_yscale("log")
        axis.set_xlabel(title)
        axis.grid(alpha=0.25)
        axis.spines[["top", "right"]].set_visible(False)
    for axis in axes[len(panels) :]:
        axis.set_visible(False)
    for axis in axes[::columns]:
        axis.set_ylabel(y)
    drawing.legend(*axes[0].get_legend_handles_labels(), loc="outside upper left", ncols=3, frameon=False)
    return save_figure(drawing, path, provenance)


def _line(axis: Axes, x: np.ndarray, y: np.ndarray, label: str, i: int) -> None:
    good = np.isfinite(x) & np.isfinite(y)
    axis.plot(
        x[good],
        y[good],
        label=label,
        linewidth=1.6,
        marker="o" if good.sum() == 1 else None,
        color=COLOURS[i % len(COLOURS)],
        linestyle=_DASHES[i // len(COLOURS) % len(_DASHES)],
    )


def _wide(values: np.ndarray) -> bool:
    """Whether no finite value is negative and the positive ones span more than an ordinary axis shows."""
    values = values[np.isfinite(values)]
    positive = values[values > 0]
    return bool(positive.size and values.min() >= 0 and positive.max() > _WIDE * positive.min())


@dataclass(frozen=True)
class Table:
    """A table of a page; every cell is shown as `str(cell)`, numbers aligned to the right."""

    headers: Sequence[object]
    rows: Sequence[Sequence[object]]


@dataclass(frozen=True)
class Section:
    """A part of a page: a heading and, where given, paragraphs (parted by blank lines), a table, an image."""

    heading: str
    text: str = ""
    table: Table | None = None
    image: Path | None = None
    alt: str = ""  # the image in words


def page(path: str | Path, title: str, sections: Sequence[Section]) -> Path:
    """Write one self-contained HTML file: images are inside it, nothing is loaded from elsewhere, no scripts.

    All text is escaped. Returns the path. ValueError for an image that is not PNG, JPEG or SVG, FileNotFoundError for
    one that is not there, before anything is written.
    """
    body = "\n".join(_section(section) for section in sections)
    text = _PAGE.format(title=html.escape(title), style=_STYLE, body=body)
    Path(path).write_text(text, encoding="utf-8")
    return Path(path)


def _section(section: Section) -> str:
    parts = [f"<h2>{html.escape(section.heading)}</h2>"]
    parts += [f"<p>{html.escape(part.strip())}</p>" for part in section.text.split("\n\n") if part.strip()]
    if section.table is not None:
        parts.append(_table(section.table))
    if section.image is not None:
        parts.append(f'<img src="{_data_uri(Path(section.image))}" alt="{html.escape(section.alt)}">')
    return "<section>\n" + "\n".join(parts) + "\n</section>"


def _table(table: Table) -> str:
    for i, row in enumerate(table.rows):
        if len(row) != len(table.headers):
            raise ValueError(f"Expected {len(table.headers)} cells in every row, got {len(row)} in row {i}.")
    head = "".join(f'<th scope="col">{html.escape(str(cell))}</th>' for cell in table.headers)
    rows = ("<tr>" + "".join(_cell(cell) for cell in row) + "</tr>" for row in table.rows)
    return (
        f'<div class="wide"><table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n'
        + "\n".join(rows)
        + ("\n</tbody></table></div>")
    )


def _cell(cell: object) -> str:
    number = isinstance(cell, (int, float, np.number)) and not isinstance(cell, bool)
    return f"<td{' class=number' if number else ''}>{html.escape(str(cell))}</td>"


_MEDIA = {".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".svg": "image/svg+xml"}


def _data_uri(path: Path) -> str:
    media = _MEDIA.get(path.suffix.lower())
    if media is None:
        raise ValueError(f"Expected an image of type {', '.join(_MEDIA)}, got {path}.")
    if not path.is_file():
        raise FileNotFoundError(f"Expected an image at {path}, found none.")
    return f"data:{media};base64,{base64.b64encode(path.read_bytes()).decode('ascii')}"


_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<main>
<h1>{title}</h1>
{body}
</main>
</body>
</html>
"""

_STYLE = """
:root { color-scheme: light dark; --ink: #1d2125; --paper: #fff; --line: #d5d9de; --soft: #f4f6f8; --mark: #0072b2; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e3e6e9; --paper: #16191c; --line: #3a4047; --soft: #1f2428; --mark: #56b4e9; }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 1rem/1.55 system-ui, sans-serif; }
main { max-width: 60rem; margin: 0 auto; padding: 1.25rem 1rem 3rem; }
h1 { font-size: 1.7rem; line-height: 1.2; border-bottom: 3px solid var(--mark); padding-bottom: .4rem; }
h2 { font-size: 1.2rem; margin: 2rem 0 .5rem; }
p { max-width: 44rem; white-space: pre-line; overflow-wrap: anywhere; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .92rem; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .35rem .8rem; border-bottom: 1px solid var(--line); }
th { background: var(--soft); }
.number { text-align: right; }
img { max-width: 100%; height: auto; background: #fff; border: 1px solid var(--line); border-radius: 4px; }
@media print {
  :root { --ink: #000; --paper: #fff; --line: #999; --soft: #eee; }
  main { max-width: none; padding: 0; }
  section, tr, img { break-inside: avoid; }
  h2 { break-after: avoid; }
}
"""
