"""Runs as a page shows them, read from their folders or taken from results: runs of one setting belong together."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from jdfl.config import from_yaml, yaml_text
from jdfl.engine.records import JOURNAL, check_settings
from jdfl.engine.result import Result
from jdfl.lab.files import read
from jdfl.lab.results import environment, read_run
from jdfl.lab.results import tables as tables_of
from jdfl.lab.stored import load
from jdfl.lab.summary import summary
from jdfl.lab.watch import TABLES
from jdfl.store import manifest

_UNLIKE = ("seed", "chunk", "key")  # settings in which runs of one entry may differ
_FIRST = ("algorithm", "problem", "network")  # settings whose kinds are named without the setting
_NO_RUNS = {"curves.csv": ("comparison", ""), "study.yaml": ("sweep", "; if there is none yet: jdfl resume {}")}

_READ = [
    "config.yaml",
    "environment.json",
    "metrics.parquet",
    "params.npz",
    "provenance.json",
    "summary.json",
]  # of a run


@dataclass(frozen=True)
class OneRun:
    """A run with everything that a page shows of it."""

    algorithm: str  # its kind
    problem: str  # the kind or the name of the problem
    data: str  # the same for runs on the same data
    nodes: int
    seed: Any  # None: it is not known
    settings: dict[str, Any]  # by dotted path
    history: pd.DataFrame
    summary: dict[str, Any]  # empty where the run was cut off
    environment: dict[str, Any]  # empty where the run was cut off
    provenance: dict[str, Any]  # empty where the run was cut off
    config_yaml: str = ""  # the settings as a file; empty: the run has none
    folder: str = ""  # where it was read from; empty: nowhere
    tables: dict[str, pd.DataFrame] = field(default_factory=dict[str, pd.DataFrame])  # of TABLES, and releases

    @classmethod
    def of(cls, result: Result, folder: str = "", where: dict[str, Any] | None = None) -> "OneRun":
        """The run of a result."""
        told = summary(result)
        found = result.provenance.settings
        kind = found.get("algorithm", "algorithm")
        settings = {f"{path}.kind" if path in _FIRST else path: value for path, value in found.items()}
        data = json.dumps([one for one in found.items() if one[0].startswith("problem")])
        about = kind, result.problem_name, data, told["nodes"], result.labels.get("seed"), settings
        environments = environment() if where is None else where
        return cls(*about, result.history, told, environments, result.provenance.as_dict(), folder=folder)

    @property
    def ending(self) -> str:
        """How it ended, in a word or two."""
        return str(self.summary.get("ending", "cut off"))

    @property
    def of_seed(self) -> str:
        """The seed in words, after a comma; empty where it is not known."""
        return "" if self.seed is None else f", seed {self.seed}"


@dataclass(frozen=True)
class Entry:
    """The runs of one setting, which differ in their seeds."""

    label: str  # what distinguishes it from the other settings
    runs: tuple[OneRun, ...]


def read_all(folders: Sequence[str | Path]) -> list[Entry]:
    """The runs in these folders, those of one setting together, in the order given.

    Raises FileNotFoundError for a folder that holds no run, ValueError for a damaged one and for one given twice.
    """
    runs = [_run(Path(folder)) for folder in folders]
    places = [Path(run.folder).resolve() for run in runs]
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
    """The paths of settings that are not the same everywhere, except for seeds."""
    paths = dict.fromkeys(path for one in settings for path in one)
    return [path for path in paths if path not in _UNLIKE and len({repr(one.get(path)) for one in settings}) > 1]


def _labels(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """A name each: the algorithm, and the settings that differ among those with the same one."""
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
    manifest.check(folder, [*_READ, *(f"{name}.csv" for name in (*TABLES, "releases"))])
    if not (folder / "config.yaml").is_file():
        result = load(folder)
        assert isinstance(result, Result)  # a comparison has curves.csv
        return OneRun.of(result, str(folder), read(folder / "environment.json"))
    tables = {
        name: read(folder / f"{name}.csv") for name in (*TABLES, "releases") if (folder / f"{name}.csv").is_file()
    }
    told: tuple[dict[str, Any], dict[str, Any], dict[str, Any]]  # summary, environment, provenance
    ended = (folder / manifest.NAME).is_file() or not (folder / JOURNAL).is_file()  # earlier versions have neither
    if ended and (folder / "summary.json").is_file():
        run = read_run(folder)
        text, history = run.config_yaml, run.history
        told = run.summary, run.environment, read(folder / "provenance.json")
    else:
        try:
            found = tables_of(folder)
            history = found.pop("metrics")
        except (FileNotFoundError, ValueError, KeyError) as error:
            raise FileNotFoundError(
                f"Expected records in {str(folder)!r}, found none yet. If the run was cut off: jdfl resume {folder}"
            ) from error
        tables, none = found, dict[str, Any]()
        text, told = read(folder / "config.yaml"), (none, none, none)
        check_settings(text, folder / "config.yaml")
    kept = {name: table for name, table in tables.items() if len(table)}
    config = from_yaml(text)
    nodes = told[0].get("nodes") or getattr(config.problem, "m", 0)
    settings = yaml_text.flat(yaml_text.plain(config))
    about = config.algorithm.kind, config.problem.kind, repr(config.problem), nodes, config.seed, settings
    return OneRun(*about, history, *told, text, str(folder), kept)
