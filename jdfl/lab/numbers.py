"""The numbers of a page about runs: of one setting as tiles, of several as tables."""

import math
from collections.abc import Callable, Sequence
from statistics import fmean, stdev
from typing import Any

import numpy as np

from jdfl.lab.page import Table, Tiles
from jdfl.lab.read import Entry
from jdfl.lab.table import spread
from jdfl.metrics import COUNTS, REGISTRY
from jdfl.privacy.relation import upper, worth


def tiles(entry: Entry) -> Tiles:
    """How the runs of one setting ended, in a few numbers."""
    last = [run.history.iloc[-1] for run in entry.runs]
    ending = ", ".join(dict.fromkeys(str(run.summary.get("ending", "cut off")) for run in entry.runs))
    found = [("rounds", _spread([row["round"] for row in last]), ending)]
    names = metric_names([str(name) for name in last[0].index])[:4]
    found += [(name.replace("_", " "), _spread([row[name] for row in last]), "at the end") for name in names]
    found.append(("bytes sent", _spread([row["bytes"] for row in last], _spread_of_bytes), "by all nodes"))
    found.append(("epsilon", *_epsilon(entry)))
    seconds = [run.summary["seconds"] for run in entry.runs if run.summary]
    if seconds:
        found.append(("wall time", f"{fmean(seconds):.3g} s", "compilation excluded"))
    return Tiles(found)


def compared(entries: Sequence[Entry]) -> Table:
    """How those of several settings did, a line for each."""
    names = metric_names([str(name) for name in entries[0].runs[0].history.columns])
    shared = [name for name in names if all(name in run.history for entry in entries for run in entry.runs)]
    rows: list[list[Any]] = []
    differ = len(promises(entries)) > 1
    for entry in entries:
        last = [run.history.iloc[-1] for run in entry.runs]
        epsilon = ", ".join([_epsilon(entry)[0], *(promises([entry]) if differ else ())])
        row = [entry.label, len(entry.runs), _spread([one["round"] for one in last])]
        row += [_spread([one[name] for one in last]) for name in shared]
        rows.append([*row, _spread([one["bytes"] for one in last], _spread_of_bytes), epsilon])
    headers = ["setting", "runs", "rounds", *(name.replace("_", " ") for name in shared), "bytes sent", "epsilon"]
    return Table(headers, rows)


def costs(entries: Sequence[Entry]) -> Table:
    """What every run sent and computed, and how long it took."""
    headers = ["setting", "messages", "bits a message", "bytes, all nodes", "gradients", "examples' gradients",
               "communication rounds of a node", "seconds", "compilation"]  # fmt: skip
    rows: list[list[Any]] = []
    for entry in entries:
        for run in entry.runs:
            told = run.summary
            if not told:
                continue
            talk = told["communication_rounds"]
            rows.append([
                entry.label + (f", seed {run.config.seed}" if len(entry.runs) > 1 else ""),
                "\n".join(f"{name}: {count:,}" for name, count in told["messages"].items()),
                "\n".join(f"{name}: {bits:,}" for name, bits in told["message_bits"].items()),
                f"{told['bytes']:,.1f}",
                f"{told['gradients']:,}",
                f"{told['example_gradients']:,}",
                f"{talk['min']} to {talk['max']}, mean {talk['mean']:.1f}",
                f"{told['seconds']:.2f}",
                f"{told['compile_seconds']:.2f}",
            ])  # fmt: skip
    return Table(headers, rows)


def metric_names(columns: Sequence[str]) -> list[str]:
    """The metrics among the columns of a history, jdfl's own first, in their order."""
    own = list(REGISTRY)
    found = [name for name in columns if name not in COUNTS]
    return sorted(found, key=lambda name: own.index(name) if name in own else len(own))


def _spread(values: Sequence[float], write: Callable[[float, float], str] = spread) -> str:
    """Mean and, over several runs, standard deviation; what is not finite is told."""
    good = [float(value) for value in values if np.isfinite(value)]
    if not good:
        return "not finite"
    told = write(fmean(good), stdev(good) if len(set(good)) > 1 else math.nan)
    return told if len(good) == len(values) else f"{told} ({len(values) - len(good)} not finite)"


def _spread_of_bytes(mean: float, sd: float) -> str:
    return _bytes(mean) + (f" ± {_bytes(sd)}" if math.isfinite(sd) else "")


def _bytes(value: float) -> str:
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if abs(value) < 1000:
            return f"{value:.3g} {unit}"
        value /= 1000
    return f"{value:.3g} PB"


def promises(entries: Sequence[Entry]) -> list[str]:
    """What the epsilons of these settings are worth, each kind once: of whom, against whom, at which delta."""
    reports = [run.summary["privacy"].get("report") for entry in entries for run in entry.runs if run.summary]
    return list(dict.fromkeys(worth(one) for one in reports if one is not None))


def _epsilon(entry: Entry) -> tuple[str, str]:
    """Epsilon of the worst run and what it is worth, in words."""
    told = [run.summary["privacy"].get("report") for run in entry.runs if run.summary]
    if not told or any(one is None for one in told):
        return "none", "no guarantee is claimed"
    worst = max(told, key=lambda one: np.inf if one["epsilon"] is None else one["epsilon"])
    value = "infinite" if worst["epsilon"] is None else upper(worst["epsilon"])
    if not worst["sound"]:
        return value, "as published, no guarantee"
    return value, f"at delta = {worst['delta']:g}, worst node"
