"""Figures as matplotlib objects, readable in one column of a journal and in grey print."""

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.patches import Patch
from matplotlib.ticker import EngFormatter, MaxNLocator

from jdfl.base import checks
from jdfl.lab.picture import Drawn, Picture

# M. Okabe, K. Ito, 2008, without yellow; in this order the lightness L* of neighbours differs by 12 or more
COLOURS = ("#0072B2", "#E69F00", "#D55E00", "#56B4E9", "#009E73", "#000000", "#CC79A7")
_DASHES: Any = ("-", (0, (5, 1.5)), (0, (1.2, 1.2)), (0, (6, 1.5, 1.2, 1.5)), (0, (3, 1, 3, 1, 1, 1)))
_MARKERS = "osD^vXP<>*ph"
WIDTHS = {"column": 3.3, "page": 7.0}  # inches
Width = Literal["column", "page"] | float
_SMALL, _LABEL = 7, 8  # points, of ticks and legends and of axes
_APART = 0.28  # of an axis's diagonal, between two markers of a line
_PANEL = 2.2  # inches that a panel needs at least
_WIDE = 20.0  # ratio of the largest to the smallest value from which an axis is logarithmic


def look(i: int) -> dict[str, Any]:
    """Colour, line style and marker of line `i`, from 0.

    Of any 12 lines in a row, no two have the same line style and marker, and neighbours differ in lightness, so that
    they are distinguishable in grey. Every other marker is hollow.
    """
    colour = COLOURS[i % len(COLOURS)]
    face = "white" if i % 2 else colour
    return {
        "color": colour,
        "linestyle": _DASHES[i % len(_DASHES)],
        "marker": _MARKERS[i % len(_MARKERS)],
        "markerfacecolor": face,
        "markersize": 4.0,
        "markeredgewidth": 0.9,
    }


def lines(
    panels: Mapping[str, pd.DataFrame],
    names: Mapping[str, str],
    y: str,
    *,
    band: str = "",
    floor: float | None = None,
    ax: Any = None,
    width: Width = "column",
    height: float | None = None,
    origin: str = "",
) -> Drawn:
    """Draw a metric against one amount or several, a panel for each.

    A line is the mean, and a band goes from low to high. Where a method spends nothing of an amount, a dotted line
    continues at its last mean. An axis is logarithmic where its values are positive and far apart. Lines become thinner
    from the first to the last, and their markers stand at different places, so that lines which coincide are all seen.

    Args:
        panels: Frames by the title of their horizontal axis, with columns label, x, mean, low and high, a row per
            record; at least one.
        names: By label, what the legend says, in this order. One line without a name has no legend.
        y: The title of the vertical axis.
        band: What the bands are, for the legend; empty: it does not say.
        floor: The accuracy of the reference that values are measured from: smaller values are drawn at it, and a
            logarithmic axis ends there. None: there is none.
        ax: Axes to draw into, one per panel; None: a new figure.
        width: "column" (3.3 inches), "page" (7 inches), or inches; of no use with `ax`.
        height: Inches; None: as the panels and the legend need it.
        origin: The hash of the provenance, for the metadata of files.

    Raises:
        ValueError: Without panels, for a width, height or floor that is not positive, and for other numbers of Axes.
    """
    if not panels:
        raise ValueError("Expected at least one panel, got none.")
    if ax is None:
        figure, axes = _sheet(len(panels), names, width, height)
        figure.origin = origin
    else:
        axes = list(np.asarray(ax, object).flat) if checks.is_a(ax, list | tuple | np.ndarray) else [ax]
        if len(axes) != len(panels) or not all(isinstance(one, Axes) for one in axes):
            raise ValueError(
                f"Expected {len(panels)} matplotlib Axes, one per amount, got ax = {checks.shown(ax)}. For example "
                "fig, ax = matplotlib.pyplot.subplots()."
            )
        figure = axes[0].get_figure(root=True)
    shown = False
    for axis, (title, frame) in zip(axes, panels.items()):
        shown |= _panel(axis, frame, names, floor)
        axis.set_xlabel(title)
    for place, axis in enumerate(axes):
        spec = axis.get_subplotspec()
        if place == 0 or ax is not None or spec is None or spec.is_first_col():
            axis.set_ylabel(y)
    handles, labels = axes[0].get_legend_handles_labels()
    if shown and band:
        handles, labels = [*handles, Patch(color="0.5", alpha=0.3, linewidth=0)], [*labels, band]
    if any(names.values()) and handles:
        if ax is None:
            figure.legend(handles, labels, loc="outside upper left", **_legend(labels, figure.get_figwidth()))
        else:
            axes[0].legend(handles, labels, fontsize=_SMALL)
    several = np.ndim(ax) > 0 if ax is not None else len(panels) > 1
    found = np.asarray(axes, object) if several else axes[0]
    return Drawn(figure, found)


def _sheet(panels: int, names: Mapping[str, str], width: Width, height: float | None) -> tuple[Picture, list[Axes]]:
    """A new figure, with panels next to each other as far as they fit."""
    if isinstance(width, str):
        checks.one_of(tuple(WIDTHS), "Or give inches.", width=width)
        inches = WIDTHS[width]
    else:
        checks.positive("It is the width of the figure in inches.", width=width)
        inches = float(width)
    if height is not None:
        checks.positive("It is the height of the figure in inches.", height=height)
    columns = min(panels, max(1, int(inches / _PANEL)))
    rows = -(-panels // columns)
    if height is None:
        told = _legend(list(names.values()), inches)["ncols"] if any(names.values()) else 1
        text = sum(max(name.count("\n") + 1 for name in row) for row in _rows(list(names.values()), told))
        height = rows * (0.45 + 0.62 * inches / columns) + (0.15 * (text + 1) if any(names.values()) else 0.0)
    figure = Picture(figsize=(inches, height), layout=ConstrainedLayoutEngine(w_pad=0.02, h_pad=0.02))
    grid = figure.subplots(rows, columns, squeeze=False, sharey=True)
    axes = list(grid.flat)
    for axis in axes:
        plain(axis)
        axis.tick_params(which="both", labelsize=_SMALL)
        axis.xaxis.label.set_fontsize(_LABEL)
        axis.yaxis.label.set_fontsize(_LABEL)
        for one in (axis.xaxis, axis.yaxis):
            one.get_offset_text().set_fontsize(_SMALL)
    for axis in axes[panels:]:
        axis.set_visible(False)
    return figure, axes[:panels]


def _rows(labels: Sequence[str], columns: int) -> list[Sequence[str]]:
    """The labels of a legend by its rows: it is filled column by column."""
    rows = -(-len(labels) // columns)
    return [labels[i::rows] for i in range(rows)]


def _legend(labels: Sequence[str], inches: float) -> dict[str, Any]:
    """How a legend above the panels is laid out: as many columns as the longest line of a label permits."""
    longest = max((len(line) for label in labels for line in label.split("\n")), default=1)
    columns = max(1, min(4, len(labels), int(inches * 72 / (3.7 * longest + 28))))
    sizes: Any = {"fontsize": _SMALL, "handlelength": 2.6, "columnspacing": 1.0, "borderaxespad": 0.2, "frameon": False}
    return {"ncols": columns, "labelspacing": 0.3, **sizes}


def wrapped(text: str, width: Width = "column") -> str:
    """The text of a legend in lines that fit into a figure.

    Args:
        text: The text, whose own lines are kept.
        width: The width of the figure, as for `lines`.
    """
    inches = WIDTHS.get(str(width), 3.3) if isinstance(width, str) else float(width)
    return "\n".join(part for line in text.split("\n") for part in textwrap.wrap(line, max(20, int(16 * inches))))


def _panel(axis: Axes, frame: pd.DataFrame, names: Mapping[str, str], floor: float | None) -> bool:
    """Draw one panel; returns whether it has a band."""
    found = {label: frame.loc[frame["label"] == label] for label in names}
    means = np.concatenate([np.asarray(one["mean"], float) for one in found.values()])
    if floor is not None:
        checks.not_negative("It is the accuracy of the reference.", floor=floor)
        floor = None if np.any(means < -10 * floor) else floor  # there are values below it, and not by its errors
    bottom = _log_bottom(means, floor)
    if floor is not None:
        found = {
            label: one.assign(**{name: np.maximum(one[name], floor) for name in ("mean", "low", "high")})
            for label, one in found.items()
        }
    ends: list[float] = []
    banded, before = False, len(axis.lines)  # what is drawn into the same Axes later has a look of its own
    for i, (label, one) in enumerate(found.items()):
        x, mean, low, high = (np.asarray(one[column], float) for column in ("x", "mean", "low", "high"))
        style = look(before + i)
        if len(x) and not np.any(x > 0):  # it spends nothing: where it ends, whatever the others spend
            axis.axhline(mean[-1], color=style["color"], linewidth=0.8, linestyle=(0, (1, 3)))
        good = np.isfinite(x) & np.isfinite(mean)
        start = _APART * ((0.5 + 0.618 * i) % 1.0)  # markers of coincident lines alternate
        first = min(2.2, 1.2 + 0.15 * len(found))
        thick = first - (first - 0.9) * i / max(1, len(found) - 1)
        every: Any = (start, _APART) if good.sum() > 2 else None
        marker: Any = style if len(found) > 1 or good.sum() == 1 else {**style, "marker": None}
        axis.plot(
            x[good],
            mean[good],
            label=names[label] or "_",
            linewidth=thick,
            markevery=every,
            zorder=2 + 0.01 * i,
            **marker,
        )
        shown = good & np.isfinite(low) & np.isfinite(high)
        if np.any(high[shown] > low[shown]):
            banded = True
            lower = low if bottom is None else np.maximum(low, bottom)
            upper = high if bottom is None else np.maximum(high, bottom)
            alpha = max(0.06, min(0.18, 0.8 / len(found)))
            _band(axis, x[shown], lower[shown], upper[shown], style["color"], alpha)
        ends.append(float(np.max(x[np.isfinite(x)], initial=0.0)))
    if bottom is not None:
        axis.set_yscale("log")
        axis.set_ylim(bottom=bottom)
    if _wide([end for end in ends if end > 0]):
        axis.set_xscale("log")
    else:
        axis.xaxis.set_major_locator(MaxNLocator(4))
        if max(ends, default=0.0) >= 1e3:
            axis.xaxis.set_major_formatter(EngFormatter(sep=""))
    return banded


def _band(axis: Axes, x: Any, low: Any, high: Any, colour: str, alpha: float) -> PolyCollection:
    return axis.fill_between(x, low, high, color=colour, alpha=alpha, linewidth=0, zorder=1)


def _log_bottom(means: np.ndarray, floor: float | None) -> float | None:
    """Where a logarithmic axis begins; None where an ordinary one shows the values."""
    known = means[np.isfinite(means)]
    if not _wide(known):
        return None
    least = float(known[known > 0].min())
    return max(least * 0.6, floor) if floor else least * 0.6


def figure_of_run(history: pd.DataFrame, metrics: Sequence[str], origin: str = "") -> Picture:
    """Every metric of one run against rounds and against bytes.

    Args:
        history: A row per record, with columns round, bytes and the metrics; values that are not finite are left out.
        metrics: The names of the metrics, at least one.
        origin: The hash of the provenance, for the metadata of files.
    """
    drawing = Picture(figsize=(WIDTHS["page"], 0.6 + 1.8 * len(metrics)), layout="constrained")
    drawing.origin = origin
    axes = drawing.subplots(len(metrics), 2, squeeze=False, sharex="col", sharey="row")
    for row, metric in zip(axes, metrics):
        for axis, over in zip(row, ("round", "bytes")):
            mean = history[metric]
            frame = pd.DataFrame({"label": "", "x": history[over], "mean": mean, "low": mean, "high": mean})
            _panel(axis, frame, {"": ""}, None)
            plain(axis)
        row[0].set_ylabel(metric.replace("_", " "))
    rounds, sent = axes[-1]
    rounds.set_xlabel("rounds")
    sent.set_xlabel("bytes sent by all nodes")
    return drawing


def plain(axis: Axes) -> None:
    """Give an axis a faint grid, and no frame at the top and at the right."""
    axis.grid(alpha=0.25, linewidth=0.5)
    axis.spines[["top", "right"]].set_visible(False)


def _wide(given: Any) -> bool:
    """Whether no finite value is negative and the positive ones span more than an ordinary axis shows."""
    values = np.asarray(given, float)
    values = values[np.isfinite(values)]
    positive = values[values > 0]
    return bool(positive.size and values.min() >= 0 and positive.max() > _WIDE * positive.min())
