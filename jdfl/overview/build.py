"""The sections of a page about runs."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
import pandas as pd

from jdfl.comparison.curves import AXES, LABELS, views
from jdfl.config import yaml_text
from jdfl.metrics import COUNTS, REGISTRY
from jdfl.overview.read import Entry, OneRun, differing, read
from jdfl.report import Chart, Code, Fold, Part, Section, Table, Tiles, charts, page
from jdfl.summary import as_paragraphs

_NETWORKS = 6  # settings whose networks are drawn
_BARS = 128  # nodes
_NOT_DONE = "It was cut off: these are the records so far. Go on with it: jdfl resume "
_AXES = {**AXES, "epsilon": "epsilon of the worst node"}


def write_overview(folders: Sequence[str | Path], path: str | Path, title: str = "") -> Path:
    """Write one HTML file about the runs in these folders; returns its path.

    Runs that differ in nothing but their seeds stand together, as means with bands. Raises FileNotFoundError for a
    folder without a run, ValueError for none at all, for a damaged one and for one given twice.
    """
    if not folders:
        raise ValueError("Expected at least one folder of a run, got none. For example runs/NAME.")
    entries = read(folders)
    hashes = sorted({run.provenance.get("hash", "unknown") for entry in entries for run in entry.runs})
    foot = f"Made by jdfl from {sum(len(entry.runs) for entry in entries)} run(s); provenance {', '.join(hashes)}."
    return page(path, title or _title(entries), list(_sections(entries)), foot)


def _title(entries: Sequence[Entry]) -> str:
    configs = [entry.runs[0].config for entry in entries]
    names, problems = (dict.fromkeys(getattr(one, what).kind for one in configs) for what in ("algorithm", "problem"))
    return f"{', '.join(names)} on {', '.join(problems)}"


def _sections(entries: Sequence[Entry]) -> Iterator[Section]:
    yield Section("What was run", list(_about(entries)))
    yield Section("Curves", _curves(entries))
    yield from _networks(entries)
    yield Section("Privacy", [_one_or_fold(entries, entry, _privacy(entry)) for entry in entries])
    yield from _splits(entries)
    yield Section("Costs", [_costs(entries)])
    yield Section("Settings and provenance", list(_settings(entries)))


def _one_or_fold(entries: Sequence[Entry], entry: Entry, part: Part) -> Part:
    return part if len(entries) == 1 else Fold(entry.label, [part])


def _about(entries: Sequence[Entry]) -> Iterator[Part]:
    for entry in entries:
        run = entry.runs[0]
        seeds = ", ".join(str(one.config.seed) for one in entry.runs)
        sentence = run.summary.get("run") or f"{entry.label} on {run.config.problem.kind}"
        named = f"{entry.label}: " if len(entries) > 1 else ""
        yield f"{named}{sentence.rstrip('.')}. Seed{'s' if len(entry.runs) > 1 else ''} {seeds}."
    for entry in entries:
        for run in entry.runs:
            yield from _warnings(entry, run, len(entries) > 1 or len(entry.runs) > 1)
    if len(entries) == 1:
        yield _tiles(entries[0])
    else:
        yield _compared(entries)


def _warnings(entry: Entry, run: OneRun, named: bool) -> Iterator[str]:
    who = f"{entry.label}, seed {run.config.seed}: " if named else ""
    if not run.summary:
        yield f"{who}{_NOT_DONE}{run.folder}"
        return
    if run.summary["ending"] not in ("steps", "stop rule"):
        yield f"{who}ended after {run.summary['rounds']} rounds ({run.summary['ending']}): {run.summary['reason']}."
    for warning in run.summary["warnings"]:
        yield f"{who}Warning: {warning}."


def _tiles(entry: Entry) -> Tiles:
    last = [run.history.iloc[-1] for run in entry.runs]
    ending = ", ".join(dict.fromkeys(str(run.summary.get("ending", "cut off")) for run in entry.runs))
    tiles = [("rounds", _spread([row["round"] for row in last]), ending)]
    names = _metrics([str(name) for name in last[0].index])[:4]
    tiles += [(name.replace("_", " "), _spread([row[name] for row in last]), "at the end") for name in names]
    tiles.append(("bytes sent", _spread([row["bytes"] for row in last], _bytes), "by all nodes"))
    tiles.append(("epsilon", *_epsilon(entry)))
    seconds = [run.summary["seconds"] for run in entry.runs if run.summary]
    if seconds:
        tiles.append(("wall time", f"{fmean(seconds):.3g} s", "compilation excluded"))
    return Tiles(tiles)


def _compared(entries: Sequence[Entry]) -> Table:
    names = _metrics([str(name) for name in entries[0].runs[0].history.columns])
    shared = [name for name in names if all(name in run.history for entry in entries for run in entry.runs)]
    rows: list[list[Any]] = []
    for entry in entries:
        last = [run.history.iloc[-1] for run in entry.runs]
        row = [entry.label, len(entry.runs), _spread([one["round"] for one in last])]
        row += [_spread([one[name] for one in last]) for name in shared]
        rows.append([*row, _spread([one["bytes"] for one in last], _bytes), _epsilon(entry)[0]])
    headers = ["setting", "runs", "rounds", *(name.replace("_", " ") for name in shared), "bytes sent", "epsilon"]
    return Table(headers, rows)


def _metrics(columns: Sequence[str]) -> list[str]:
    """The metrics among the columns of a history, jdfl's own first, in their order."""
    own = list(REGISTRY)
    found = [name for name in columns if name not in COUNTS]
    return sorted(found, key=lambda name: own.index(name) if name in own else len(own))


def _spread(values: Sequence[float], write: Callable[[float], str] = lambda value: f"{value:.5g}") -> str:
    """Mean and, over several runs, standard deviation; what is not finite is told."""
    good = [float(value) for value in values if np.isfinite(value)]
    if not good:
        return "not finite"
    told = write(fmean(good)) + (f" ± {write(stdev(good))}" if len(good) > 1 and stdev(good) else "")
    return told if len(good) == len(values) else f"{told} ({len(values) - len(good)} not finite)"


def _bytes(value: float) -> str:
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if abs(value) < 1000:
            return f"{value:.3g} {unit}"
        value /= 1000
    return f"{value:.3g} PB"


def _epsilon(entry: Entry) -> tuple[str, str]:
    """Epsilon of the worst run and what it is worth, in words."""
    told = [run.summary["privacy"].get("report") for run in entry.runs if run.summary]
    if not told or any(one is None for one in told):
        return "none", "no guarantee is claimed"
    worst = max(told, key=lambda one: np.inf if one["epsilon"] is None else one["epsilon"])
    value = "infinite" if worst["epsilon"] is None else f"{worst['epsilon']:.4g}"
    if not worst["sound"]:
        return value, "as published, no guarantee"
    return value, f"at delta = {worst['delta']:g}, worst node"


def _curves(entries: Sequence[Entry]) -> list[Part]:
    frames: list[pd.DataFrame] = []
    for entry in entries:
        for run in entry.runs:
            frame = run.history.copy()
            nodes = run.summary.get("nodes") or run.config.problem.m
            frame["communications"] = frame["communications"] / nodes
            if run.summary:
                frame["seconds"] = frame["round"] * run.summary["seconds"] / max(1, run.summary["rounds"])
            frame["epsilon"] = _epsilon_by_round(run)
            ending = run.summary.get("ending", "cut off")
            frames.append(frame.assign(label=entry.label, seed=run.config.seed, ending=ending))
    table = pd.concat(frames, ignore_index=True)
    metrics = _metrics([str(name) for name in table.columns if name not in (*_AXES, *LABELS)])
    known = {x: table[x].to_numpy(float) for x in _AXES if x in table}
    axes = [x for x, amounts in known.items() if np.all(amounts >= 0) and np.any(amounts > 0)]
    table.loc[table["ending"] == "diverged", "ending"] = "diverged, shown"  # a page shows what there is
    many = any(len(entry.runs) > 1 for entry in entries)
    words = "Mean over the seeds, and the band from the least to the largest. " if many else ""
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


def _networks(entries: Sequence[Entry]) -> Iterator[Section]:
    drawn = [(entry, chart) for entry in entries[:_NETWORKS] if (chart := _network(entry.runs[0])) is not None]
    if drawn:
        words = (
            "Nodes are coloured by what they have come to; a small one has combined no messages since the moment "
            "before. Lines join nodes of which one hears the other."
        )
        yield Section("Network", [words, *(_one_or_fold(entries, entry, chart) for entry, chart in drawn)])


def _network(run: OneRun) -> Chart | None:
    nodes, links = run.tables.get("nodes"), run.tables.get("links")
    if nodes is None or links is None:
        return None
    shown, m = len(np.unique(nodes["node"])), run.config.problem.m
    some = f"{shown} of {m} nodes" if shown < m else f"{m} nodes"
    first = int(np.sum((links["node"] >= 0) & (links["round"] == links["round"].min())))
    return charts.network(nodes, links, f"A network of {some}, {first} of whose pairs hear one another at first.")


def _privacy(entry: Entry) -> Part:
    run = entry.runs[0]
    if not run.summary:
        return "Nothing can be told before the run has ended."
    return as_paragraphs(run.summary["privacy"]["statement"])


def _splits(entries: Sequence[Entry]) -> Iterator[Section]:
    parts: list[Part] = []
    seen: list[pd.DataFrame] = []
    for entry in entries:
        table = entry.runs[0].tables.get("split")
        if table is None or any(bool(np.array_equal(table, other)) for other in seen):
            continue
        seen.append(table)
        parts.append(_one_or_fold(entries, entry, _split(table)))
    if parts:
        yield Section("Who has which data", parts)


def _split(table: pd.DataFrame) -> Part:
    classes = [name for name in table.columns if name.startswith("class_")]
    few = table.iloc[:_BARS]
    columns = {name.replace("_", " "): few[name].tolist() for name in classes or ["examples"]}
    some = "" if len(few) == len(table) else f" (the first {_BARS} of {len(table)})"
    counts = table["examples"].to_numpy(int)
    least, most = counts.min(), counts.max()
    alt = f"Examples of {len(few)} nodes{some}: at least {least}, at most {most} of a node"
    return charts.bars(few["node"].astype(int).tolist(), columns, "node", "examples", alt)


def _costs(entries: Sequence[Entry]) -> Table:
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


def _settings(entries: Sequence[Entry]) -> Iterator[Part]:
    settings = [yaml_text.flat(yaml_text.plain(entry.runs[0].config)) for entry in entries]
    paths = differing(settings)
    if len(entries) > 1 and paths:
        yield "What differs:"
        rows = [[path, *(str(one.get(path, "")) for one in settings)] for path in paths]
        yield Table(["setting", *(entry.label for entry in entries)], rows)
    for entry in entries:
        run = entry.runs[0]
        named = f" of {entry.label}" if len(entries) > 1 else ""
        yield Fold(f"Settings{named}, as config.yaml", [Code(run.config_yaml)])
    rows: list[list[Any]] = []
    for entry in entries:
        for run in entry.runs:
            versions = run.provenance.get("versions", {})
            rows.append([
                str(run.folder), run.config.seed, run.environment.get("date", ""), run.provenance.get("hash", ""),
                versions.get("jdfl", ""), versions.get("code", ""), versions.get("jax", ""),
                run.environment.get("device", ""),
            ])  # fmt: skip
    yield Table(["folder", "seed", "begun (UTC)", "provenance", "jdfl", "code", "jax", "device"], rows)
