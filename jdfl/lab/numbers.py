"""The numbers of a page about runs: tiles for one setting, tables for several."""

import math
from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Any

import numpy as np

from jdfl.engine.metrics import COUNTS, REGISTRY
from jdfl.lab.page import Table, Tiles
from jdfl.lab.paired import half_width
from jdfl.lab.runs import Entry
from jdfl.lab.summary import bytes_text
from jdfl.lab.table import PM, rounded
from jdfl.privacy.relation import upper, worth

_BY_CHANNEL = ("messages", "message_bits")
_COSTS = (
    "setting; messages; bits per message; bytes, all nodes; gradients; gradients of single examples; "
    "communication rounds of a node; seconds; compilation"
)


def tiles(entry: Entry) -> Tiles:
    """The final state of the runs of one setting, in a few numbers."""
    last = [run.history.iloc[-1] for run in entry.runs]
    pm = f", {PM}" if len(last) > 1 else ""
    found = [("rounds", _spread(last, "round"), ", ".join(dict.fromkeys(run.ending for run in entry.runs)) + pm)]
    for name in metric_names([str(name) for name in last[0].index])[:4]:
        found.append((name.replace("_", " "), _spread(last, name), f"at the end{pm}"))
    found += [
        ("bytes sent", _spread(last, "bytes", _spread_of_bytes), f"by all nodes{pm}"),
        ("epsilon", *_epsilon(entry)),
    ]
    seconds = [run.summary["seconds"] for run in entry.runs if run.summary]
    if seconds:
        found.append(("wall time", f"{fmean(seconds):.3g} s", "compilation excluded"))
    return Tiles(found)


def compared(entries: Sequence[Entry]) -> Table:
    """The final state of the runs of several settings, a row for each."""
    names = metric_names([str(name) for name in entries[0].runs[0].history.columns])
    shared = [name for name in names if all(name in run.history for entry in entries for run in entry.runs)]
    differ = len(promises(entries)) > 1
    rows: list[list[Any]] = []
    for entry in entries:
        last = [run.history.iloc[-1] for run in entry.runs]
        measured = [_spread(last, name) for name in ("round", *shared)]
        epsilon = ", ".join([_epsilon(entry)[0], *(promises([entry]) if differ else ())])
        rows.append([entry.label, len(last), *measured, _spread(last, "bytes", _spread_of_bytes), epsilon])
    pm = f" {PM}" if any(len(entry.runs) > 1 for entry in entries) else ""
    measures = [f"{name.replace('_', ' ')}{pm}" for name in ("rounds", *shared, "bytes sent")]
    headers = ["setting", "runs", *measures, "epsilon"]
    return Table(headers, rows)


def costs(entries: Sequence[Entry]) -> Table:
    """What every run sent and computed, and its times."""
    rows: list[list[str]] = []
    for one in entries:
        for run in (run for run in one.runs if run.summary):
            told, talk = run.summary, run.summary["communication_rounds"]
            counts = ["\n".join(f"{name}: {n:,}" for name, n in told[which].items()) for which in _BY_CHANNEL]
            computed = [f"{told['bytes']:,.1f}", f"{told['gradients']:,}", f"{told['example_gradients']:,}"]
            rounds = f"{talk['min']} to {talk['max']}, mean {talk['mean']:.1f}"
            seconds = [f"{told[name]:.2f}" for name in ("seconds", "compile_seconds")]
            named = one.label + (run.of_seed if len(one.runs) > 1 else "")
            rows.append([named, *counts, *computed, rounds, *seconds])
    return Table(_COSTS.split("; "), rows)


def metric_names(columns: Sequence[str]) -> list[str]:
    """The metrics among the columns of a history, those of jdfl first, in their order."""
    own, found = list(REGISTRY), [name for name in columns if name not in COUNTS]
    return [name for name in own if name in found] + [name for name in found if name not in own]


def promises(entries: Sequence[Entry]) -> list[str]:
    """What the epsilons of these settings promise, each kind once: unit of protection, observer and delta."""
    reports = [one for entry in entries for one in _reports(entry) if one is not None]
    return list(dict.fromkeys(map(worth, reports)))


def _reports(entry: Entry) -> list[dict[str, Any] | None]:
    return [run.summary["privacy"].get("report") for run in entry.runs if run.summary]


def _epsilon(entry: Entry) -> tuple[str, str]:
    """Epsilon of the worst run and what it promises, in words."""
    told = _reports(entry)
    known = [one for one in told if one is not None]
    if not known or len(known) < len(told):
        return "none", "no guarantee is claimed"
    worst = max(known, key=lambda one: np.inf if one["epsilon"] is None else one["epsilon"])
    value = "infinite" if worst["epsilon"] is None else upper(worst["epsilon"])
    if not worst["sound"]:
        return value, "as published, no guarantee"
    return value, f"at delta = {worst['delta']:g}, worst node"


def _spread(records: Sequence[Any], name: str, write: Callable[[float, float], str] = rounded) -> str:
    """Mean of one number and half-width of its 95 % interval; values that are not finite are counted."""
    good = [float(one[name]) for one in records if np.isfinite(one[name])]
    if not good:
        return "not finite"
    told = write(fmean(good), half_width(np.array(good)) if len(set(good)) > 1 else math.nan)
    return told if len(good) == len(records) else f"{told} ({len(records) - len(good)} not finite)"


def _spread_of_bytes(mean: float, half: float) -> str:
    return bytes_text(mean) + (f" ± {bytes_text(half)}" if math.isfinite(half) else "")
