"""The picture of a data partition: the classes or targets at every node, and the number of its examples."""

from typing import Any, cast

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from jdfl.base import checks
from jdfl.engine.metrics import classifies
from jdfl.engine.spending import records_of
from jdfl.lab.drawing import COLOURS, Drawn, Width, blank, inches_of
from jdfl.problems import Problem

_NODES, _NAMED, _CLASSES, _BINS, _TICKS = 60, 16, 24, 10, 12  # most nodes, those with names, classes, bins, their names


def of_problem(problem: Problem, *, ax: Any = None, width: Width = "column", height: float | None = None) -> Drawn:
    """Draw the examples of all nodes, as `Problem.plot` says."""
    sizes, labels, names = records_of(problem), _labels(problem), problem.node_names
    nodes, title, panels = np.arange(problem.m), "node", 1 if labels is None else 2
    if problem.m > _NODES:
        nodes = np.argsort(sizes, kind="stable")[np.linspace(0, problem.m - 1, _NODES).round().astype(int)]
        title = f"{_NODES} of {problem.m:,} nodes, by size"
    axes = [] if ax is None else list(np.asarray(ax, object).flat)
    if ax is None:
        inches = inches_of(width)
        tall = (0.2 + 0.4 * panels) * min(inches, 4.0) + 0.4 if height is None else height
        _, axes = blank(inches, tall, panels, 1, height_ratios=[1, 3][:panels])
    elif len(axes) != panels or not all(isinstance(one, Axes) for one in axes):
        checks.refuse(f"{panels} Axes of matplotlib", "ax", ax, "The first is for the numbers of examples.")
    place, figure = np.arange(len(nodes)), cast(Figure, axes[0].get_figure(root=True))
    axes[0].bar(place, sizes[nodes], color="0.55", width=0.8)
    axes[0].set_ylabel("examples")
    for one in axes:
        one.set_xlim(-0.7, len(nodes) - 0.3)
        one.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        one.tick_params(labelbottom=one is axes[-1] and len(nodes) == problem.m)
    axes[-1].set_xlabel(title)
    if names is not None and len(nodes) <= _NAMED:
        axes[-1].set_xticks(place, [str(names[i])[:12] for i in nodes], rotation=90 if len(nodes) > 6 else 0)
    if labels is not None:
        counts, rows, what = _counted(problem, labels, nodes)
        few = np.unique(np.linspace(0, len(rows) - 1, _TICKS).round().astype(int))
        axes[1].set(ylabel=what, ylim=(-0.6, len(rows) - 0.4), yticks=few, yticklabels=[rows[k] for k in few])
        title += f"\narea of a dot: examples (largest: {counts.max():,})"
        axes[1].set_xlabel(title)
        figure.draw_without_rendering()  # so that the sizes of cells are known
        box = axes[1].get_window_extent()
        cell = 72 / figure.dpi * min(box.width / (len(nodes) + 0.4), box.height / (len(rows) + 0.2))
        y, x = np.nonzero(counts)
        axes[1].scatter(x, y, (0.95 * cell) ** 2 * counts[y, x] / counts.max(), color=COLOURS[0], linewidths=0)
    return Drawn(figure, axes[0] if labels is None else np.asarray(axes, object))


def _labels(problem: Problem) -> list[np.ndarray] | None:
    """The label or target of every example of every node; None for data without any."""
    data: Any = problem.data
    if not checks.is_a(data, tuple) or len(data) != 2 or getattr(data[1], "ndim", 0) != 2:
        return None
    rows = np.asarray(data[1]) if problem.blocks is None else problem.blocks.host_rows(data[1])
    return [row[one[: len(row)] > 0] for row, one in zip(rows, np.asarray(problem.weight))]


def _counted(problem: Problem, labels: list[np.ndarray], nodes: np.ndarray) -> tuple[np.ndarray, list[str], str]:
    """The counts [rows, nodes], the names of the rows, and what they are; many values are put into bins."""
    every = np.concatenate(labels).astype(float)
    known, words, what = np.unique(every), problem.class_names, "target"
    if words or classifies(problem):
        known, what = np.arange(max(len(words), getattr(problem, "classes", 2))), "class"
    if binned := len(known) > _CLASSES:  # each from a value to the next
        known = np.unique(np.quantile(every, np.linspace(0, 1, _BINS, endpoint=False), method="inverted_cdf"))
        what += ", bins of similar size"
    names = ["from " * binned + (str(words[int(k)])[:12] if words else f"{k:.4g}") for k in known]
    where = [np.searchsorted(known, labels[i], side="right") - 1 for i in nodes]
    return np.stack([np.bincount(one, minlength=len(known)) for one in where], axis=1), names, what
