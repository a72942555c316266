"""`jdfl verify`: check every file of a folder, make a part of its work again and compare the numbers."""

import dataclasses
import warnings
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd

import jdfl
from jdfl.base import checks
from jdfl.base.terminal import wrapped
from jdfl.cli import compare, flags
from jdfl.cli.running import Running, Session
from jdfl.config import RunConfig, StudyConfig, from_yaml
from jdfl.engine.provenance import Provenance
from jdfl.engine.result import Result, Snapshot
from jdfl.lab.comparison import Comparison
from jdfl.lab.points import run_group
from jdfl.lab.settings import CompareConfig
from jdfl.lab.study import CURVES, RUNS, Study, writable
from jdfl.lab.watch import returns
from jdfl.results.checkpoints import JOURNAL, RECORDS, history_of
from jdfl.store import journal, manifest
from jdfl.store.jobs import Jobs

_FREE = ["seconds", "compile_seconds", "provenance", "ledger"]  # columns that differ, or follow from the others


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Check every file of a run, repeat its first rounds, and compare every recorded number bit for bit.

    The manifest of a finished run has the SHA-256 of all its files, and every entry of its journal has a checksum.
    Changes of code, libraries, settings and data since then are reported.

    Examples:
      jdfl verify runs/NAME                                the first 50 rounds
      jdfl verify runs/NAME --rounds 1000 --devices 8      1000 rounds of a run on eight devices

    exit status: 0 the same, 1 not the same, 2 a mistake in the settings
    """

    rounds: int = 50
    """Number of rounds to repeat; a shorter run is repeated whole."""
    devices: int | None = None
    """Number of devices that share the nodes. Use the run's number: others round differently. None: one."""
    kernels: bool = False
    """Use jdfl's own kernels for GPUs, if the run did: they round differently."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Parts:
    """Check every file of a sweep or a comparison, make a part of it again, and compare the numbers bit for bit.

    A part is a group of points of a sweep, or a method of a comparison with the values that tuning chose.

    Examples:
      jdfl verify runs/NAME                                all files, and the first part
      jdfl verify runs/NAME --parts 100                    all files, and 100 parts, or all if there are fewer

    exit status: 0 the same, 1 not the same, 2 a mistake in the settings, or nothing is finished yet
    """

    parts: int = 1
    """Number of parts that are made again."""


def verify(folder: Path, config: RunConfig, options: Options) -> int:
    """Compare a run and report; returns the exit status."""
    checks.integer(1, rounds=options.rounds)
    damaged = _damaged(folder)
    before = _records(folder)
    rounds = max(1, min(options.rounds, int(max(before["round"]))))
    again = _made_again(folder, config, options, rounds)
    for line in _changed(folder, again):
        print(wrapped(f"changed: {line}"))
    both = sorted(set(before["round"]) & set(again.history["round"]))
    tables = [table.astype(float).set_index("round").loc[both] for table in (before, again.history)]
    different = _missing(before, again, rounds) or _first(*tables)
    if different:
        print(wrapped(f"NOT the same: {different}"))
    if different or damaged:
        return 1
    print(f"the same: {rounds} rounds, {len(again.history.columns)} numbers in each of their records, bit for bit")
    return 0


def verify_jobs(folder: Path, options: Parts) -> int:
    """Compare a sweep or a comparison and report; returns the exit status."""
    checks.integer(1, parts=options.parts)
    damaged = _damaged(folder)
    parts = _of_study(folder) if (folder / "study.yaml").is_file() else _of_comparison(folder)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = list(islice(parts, options.parts))
    different = [one for one in found if one]
    for line in different:
        print(wrapped(f"NOT the same: {line}"))
    if different or damaged:
        return 1
    if not found:
        raise ValueError(f"Expected a sweep or a comparison with a finished part, got {folder}, without one.")
    print(f"the same: {len(found)} part{'s' * (len(found) > 1)}, made again, bit for bit")
    return 0


def _damaged(folder: Path) -> bool:
    """Whether something is not as the manifest of finished work and the journal say; prints what was checked."""
    damage = journal.read(folder / JOURNAL).damage if (folder / JOURNAL).is_file() else None
    changed = [f"of the journal, {damage}"] if damage else []
    try:
        differing, added = manifest.differences(folder)
    except FileNotFoundError:
        print("not checked: the files, without a manifest: it has not ended")
    else:
        for name in added:
            print(wrapped(f"not in the manifest: {name}"))
        if not differing:
            print("the same: every file, as the manifest says")
        changed += differing
    for line in changed:
        print(wrapped(f"NOT the same: {line}"))
    return bool(changed)


def _records(folder: Path) -> pd.DataFrame:
    """The records of a run; ValueError where there are none."""
    if not (folder / JOURNAL).is_file():
        raise FileNotFoundError(f"Expected a run's folder with a journal, got {str(folder)!r}: it has no record yet.")
    found = history_of(journal.read(folder / JOURNAL).rows(RECORDS)).astype(float)
    if found.empty:
        raise ValueError(f"Expected a run with records, got {str(folder)!r}, whose journal has none yet.")
    return found


def _made_again(folder: Path, config: RunConfig, options: Options, rounds: int) -> Result:
    """The run again, up to the given number of rounds."""

    def enough(now: Snapshot) -> str | None:
        return "that is enough to compare" if now.rounds >= rounds else None

    session = Session(config, Running(devices=options.devices, kernels=options.kernels))
    chunk = returns(rounds) if config.chunk is None else min(config.chunk, rounds)
    return session.made(key=session.recorded_key(folder), chunk=chunk, callbacks=[enough])


def _changed(folder: Path, again: Result) -> list[str]:
    """Changes since the run was made, in words; none are known for a run that was interrupted."""
    file = folder / "provenance.json"
    if not file.is_file():
        return []
    recorded = flags.read_json(file)
    parts: list[Any] = [recorded.get(name) for name in ("versions", "settings")]
    if not all(checks.is_a(one, dict) and all(isinstance(text, str) for text in one.values()) for one in parts):
        raise ValueError(f"Expected versions and settings as texts by name in {file}, got others. It is damaged.")
    versions, settings = again.provenance.differences(Provenance(*parts))
    return versions + settings


def _missing(before: pd.DataFrame, again: Result, rounds: int) -> str:
    """The first record up to `rounds` that one run alone has, in words; the last of a run that ended may be missing."""
    if again.rounds < rounds:
        return f"it had {rounds} rounds, now it ends after {again.rounds}: {again.reason}"
    old, new = ({int(one) for one in table["round"]} for table in (before, again.history))
    alone = sorted(one for one in old ^ new if one <= rounds and one not in (max(old), max(new)))
    if not alone:
        return ""
    was, now = ("a record", "none") if alone[0] in old else ("no record", "one")
    return f"of round {alone[0]} there was {was}, now there is {now}"


def _of_study(folder: Path) -> Iterator[str]:
    """The first difference of every finished group from when it is made again; empty where all is the same."""
    config = from_yaml(flags.read(str(folder / "study.yaml")), StudyConfig)
    study, jobs = Study.of(config, folder), Jobs(folder)
    for i, group in enumerate(study.groups):
        if (place := jobs.find(group.name)) is not None:
            pairs = zip((RUNS, CURVES), run_group(group, jobs.token))
            found = (_first(_compared(pd.read_parquet(place / name)), _compared(now)) for name, now in pairs)
            yield next((f"group {i}: {one}" for one in found if one), "")


def _of_comparison(folder: Path) -> Iterator[str]:
    """The same of every method that has runs."""
    if not (folder / "comparison.json").is_file():
        return
    before = cast(Comparison, jdfl.load(folder))
    experiment = compare.experiment_of(flags.config_of(folder, CompareConfig))
    for label, runs in before.results.items():
        found = list[str]()
        for was, now in zip(runs, experiment.remade(before, label) if runs else (), strict=True):
            same = np.array_equal(was.params, now.params, equal_nan=True)
            found.append(_first(_compared(was.history), _compared(now.history)))
            found.append("" if same else f"the parameters of seed {now.labels['seed']}")
        if runs:
            yield next((f"{label}: {one}" for one in found if one), "")


def _compared(table: pd.DataFrame) -> pd.DataFrame:
    return writable(table).drop(columns=_FREE, errors="ignore")


def _first(was: pd.DataFrame, now: pd.DataFrame) -> str:
    """The first number that is not the same, in words; empty if all are."""
    if list(was.columns) != list(now.columns) or len(was) != len(now):
        before, after = (f"{', '.join(table.columns)} in {len(table)} rows" for table in (was, now))
        return f"recorded were {before}, now {after}"
    for place, row, again in zip(was.index, was.to_dict("records"), now.to_dict("records")):
        for name, one in row.items():
            other = again[name]
            if one != other and not (one != one and other != other):
                return f"{name} in {was.index.name or 'row'} {place:g} was {one!r}, is {other!r}"
    return ""
