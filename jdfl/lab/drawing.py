"""Figures as matplotlib objects, readable in one column of a journal and in grey print.

They carry the provenance of their numbers in the metadata of their files, and show themselves in notebooks. pyplot does
not know them: nothing has to be closed, no window opens, and the figures of a script do not accumulate.
"""

import io
import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.cbook import is_math_text
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.mathtext import MathTextParser
from matplotlib.patches import Patch
from matplotlib.ticker import EngFormatter, FuncFormatter, MaxNLocator
from scipy.sparse import csr_array
from scipy.sparse.csgraph import reverse_cuthill_mckee

from jdfl.base import checks

if TYPE_CHECKING:
    from jdfl.network.tables import Arcs
    from jdfl.observers import Pairs


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
_MOST = 600  # records of a line with a band


class Picture(Figure):
    """A figure with an `origin`, the hash of its provenance, which PNG, PDF and SVG files carry; notebooks show it."""

    origin: str = ""

    def savefig(self, fname: Any, *, metadata: Any = None, **options: Any) -> None:
        """Save the figure as matplotlib does, with the provenance among the `metadata`, and 200 dots per inch.

        `fname` and the other `options` are those of matplotlib.
        """
        _save(super().savefig, fname, self.origin, metadata, options)

    def _repr_png_(self) -> bytes:
        return _png(self)


Picture.set = Figure.set  # in place of the copy that matplotlib makes for every subclass


class Drawn(NamedTuple):
    """A figure and its axes, to be taken apart: `fig, ax = result.plot()`. On the last line of a cell it is shown."""

    fig: Figure
    ax: Any  # Axes, or an array of them

    def _repr_png_(self) -> bytes:
        return _png(self.fig)


def _png(figure: Figure) -> bytes:
    content = io.BytesIO()
    figure.savefig(content, format="png")
    return content.getvalue()


def save_figure(drawing: Figure, path: str | Path, origin: str = "", also: Sequence[str] = ()) -> Path:
    """Save any `drawing` with the hash of its provenance, `origin`, in the metadata; returns `path`.

    `also` are suffixes of further files next to it, such as ".pdf".
    """
    path = Path(path)
    for one in (path, *(path.with_suffix(suffix) for suffix in also)):
        _save(drawing.savefig, one, origin, None, {})
    return path


def _save(save: Any, fname: Any, origin: str, metadata: Any, options: dict[str, Any]) -> None:
    suffix = "" if hasattr(fname, "write") else Path(fname).suffix.removeprefix(".")
    kind = options.get("format") or suffix or matplotlib.rcParams["savefig.format"]
    place = {"png": "Description", "pdf": "Subject", "svg": "Description", "svgz": "Description"}.get(kind.lower())
    known = {**({place: f"Made by jdfl; provenance {origin}"} if place and origin else {}), **(metadata or {})}
    context: Any = cast(Any, matplotlib).rc_context  # whose type matplotlib leaves open
    with context({"pdf.fonttype": 42}):
        save(fname, **{"dpi": 200, **options} | ({"metadata": known} if known else {}))


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


def looks(labels: Iterable[str], before: int = 0) -> dict[str, dict[str, Any]]:
    """The `look` of every method of a comparison, for all of its figures and pages.

    It depends on the set of labels alone, not on their order, nor on capitals and hyphens: "D-PSGD" of a comparison
    and "d-psgd" of a report look the same if the other methods are the same. Pass all methods, also those that are not
    drawn. Lines that were there `before` look different from these.
    """
    places = sorted(dict.fromkeys(labels), key=lambda label: (re.sub(r"\W|_", "", label.casefold()), label))
    return {label: look(before + i) for i, label in enumerate(places)}


def lines(
    panels: Mapping[str, pd.DataFrame],
    names: Mapping[str, str],
    y: str,
    *,
    band: str = "",
    ends: Mapping[str, float] | None = None,
    floor: float | None = None,
    ax: Any = None,
    width: Width = "column",
    height: float | None = None,
    origin: str = "",
) -> Drawn:
    """Draw a metric against one amount or several, a panel for each, and a legend below them.

    A line is the mean, and a band goes from low to high. Where a method spends nothing of an amount, a dotted line
    continues at its last mean. An axis is logarithmic where its values are positive and far apart. Lines become thinner
    from the first to the last, and their markers stand at different places, so that lines which coincide are all seen.

    `ax`, `width`, `height` and `floor` are those of `Comparison.plot`, and so is the ValueError for bad ones.

    Args:
        panels: Frames by the title of their horizontal axis, with columns label, x, mean, low and high; at least one.
        names: By label, what the legend says, in this order, of all methods; one line without a name has no legend.
        y: The title of the vertical axis.
        band: What the bands are, for the legend.
        ends: By title, the amount where a horizontal axis ends; None: where the records end.
        origin: The hash of the provenance, for the metadata of files.
    """
    if not panels:
        raise ValueError("Expected at least one panel, got none.")
    names = {label: _readable(_fitted(name, inches_of(width))) for label, name in names.items()}
    labels = [*filter(None, names.values()), *[band] * bool(band)]
    if ax is None:
        figure, axes = _sheet(list(panels), labels if any(names.values()) else [], width, height)
        figure.origin = origin
    else:
        axes = list(np.asarray(ax, object).flat) if checks.is_a(ax, list | tuple | np.ndarray) else [ax]
        if len(axes) != len(panels) or not all(isinstance(one, Axes) for one in axes):
            raise ValueError(
                f"Expected {len(panels)} matplotlib Axes, one per amount, got ax = {checks.text(ax)}. For example "
                "fig, ax = matplotlib.pyplot.subplots()."
            )
        figure = axes[0].get_figure(root=True)
    shown = False
    for axis, (title, frame) in zip(axes, panels.items()):
        shown |= _panel(axis, frame, names, floor, (ends or {}).get(title))
        spec = axis.get_subplotspec()
        columns = 1 if ax is not None or spec is None else spec.get_gridspec().ncols
        axis.set_xlabel(_readable(_fitted(title, figure.get_figwidth() / columns)))
        if axis is axes[0] or ax is not None or spec is None or spec.is_first_col():
            axis.set_ylabel(_readable(y))
    handles, labels = axes[0].get_legend_handles_labels()
    if shown and band:
        handles, labels = [*handles, Patch(color="0.5", alpha=0.3, linewidth=0)], [*labels, band]
    if any(names.values()) and handles:
        if ax is None:
            figure.legend(handles, labels, loc="outside lower left", **_legend(labels, figure.get_figwidth()))
        else:
            axes[0].legend(handles, labels, fontsize=_SMALL)
    several = np.ndim(ax) > 0 if ax is not None else len(panels) > 1
    found = np.asarray(axes, object) if several else axes[0]
    return Drawn(figure, found)


def inches_of(width: Width) -> float:
    """The inches of a width; ValueError for an unknown name."""
    if isinstance(width, str):
        checks.one_of(tuple(WIDTHS), "Or give inches.", width=width)
        return WIDTHS[width]
    checks.positive("It is the width of the figure in inches.", width=width)
    return float(width)


def _sheet(
    titles: Sequence[str], labels: Sequence[str], width: Width, height: float | None
) -> tuple[Picture, list[Axes]]:
    """A new figure, with panels next to each other as far as they fit, and room for a legend below them."""
    inches, panels = inches_of(width), len(titles)
    columns = min(panels, max(1, int(inches / _PANEL)))
    rows = -(-panels // columns)
    if height is None:
        more = max(_fitted(title, inches / columns).count("\n") for title in titles)
        height = rows * (0.45 + 0.62 * inches / columns + 0.13 * more)
        if labels:  # a legend is filled column by column
            below = -(-len(labels) // _legend(labels, inches)["ncols"])
            lines = [max(label.count("\n") + 1 for label in labels[i::below]) for i in range(below)]
            height += 0.14 * sum(lines) + 0.06
    figure, axes = blank(inches, height, rows, columns, sharey=True)
    for axis in axes[panels:]:
        axis.set_visible(False)
    return figure, axes[:panels]


def blank(inches: float, height: float, rows: int, columns: int, **options: Any) -> tuple[Picture, list[Axes]]:
    """A new figure, `inches` wide and `height` tall, with panels in rows and columns by `Figure.subplots`."""
    checks.positive("It is the height of the figure in inches.", height=height)
    figure = Picture(figsize=(inches, height), layout=ConstrainedLayoutEngine(w_pad=0.02, h_pad=0.02))
    axes = list(figure.subplots(rows, columns, squeeze=False, **options).flat)
    for axis in axes:
        plain(axis)
        axis.tick_params(which="both", labelsize=_SMALL)
        for one in (axis.xaxis, axis.yaxis):
            one.label.set_fontsize(_LABEL)
            one.get_offset_text().set_fontsize(_SMALL)
    return figure, axes


def _legend(labels: Sequence[str], inches: float) -> dict[str, Any]:
    """How a legend below the panels is laid out: in as many columns as fit, which are filled one after the other."""
    sizes = [3.7 * max(map(len, label.split("\n"))) + 28 for label in labels]  # points

    def fits(columns: int) -> bool:
        parts = np.array_split(np.array(sizes), columns)
        return sum(float(part.max()) for part in parts) + 7 * (columns - 1) <= 72 * inches

    columns = next((count for count in (4, 3, 2) if count <= len(labels) and fits(count)), 1)
    style: Any = {"fontsize": _SMALL, "handlelength": 2.6, "columnspacing": 1.0, "borderaxespad": 0.2, "frameon": False}
    return {"ncols": columns, "labelspacing": 0.3, **style}


def _fitted(text: str, inches: float) -> str:
    """Text in lines that fit a width; its own lines are kept."""
    size = max(20, int(15 * inches))
    return "\n".join(part for line in text.split("\n") for part in textwrap.wrap(line, size, break_on_hyphens=False))


def _readable(text: str) -> str:
    """A label in which lines with a formula that Matplotlib cannot read are drawn as they are."""
    lines = text.split("\n")
    for i, line in enumerate(lines):
        try:
            if is_math_text(line):
                MathTextParser("path").parse(line)
        except ValueError:
            lines[i] = line.replace("$", r"\$")
    return "\n".join(lines)


def _panel(axis: Axes, frame: pd.DataFrame, names: Mapping[str, str], floor: float | None, end: float | None) -> bool:
    """Draw one panel; returns whether it has a band."""
    if end is not None:
        frame = frame[frame["x"] <= end * (1 + 1e-6)]  # amounts may be sums in float32
    groups = dict[Any, pd.DataFrame](iter(frame.groupby("label", sort=False, observed=True)))
    found = {label: thinned(groups.get(label, frame[:0])) for label in names}
    means = np.concatenate([np.asarray(one["mean"], float) for one in found.values()])
    if floor is not None:
        checks.not_negative("It is the accuracy of the reference.", floor=floor)
        floor = None if np.any(means < -10 * floor) else floor  # there are values below it, and not by its errors
    known = means[np.isfinite(means)]
    bottom = None  # where a logarithmic axis begins; None: an ordinary one shows the values
    if _wide(known):
        bottom = max(float(known[known > 0].min()) * 0.6, floor or 0.0)
    ends: list[float] = []
    banded, styles = False, looks(names, len(axis.lines))  # what is drawn into the same Axes later looks different
    for i, (label, one) in enumerate(found.items()):
        x, *rest = (np.asarray(one[column], float) for column in ("x", "mean", "low", "high"))
        mean, low, high = rest if floor is None else (np.maximum(values, floor) for values in rest)
        style = styles[label]
        if len(x) and not np.any(x > 0):  # it spends nothing: where it ends, whatever the others spend
            axis.axhline(mean[-1], color=style["color"], linewidth=0.8, linestyle=(0, (1, 3)), gid=f"level-{i}")
        good = np.isfinite(x) & np.isfinite(mean)
        start = _APART * ((0.5 + 0.618 * i) % 1.0)  # markers of coincident lines alternate
        first = min(2.2, 1.2 + 0.15 * len(found))
        thick = first - (first - 0.9) * i / max(1, len(found) - 1)
        how: Any = style if len(found) > 1 or good.sum() == 1 else {**style, "marker": None}
        how = how | {"linewidth": thick, "markevery": (start, _APART) if good.sum() > 2 else None}
        how |= {"label": names[label] or "_", "zorder": 2 + 0.01 * i, "gid": f"line-{i}"}
        axis.plot(x[good], mean[good], **how)
        shown = good & np.isfinite(low) & np.isfinite(high)
        if np.any(high[shown] > low[shown]):
            banded = True
            if bottom is not None:
                low, high = np.maximum(low, bottom), np.maximum(high, bottom)
            fill: Any = axis.fill_between
            alpha = max(0.06, min(0.18, 0.8 / len(found)))
            own: Any = {"color": style["color"], "alpha": alpha, "linewidth": 0, "zorder": 1, "gid": f"band-{i}"}
            fill(x[shown], low[shown], high[shown], **own)
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
    if end is not None and end < np.inf:
        axis.set_xlim(right=end)
    return banded


def thinned(one: pd.DataFrame) -> pd.DataFrame:
    """The records of one long line with a band that are drawn, with all extremes; Matplotlib simplifies other lines.

    Buckets of records lie evenly, and more closely at the beginning, for logarithmic axes.
    """
    size = len(one)
    if size <= _MOST or not np.any(one["high"] > one["low"]):
        return one
    steps = np.linspace(0, size, _MOST // 12), np.geomspace(1, size, _MOST // 12)
    edges = np.unique(np.concatenate([[0], *steps]).astype(int))
    low, high = one["low"].fillna(np.inf).to_numpy(), one["high"].fillna(-np.inf).to_numpy()
    buckets = list(pairwise(edges))
    extremes = [
        start + place for start, end in buckets for place in (low[start:end].argmin(), high[start:end].argmax())
    ]
    places = [edges[:-1], edges[1:] - 1, extremes]
    return one.iloc[np.unique(np.concatenate(places).astype(int))]


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


def node_map(
    places: Mapping[Any, Any], links: "Arcs", named: bool, degrees: bool, ax: Any, width: Width, height: float | None
) -> Drawn:
    """Draw nodes at their places [2] by name, links, and arrows where they run one way; one scale for both axes.

    Names are written if `named`, and `degrees` says that places are longitudes and latitudes. `ax`, `width` and
    `height` are those of `network.plot`, and so is the ValueError for bad ones.
    """
    axis = ax if ax is not None else _sheet([""], [], width, height)[1][0]
    if not isinstance(axis, Axes):
        raise ValueError(f"Expected matplotlib Axes, got ax = {checks.text(ax)}. For example Figure().subplots().")
    xy, both = np.array(list(places.values())), set(zip(links.sender.tolist(), links.receiver.tolist()))
    axis.add_collection(
        LineCollection([xy[[i, j]] for i, j in both if i < j and (j, i) in both], colors="0.6", linewidths=0.8)
    )
    write: Any = axis.annotate
    for i, j in sorted(both - {(j, i) for i, j in both}):
        write(
            "",
            xy[j],
            xy[i],
            arrowprops={"arrowstyle": "->", "color": "0.6", "linewidth": 0.8, "shrinkA": 3, "shrinkB": 3},
        )
    axis.scatter(*xy.T, s=max(4, min(24, 1500 / len(xy))), color=COLOURS[0], zorder=2)
    for name, place in places.items() if named else ():
        write(_readable(str(name)), place, (2, 2), textcoords="offset points", fontsize=_SMALL)
    latitude = np.clip(np.abs(xy[:, 1].mean()), 0, 80) if degrees else 0.0
    axis.set_aspect(1 / np.cos(np.radians(latitude)), adjustable="datalim")
    axis.set(xlabel="longitude", ylabel="latitude")
    axis.grid(visible=False)
    if not degrees:
        axis.set_axis_off()
    return Drawn(cast(Figure, axis.get_figure(root=True)), axis)


def heat_map(pairs: "Pairs", path: str | Path, provenance: str = "") -> Path:
    """Draw epsilon of all pairs of nodes, as a heat map and by distance, with `provenance` in the file's metadata."""
    links = csr_array((pairs.distance <= 1) | (pairs.distance.T <= 1))
    order = reverse_cuthill_mckee(links, symmetric_mode=True)
    drawing = Figure(figsize=(9.0, 4.0), layout="constrained")
    left, right = drawing.subplots(1, 2)
    shown = left.imshow(pairs.epsilon[np.ix_(order, order)], cmap="viridis", interpolation="nearest")
    drawing.colorbar(shown, ax=left, label=f"epsilon at delta = {pairs.delta:g}")
    left.set(xlabel="observed node", ylabel="observing node", xticks=[], yticks=[])
    table = pairs.by_distance()
    table = table[np.isfinite(table["distance"])]
    x, low, median, high = (table[name] for name in ("distance", "epsilon min", "epsilon median", "epsilon max"))
    band: Any = right.fill_between
    band(x, low, high, color=COLOURS[0], alpha=0.18, linewidth=0, label="minimum to maximum")
    right.plot(x, median, color=COLOURS[0], marker="o", label="median of pairs")
    label = f"the guarantee, against {pairs.claimed_against}"
    right.axhline(pairs.epsilon_claimed, color=COLOURS[1], linestyle="--", label=label)
    fixed = "" if pairs.bound.all() else ", of fixed gradients"
    right.set(xlabel="links between the nodes", ylabel=f"epsilon{fixed}", yscale="log")
    right.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    for format in (right.yaxis.set_major_formatter, right.yaxis.set_minor_formatter):
        format(FuncFormatter(lambda value, _: f"{value:g}"))
    plain(right)
    drawing.legend(*right.get_legend_handles_labels(), loc="outside upper left", ncols=3, frameon=False)
    return save_figure(drawing, path, provenance)
