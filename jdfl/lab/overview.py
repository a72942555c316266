"""One page about one run or several: `jdfl report` and `Result.report`.

Runs are read from their folders or taken from results. Runs of one setting, which differ in their seeds, are an entry.
"""

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from jdfl.algorithms import REGISTRY as ALGORITHMS
from jdfl.config import from_yaml, yaml_text
from jdfl.engine.metrics import COUNTS, REGISTRY
from jdfl.engine.progress import announced
from jdfl.engine.records import check_settings
from jdfl.engine.result import BAD, Result
from jdfl.events import REGISTRY as ASYNCHRONOUS
from jdfl.lab import charts
from jdfl.lab.curves import AXES, BAND, LABELS, Bands, labelled
from jdfl.lab.files import read
from jdfl.lab.page import Code, Fold, Part, Section, Table, Tiles, page
from jdfl.lab.results import environment, read_run, tables
from jdfl.lab.stored import load
from jdfl.lab.summary import as_paragraphs, bytes_text, summary, together
from jdfl.lab.table import PM, half_width, rounded
from jdfl.lab.watch import TABLES, Lanes
from jdfl.privacy import Ledger
from jdfl.privacy.report import upper, worth
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
_TABLES = (*TABLES, "releases")
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
    return _write(_entries(folders), path, title)


def write_report(result: Result, path: str | Path) -> Path:
    """Write one HTML file about a result; returns the path.

    Args:
        result: The finished run.
        path: The file, which is replaced if it is there.
    """
    run = _Run.of(result, environment())
    return _write([_Entry(run.algorithm, (run,))], path, "")


@dataclass(frozen=True)
class _Run:
    """A run as a page shows it; `summary`, `environment` and `provenance` are empty where it was cut off."""

    algorithm: str  # its kind
    problem: str  # the kind or the name of the problem
    data: str  # the same for runs on the same data
    nodes: int
    seed: Any  # None: it is not known
    settings: dict[str, Any]  # by dotted path
    history: pd.DataFrame
    summary: dict[str, Any]
    environment: dict[str, Any]
    provenance: dict[str, Any]
    config_yaml: str = ""  # the settings as a file; empty: the run has none
    folder: str = ""  # where it was read from; empty: nowhere
    tables: dict[str, pd.DataFrame] = field(default_factory=dict[str, pd.DataFrame])  # those that have rows

    @staticmethod
    def of(result: Result, where: dict[str, Any], folder: str = "") -> "_Run":
        numbers, found = summary(result), result.provenance.settings
        settings = {f"{path}.kind" if path in _FIRST else path: value for path, value in found.items()}
        data = json.dumps([one for one in found.items() if one[0].startswith("problem")])
        kind, seed = found.get("algorithm", "algorithm"), result.labels.get("seed")
        about = kind, result.problem_name, data, numbers["nodes"], seed, settings, result.history
        return _Run(*about, numbers, where, result.provenance.as_dict(), folder=folder)

    @property
    def ending(self) -> str:
        return str(self.summary.get("ending", "cut off"))

    @property
    def of_seed(self) -> str:
        """The seed in words, after a comma; empty where it is not known."""
        return "" if self.seed is None else f", seed {self.seed}"


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
    given = f"got {str(folder)!r}, which"
    if not folder.is_dir():
        raise FileNotFoundError(f"Expected the folder of a run, {given} is not there.")
    for name, (what, remedy) in _NO_RUNS.items():
        if (folder / name).is_file():
            place = f"Its page is report.html in it{remedy.format(folder) or '.'}"
            raise ValueError(f"Expected runs, got the {what} {str(folder)!r}. {place}")
    manifest.check(folder, [*_READ, *(f"{name}.csv" for name in _TABLES)])
    if not (folder / "config.yaml").is_file():
        result = load(folder)
        assert isinstance(result, Result)  # a comparison has curves.csv
        return _Run.of(result, read(folder / "environment.json"), str(folder))
    numbers, where, origin = dict[str, Any](), dict[str, Any](), dict[str, Any]()
    if (folder / manifest.NAME).is_file():
        run = read_run(folder)
        text, history, numbers, where = run.config_yaml, run.history, run.summary, run.environment
        origin = read(folder / "provenance.json")
        paths = {name: folder / f"{name}.csv" for name in _TABLES}
        found = {name: read(path) for name, path in paths.items() if path.is_file()}
    else:
        try:
            found = tables(folder)
            history = found.pop("metrics")
        except (FileNotFoundError, ValueError, KeyError) as error:
            raise FileNotFoundError(
                f"Expected records in {str(folder)!r}, found none yet. If the run was cut off: jdfl resume {folder}"
            ) from error
        text = read(folder / "config.yaml")
        check_settings(text, folder / "config.yaml")
    found = {name: table for name, table in found.items() if len(table)}
    config = from_yaml(text)
    nodes = numbers.get("nodes") or getattr(config.problem, "m", 0)
    settings = yaml_text.flat(yaml_text.plain(config))
    about = config.algorithm.kind, config.problem.kind, repr(config.problem), nodes, config.seed, settings
    return _Run(*about, history, numbers, where, origin, text, str(folder), found)


def _write(entries: Sequence[_Entry], path: str | Path, title: str) -> Path:
    runs = _runs(entries)
    hashes = sorted({run.provenance.get("hash", "unknown") for run in runs})
    kinds = dict.fromkeys(run.algorithm for run in runs), dict.fromkeys(run.problem for run in runs)
    foot = f"Made by jdfl from {len(runs)} run(s); provenance {', '.join(hashes)}."
    return page(path, title or " on ".join(map(", ".join, kinds)), list(_sections(entries)), foot)


def _runs(entries: Iterable[_Entry]) -> list[_Run]:
    return [run for entry in entries for run in entry.runs]


def _sections(entries: Sequence[_Entry]) -> Iterator[Section]:
    yield Section("What was run", list(_about(entries)))
    yield Section("Curves", _curves(entries))
    drawn = [(entry, entry.runs[0]) for entry in entries[:_NETWORKS]]
    if networks := [(entry, chart) for entry, run in drawn if (chart := _network(run)) is not None]:
        yield Section("Network", [_NODES, *_apart(entries, networks)])
    if timelines := [(entry, charts.timeline(lanes)) for entry, run in drawn if (lanes := _lanes(run)) is not None]:
        yield Section("Timeline", _apart(entries, timelines))
    unknown = "Nothing can be claimed before the run has ended."
    firsts = [(entry, entry.runs[0].summary) for entry in entries]
    privacy = [(one, as_paragraphs(numbers["privacy"]["statement"]) if numbers else unknown) for one, numbers in firsts]
    yield Section("Privacy", [*_together(entries), *_apart(entries, privacy)])
    splits: list[tuple[_Entry, pd.DataFrame]] = []
    for entry in entries:
        table = entry.runs[0].tables.get("split")
        if table is not None and not any(np.array_equal(table, other) for _, other in splits):
            splits.append((entry, table))
    if splits:
        yield Section("Data partition", _apart(entries, [(entry, _split(table)) for entry, table in splits]))
    yield Section("Costs", [_costs(entries)])
    yield Section("Settings and provenance", list(_settings(entries)))


def _apart(entries: Sequence[_Entry], parts: Iterable[tuple[_Entry, Part]]) -> list[Part]:
    """Parts about one entry each, below its label where there are several."""
    return [part if len(entries) == 1 else Fold(entry.label, [part]) for entry, part in parts]


def _about(entries: Sequence[_Entry]) -> Iterator[Part]:
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


def _warnings(run: _Run, ended: str) -> Iterator[str]:
    if not run.summary:
        yield f"It was cut off: these are the records so far. Resume it: jdfl resume {run.folder}"
        return
    if run.ending not in ("steps", "stop rule"):
        yield f"{ended} after {run.summary['rounds']} rounds ({run.ending}): {run.summary['reason']}."
    yield from (f"Warning: {warning}." for warning in run.summary["warnings"])


def _curves(entries: Sequence[_Entry]) -> list[Part]:
    """Every metric against every cost, with bands over the seeds."""
    frames: list[pd.DataFrame] = []
    differ = len(_promises(entries)) > 1
    for entry in entries:
        for place, run in enumerate(entry.runs):  # several may have the same seed
            numbers = run.summary
            ending = f"{run.ending}, shown" if run.ending in BAD else run.ending  # a page shows its records, too
            per_round = numbers["seconds"] / max(1, numbers["rounds"]) if numbers else None
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
    first = int(np.sum((links["node"] >= 0) & (links["round"] == links["round"].min())))
    return charts.network(nodes, links, f"A network of {some} with {first} links in the first recorded round.")


def _lanes(run: _Run) -> Lanes | None:
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


def _tiles(entry: _Entry) -> Tiles:
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


def _compared(entries: Sequence[_Entry]) -> Table:
    """The final state of the runs of several settings, a row for each."""
    names = _metric_names([str(name) for name in entries[0].runs[0].history.columns])
    shared = [name for name in names if all(name in run.history for run in _runs(entries))]
    differ = len(_promises(entries)) > 1
    rows: list[list[Any]] = []
    for entry in entries:
        last = [run.history.iloc[-1] for run in entry.runs]
        measured = [_spread(last, name) for name in ("round", *shared)]
        epsilon = ", ".join([_epsilon(entry)[0], *(_promises([entry]) if differ else ())])
        rows.append([entry.label, len(last), *measured, _spread(last, "bytes", _spread_of_bytes), epsilon])
    pm = f" {PM}" if any(len(entry.runs) > 1 for entry in entries) else ""
    measures = [f"{name.replace('_', ' ')}{pm}" for name in ("rounds", *shared, "bytes sent")]
    return Table(["setting", "runs", *measures, "epsilon"], rows)


def _costs(entries: Sequence[_Entry]) -> Table:
    """What every run sent and computed, and its times."""
    rows: list[list[str]] = []
    for entry in entries:
        for run in (run for run in entry.runs if run.summary):
            numbers, talk = run.summary, run.summary["communication_rounds"]
            sent = [numbers[name].items() for name in ("messages", "message_bits")]
            rows.append(
                [
                    entry.label + (run.of_seed if len(entry.runs) > 1 else ""),
                    *("\n".join(f"{channel}: {n:,}" for channel, n in one) for one in sent),
                    *(f"{numbers['bytes']:,.1f}", f"{numbers['gradients']:,}", f"{numbers['example_gradients']:,}"),
                    f"{talk['min']} to {talk['max']}, mean {talk['mean']:.1f}",
                    *(f"{numbers[name]:.2f}" for name in ("seconds", "compile_seconds")),
                ]
            )
    return Table(_COSTS.split("; "), rows)


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


def _spread(records: Sequence[Any], name: str, write: Callable[[float, float], str] = rounded) -> str:
    """Mean of one number and half-width of its 95 % interval; values that are not finite are counted."""
    good = [float(one[name]) for one in records if np.isfinite(one[name])]
    if not good:
        return "not finite"
    text = write(fmean(good), half_width(np.array(good)) if len(set(good)) > 1 else math.nan)
    return text if len(good) == len(records) else f"{text} ({len(records) - len(good)} not finite)"


def _spread_of_bytes(mean: float, half: float) -> str:
    return bytes_text(mean) + (f" ± {bytes_text(half)}" if math.isfinite(half) else "")
