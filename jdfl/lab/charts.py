"""Charts of a page, drawn by Matplotlib as SVG."""

import hashlib
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import matplotlib
import networkx as nx
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure

from jdfl.engine.metrics import REGISTRY
from jdfl.lab import drawing
from jdfl.lab.drawing import lines
from jdfl.lab.page import Chart

FEW = 4  # metrics of a page
_PAIRS = 3000  # links of a network
_NAMED = 40  # nodes of a network with names
_SIZE = (6.0, 3.8)  # inches
_HATCHES = ("", "///", "...", "xxx")  # of bars, where there are more of them than colours


def chosen(metrics: Sequence[str], first: Sequence[str] = ()) -> list[str]:
    """The few metrics that a page draws: `first`, then a distance to the optimum, own metrics, accuracy and agreement.

    Args:
        metrics: All that were recorded.
        first: Those that were asked for.
    """
    own = [name for name in metrics if name not in REGISTRY]
    least = next((name for name in ("suboptimality", "objective") if name in metrics), "")
    order = dict.fromkeys((*first, least, *own, "accuracy", "consensus_error", *metrics))
    return [name for name in order if name in metrics][:FEW]


def drawn(figures: Mapping[tuple[str, str], Figure], alt: str) -> Chart:
    """Figures of metrics against amounts, in their order.

    Args:
        figures: By what is on the horizontal axis, and what is shown against it.
        alt: The chart in words, for readers who cannot see it.
    """
    return Chart({(x, _words(y)): _svg(figure) for (x, y), figure in figures.items()}, alt)


def curves(
    views: Iterable[tuple[tuple[str, str], pd.DataFrame]],
    axes: Mapping[str, str],
    alt: str,
    labels: Sequence[str],
    band: str = "",
) -> Chart:
    """Lines with bands, of metrics y against amounts x, a picture each.

    Args:
        views: Pairs of (x, y) and a frame with columns label, x, mean, low and high, a row per record; values that are
            not finite are left out.
        axes: The title of every x of `views`.
        alt: The chart in words, for readers who cannot see it.
        labels: Those of all lines that the page has, which decide how they look.
        band: What the bands are.
    """
    names = {label: _plain(label) if len(labels) > 1 else "" for label in labels}
    return drawn(
        {
            (axes[x], y): lines({_plain(axes[x]): frame}, names, _plain(_words(y)), band=_plain(band)).fig
            for (x, y), frame in views
        },
        alt,
    )


def network(nodes: pd.DataFrame, links: pd.DataFrame, alt: str) -> Chart:
    """The network at the last recorded moment of a run, with nodes that are coloured by a value of a reader's choice.

    Args:
        nodes: A row per node and moment, with columns round, node, perhaps name, and any numbers, each of them a choice
            for the colour.
        links: Columns `round`, `node` and `hears`: from that round on, the node receives from the node in `hears`;
            node -1 where no node receives anything. Of very many links an even selection is drawn.
        alt: The chart in words, for readers who cannot see it.
    """
    last = nodes[nodes["round"] == nodes["round"].max()].set_index("node").sort_index()
    known = links[(links["round"] == links["round"].max()) & (links["node"] >= 0)]
    pairs = np.unique(np.sort(known[["node", "hears"]].to_numpy(int), axis=1), axis=0)
    places = _places(last.index.tolist(), pairs)
    pairs = pairs[np.unique(np.linspace(0, len(pairs) - 1, min(_PAIRS, len(pairs))).round().astype(int))]
    at = np.array([places[node] for node in last.index])
    pictures: dict[tuple[str, str], str] = {}
    for name in last.columns.drop(["round", "name"], errors="ignore"):
        figure, axis = _sheet("constrained")
        axis.set_axis_off()
        axis.set_aspect("equal")
        ends = [[places[one], places[other]] for one, other in pairs.tolist()]
        axis.add_collection(LineCollection(ends, colors="0.8", linewidths=0.8))
        marks = axis.scatter(*at.T, c=last[name], s=30 if len(last) > 100 else 80, cmap="cividis", ec="black", zorder=2)
        figure.colorbar(marks, label=_plain(_words(str(name))), shrink=0.8)
        labels = last["name"] if "name" in last else [int(node) for node in last.index]
        for place, label in zip(at, labels if len(last) <= _NAMED else ()):
            axis.annotate(str(label), place, (0, 7), textcoords="offset points", ha="center", parse_math=False)
        pictures[f"after round {int(nodes['round'].max())}", _words(str(name))] = _svg(figure)
    return Chart(pictures, alt)


def bars(x: Sequence[Any], series: Mapping[str, Sequence[float]], x_title: str, y_title: str, alt: str) -> Chart:
    """Stacked bars over `x`, a colour per series.

    Args:
        x: The names of the bars.
        series: The heights by label, in the order in which they are stacked, with a number for every bar.
        x_title: The name of the horizontal axis.
        y_title: The name of the vertical axis.
        alt: The chart in words, for readers who cannot see it.
    """
    figure, axis = _sheet("constrained")
    below = np.zeros(len(x))
    for i, (label, heights) in enumerate(series.items()):
        colour, hatch = drawing.COLOURS[i % len(drawing.COLOURS)], _HATCHES[i // len(drawing.COLOURS) % len(_HATCHES)]
        axis.bar(range(len(x)), heights, 0.8, below, color=colour, hatch=hatch, ec="white", lw=0.3, label=_plain(label))
        below += np.asarray(heights, float)
    every = max(1, -(-len(x) // 16))
    axis.set_xticks(range(0, len(x), every), [str(one) for one in x[::every]], parse_math=False)
    axis.set(xlabel=_plain(x_title), ylabel=_plain(y_title))
    if len(series) > 1:
        figure.legend(loc="outside upper left", ncols=6, fontsize=7, frameon=False)
    return Chart({(x_title, y_title): _svg(figure)}, alt)


def timeline(events: pd.DataFrame, kinds: Sequence[str], alt: str) -> Chart:
    """A lane for every node over simulated seconds, with a mark for every event.

    Args:
        events: Columns time (seconds), node, kind (its place among `kinds`), and perhaps name.
        kinds: The names of the kinds of events.
        alt: The chart in words, for readers who cannot see it.
    """
    figure, axis = _sheet("constrained")
    lanes = {node: lane for lane, node in enumerate(events["node"].value_counts(ascending=True).index)}
    names = events.drop_duplicates("node").set_index("node").get("name", pd.Series({node: int(node) for node in lanes}))
    for kind, name in enumerate(kinds):
        own = events[events["kind"] == kind]
        if len(own):
            look: Any = drawing.look(kind) | {"linestyle": "", "label": _plain(name)}
            axis.plot(own["time"], own["node"].map(lanes), **look)
    axis.set_yticks(range(len(lanes)), [str(names[node]) for node in lanes], parse_math=False)
    axis.set(xlabel="simulated seconds", ylabel="node")
    if len(events):
        figure.legend(loc="outside upper left", ncols=4, fontsize=7, frameon=False)
    return Chart({("simulated seconds", "node"): _svg(figure)}, alt)


def _sheet(layout: Any = None) -> tuple[Figure, Axes]:
    """A new figure with one axis."""
    figure = Figure(figsize=_SIZE, layout=layout)
    axis = figure.subplots()
    drawing.plain(axis)
    return figure, axis


def _svg(figure: Figure) -> str:
    """A figure as SVG, whose ids differ from those of the other figures of a page."""
    content = io.BytesIO()
    context: Any = cast(Any, matplotlib).rc_context  # whose type matplotlib leaves open
    with context({"svg.fonttype": "none", "svg.hashsalt": "jdfl"}):
        figure.savefig(content, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
    text = content.getvalue().decode()
    name = hashlib.sha256(text.encode()).hexdigest()[:10]
    return re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{name}-", text[text.index("<svg") :])


def _words(name: str) -> str:
    return name.replace("_", " ")


def _plain(text: object) -> str:
    """A text that Matplotlib draws as it is, without formulas."""
    return str(text).replace("$", r"\$")


def _places(ids: Sequence[int], pairs: np.ndarray) -> dict[int, np.ndarray]:
    """Where nodes are drawn: linked ones close to each other."""
    graph: nx.Graph[int] = nx.Graph()
    graph.add_nodes_from(ids)
    graph.add_edges_from(pairs.tolist())
    # A ring, a path, or parts that would drift apart are on a circle.
    if max(degree for _, degree in graph.degree()) <= 2 or not nx.is_connected(graph):
        return nx.circular_layout(graph)
    return nx.spring_layout(graph, seed=0, iterations=200, k=3.0 / np.sqrt(len(ids)))
