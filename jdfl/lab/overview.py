"""One page about one run or several: `jdfl report` and `Result.report`."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pandas as pd

from jdfl.algorithms import REGISTRY as ALGORITHMS
from jdfl.engine.metrics import COUNTS, REGISTRY
from jdfl.engine.progress import announced
from jdfl.engine.result import BAD, Result
from jdfl.events import REGISTRY as ASYNCHRONOUS
from jdfl.lab import charts
from jdfl.lab.bands import BAND, Bands
from jdfl.lab.curves import AXES, LABELS, labelled
from jdfl.lab.first_events import Lanes
from jdfl.lab.page import Code, Fold, Part, Section, Table, Tiles, page
from jdfl.lab.paired import half_width
from jdfl.lab.runs import Entry, OneRun, differing, read_all
from jdfl.lab.summary import as_paragraphs, bytes_text, together
from jdfl.lab.table import PM, rounded
from jdfl.privacy import Ledger
from jdfl.privacy.report import upper, worth

_BY_CHANNEL = ("messages", "message_bits")
_COSTS = (
    "setting; messages; bits per message; bytes, all nodes; gradients; gradients of single examples; "
    "communication rounds of a node; seconds; compilation"
)
_AXES = {**AXES, "epsilon": "epsilon of the worst node"}
_BARS = 128  # nodes
_NETWORKS = 6  # settings whose networks and timelines are drawn
_SAME_NOISE = (
    "No total is given: the same run is there under several versions of the code. They have the same noise, and may "
    "use it differently."
)
_NODES = (
    "Nodes are coloured by the chosen value; a small node has combined no messages since the previous moment. Lines "
    "join nodes if one receives from the other."
)
_ORIGIN = ["folder", "seed", "begun (UTC)", "provenance", "jdfl", "code", "jax", "device"]


def write_overview(folders: Sequence[str | Path], path: str | Path, title: str = "") -> Path:
    """Write one HTML file about the runs in some folders; returns its path.

    Runs that differ only in their seeds are shown together, as means with bands. The title is that of the methods and
    problems if it is empty. FileNotFoundError for a folder without a run; ValueError for none, a damaged one and one
    given twice.
    """
    if not folders:
        raise ValueError("Expected at least one folder of a run, got none. For example runs/NAME.")
    return _write(read_all(folders), path, title)


def write_report(result: Result, path: str | Path) -> Path:
    """Write one HTML file about a result; returns the path.

    Args:
        result: The finished run.
        path: The file, which is replaced if it is there.
    """
    run = OneRun.of(result)
    return _write([Entry(run.algorithm, (run,))], path, "")


def _write(entries: Sequence[Entry], path: str | Path, title: str) -> Path:
    runs = [run for entry in entries for run in entry.runs]
    hashes = sorted({run.provenance.get("hash", "unknown") for run in runs})
    kinds = dict.fromkeys(run.algorithm for run in runs), dict.fromkeys(run.problem for run in runs)
    foot = f"Made by jdfl from {len(runs)} run(s); provenance {', '.join(hashes)}."
    return page(path, title or " on ".join(map(", ".join, kinds)), list(_sections(entries)), foot)


def _sections(entries: Sequence[Entry]) -> Iterator[Section]:
    yield Section("What was run", list(_about(entries)))
    yield Section("Curves", _curves(entries))
    networks = [(entry, chart) for entry in entries[:_NETWORKS] if (chart := _network(entry.runs[0])) is not None]
    if networks:
        yield Section("Network", [_NODES, *_apart(entries, networks)])
    timelines = [(entry, lanes) for entry in entries[:_NETWORKS] if (lanes := _lanes(entry.runs[0])) is not None]
    if timelines:
        yield Section("Timeline", _apart(entries, [(one, charts.timeline(lanes)) for one, lanes in timelines]))
    yield Section("Privacy", [*_together(entries), *_apart(entries, [(one, _privacy(one)) for one in entries])])
    splits: list[tuple[Entry, pd.DataFrame]] = []
    for entry in entries:
        table = entry.runs[0].tables.get("split")
        if table is not None and not any(np.array_equal(table, other) for _, other in splits):
            splits.append((entry, table))
    if splits:
        yield Section("Data partition", _apart(entries, [(entry, _split(table)) for entry, table in splits]))
    yield Section("Costs", [_costs(entries)])
    yield Section("Settings and provenance", list(_settings(entries)))


def _apart(entries: Sequence[Entry], parts: Iterable[tuple[Entry, Part]]) -> list[Part]:
    """Parts about one entry each, below its label where there are several."""
    return [part if len(entries) == 1 else Fold(entry.label, [part]) for entry, part in parts]


def _about(entries: Sequence[Entry]) -> Iterator[Part]:
    several = len(entries) > 1
    for entry in entries:
        run, seeds = entry.runs[0], [str(one.seed) for one in entry.runs if one.seed is not None]
        sentence = run.summary.get("run") or f"{entry.label} on {run.problem}"
        named = f"{entry.label}: " if several else ""
        drawn = f" Seed{'s' if len(seeds) > 1 else ''} {', '.join(seeds)}." if seeds else ""
        yield f"{named}{sentence.rstrip('.')}.{drawn}"
    for entry in entries:
        for run in entry.runs:
            who = f"{entry.label}{run.of_seed}: " if several or len(entry.runs) > 1 else ""
            yield from (f"{who}{words}" for words in _warnings(run, "ended" if who else "Ended"))
    yield _compared(entries) if several else _tiles(entries[0])


def _warnings(run: OneRun, ended: str) -> Iterator[str]:
    told = run.summary
    if not told:
        yield f"It was cut off: these are the records so far. Resume it: jdfl resume {run.folder}"
        return
    if run.ending not in ("steps", "stop rule"):
        yield f"{ended} after {told['rounds']} rounds ({run.ending}): {told['reason']}."
    yield from (f"Warning: {warning}." for warning in told["warnings"])


def _curves(entries: Sequence[Entry]) -> list[Part]:
    """Every metric against every cost, with bands over the seeds."""
    frames: list[pd.DataFrame] = []
    differ = len(_promises(entries)) > 1
    for entry in entries:
        for place, run in enumerate(entry.runs):  # several may have the same seed
            told = run.summary
            ending = f"{run.ending}, shown" if run.ending in BAD else run.ending  # a page shows its records, too
            per_round = told["seconds"] / max(1, told["rounds"]) if told else None
            frame = labelled(run.history, (entry.label, place, ending), run.nodes, per_round)
            frames.append(frame.assign(epsilon=np.nan if differ else _epsilon_by_round(run)))
    table = pd.concat(frames, ignore_index=True)
    metrics = _metric_names([str(name) for name in table.columns if name not in (*_AXES, *LABELS)])
    known = {x: table[x].to_numpy(float) for x in _AXES if x in table}
    axes = [x for x, amounts in known.items() if np.all(amounts >= 0) and np.any(amounts > 0)]
    many = any(len(entry.runs) > 1 for entry in entries)
    words = f"Mean over the seeds, with a band: {BAND}. " if many else ""
    words += "Epsilons do not promise the same: there are no curves against them. " if differ else ""
    alt = f"{', '.join(metrics)} of {', '.join(entry.label for entry in entries)}, against {', '.join(axes)}."
    chart = charts.curves(Bands(table, axes, metrics), _AXES, alt)
    return [f"{words}Choose a metric, and the cost that it is shown against.", chart]


def _epsilon_by_round(run: OneRun) -> np.ndarray:
    """An upper bound for every record: epsilon at the next moment whose releases are known; NaN where there is none."""
    rounds, known = run.history["round"].to_numpy(float), run.tables.get("releases")
    told: dict[str, Any] = run.summary.get("privacy", {})
    if known is None or not told.get("report") or told["ledger"] is None:
        return np.full(len(rounds), np.nan)
    ledger, delta = Ledger.from_dict(told["ledger"]), told["report"]["delta"]
    total = np.inf if told["report"]["epsilon"] is None else told["report"]["epsilon"]
    at, counts = (known[name].to_numpy(int) for name in ("round", "most_releases"))
    different = [int(count) for count in np.unique(counts) if 0 < count < ledger.releases.max()]
    found = {0: 0.0}
    with announced() as announce:
        for i, count in enumerate(different):
            announce("epsilon", f"moment {i + 1} of {len(different)}")
            found[count] = min(total, replace(ledger, releases=np.array([count])).epsilon(0, delta))
    at = np.append(at, np.inf)
    values = np.array([*(found.get(count, total) for count in counts.tolist()), total])
    return np.where(run.history["releases"].to_numpy() > 0, values[np.searchsorted(at, rounds)], 0.0)


def _network(run: OneRun) -> Part | None:
    """The network with the values of its nodes; None where the run did not keep them."""
    nodes, links = run.tables.get("nodes"), run.tables.get("links")
    if nodes is None or links is None:
        return None
    shown, m = nodes["node"].nunique(), run.nodes
    some = f"{shown} of {m} nodes" if shown < m else f"{m} nodes"
    first = int(np.sum((links["node"] >= 0) & (links["round"] == links["round"].min())))
    return charts.network(nodes, links, f"A network of {some} with {first} links in the first recorded round.")


def _lanes(run: OneRun) -> Lanes | None:
    """The first events of some nodes, until the end of the run; None for a run that did not keep any."""
    events, messages, method = run.tables.get("timeline"), run.tables.get("messages"), ASYNCHRONOUS.get(run.algorithm)
    if events is None or method is None:
        return None
    messages = pd.DataFrame(columns=["sent", "node", "arrives", "to"]) if messages is None else messages
    end = float(run.history["round"].max()) * float(run.settings["algorithm.period"])
    if run.ending == "budget":  # the run has ended before the event at this time, which is a float32
        end = min(end, float(run.history["network_seconds"].iloc[-1]) * (1 - 1e-6))
    kinds = tuple(kind.name for kind in method.kinds)
    return Lanes(method.title, kinds, run.nodes, events, messages).until(end)


def _split(table: pd.DataFrame) -> Part:
    """Number of examples of every node, by class where there are classes."""
    few, counts = table.iloc[:_BARS], table["examples"].to_numpy(int)
    classes = [name for name in table.columns if name.startswith("class_")]
    columns = {name.replace("_", " "): few[name].tolist() for name in classes or ["examples"]}
    some = "" if len(few) == len(table) else f" (the first {_BARS} of {len(table)})"
    alt = f"Number of examples of {len(few)} nodes{some}: from {counts.min()} to {counts.max()} per node"
    return charts.bars(few.get("name", few["node"].astype(int)).tolist(), columns, "node", "examples", alt)


def _privacy(entry: Entry) -> Part:
    told = entry.runs[0].summary
    return as_paragraphs(told["privacy"]["statement"]) if told else "Nothing can be claimed before the run has ended."


def _together(entries: Sequence[Entry]) -> Iterator[str]:
    """The total epsilon of publishing all runs on the same problem, where there are several."""
    same: dict[str, list[OneRun]] = {}
    for run in (run for entry in entries for run in entry.runs):
        same.setdefault(run.data, []).append(run)
    for runs in same.values():
        ended = [run for run in runs if run.summary]
        spent = together([run.summary for run in ended]) if len(ended) > 1 else None
        if spent is not None:
            named = f"{runs[0].problem}: " if len(same) > 1 else ""
            yield f"{named}{_SAME_NOISE if _several_versions(ended) else spent.statement()}"


def _several_versions(runs: Sequence[OneRun]) -> bool:
    """Whether a run is there under several versions of the code, all with the same noise."""
    versions: dict[str, Any] = {}
    told = ((repr(run.provenance.get("settings")), run.provenance.get("versions")) for run in runs)
    return any(found != versions.setdefault(settings, found) for settings, found in told)


def _settings(entries: Sequence[Entry]) -> Iterator[Part]:
    settings = [entry.runs[0].settings for entry in entries]
    paths = differing(settings)
    if len(entries) > 1 and paths:
        yield "Settings that differ:"
        rows = [[path, *(str(one.get(path, "")) for one in settings)] for path in paths]
        yield Table(["setting", *(entry.label for entry in entries)], rows)
    for entry in entries:
        named = f" of {entry.label}" if len(entries) > 1 else ""
        run = entry.runs[0]
        if found := getattr((ALGORITHMS | ASYNCHRONOUS).get(run.algorithm), "provenance", ()):
            yield f"The method{named} was written from: {', '.join(found)}."
        if run.config_yaml:
            yield Fold(f"Settings{named}, as config.yaml", [Code(run.config_yaml)])
        else:
            yield Fold(f"Settings{named}", [Code("\n".join(f"{name}: {one}" for name, one in run.settings.items()))])
    rows: list[list[Any]] = []
    for run in (run for entry in entries for run in entry.runs):
        where, told = run.environment, run.provenance
        versions = [told.get("versions", {}).get(name, "") for name in ("jdfl", "code", "jax")]
        begun, origin, device = where.get("date", ""), told.get("hash", ""), where.get("device", "")
        rows.append([run.folder, "" if run.seed is None else run.seed, begun, origin, *versions, device])
    yield Table(_ORIGIN, rows)


def _tiles(entry: Entry) -> Tiles:
    """The final state of the runs of one setting, in a few numbers."""
    last = [run.history.iloc[-1] for run in entry.runs]
    pm = f", {PM}" if len(last) > 1 else ""
    found = [("rounds", _spread(last, "round"), ", ".join(dict.fromkeys(run.ending for run in entry.runs)) + pm)]
    for name in _metric_names([str(name) for name in last[0].index])[:4]:
        found.append((name.replace("_", " "), _spread(last, name), f"at the end{pm}"))
    found += [
        ("bytes sent", _spread(last, "bytes", _spread_of_bytes), f"by all nodes{pm}"),
        ("epsilon", *_epsilon(entry)),
    ]
    seconds = [run.summary["seconds"] for run in entry.runs if run.summary]
    if seconds:
        found.append(("wall time", f"{fmean(seconds):.3g} s", "compilation excluded"))
    return Tiles(found)


def _compared(entries: Sequence[Entry]) -> Table:
    """The final state of the runs of several settings, a row for each."""
    names = _metric_names([str(name) for name in entries[0].runs[0].history.columns])
    shared = [name for name in names if all(name in run.history for entry in entries for run in entry.runs)]
    differ = len(_promises(entries)) > 1
    rows: list[list[Any]] = []
    for entry in entries:
        last = [run.history.iloc[-1] for run in entry.runs]
        measured = [_spread(last, name) for name in ("round", *shared)]
        epsilon = ", ".join([_epsilon(entry)[0], *(_promises([entry]) if differ else ())])
        rows.append([entry.label, len(last), *measured, _spread(last, "bytes", _spread_of_bytes), epsilon])
    pm = f" {PM}" if any(len(entry.runs) > 1 for entry in entries) else ""
    measures = [f"{name.replace('_', ' ')}{pm}" for name in ("rounds", *shared, "bytes sent")]
    headers = ["setting", "runs", *measures, "epsilon"]
    return Table(headers, rows)


def _costs(entries: Sequence[Entry]) -> Table:
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


def _metric_names(columns: Sequence[str]) -> list[str]:
    """The metrics among the columns of a history, those of jdfl first, in their order."""
    own, found = list(REGISTRY), [name for name in columns if name not in COUNTS]
    return [name for name in own if name in found] + [name for name in found if name not in own]


def _promises(entries: Sequence[Entry]) -> list[str]:
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
