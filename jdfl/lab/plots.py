"""What `plot` of a result and of a comparison draws."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd

from jdfl.base import checks
from jdfl.engine.metrics import COUNTS
from jdfl.engine.result import Result
from jdfl.lab import drawing, words
from jdfl.lab.curves import AXES, BAND, axes_of, band, labelled, metrics_of
from jdfl.lab.drawing import Drawn, Width

if TYPE_CHECKING:
    from jdfl.lab.comparison import Comparison

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
    for name in _amounts(x, axes_of(table)):
        frame = pd.DataFrame({"label": "", "x": table[name], "mean": table[y], "low": table[y], "high": table[y]})
        panels[AXES[name]] = frame
    how: Any = {"floor": floor, "ax": ax, "width": width, "height": height, "origin": result.provenance.hash}
    return drawing.lines(panels, {"": ""}, y.replace("_", " "), **how)


def of_comparison(
    comparison: "Comparison",
    x: str | Sequence[str] | None,
    y: str | None,
    *,
    marks: bool = True,
    ax: Any = None,
    width: Width = "column",
    height: float | None = None,
    floor: float | None = None,
) -> Drawn:
    """Draw a metric of all methods, as `Comparison.plot` says."""
    axes = axes_of(comparison.curves)
    y = comparison.measure if y is None else y
    checks.one_of(metrics_of(comparison.curves), y=y)
    own = comparison.by if comparison.by in axes else "round"
    amounts = _amounts(own if x is None else x, axes)
    panels, ends = dict[str, pd.DataFrame](), dict[str, float]()
    for name in amounts:
        view = comparison.view(name)
        title = "\n".join([words.axis(comparison, name), *words.notes(view)]) if marks else AXES[name]
        panels[title] = band(view.curves, name, y)
        if view.by == name and view.budget is not None:
            ends[title] = view.budget
    names = {label: words.named(comparison, label) if marks else label for label in comparison.results}
    floor = comparison.floor if floor is None and y == "suboptimality" else floor
    how: Any = {"floor": floor, "ax": ax, "width": width, "height": height, "origin": comparison.provenance}
    return drawing.lines(panels, names, y.replace("_", " "), band=BAND, ends=ends, **how)


def _amounts(x: str | Sequence[str], known: Sequence[str]) -> list[str] | tuple[str]:
    """The amounts that are asked for; ValueError for others than those that were counted."""
    if not isinstance(x, str) and not (checks.is_a(x, Sequence) and len(x)):
        raise ValueError(f"Expected an amount or a list of them, got x = {checks.text(x)}. For example x='bytes'.")
    amounts = [x] if isinstance(x, str) else list(x)
    for name in amounts:
        checks.one_of(known, x=name)
    if len(set(amounts)) < len(amounts):
        raise ValueError(f"Expected every amount once, got x = {amounts!r}.")
    return amounts
