"""What `Result.plot` draws, and the amounts that a plot is asked for."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd

from jdfl.base import checks
from jdfl.base.names import NodeNames
from jdfl.engine.metrics import COUNTS
from jdfl.engine.result import Result
from jdfl.lab import drawing
from jdfl.lab.curves import AXES, axes_of, labelled, metrics_of
from jdfl.lab.drawing import Drawn, Width
from jdfl.network.conversions import to_networkx
from jdfl.network.graph import round_of
from jdfl.network.links import per_node
from jdfl.network.tables import arcs_of

_FIRST = ("suboptimality", "objective")  # of the metrics of a run, what is drawn where none is named
_NAMED = 60  # nodes whose names are written


def of_result(
    result: Result,
    x: str | Sequence[str],
    y: str | None,
    *,
    ax: Any = None,
    width: Width = "column",
    height: float | None = None,
    floor: float | None = None,
) -> Drawn:
    """Draw a metric of one run, as `Result.plot` says."""
    per_round = result.seconds / max(1, result.rounds)
    table = labelled(result.history, ("", 0, result.ending), len(result.communication_rounds), per_round)
    metrics = [name for name in metrics_of(table) if name not in COUNTS]
    if not metrics:
        raise ValueError("Expected a run that recorded a metric, got one without any. Give jdfl.run(..., metrics=...).")
    y = next((name for name in (*_FIRST, *metrics) if name in metrics), "") if y is None else y
    checks.one_of(metrics, y=y)
    panels: dict[str, pd.DataFrame] = {}
    for name in amounts(x, axes_of(table)):
        frame = pd.DataFrame({"label": "", "x": table[name], "mean": table[y], "low": table[y], "high": table[y]})
        panels[AXES[name]] = frame
    how: Any = {"floor": floor, "ax": ax, "width": width, "height": height, "origin": result.provenance.hash}
    return drawing.lines(panels, {"": ""}, y.replace("_", " "), **how)


def amounts(x: str | Sequence[str], known: Sequence[str]) -> list[str]:
    """The amounts that are asked for; ValueError for others than those that were counted."""
    if not isinstance(x, str) and not (checks.is_a(x, Sequence) and len(x)):
        raise ValueError(f"Expected an amount or a list of them, got x = {checks.text(x)}. For example x='bytes'.")
    found = [x] if isinstance(x, str) else list(x)
    for name in found:
        checks.one_of(known, x=name)
    if len(set(found)) < len(found):
        raise ValueError(f"Expected every amount once, got x = {found!r}.")
    return found


def of_network(
    network: Any, positions: Any, *, labels: bool | None, ax: Any, width: Width, height: float | None
) -> Drawn:
    """Draw nodes and links, as `plot` of networks says."""
    graph, names, inside = round_of(network, 0), network.node_names, network
    while hasattr(inside, "base"):
        inside = inside.base
    positions = per_node("positions", getattr(inside, "positions", None) if positions is None else positions, network)
    if positions is None:
        found = nx.spring_layout(to_networkx(replace(graph, names=NodeNames())), iterations=200, seed=0)
        positions = [found[i] for i in range(graph.m)]
    checks.shape((graph.m, 2), "Give two numbers for every node.", positions=positions)
    checks.finite("Give two numbers for every node.", positions=positions)
    named = graph.m <= _NAMED if labels is None else labels
    places = dict(zip(names or range(graph.m), np.asarray(positions, float)))
    return drawing.node_map(
        places, arcs_of(graph), named, bool(getattr(inside, "geographic", False)), ax, width, height
    )
