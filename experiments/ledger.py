"""The ledger of claims: `papers/*.yaml`, one file per paper, and `results/`, the output of full runs.

`python -m experiments NAMES --record` keeps the output of experiments in `results/`; the numbers of all sentences and
tables about the papers are filled in from there (`experiments.pages`). A claim without a command cannot be written.
Claims about the library itself stand next to these, also from the figures of benchmarks (`run: benchmarks.NAME`).
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from experiments.claim import FINDINGS, PLACE, READING, VERDICTS, Cell, Claim
from experiments.common import Row

FOLDER = Path(__file__).parent
PAPERS, RESULTS = FOLDER / "papers", FOLDER / "results"
MEASURED, BENCHMARKS = "benchmarks.", FOLDER.parent / "benchmarks"
_NEEDED = ("id", "place", "kind", "found", "run", "numbers")
_MORE: dict[str, Any] = {
    "quotation": "",
    "holds": (),
    "quick": 0.1,
    "small": True,
    "jdfl": "",
    "test": "",
    "context": "",
}
_CELL = re.compile(
    r"(?:(?P<take>min|max|mean|median|count) of )?(?P<case>.*) -> (?P<column>.*?)"
    r"(?: : (?P<field>mean|sd|paper|seeds|off|ratio|apart))?"
)


@dataclass(frozen=True)
class Column:
    """A column of a table of a page."""

    head: str
    case: str  # the case, with `{row}` where the row's head stands
    column: str
    show: str  # a format of `Value`: `paper`, `ci`, `both` or one of Python's


@dataclass(frozen=True)
class Table:
    """A table of a page, from the output of one experiment."""

    id: str
    run: str
    head: str
    rows: tuple[str, ...]
    columns: tuple[Column, ...]
    lowest: bool = False  # whether the lowest number of every column is bold
    published: str = ""  # the head of a first row with the paper's numbers, where these are the same for all rows


@dataclass(frozen=True)
class Paper:
    """A paper and all that is claimed about it."""

    name: str
    cite: str
    title: str
    claims: tuple[Claim, ...]
    tables: tuple[Table, ...]
    artefacts: Mapping[str, str]  # its tables and figures with results, and the experiment of each
    experiments: Mapping[str, tuple[str, ...]]  # the same, with further experiments on the same table or figure

    @property
    def missing(self) -> dict[str, str]:
        """The tables and figures that no claim speaks about, and the experiment of each."""
        said = [one.place for one in self.claims if one.kind in VERDICTS or one.kind in FINDINGS]
        return {
            name: run for name, run in self.artefacts.items() if not any(re.match(rf"{name}\b", one) for one in said)
        }


def papers(folder: Path = PAPERS) -> dict[str, Paper]:
    """All papers of the ledger, by the names of their files.

    Raises:
        ValueError: For a claim that lacks a part, first of all its command, or has one that is unknown.
    """
    return {path.stem: _paper(path) for path in sorted(folder.glob("*.yaml"))}


def claims(folder: Path = PAPERS, run: str = "") -> list[Claim]:
    """All claims of all papers, or those whose numbers an experiment has."""
    paths = [path for path in sorted(folder.glob("*.yaml")) if f"run: {run}" in path.read_text(encoding="utf-8")]
    return [claim for path in paths for claim in _paper(path).claims if run in ("", claim.run)]


def rows_of(run: str, results: Path = RESULTS) -> list[Row]:
    """The recorded rows of an experiment, or a benchmark's figures. FileNotFoundError where it was not recorded."""
    if run.startswith(MEASURED):
        text = (BENCHMARKS / "results" / f"{run.removeprefix(MEASURED)}.json").read_text(encoding="utf-8")
        return [Row(one["case"], one["measure"], None, one["value"], 0.0, 1) for one in json.loads(text)["rows"]]
    return [Row(*one) for one in record_of(run, results)["rows"]]


def record_of(run: str, results: Path = RESULTS) -> dict[str, Any]:
    """What is recorded of an experiment: command, seconds, processor seconds, provenance and rows.

    Raises:
        FileNotFoundError: Where it was not recorded.
    """
    path = results / f"{run}.json"
    if not path.is_file():
        raise FileNotFoundError(f"Expected {path}, got no such file. Make it: python -m experiments {run} --record")
    return json.loads(path.read_text(encoding="utf-8"))


def time_of(said: Mapping[str, Any]) -> float | None:
    """The processor seconds of a run, or else the seconds on the clock; None where it was not timed."""
    processor, seconds = said.get("processor"), said.get("seconds")
    return seconds if processor is None else processor


def record(names: Iterable[str], out: Path, results: Path = RESULTS) -> None:
    """Keep the output of experiments, as it lies in the folder `out`.

    Raises:
        ValueError: For an experiment that did not end well.
    """
    results.mkdir(exist_ok=True)
    for name in names:
        ran, made, rows = (_read(out / f"{name}{end}") for end in (".run.json", ".provenance.json", ".json"))
        ran = {"command": f"python -m experiments.{name}", "seconds": None, "status": 0} | (ran or {})
        if ran["status"]:
            raise ValueError(f"Expected an experiment that ended with status 0, got {ran['status']} of {name}.")
        times = {name: ran.get(name) for name in ("seconds", "processor")}
        head = {"command": ran["command"], **times, "provenance": made["hash"]}
        lines = ",\n".join(json.dumps(list(one.values()), ensure_ascii=False) for one in rows)
        text = json.dumps(head, indent=1)[:-2] + f',\n "rows": [\n{lines}\n]\n}}\n'
        (results / f"{name}.json").write_text(text, encoding="utf-8")


def _read(path: Path) -> Any:
    """A JSON file; None where a script that was run by itself has not written it, which is its time."""
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


def script_of(run: str) -> str:
    """The text of an experiment's or a benchmark's script."""
    return _script(run).read_text(encoding="utf-8")


def _script(run: str) -> Path:
    if run.startswith(MEASURED):
        return BENCHMARKS / f"{run.removeprefix(MEASURED)}.py"
    return FOLDER / f"{run}.py"


def _paper(path: Path) -> Paper:
    given = yaml.load(path.read_text(encoding="utf-8"), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    made = tuple(_claim(path.stem, one) for one in given.get("claims", ()))
    if given.get("available", True) and (silent := [one.name for one in made if not one.quotation]):
        raise ValueError(f"Expected a `quotation` in claim {silent[0]}, got none.")
    if len(names := [one.id for one in made]) != len(set(names)):
        raise ValueError(f"Expected every id once in {path.name}, got {sorted(names)}.")
    tables = tuple(
        Table(**{**one, "rows": tuple(one["rows"]), "columns": tuple(Column(*each) for each in one["columns"])})
        for one in given.get("tables", ())
    )
    runs = {name: (one,) if isinstance(one, str) else tuple(one) for name, one in given.get("artefacts", {}).items()}
    first = {name: one[0] for name, one in runs.items()}
    return Paper(path.stem, given["cite"], given["title"], made, tables, first, runs)


def _claim(paper: str, given: Mapping[str, Any]) -> Claim:
    name = f"{paper}.{given.get('id', '?')}"
    if lacking := [key for key in _NEEDED if not given.get(key)]:
        raise ValueError(f"Expected `{lacking[0]}` in claim {name}, got none.")
    if strange := sorted(set(given) - {*_NEEDED, *_MORE}):
        raise ValueError(f"Expected the keys of a claim in {name}, got {', '.join(strange)}.")
    kinds = (*FINDINGS, *VERDICTS, READING)
    if given["kind"] not in kinds:
        raise ValueError(f"Expected a kind from {list(kinds)} in claim {name}, got {given['kind']!r}.")
    if not _script(given["run"]).is_file():
        raise ValueError(f"Expected the name of an experiment as `run` of claim {name}, got {given['run']!r}.")
    if given["kind"] in (1, 2) and not given.get("test"):
        raise ValueError(f"Expected a `test` in claim {name}, whose kind is {given['kind']}, got none.")
    whole = {**_MORE, **given}
    whole |= {key: " ".join(str(whole[key]).split()) for key in ("found", "quotation", "jdfl", "context")}
    whole |= {"numbers": {key: _cell(name, value) for key, value in given["numbers"].items()}}
    if unknown := sorted(set(PLACE.findall(whole["found"])) - set(whole["numbers"])):
        raise ValueError(f"Expected a number for every name in `found` of claim {name}, got none for {unknown}.")
    return Claim(paper, **{**whole, "holds": tuple(whole["holds"])})


def _cell(name: str, given: str) -> Cell:
    """A cell from "CASE -> COLUMN", or "max of PATTERN -> COLUMN : off"."""
    found = _CELL.fullmatch(given)
    if not found:
        raise ValueError(f'Expected "CASE -> COLUMN" as a number of claim {name}, got {given!r}.')
    case = found["case"] if found["take"] else re.escape(found["case"])
    return Cell(re.compile(case), found["column"], found["take"] or "one", found["field"] or "mean")
