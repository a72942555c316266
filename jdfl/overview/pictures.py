"""The pictures of a page about runs: curves, the network, and who has which data."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from jdfl.comparison.curves import AXES, LABELS, views
from jdfl.overview.numbers import metric_names, promises
from jdfl.overview.read import Entry, OneRun
from jdfl.report import Chart, Part, charts

_BARS = 128  # nodes
_AXES = {**AXES, "epsilon": "epsilon of the worst node"}


def curves(entries: Sequence[Entry]) -> list[Part]:
    """Every metric against everything that a run costs, with bands over the seeds."""
    frames: list[pd.DataFrame] = []
    differ = len(promises(entries)) > 1
    for entry in entries:
        for place, run in enumerate(entry.runs):  # of which several may have one seed
            frame = run.history.copy()
            nodes = run.summary.get("nodes") or getattr(run.config.problem, "m", 0)
            frame["communications"] = frame["communications"] / nodes
            if run.summary:
                frame["seconds"] = frame["round"] * run.summary["seconds"] / max(1, run.summary["rounds"])
            frame["epsilon"] = np.nan if differ else _epsilon_by_round(run)
            ending = run.summary.get("ending", "cut off")
            frames.append(frame.assign(label=entry.label, seed=place, ending=ending))
    table = pd.concat(frames, ignore_index=True)
    metrics = metric_names([str(name) for name in table.columns if name not in (*_AXES, *LABELS)])
    known = {x: table[x].to_numpy(float) for x in _AXES if x in table}
    axes = [x for x, amounts in known.items() if np.all(amounts >= 0) and np.any(amounts > 0)]
    table.loc[table["ending"] == "diverged", "ending"] = "diverged, shown"  # a page shows what there is
    many = any(len(entry.runs) > 1 for entry in entries)
    words = "Mean over the seeds, and the band from the least to the largest. " if many else ""
    words += "Epsilons do not promise the same: there are no curves against them. " if differ else ""
    alt = f"{', '.join(metrics)} of {', '.join(entry.label for entry in entries)}, against {', '.join(axes)}."
    return [
        f"{words}Choose what to see, and against what it has cost.",
        charts.curves(views(table, axes, metrics), _AXES, alt),
    ]


def _epsilon_by_round(run: OneRun) -> np.ndarray:
    """An upper bound for every record: that of the next moment at which it was computed; NaN where there is none."""
    rounds = run.history["round"].to_numpy(float)
    known = run.tables.get("epsilon")
    if known is None:
        return np.full(len(rounds), np.nan)
    told: dict[str, Any] = run.summary.get("privacy", {}).get("report") or {}
    at, values = known["round"].to_numpy(), known["epsilon"].to_numpy()
    if told.get("epsilon") is not None:
        at, values = np.append(at, np.inf), np.append(values, told["epsilon"])
    if not len(at) or rounds.max() > at[-1]:
        return np.full(len(rounds), np.nan)
    return np.where(run.history["releases"].to_numpy() > 0, values[np.searchsorted(at, rounds)], 0.0)


def network(run: OneRun) -> Chart | None:
    """Who heard whom and what the nodes came to; None where the run did not keep it."""
    nodes, links = run.tables.get("nodes"), run.tables.get("links")
    if nodes is None or links is None:
        return None
    shown, m = len(np.unique(nodes["node"])), getattr(run.config.problem, "m", 0)
    some = f"{shown} of {m} nodes" if shown < m else f"{m} nodes"
    first = int(np.sum((links["node"] >= 0) & (links["round"] == links["round"].min())))
    return charts.network(nodes, links, f"A network of {some}, {first} of whose pairs hear one another at first.")


def split(table: pd.DataFrame) -> Part:
    """Examples of the nodes, by class where there are classes."""
    classes = [name for name in table.columns if name.startswith("class_")]
    few = table.iloc[:_BARS]
    columns = {name.replace("_", " "): few[name].tolist() for name in classes or ["examples"]}
    some = "" if len(few) == len(table) else f" (the first {_BARS} of {len(table)})"
    counts = table["examples"].to_numpy(int)
    least, most = counts.min(), counts.max()
    alt = f"Examples of {len(few)} nodes{some}: at least {least}, at most {most} of a node"
    return charts.bars(few["node"].astype(int).tolist(), columns, "node", "examples", alt)
