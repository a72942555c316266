"""Figures of one or several runs, for looking at and for print."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, MaxNLocator

from jdfl.engine.metrics import COUNTS

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")  # Okabe, Ito, 2008
_DASHES = ("-", "--", ":", "-.")
_WIDE = 20.0  # ratio of values from which a logarithmic axis shows more


def figure(histories: Mapping[str, pd.DataFrame], path: str | Path, provenance: str = "") -> Path:
    """Draw every metric against rounds and against bytes, a line per run; returns the path.

    Values that are not finite are left out. An axis is logarithmic where the values are far apart.

    Args:
        histories: the `history` of a Result by label; one run with an empty label gets no legend.
        path: where the figure is saved, as PNG if it has no suffix.
        provenance: a hash that stands below; empty: nothing.

    Raises ValueError if there is no metric to draw.
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
                    _line(axis, run[over], run[metric], label, i)
            plain(axis)
        row[0].set_ylabel(metric.replace("_", " "))
        if _wide(np.concatenate([np.asarray(run[metric], float) for run in runs.values() if metric in run])):
            row[0].set_yscale("log")
    rounds, sent = axes[-1]
    rounds.set_xlabel("round")
    sent.set_xlabel("bytes sent by all nodes")
    _scale(sent, [run["bytes"].max() for run in runs.values() if "bytes" in run and len(run)])
    sent.xaxis.set_major_formatter(EngFormatter(unit="B"))
    if any(runs):
        _legend(drawing, axes[0][0])
    return save_figure(drawing, path, provenance)


def save_figure(drawing: Figure, path: str | Path, provenance: str = "", also: Sequence[str] = ()) -> Path:
    """Save a drawing, with a hash of its provenance below it.

    In PDF, letters are letters (TrueType), as journals want them.

    Args:
        drawing: A figure of matplotlib.
        path: The file, whose suffix decides on its format.
        provenance: The hash, which is the title of the files, too; empty: none is shown.
        also: Further suffixes, such as ".pdf", with which the drawing is saved beside `path`.

    Returns:
        The path.
    """
    told = f"provenance {provenance}"
    look: dict[str, Any] = {"ha": "right", "fontsize": 6, "color": "0.5"}
    if provenance and drawing.get_supxlabel():  # there is a line below already
        drawing.text(0.99, 0.002, told, va="bottom", **look)
    elif provenance:
        drawing.supxlabel(told, x=0.99, **look)
    path = Path(path)
    context: Any = cast(Any, matplotlib).rc_context  # of which matplotlib says half
    with context({"pdf.fonttype": 42}):
        for one in (path, *(path.with_suffix(suffix) for suffix in also)):
            drawing.savefig(one, dpi=150, metadata={"Title": told} if provenance else None)
    return path


def bands(
    panels: Mapping[str, pd.DataFrame], legend: Mapping[str, str], y: str, path: str | Path, provenance: str = ""
) -> Path:
    """Draw a metric of several algorithms, a panel per amount that it is held against; returns the path.

    A line is the mean, and a band goes from low to high; where all x are 0 a dotted line goes on at the last mean. An
    axis is logarithmic where the values are far apart.

    Args:
        panels: by the titles of their axes, frames with columns label, x, mean, low, high, a row per record.
        legend: what the legend says of every label.
        y: the name of the metric.
        path: where the figure is saved, as PNG if it has no suffix.
        provenance: a hash that stands below; empty: nothing.

    Raises ValueError without panels.
    """
    if not panels:
        raise ValueError("Expected at least one panel, got none.")
    rows, columns = -(-len(panels) // 3), min(3, len(panels))
    drawing = Figure(figsize=(0.6 + 3.7 * columns, 0.9 + 3.0 * rows), layout="constrained")
    axes = list(drawing.subplots(rows, columns, squeeze=False, sharey=True).flat)
    for axis, (title, frame) in zip(axes, panels.items()):
        ends: list[float] = []
        for i, (label, name) in enumerate(legend.items()):
            one, colour = frame.loc[frame["label"] == label], COLOURS[i % len(COLOURS)]
            x, mean, low, high = (np.asarray(one[column], float) for column in ("x", "mean", "low", "high"))
            if len(x) and not np.any(x > 0):  # it spends nothing: where it ends, whatever the others spend
                axis.axhline(mean[-1], color=colour, linewidth=1.0, linestyle=(0, (1, 3)))
            _line(axis, x, mean, name, i)
            good = np.isfinite(low) & np.isfinite(high)
            axis.fill_between(x[good], low[good], high[good], color=colour, alpha=0.18, linewidth=0)
            ends.append(np.max(x[np.isfinite(x)], initial=0.0))
        if not _scale(axis, [end for end in ends if end > 0]) and max(ends) >= 1e3:
            axis.xaxis.set_major_formatter(EngFormatter(sep=""))
        if _wide(frame["mean"]):
            axis.set_yscale("log")
        axis.set_xlabel(title)
        plain(axis)
    for axis in axes[len(panels) :]:
        axis.set_visible(False)
    for axis in axes[::columns]:
        axis.set_ylabel(y)
    _legend(drawing, axes[0])
    return save_figure(drawing, path, provenance)


def _line(axis: Axes, xs: Any, ys: Any, label: str, i: int) -> None:
    x, y = np.asarray(xs, float), np.asarray(ys, float)
    good = np.isfinite(x) & np.isfinite(y)
    dashes, colour = _DASHES[i // len(COLOURS) % len(_DASHES)], COLOURS[i % len(COLOURS)]
    marker = "o" if good.sum() == 1 else None
    axis.plot(x[good], y[good], label=label, linewidth=1.6, marker=marker, color=colour, linestyle=dashes)


def plain(axis: Axes) -> None:
    """Give an axis a faint grid, and no frame above and at the right."""
    axis.grid(alpha=0.25)
    axis.spines[["top", "right"]].set_visible(False)


def _legend(drawing: Figure, axis: Axes) -> None:
    drawing.legend(*axis.get_legend_handles_labels(), loc="outside upper left", ncols=3, frameon=False)


def _scale(axis: Axes, ends: Sequence[float]) -> bool:
    """Make the amounts logarithmic where their ends are far apart; whether they are."""
    if _wide(ends):
        axis.set_xscale("log")
        return True
    axis.xaxis.set_major_locator(MaxNLocator(4))
    return False


def _wide(given: Any) -> bool:
    """Whether no finite value is negative and the positive ones span more than an ordinary axis shows."""
    values = np.asarray(given, float)
    values = values[np.isfinite(values)]
    positive = values[values > 0]
    return bool(positive.size and values.min() >= 0 and positive.max() > _WIDE * positive.min())
