"""Run folders as they are read for a page: runs of the same setting stand together."""

import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from jdfl.config import RunConfig, from_yaml, yaml_text
from jdfl.lab.results import read_run
from jdfl.lab.watch import FILES as TABLES

_UNLIKE = ("seed", "chunk")  # settings that do not part runs
_FIRST = ("algorithm", "problem", "network")  # settings whose kinds are told by name alone


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


@dataclass(frozen=True)
class Entry:
    """The runs of one setting, which differ in their seeds."""

    label: str  # what tells it from the other settings
    runs: tuple[OneRun, ...]


def read(folders: Sequence[str | Path]) -> list[Entry]:
    """The runs in these folders, those of one setting together, in the order given.

    Raises FileNotFoundError for a folder that holds no run, ValueError for a damaged one and for one given twice.
    """
    runs = [_run(Path(folder)) for folder in folders]
    places = [run.folder.resolve() for run in runs]
    if len(set(places)) < len(places):
        again = next(place for place in places if places.count(place) > 1)
        raise ValueError(f"Expected every run once, got {again} twice. Name it once.")
    groups: dict[str, list[OneRun]] = {}
    for run in runs:
        told = {
            path: value for path, value in yaml_text.flat(yaml_text.plain(run.config)).items() if path not in _UNLIKE
        }
        groups.setdefault(json.dumps(told, sort_keys=True), []).append(run)
    labels = _labels([yaml_text.flat(yaml_text.plain(group[0].config)) for group in groups.values()])
    return [Entry(label, tuple(group)) for label, group in zip(labels, groups.values())]


def differing(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """The paths of what is not the same everywhere, but for seeds."""
    paths = dict.fromkeys(path for one in settings for path in one)
    return [path for path in paths if path not in _UNLIKE and len({repr(one.get(path)) for one in settings}) > 1]


def _labels(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """A name each: the algorithm, and what differs among those with the same one."""
    kinds = [str(one["algorithm.kind"]) for one in settings]
    labels: list[str] = []
    for kind, one in zip(kinds, settings):
        alike = [other for name, other in zip(kinds, settings) if name == kind]
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
    short = name.partition(".")[2] if name.startswith("algorithm.") else name
    return f"{short} {'none' if value is None else value}"


def _run(folder: Path) -> OneRun:
    if not folder.is_dir():
        raise FileNotFoundError(f"Expected the folder of a run, got {str(folder)!r}, which is not there.")
    if (folder / "curves.csv").is_file():
        raise ValueError(f"Expected runs, got the comparison {str(folder)!r}. Its page is report.html in it.")
    if (folder / "study.yaml").is_file():
        raise ValueError(
            f"Expected runs, got the sweep {str(folder)!r}. Its page is report.html in it; where there is none yet: "
            f"jdfl resume {folder}"
        )
    if not (folder / "config.yaml").is_file():
        raise FileNotFoundError(f"Expected the folder of a run, got {str(folder)!r}, which has no config.yaml.")
    tables = {Path(name).stem: found for name in TABLES if (found := _table(folder / name)) is not None}
    if (folder / "summary.json").is_file():
        run = read_run(folder)
        told = _read(folder / "provenance.json", lambda text: dict(json.loads(text)))
        text, rest = run.config_yaml, (run.history, run.summary, run.environment, told)
    else:
        history = _table(folder / "metrics.csv")
        if history is None or history.empty:
            raise FileNotFoundError(
                f"Expected records in {str(folder)!r}, found none yet. If the run was cut off: jdfl resume {folder}"
            )
        text = _read(folder / "config.yaml", str)
        environment = _read(folder / "environment.json", lambda text: dict(json.loads(text)))
        rest = (history, dict[str, Any](), environment, dict[str, Any]())
    return OneRun(folder, from_yaml(text), text, *rest, tables)


def _table(file: Path) -> pd.DataFrame | None:
    """The whole rows of a table, or None without any."""
    if not file.is_file():
        return None
    try:
        text = file.read_text(encoding="utf-8")
        whole = text[: text.rfind("\n") + 1]  # the last row may be under way
        return pd.read_csv(io.StringIO(whole), index_col=False).astype(float) if whole.count("\n") > 1 else None
    except ValueError as error:
        raise ValueError(f"Expected a table of numbers in {file}: {str(error)[:200]}. It is damaged.") from error


def _read(file: Path, make: Callable[[str], Any]) -> Any:
    try:
        return make(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise FileNotFoundError(f"Expected {file.name} in the folder of a run, found none in {file.parent}.") from None
    except (ValueError, TypeError, RecursionError) as error:
        raise ValueError(f"Expected {file} as a run writes it, got something else: {str(error)[:200]}.") from error
