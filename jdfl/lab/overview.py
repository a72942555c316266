"""One page about one run or several, from their folders: `jdfl report`."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from jdfl.lab import charts
from jdfl.lab.curves import AXES, LABELS, labelled, views
from jdfl.lab.numbers import compared, costs, metric_names, promises, tiles
from jdfl.lab.page import Code, Fold, Part, Section, Table, page
from jdfl.lab.runs import Entry, OneRun, differing, read_all
from jdfl.lab.summary import as_paragraphs, together

_AXES = {**AXES, "epsilon": "epsilon of the worst node"}
_BARS = 128  # nodes
_NETWORKS = 6  # settings whose networks are drawn
_SAME_NOISE = (
    "Nothing is added up: the same run is there under several versions of the code, which have the same noise and may "
    "not do the same with it."
)
_NODES = (
    "Nodes are coloured by what they have come to; a small one has combined no messages since the moment before. Lines "
    "join nodes of which one hears the other."
)
_ORIGIN = ["folder", "seed", "begun (UTC)", "provenance", "jdfl", "code", "jax", "device"]


def write_overview(folders: Sequence[str | Path], path: str | Path, title: str = "") -> Path:
    """Write one HTML file about runs.

    Runs that differ in nothing but their seeds stand together, as means with bands.

    Args:
        folders: The folders of the runs, as `jdfl run` or `write_run` leaves them, at least one.
        path: The file, which is replaced if it is there.
        title: The heading of the page; empty: the names of algorithms and problems.

    Returns:
        The path.

    Raises:
        FileNotFoundError: For a folder without a run.
        ValueError: For no folder, for a damaged one and for one given twice.
    """
    if not folders:
        raise ValueError("Expected at least one folder of a run, got none. For example runs/NAME.")
    entries = read_all(folders)
    runs = [run for entry in entries for run in entry.runs]
    hashes = sorted({run.provenance.get("hash", "unknown") for run in runs})
    kinds = (dict.fromkeys(getattr(run.config, what).kind for run in runs) for what in ("algorithm", "problem"))
    foot = f"Made by jdfl from {len(runs)} run(s); provenance {', '.join(hashes)}."
    return page(path, title or " on ".join(map(", ".join, kinds)), list(_sections(entries)), foot)


def _sections(entries: Sequence[Entry]) -> Iterator[Section]:
    yield Section("What was run", list(_about(entries)))
    yield Section("Curves", _curves(entries))
    networks = [(entry, chart) for entry in entries[:_NETWORKS] if (chart := _network(entry.runs[0])) is not None]
    if networks:
        yield Section("Network", [_NODES, *_apart(entries, networks)])
    yield Section("Privacy", [*_together(entries), *_apart(entries, [(one, _privacy(one)) for one in entries])])
    splits: list[tuple[Entry, pd.DataFrame]] = []
    for entry in entries:
        table = entry.runs[0].tables.get("split")
        if table is not None and not any(np.array_equal(table, other) for _, other in splits):
            splits.append((entry, table))
    if splits:
        yield Section("Who has which data", _apart(entries, [(entry, _split(table)) for entry, table in splits]))
    yield Section("Costs", [costs(entries)])
    yield Section("Settings and provenance", list(_settings(entries)))


def _apart(entries: Sequence[Entry], parts: Iterable[tuple[Entry, Part]]) -> list[Part]:
    """Parts about one entry each, which stand below its label where there are several."""
    return [part if len(entries) == 1 else Fold(entry.label, [part]) for entry, part in parts]


def _about(entries: Sequence[Entry]) -> Iterator[Part]:
    several = len(entries) > 1
    for entry in entries:
        run, seeds = entry.runs[0], ", ".join(str(one.config.seed) for one in entry.runs)
        sentence = run.summary.get("run") or f"{entry.label} on {run.config.problem.kind}"
        named = f"{entry.label}: " if several else ""
        yield f"{named}{sentence.rstrip('.')}. Seed{'s' if len(entry.runs) > 1 else ''} {seeds}."
    for entry in entries:
        for run in entry.runs:
            who = f"{entry.label}, seed {run.config.seed}: " if several or len(entry.runs) > 1 else ""
            yield from (f"{who}{words}" for words in _warnings(run, "ended" if who else "Ended"))
    yield compared(entries) if several else tiles(entries[0])


def _warnings(run: OneRun, ended: str) -> Iterator[str]:
    told = run.summary
    if not told:
        yield f"It was cut off: these are the records so far. Go on with it: jdfl resume {run.folder}"
        return
    if run.ending not in ("steps", "stop rule"):
        yield f"{ended} after {told['rounds']} rounds ({run.ending}): {told['reason']}."
    yield from (f"Warning: {warning}." for warning in told["warnings"])


def _curves(entries: Sequence[Entry]) -> list[Part]:
    """Every metric against everything that a run costs, with bands over the seeds."""
    frames: list[pd.DataFrame] = []
    differ = len(promises(entries)) > 1
    for entry in entries:
        for place, run in enumerate(entry.runs):  # of which several may have one seed
            told, ending = run.summary, run.ending.replace("diverged", "diverged, shown")  # a page shows what there is
            per_round = told["seconds"] / max(1, told["rounds"]) if told else None
            nodes = told.get("nodes") or getattr(run.config.problem, "m", 0)
            frame = labelled(run.history, (entry.label, place, ending), nodes, per_round)
            frames.append(frame.assign(epsilon=np.nan if differ else _epsilon_by_round(run)))
    table = pd.concat(frames, ignore_index=True)
    metrics = metric_names([str(name) for name in table.columns if name not in (*_AXES, *LABELS)])
    known = {x: table[x].to_numpy(float) for x in _AXES if x in table}
    axes = [x for x, amounts in known.items() if np.all(amounts >= 0) and np.any(amounts > 0)]
    many = any(len(entry.runs) > 1 for entry in entries)
    words = "Mean over the seeds, and the band from the least to the largest. " if many else ""
    words += "Epsilons do not promise the same: there are no curves against them. " if differ else ""
    alt = f"{', '.join(metrics)} of {', '.join(entry.label for entry in entries)}, against {', '.join(axes)}."
    chart = charts.curves(views(table, axes, metrics), _AXES, alt)
    return [f"{words}Choose what to see, and against what it has cost.", chart]


def _epsilon_by_round(run: OneRun) -> np.ndarray:
    """An upper bound for every record: that of the next moment at which it was computed; NaN where there is none."""
    rounds, known = run.history["round"].to_numpy(float), run.tables.get("epsilon")
    if known is None:
        return np.full(len(rounds), np.nan)
    told: dict[str, Any] = run.summary.get("privacy", {}).get("report") or {}
    at, values = known["round"].to_numpy(), known["epsilon"].to_numpy()
    if told.get("epsilon") is not None:
        at, values = np.append(at, np.inf), np.append(values, told["epsilon"])
    if rounds.max() > at[-1]:
        return np.full(len(rounds), np.nan)
    return np.where(run.history["releases"].to_numpy() > 0, values[np.searchsorted(at, rounds)], 0.0)


def _network(run: OneRun) -> Part | None:
    """Who heard whom and what the nodes came to; None where the run did not keep it."""
    nodes, links = run.tables.get("nodes"), run.tables.get("links")
    if nodes is None or links is None:
        return None
    shown, m = nodes["node"].nunique(), getattr(run.config.problem, "m", 0)
    some = f"{shown} of {m} nodes" if shown < m else f"{m} nodes"
    first = int(np.sum((links["node"] >= 0) & (links["round"] == links["round"].min())))
    return charts.network(nodes, links, f"A network of {some}, {first} of whose pairs hear one another at first.")


def _split(table: pd.DataFrame) -> Part:
    """Examples of the nodes, by class where there are classes."""
    few, counts = table.iloc[:_BARS], table["examples"].to_numpy(int)
    classes = [name for name in table.columns if name.startswith("class_")]
    columns = {name.replace("_", " "): few[name].tolist() for name in classes or ["examples"]}
    some = "" if len(few) == len(table) else f" (the first {_BARS} of {len(table)})"
    alt = f"Examples of {len(few)} nodes{some}: at least {counts.min()}, at most {counts.max()} of a node"
    return charts.bars(few["node"].astype(int).tolist(), columns, "node", "examples", alt)


def _privacy(entry: Entry) -> Part:
    told = entry.runs[0].summary
    return as_paragraphs(told["privacy"]["statement"]) if told else "Nothing can be told before the run has ended."


def _together(entries: Sequence[Entry]) -> Iterator[str]:
    """What publishing all runs on the same problem costs, where there are several."""
    same: dict[str, list[OneRun]] = {}
    for run in (run for entry in entries for run in entry.runs):
        same.setdefault(repr(run.config.problem), []).append(run)
    for runs in same.values():
        ended = [run for run in runs if run.summary]
        spent = together([run.summary for run in ended]) if len(ended) > 1 else None
        if spent is not None:
            named = f"{runs[0].config.problem.kind}: " if len(same) > 1 else ""
            yield f"{named}{_SAME_NOISE if _several_versions(ended) else spent.statement()}"


def _several_versions(runs: Sequence[OneRun]) -> bool:
    """Whether a run is there under several versions of the code, which all have its noise."""
    versions: dict[str, Any] = {}
    told = ((repr(run.provenance.get("settings")), run.provenance.get("versions")) for run in runs)
    return any(found != versions.setdefault(settings, found) for settings, found in told)


def _settings(entries: Sequence[Entry]) -> Iterator[Part]:
    settings = [entry.runs[0].settings for entry in entries]
    paths = differing(settings)
    if len(entries) > 1 and paths:
        yield "What differs:"
        rows = [[path, *(str(one.get(path, "")) for one in settings)] for path in paths]
        yield Table(["setting", *(entry.label for entry in entries)], rows)
    for entry in entries:
        named = f" of {entry.label}" if len(entries) > 1 else ""
        yield Fold(f"Settings{named}, as config.yaml", [Code(entry.runs[0].config_yaml)])
    rows: list[list[Any]] = []
    for run in (run for entry in entries for run in entry.runs):
        where, told = run.environment, run.provenance
        versions = [told.get("versions", {}).get(name, "") for name in ("jdfl", "code", "jax")]
        begun, origin, device = where.get("date", ""), told.get("hash", ""), where.get("device", "")
        rows.append([str(run.folder), run.config.seed, begun, origin, *versions, device])
    yield Table(_ORIGIN, rows)
