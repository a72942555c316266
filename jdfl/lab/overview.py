"""The sections of a page about runs."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from jdfl.config import yaml_text
from jdfl.lab import numbers, pictures
from jdfl.lab.page import Code, Fold, Part, Section, Table, page
from jdfl.lab.read import Entry, OneRun, differing, read
from jdfl.lab.summary import as_paragraphs, together

_NETWORKS = 6  # settings whose networks are drawn
_SAME_NOISE = (
    "Nothing is added up: the same run is there under several versions of the code, which have the same noise and may "
    "not do the same with it."
)
_NOT_DONE = "It was cut off: these are the records so far. Go on with it: jdfl resume "


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
    yield Section("Curves", pictures.curves(entries))
    yield from _networks(entries)
    yield Section(
        "Privacy", [*_together(entries), *(_one_or_fold(entries, entry, _privacy(entry)) for entry in entries)]
    )
    yield from _splits(entries)
    yield Section("Costs", [numbers.costs(entries)])
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
        yield numbers.tiles(entries[0])
    else:
        yield numbers.compared(entries)


def _warnings(entry: Entry, run: OneRun, named: bool) -> Iterator[str]:
    who = f"{entry.label}, seed {run.config.seed}: " if named else ""
    if not run.summary:
        yield f"{who}{_NOT_DONE}{run.folder}"
        return
    if run.summary["ending"] not in ("steps", "stop rule"):
        word = "ended" if named else "Ended"
        yield f"{who}{word} after {run.summary['rounds']} rounds ({run.summary['ending']}): {run.summary['reason']}."
    for warning in run.summary["warnings"]:
        yield f"{who}Warning: {warning}."


def _networks(entries: Sequence[Entry]) -> Iterator[Section]:
    drawn = [(entry, chart) for entry in entries[:_NETWORKS] if (chart := pictures.network(entry.runs[0])) is not None]
    if drawn:
        words = (
            "Nodes are coloured by what they have come to; a small one has combined no messages since the moment "
            "before. Lines join nodes of which one hears the other."
        )
        yield Section("Network", [words, *(_one_or_fold(entries, entry, chart) for entry, chart in drawn)])


def _privacy(entry: Entry) -> Part:
    run = entry.runs[0]
    if not run.summary:
        return "Nothing can be told before the run has ended."
    return as_paragraphs(run.summary["privacy"]["statement"])


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


def _splits(entries: Sequence[Entry]) -> Iterator[Section]:
    parts: list[Part] = []
    seen: list[pd.DataFrame] = []
    for entry in entries:
        table = entry.runs[0].tables.get("split")
        if table is None or any(bool(np.array_equal(table, other)) for other in seen):
            continue
        seen.append(table)
        parts.append(_one_or_fold(entries, entry, pictures.split(table)))
    if parts:
        yield Section("Who has which data", parts)


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
