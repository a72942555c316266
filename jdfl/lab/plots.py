"""What `Result.plot` draws, and the amounts that a plot is asked for."""

from collections.abc import Sequence
from typing import Any

import pandas as pd

from jdfl.base import checks
from jdfl.engine.metrics import COUNTS
from jdfl.engine.result import Result
from jdfl.lab import drawing
from jdfl.lab.curves import AXES, axes_of, labelled, metrics_of
from jdfl.lab.drawing import Drawn, Width

_FIRST = ("suboptimality", "objective")  # of the metrics of a run, what is drawn where none is named


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
