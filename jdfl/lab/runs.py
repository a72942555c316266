"""Run folders as they are read for a page: runs of the same setting stand together."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from jdfl.config import RunConfig, from_yaml, yaml_text
from jdfl.lab.files import read
from jdfl.lab.results import read_run
from jdfl.lab.watch import FILES as TABLES

_UNLIKE = ("seed", "chunk")  # settings that do not part runs
_FIRST = ("algorithm", "problem", "network")  # settings whose kinds are told by name alone
_NO_RUNS = {"curves.csv": ("comparison", ""), "study.yaml": ("sweep", "; where there is none yet: jdfl resume {}")}


@dataclass(frozen=True)
class OneRun:
    """A run's folder in memory."""

    folder: Path
    config: RunConfig
    config_yaml: str
    history: pd.DataFrame
    summary: dict[str, Any]  # empty where the run was cut off
    environment: dict[str, Any]
    provenance: dict[str, Any]  # empty where the run was cut off
    tables: dict[str, pd.DataFrame]  # nodes, links, split, epsilon, where they were kept

    @property
    def settings(self) -> dict[str, Any]:
        """Its settings by dotted path."""
        return yaml_text.flat(yaml_text.plain(self.config))

    @property
    def ending(self) -> str:
        """How it ended, in a word or two."""
        return str(self.summary.get("ending", "cut off"))


@dataclass(frozen=True)
class Entry:
    """The runs of one setting, which differ in their seeds."""

    label: str  # what tells it from the other settings
    runs: tuple[OneRun, ...]


def read_all(folders: Sequence[str | Path]) -> list[Entry]:
    """The runs in these folders, those of one setting together, in the order given.

    Raises FileNotFoundError for a folder that holds no run, ValueError for a damaged one and for one given twice.
    """
    runs = [_run(Path(folder)) for folder in folders]
    places = [run.folder.resolve() for run in runs]
    for again in places:
        if places.count(again) > 1:
            raise ValueError(f"Expected every run once, got {again} twice. Name it once.")
    groups: dict[str, list[OneRun]] = {}
    for run in runs:
        told = {path: value for path, value in run.settings.items() if path not in _UNLIKE}
        groups.setdefault(json.dumps(told, sort_keys=True), []).append(run)
    labels = _labels([group[0].settings for group in groups.values()])
    return [Entry(label, tuple(group)) for label, group in zip(labels, groups.values())]


def differing(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """The paths of what is not the same everywhere, but for seeds."""
    paths = dict.fromkeys(path for one in settings for path in one)
    return [path for path in paths if path not in _UNLIKE and len({repr(one.get(path)) for one in settings}) > 1]


def _labels(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """A name each: the algorithm, and what differs among those with the same one."""
    labels: list[str] = []
    for one in settings:
        kind = str(one["algorithm.kind"])
        alike = [other for other in settings if other["algorithm.kind"] == kind]
        shared = [path for path in differing(alike) if all(path in other for other in alike)]
        told = [_told(path, one[path]) for path in sorted(shared, key=lambda path: not path.endswith("kind"))]
        labels.append(", ".join([kind, *told[:4]]))
    if len(set(labels)) < len(labels):
        labels = [f"{label} ({i + 1})" for i, label in enumerate(labels)]
    return labels


def _told(path: str, value: Any) -> str:
    name = path.removesuffix(".kind")
    if name in _FIRST:
        return str(value)
    return f"{name.removeprefix('algorithm.')} {'none' if value is None else value}"


def _run(folder: Path) -> OneRun:
    given = f"got {str(folder)!r}, which"
    if not folder.is_dir():
        raise FileNotFoundError(f"Expected the folder of a run, {given} is not there.")
    for name, (what, remedy) in _NO_RUNS.items():
        if (folder / name).is_file():
            page = f"Its page is report.html in it{remedy.format(folder) or '.'}"
            raise ValueError(f"Expected runs, got the {what} {str(folder)!r}. {page}")
    if not (folder / "config.yaml").is_file():
        raise FileNotFoundError(f"Expected the folder of a run, {given} has no config.yaml.")
    tables = {Path(name).stem: read(folder / name) for name in TABLES if (folder / name).is_file()}
    told: tuple[dict[str, Any], dict[str, Any], dict[str, Any]]  # summary, environment, provenance
    if (folder / "summary.json").is_file():
        run = read_run(folder)
        text, history = run.config_yaml, run.history
        told = run.summary, run.environment, read(folder / "provenance.json")
    else:
        metrics = folder / "metrics.csv"
        history = read(metrics) if metrics.is_file() else pd.DataFrame()
        if history.empty:
            raise FileNotFoundError(
                f"Expected records in {str(folder)!r}, found none yet. If the run was cut off: jdfl resume {folder}"
            )
        none = dict[str, Any]()
        text, told = read(folder / "config.yaml"), (none, read(folder / "environment.json"), none)
    kept = {name: table for name, table in tables.items() if len(table)}
    return OneRun(folder, from_yaml(text), text, history, *told, kept)
