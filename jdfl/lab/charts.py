"""Charts of a page, drawn by Matplotlib as SVG. Every one has an `alt`: it in words, for readers who cannot see it."""

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
    """The few of all `metrics` that a page draws: `first`, then a distance to the optimum, own ones, accuracy."""
    own = [name for name in metrics if name not in REGISTRY]
    least = next((name for name in ("suboptimality", "objective") if name in metrics), "")
    order = dict.fromkeys((*first, least, *own, "accuracy", "consensus_error", *metrics))
    return [name for name in order if name in metrics][:FEW]


def drawn(figures: Mapping[tuple[str, str], Figure], alt: str) -> Chart:
    """A chart of `figures`, by what is on the horizontal axis and what is shown against it."""
    return Chart({(x, y.replace("_", " ")): _svg(figure) for (x, y), figure in figures.items()}, alt)


def curves(
    views: Iterable[tuple[tuple[str, str], pd.DataFrame]],
    axes: Mapping[str, str],
    alt: str,
    labels: Sequence[str],
    band: str = "",
) -> Chart:
    """Lines with a `band`, of metrics y against amounts x, a picture each; `axes` has the title of every x.

    `views` are pairs of (x, y) and a frame with columns label, x, mean, low and high. The `labels` of all lines of the
    page decide how they look.
    """
    names = {label: _plain(label) if len(labels) > 1 else "" for label in labels}
    return drawn(
        {
            (axes[x], y): lines({_plain(axes[x]): frame}, names, _plain(y.replace("_", " ")), band=_plain(band)).fig
            for (x, y), frame in views
        },
        alt,
    )


def network(nodes: pd.DataFrame, links: pd.DataFrame, alt: str) -> Chart:
    """The network at the last recorded moment of a run, a picture for every number of its `nodes`, which colours them.

    `nodes` and `links` are tables of `jdfl.lab.watch`. Of very many links an even selection is drawn.
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
        figure.colorbar(marks, label=_plain(str(name).replace("_", " ")), shrink=0.8)
        labels = last["name"] if "name" in last else [int(node) for node in last.index]
        for place, label in zip(at, labels if len(last) <= _NAMED else ()):
            axis.annotate(str(label), place, (0, 7), textcoords="offset points", ha="center", parse_math=False)
        pictures[f"after round {int(nodes['round'].max())}", str(name).replace("_", " ")] = _svg(figure)
    return Chart(pictures, alt)


def bars(x: Sequence[Any], series: Mapping[str, Sequence[float]], x_title: str, y_title: str, alt: str) -> Chart:
    """Stacked bars with the names `x`, a colour per series; axes are named `x_title` and `y_title`."""
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
    """A lane for every node over simulated seconds, with a mark for all `events`, whose kind is a place in `kinds`."""
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
