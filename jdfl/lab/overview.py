"""One page about one run or several: `jdfl report` and `Result.report`.

Runs are read from their folders or taken from results. Runs of one setting, which differ in their seeds, are an entry.
"""

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from jdfl.algorithms import REGISTRY as ALGORITHMS
from jdfl.config import from_yaml, yaml_text
from jdfl.engine.metrics import COUNTS, REGISTRY
from jdfl.engine.progress import announced
from jdfl.engine.result import BAD, Result
from jdfl.events import REGISTRY as ASYNCHRONOUS
from jdfl.lab import charts
from jdfl.lab.curves import AXES, BAND, LABELS, band, labelled
from jdfl.lab.page import Chart, Code, Fold, Part, Section, Table, page
from jdfl.lab.table import PM, better, half_width, rounded
from jdfl.privacy import Ledger
from jdfl.privacy.report import upper, worth
from jdfl.results.folder import TABLES, environment, read_run, tables
from jdfl.results.summary import as_paragraphs, summary, summary_text, together
from jdfl.store import manifest
from jdfl.store.files import read

_UNLIKE = ("seed", "chunk", "key")  # settings in which runs of one entry may differ
_FIRST = ("algorithm", "problem", "network")  # settings whose kinds are named without the setting
_FILES = ("config.yaml", "environment.json", "metrics.parquet", "params.npz", "provenance.json", "summary.json")
_TABLES = (*TABLES, "releases")
_AXES = {**AXES, "epsilon": "epsilon of the worst node"}
_AMOUNTS = ("round", "bytes", "epsilon", "network_seconds")  # that are drawn
_BARS = 128  # nodes
_NETWORKS = 6  # settings whose networks and timelines are drawn
_SAME_NOISE = (
    "No total is given: the same run is there under several versions of the code. They have the same noise, and may "
    "use it differently."
)
_NODES = (
    "Nodes are coloured by the distance of their parameters to the mean at the end. Lines join nodes if one receives "
    "from the other. All values are in nodes.csv."
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
    return _write(_entries(folders), path, title)


def write_report(result: Result, path: str | Path) -> Path:
    """Write one HTML file about a result; returns the path."""
    run = _run(result.history, summary(result), environment(), result.provenance.as_dict())
    return _write([_Entry(run.algorithm, (run,))], path, "")


@dataclass(frozen=True)
class _Run:
    """A run as a page shows it; `summary`, `environment` and `provenance` are empty where it was cut off."""

    history: pd.DataFrame
    summary: dict[str, Any]
    environment: dict[str, Any]
    provenance: dict[str, Any]
    settings: dict[str, Any]  # by dotted path
    seed: Any  # None: it is not known
    nodes: int
    config_yaml: str  # the settings as a file; empty: the run has none
    folder: str  # where it was read from; empty: nowhere
    tables: dict[str, pd.DataFrame]  # those that have rows

    @property
    def algorithm(self) -> str:
        return str(self.settings.get("algorithm.kind", "algorithm"))

    @property
    def problem(self) -> str:
        return str(self.settings.get("problem.kind", "problem"))

    @property
    def data(self) -> str:
        """The same for runs on the same data."""
        return json.dumps([one for one in self.settings.items() if one[0].startswith("problem")])

    @property
    def ending(self) -> str:
        return str(self.summary.get("ending", "cut off"))

    @property
    def of_seed(self) -> str:
        """The seed in words, after a comma; empty where it is not known."""
        return "" if self.seed is None else f", seed {self.seed}"


def _run(
    history: pd.DataFrame,
    numbers: dict[str, Any],
    where: dict[str, Any],
    origin: dict[str, Any],
    text: str = "",
    folder: str = "",
    found: Mapping[str, pd.DataFrame] | None = None,
) -> _Run:
    """A run with its settings, from those of its configuration or else of its provenance."""
    known = {name: table for name, table in (found or {}).items() if len(table)}
    if text:
        config = from_yaml(text)
        seed, nodes = config.seed, numbers.get("nodes") or getattr(config.problem, "m", 0)
        settings = yaml_text.flat(yaml_text.plain(config))
    else:
        seed, nodes = numbers["labels"].get("seed"), numbers["nodes"]
        settings = {f"{path}.kind" if path in _FIRST else path: one for path, one in origin["settings"].items()}
    return _Run(history, numbers, where, origin, settings, seed, nodes, text, folder, known)


class _Entry(NamedTuple):
    label: str  # what distinguishes it from the other settings
    runs: tuple[_Run, ...]


def _entries(folders: Sequence[str | Path]) -> list[_Entry]:
    """The runs in these folders, those of one setting together, in the order given."""
    runs = [_read(Path(folder)) for folder in folders]
    places = [Path(run.folder).resolve() for run in runs]
    for again in places:
        if places.count(again) > 1:
            raise ValueError(f"Expected every run once, got {again} twice. Name it once.")
    groups: dict[str, list[_Run]] = {}
    for run in runs:
        alike = {path: value for path, value in run.settings.items() if path not in _UNLIKE}
        groups.setdefault(json.dumps(alike, sort_keys=True), []).append(run)
    settings, labels = [group[0].settings for group in groups.values()], list[str]()
    for one in settings:  # the algorithm, and what differs among settings with the same one
        kind = str(one["algorithm.kind"])
        alike = [other for other in settings if other["algorithm.kind"] == kind]
        shared = [path for path in _differing(alike) if all(path in other for other in alike)]
        words = [_words(path, one[path]) for path in sorted(shared, key=lambda path: not path.endswith("kind"))]
        labels.append(", ".join([kind, *words[:4]]))
    if len(set(labels)) < len(labels):
        labels = [f"{label} ({i + 1})" for i, label in enumerate(labels)]
    return [_Entry(label, tuple(group)) for label, group in zip(labels, groups.values())]


def _differing(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """The paths of settings that are not the same everywhere, except for seeds."""
    paths = dict.fromkeys(path for one in settings for path in one)
    return [path for path in paths if path not in _UNLIKE and len({repr(one.get(path)) for one in settings}) > 1]


def _words(path: str, value: Any) -> str:
    name = path.removesuffix(".kind")
    return str(value) if name in _FIRST else f"{name.removeprefix('algorithm.')} {'none' if value is None else value}"


def _read(folder: Path) -> _Run:
    if not folder.is_dir():
        raise FileNotFoundError(f"Expected the folder of a run, got {str(folder)!r}, which is not there.")
    for name, what in {"curves.csv": "comparison", "study.yaml": "sweep"}.items():
        if (folder / name).is_file():
            raise ValueError(
                f"Expected runs, got the {what} {str(folder)!r}. Its page is report.html in it; if there is none yet: "
                f"jdfl resume {folder}"
            )
    manifest.check(folder, [*_FILES, *(f"{name}.csv" for name in _TABLES)])
    if (folder / manifest.NAME).is_file():
        run, paths = read_run(folder), {name: folder / f"{name}.csv" for name in _TABLES}
        found = {name: read(path) for name, path in paths.items() if path.is_file()}
        given = run.history, run.summary, run.environment, read(folder / "provenance.json"), run.config_yaml
        return _run(*given, str(folder), found)
    try:
        found = tables(folder)
        history = found.pop("metrics")
    except (FileNotFoundError, ValueError, KeyError) as error:
        raise FileNotFoundError(
            f"Expected records in {str(folder)!r}, found none yet. If the run was cut off: jdfl resume {folder}"
        ) from error
    text = read(folder / "config.yaml")
    manifest.check_signed(text, folder / "config.yaml")
    return _run(history, {}, {}, {}, text, str(folder), found)


def _write(entries: Sequence[_Entry], path: str | Path, title: str) -> Path:
    runs = _runs(entries)
    hashes = sorted({run.provenance.get("hash", "unknown") for run in runs})
    kinds = dict.fromkeys(run.algorithm for run in runs), dict.fromkeys(run.problem for run in runs)
    foot = f"Made by jdfl from {len(runs)} run(s); provenance {', '.join(hashes)}."
    return page(path, title or " on ".join(map(", ".join, kinds)), list(_sections(entries)), foot)


def _runs(entries: Iterable[_Entry]) -> list[_Run]:
    return [run for entry in entries for run in entry.runs]


def _sections(entries: Sequence[_Entry]) -> Iterator[Section]:
    curves = _Curves(entries)
    first, *few = curves.metrics or [""]
    drawing: list[Part] = [curves.words, curves.chart(first, curves.axes)] if first else []
    yield Section("Result", [*_conclusion(entries, first), *_about(entries), *drawing, _final(entries)])
    more: list[Part] = [Fold(name.replace("_", " "), [curves.chart(name, curves.axes[:2])]) for name in few]
    drawn = [(entry, entry.runs[0]) for entry in entries[:_NETWORKS]]
    if networks := [(entry, chart) for entry, run in drawn if (chart := _network(run)) is not None]:
        more.append(Fold("Network", [_NODES, *_apart(entries, networks[:1])]))
    if timelines := [(entry, chart) for entry, run in drawn if (chart := _timeline(run)) is not None]:
        more.append(Fold("Timeline", _apart(entries, timelines)))
    splits: list[tuple[_Entry, pd.DataFrame]] = []
    for entry in entries:
        table = entry.runs[0].tables.get("split")
        if table is not None and not any(np.array_equal(table, other) for _, other in splits):
            splits.append((entry, table))
    if splits:
        more.append(Fold("Data partition", _apart(entries, [(entry, _split(table)) for entry, table in splits])))
    yield Section("More figures", more)
    unknown = "Nothing can be claimed before the run has ended."
    firsts = [(entry, entry.runs[0].summary) for entry in entries]
    privacy = [(one, as_paragraphs(numbers["privacy"]["statement"]) if numbers else unknown) for one, numbers in firsts]
    yield Section("Privacy", [*_together(entries), *_apart(entries, privacy)])
    texts = [Fold(f"Costs of {entry.label}", [Code(summary_text(numbers))]) for entry, numbers in firsts if numbers]
    yield Section("Settings, costs and provenance", [*texts, *_settings(entries)])


def _apart(entries: Sequence[_Entry], parts: Iterable[tuple[_Entry, Part]]) -> list[Part]:
    """Parts about one entry each, below its label where there are several."""
    return [part if len(entries) == 1 else Fold(entry.label, [part]) for entry, part in parts]


def _conclusion(entries: Sequence[_Entry], metric: str) -> Iterator[str]:
    """What the runs reached, in a sentence; nothing is ranked, since they may differ in costs and were not tuned."""
    ends = {
        one.label: [float(run.history[metric].iloc[-1]) for run in one.runs if metric in run.history] for one in entries
    }
    known = {label: values for label, values in ends.items() if metric and values and np.isfinite(values).all()}
    if known:
        sign, name = better(metric), metric.replace("_", " ")
        label = min(known, key=lambda label: sign * fmean(known[label]))
        value = rounded(fmean(known[label]), half_width(np.array(known[label])))
        most = f"{label} has the {'lowest' if sign > 0 else 'highest'} {name}, {value}" if len(entries) > 1 else ""
        yield f"At the end {most or f'{name} is {value}'}" + ("; costs and tuning may differ." if most else ".")


def _about(entries: Sequence[_Entry]) -> Iterator[str]:
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


def _warnings(run: _Run, ended: str) -> Iterator[str]:
    if not run.summary:
        yield f"It was cut off: these are the records so far. Resume it: jdfl resume {run.folder}"
        return
    if run.ending not in ("steps", "stop rule"):
        yield f"{ended} after {run.summary['rounds']} rounds ({run.ending}): {run.summary['reason']}."
    yield from (f"Warning: {warning}." for warning in run.summary["warnings"])


class _Curves:
    """The records of all runs, and the few metrics and amounts that are drawn."""

    def __init__(self, entries: Sequence[_Entry]) -> None:
        frames: list[pd.DataFrame] = []
        differ = len(_promises(entries)) > 1
        for entry in entries:
            for place, run in enumerate(entry.runs):  # several may have the same seed
                numbers = run.summary
                ending = f"{run.ending}, shown" if run.ending in BAD else run.ending  # a page shows its records, too
                per_round = numbers["seconds"] / max(1, numbers["rounds"]) if numbers else None
                frame = labelled(run.history, (entry.label, place, ending), run.nodes, per_round)
                frames.append(frame.assign(epsilon=np.nan if differ else _epsilon_by_round(run)))
        self.table = pd.concat(frames, ignore_index=True)
        self.labels = [entry.label for entry in entries]
        names = _metric_names([str(name) for name in self.table.columns if name not in (*_AXES, *LABELS)])
        self.metrics = charts.chosen(names)
        known = {x: self.table[x].to_numpy(float) for x in _AMOUNTS if x in self.table}
        self.axes = [x for x, used in known.items() if np.all(used >= 0) and np.any(used > 0)]
        self.band = BAND if any(len(entry.runs) > 1 for entry in entries) else ""
        shown = f"Drawn are {', '.join(self.metrics)}" if len(names) > len(self.metrics) else "All metrics are drawn"
        differing = "Epsilons do not promise the same: there are no curves against them. " if differ else ""
        self.words = f"{differing}{shown.replace('_', ' ')}; metrics.csv of every run has all metrics and costs."

    def chart(self, metric: str, amounts: Sequence[str]) -> Chart:
        """The means of a metric with their intervals, against each of some amounts."""
        views = (((x, metric), band(self.table, x, metric)) for x in amounts)
        return charts.curves(views, _AXES, f"{metric} against {', '.join(amounts)}", self.labels, self.band)


def _epsilon_by_round(run: _Run) -> np.ndarray:
    """An upper bound for every record: epsilon at the next moment whose releases are known; NaN where there is none."""
    rounds, known = run.history["round"].to_numpy(float), run.tables.get("releases")
    privacy: dict[str, Any] = run.summary.get("privacy", {})
    if known is None or not privacy.get("report") or privacy["ledger"] is None:
        return np.full(len(rounds), np.nan)
    ledger, delta = Ledger.from_dict(privacy["ledger"]), privacy["report"]["delta"]
    total = np.inf if privacy["report"]["epsilon"] is None else privacy["report"]["epsilon"]
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


def _network(run: _Run) -> Part | None:
    """The network with the values of its nodes; None where the run did not keep them."""
    nodes, links = run.tables.get("nodes"), run.tables.get("links")
    if nodes is None or links is None:
        return None
    shown, m = nodes["node"].nunique(), run.nodes
    some = f"{shown} of {m} nodes" if shown < m else f"{m} nodes"
    value = next(name for name in ("distance", "communications") if name in nodes)
    nodes = nodes[[name for name in ("round", "node", "name", value) if name in nodes]]
    count = int(np.sum((links["node"] >= 0) & (links["round"] == links["round"].max())))
    return charts.network(nodes, links, f"A network of {some} with {count} links in the last recorded round.")


def _timeline(run: _Run) -> Part | None:
    """The first events of some nodes, until the end of the run; None for a run that did not keep any."""
    events, method = run.tables.get("timeline"), ASYNCHRONOUS.get(run.algorithm)
    if events is None or method is None:
        return None
    end = float(run.history["round"].max()) * float(run.settings["algorithm.period"])
    if run.ending == "budget":  # the run has ended before the event at this time, which is a float32
        end = min(end, float(run.history["network_seconds"].iloc[-1]) * (1 - 1e-6))
    events = events[events["time"] <= end]
    alt = (
        f"The first {len(events):,} events of {events['node'].nunique()} of the {run.nodes:,} nodes of {method.title}."
    )
    return charts.timeline(events, [kind.name for kind in method.kinds], alt)


def _split(table: pd.DataFrame) -> Part:
    """Number of examples of every node, by class where there are classes."""
    few, counts = table.iloc[:_BARS], table["examples"].to_numpy(int)
    classes = [name for name in table.columns if name.startswith("class_")]
    columns = {name.replace("_", " "): few[name].tolist() for name in classes or ["examples"]}
    some = "" if len(few) == len(table) else f" (the first {_BARS} of {len(table)})"
    alt = f"Number of examples of {len(few)} nodes{some}: from {counts.min()} to {counts.max()} per node"
    return charts.bars(few.get("name", few["node"].astype(int)).tolist(), columns, "node", "examples", alt)


def _together(entries: Sequence[_Entry]) -> Iterator[str]:
    """The total epsilon of publishing all runs on the same problem, where there are several."""
    same: dict[str, list[_Run]] = {}
    for run in _runs(entries):
        same.setdefault(run.data, []).append(run)
    for runs in same.values():
        ended = [run for run in runs if run.summary]
        spent = together([run.summary for run in ended]) if len(ended) > 1 else None
        if spent is not None:
            versions: dict[str, list[Any]] = {}  # of the code, by settings
            for run in ended:
                versions.setdefault(repr(run.provenance.get("settings")), []).append(run.provenance.get("versions"))
            several = any(one != some[0] for some in versions.values() for one in some)
            named = f"{runs[0].problem}: " if len(same) > 1 else ""
            yield f"{named}{_SAME_NOISE if several else spent.statement()}"


def _settings(entries: Sequence[_Entry]) -> Iterator[Part]:
    settings = [entry.runs[0].settings for entry in entries]
    paths = _differing(settings)
    if len(entries) > 1 and paths:
        yield "Settings that differ:"
        rows = [[path, *(str(one.get(path, "")) for one in settings)] for path in paths]
        yield Table(["setting", *(entry.label for entry in entries)], rows)
    for entry in entries:
        named = f" of {entry.label}" if len(entries) > 1 else ""
        run = entry.runs[0]
        if found := getattr((ALGORITHMS | ASYNCHRONOUS).get(run.algorithm), "provenance", ()):
            yield f"The method{named} was written from: {', '.join(found)}."
        lines = "\n".join(f"{name}: {one}" for name, one in run.settings.items())
        title = f"Settings{named}" + (", as config.yaml" if run.config_yaml else "")
        yield Fold(title, [Code(run.config_yaml or lines)])
    rows: list[list[Any]] = []
    for run in _runs(entries):
        where, source = run.environment, run.provenance
        versions = [source.get("versions", {}).get(name, "") for name in ("jdfl", "code", "jax")]
        begun, origin, device = where.get("date", ""), source.get("hash", ""), where.get("device", "")
        rows.append([run.folder, "" if run.seed is None else run.seed, begun, origin, *versions, device])
    yield Table(_ORIGIN, rows)


def _final(entries: Sequence[_Entry]) -> Table:
    """The final state of the runs, a row for every setting."""
    names = _metric_names([str(name) for name in entries[0].runs[0].history.columns])
    shared = ["round", *(name for name in names if all(name in run.history for run in _runs(entries))), "bytes"]
    differ = len(_promises(entries)) > 1
    rows: list[list[Any]] = []
    for entry in entries:
        last = [run.history.iloc[-1] for run in entry.runs]
        ending = ", ".join(dict.fromkeys(run.ending for run in entry.runs))
        epsilon = ", ".join([*_epsilon(entry), *(_promises([entry]) if differ else ())])
        rows.append([entry.label, len(last), ending, *(_spread(last, name) for name in shared), epsilon])
    pm = f" {PM}" if any(len(entry.runs) > 1 for entry in entries) else ""
    titles = {"round": "rounds", "bytes": "bytes sent by all nodes"}
    measures = [f"{titles.get(name, name).replace('_', ' ')}{pm}" for name in shared]
    return Table(["setting", "runs", "ended by", *measures, "epsilon"], rows)


def _metric_names(columns: Sequence[str]) -> list[str]:
    """The metrics among the columns of a history, those of jdfl first, in their order."""
    own, found = list(REGISTRY), [name for name in columns if name not in COUNTS]
    return [name for name in own if name in found] + [name for name in found if name not in own]


def _reports(entries: Iterable[_Entry]) -> list[dict[str, Any] | None]:
    return [run.summary["privacy"].get("report") for run in _runs(entries) if run.summary]


def _promises(entries: Sequence[_Entry]) -> list[str]:
    """What the epsilons of these settings promise, each kind once: unit of protection, observer and delta."""
    return list(dict.fromkeys(worth(one) for one in _reports(entries) if one is not None))


def _epsilon(entry: _Entry) -> tuple[str, str]:
    """Epsilon of the worst run and what it promises, in words."""
    reports = _reports([entry])
    known = [one for one in reports if one is not None]
    if not known or len(known) < len(reports):
        return "none", "no guarantee is claimed"
    worst = max(known, key=lambda one: np.inf if one["epsilon"] is None else one["epsilon"])
    value = "infinite" if worst["epsilon"] is None else upper(worst["epsilon"])
    if not worst["sound"]:
        return value, "as published, no guarantee"
    return value, f"at delta = {worst['delta']:g}, worst node"


def _spread(records: Sequence[Any], name: str) -> str:
    """Mean of one number and half-width of its 95 % interval; values that are not finite are counted."""
    good = [float(one[name]) for one in records if np.isfinite(one[name])]
    if not good:
        return "not finite"
    text = rounded(fmean(good), half_width(np.array(good)) if len(set(good)) > 1 else math.nan)
    return text if len(good) == len(records) else f"{text} ({len(records) - len(good)} not finite)"
