"""What nodes can learn about each other, as a heat map and by distance.

Axes: m nodes.
"""

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator
from scipy.sparse import csr_array
from scipy.sparse.csgraph import reverse_cuthill_mckee

from jdfl.lab.drawing import COLOURS, plain
from jdfl.lab.picture import save_figure
from jdfl.observers import Pairs


def heat_map(pairs: Pairs, path: str | Path, provenance: str = "") -> Path:
    """Draw epsilon of all pairs of nodes, ordered so that neighbours are adjacent, and by distance."""
    links = csr_array((pairs.distance <= 1) | (pairs.distance.T <= 1))
    order = reverse_cuthill_mckee(links, symmetric_mode=True)
    drawing = Figure(figsize=(9.0, 4.0), layout="constrained")
    left, right = drawing.subplots(1, 2)
    shown = left.imshow(pairs.epsilon[np.ix_(order, order)], cmap="viridis", interpolation="nearest")
    drawing.colorbar(shown, ax=left, label=f"epsilon at delta = {pairs.delta:g}")
    left.set_xlabel("observed node")
    left.set_ylabel("observing node")
    left.set_xticks([])
    left.set_yticks([])
    table = pairs.by_distance()
    table = table[np.isfinite(table["distance"])]
    x, columns = table["distance"], [table[f"epsilon {how}"] for how in ("min", "median", "max")]
    band: Any = right.fill_between
    band(x, columns[0], columns[2], color=COLOURS[0], alpha=0.18, linewidth=0, label="minimum to maximum")
    right.plot(x, columns[1], color=COLOURS[0], marker="o", label="median of pairs")
    label = f"the guarantee, against {pairs.claimed_against}"
    right.axhline(pairs.epsilon_claimed, color=COLOURS[1], linestyle="--", label=label)
    right.set_xlabel("links between the nodes")
    right.set_ylabel("epsilon" + ("" if pairs.bound.all() else ", of fixed gradients"))
    right.set_yscale("log")
    right.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    for format in (right.yaxis.set_major_formatter, right.yaxis.set_minor_formatter):
        format(FuncFormatter(lambda value, _: f"{value:g}"))
    plain(right)
    drawing.legend(*right.get_legend_handles_labels(), loc="outside upper left", ncols=3, frameon=False)
    return save_figure(drawing, path, provenance)
