"""`jdfl verify`: check every file of a run, repeat its first rounds and compare the numbers."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from jdfl.base import checks
from jdfl.cli import flags
from jdfl.cli.running import Running, Session
from jdfl.config import RunConfig
from jdfl.engine.provenance import Provenance
from jdfl.engine.records import JOURNAL, RECORDS, history_of
from jdfl.engine.result import Result, Snapshot
from jdfl.lab.watch import returns
from jdfl.store import journal, manifest

_ABOUT = """Check every file of a run, repeat its first rounds, and compare every recorded number bit for bit.

The manifest of a finished run has the SHA-256 of all its files, and every entry of its journal has a checksum. Changes
of code, libraries, settings and data since then are reported."""

_EXAMPLES = """examples:
  jdfl verify runs/NAME                                the first 50 rounds
  jdfl verify runs/NAME --rounds 1000 --devices 8      1000 rounds of a run on eight devices

exit status: 0 the same, 1 not the same, 2 a mistake in the settings
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """What is repeated, and how."""

    rounds: int = 50
    """Number of rounds to repeat; a shorter run is repeated whole."""
    devices: int | None = None
    """Number of devices that share the nodes. Use the run's number: others round differently. None: one."""
    kernels: bool = False
    """Use jdfl's own kernels for GPUs, if the run did: they round differently."""


def parse(args: list[str]) -> tuple[Path, RunConfig, Options]:
    """The folder, its configuration and the options behind the arguments of `jdfl verify`."""
    return flags.parse_of_run(args, Options(), prog="jdfl verify", about=_ABOUT, examples=_EXAMPLES)


def verify(folder: Path, config: RunConfig, options: Options) -> int:
    """Compare and report; returns the exit status."""
    checks.whole(1, rounds=options.rounds)
    damaged = damaged_files(folder)
    for line in damaged:
        print(f"NOT the same: {line}")
    before = _records(folder)
    rounds = max(1, min(options.rounds, int(max(before["round"]))))
    again = _made_again(folder, config, options, rounds)
    for line in _changed(folder, again):
        print(f"changed: {line}")
    different = _missing(before, again, rounds) or _different(before, again.history)
    if different:
        print(f"NOT the same: {different}")
    if different or damaged:
        return 1
    print(f"the same: {rounds} rounds, {len(again.history.columns)} numbers in each of their records, bit for bit")
    return 0


def damaged_files(folder: Path) -> list[str]:
    """What is not as the manifest of a finished run and the journal say, in words; prints what was checked."""
    found = list[str]()
    if (folder / JOURNAL).is_file():
        found = [f"of the journal, {damage}" for damage in [journal.read(folder / JOURNAL).damage] if damage]
    try:
        changed, added = manifest.differences(folder)
    except FileNotFoundError:
        print("not checked: the files, without a manifest: it has not ended")
        return found
    for name in added:
        print(f"not in the manifest: {name}")
    if not changed:
        print("the same: every file, as the manifest says")
    return found + changed


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
    told = flags.read_json(file)
    before = Provenance(*(_texts(told.get(name), file) for name in ("versions", "settings")))
    versions, settings = again.provenance.differences(before)
    return versions + settings


def _texts(part: Any, file: Path) -> dict[str, str]:
    """Texts by name; ValueError for anything else."""
    if not checks.is_a(part, dict) or not all(isinstance(text, str) for text in part.values()):
        raise ValueError(f"Expected versions and settings as texts by name in {file}, got others. It is damaged.")
    return part


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


def _different(before: pd.DataFrame, again: pd.DataFrame) -> str:
    """The first number that is not the same, in words; nothing if all are."""
    both = sorted(set(before["round"]) & set(again["round"]))
    old, new = (table.astype(float).set_index("round").loc[both] for table in (before, again))
    if list(old.columns) != list(new.columns):
        return f"recorded were {', '.join(old.columns)}, now {', '.join(new.columns)}"
    unequal = np.argwhere(~((old.to_numpy() == new.to_numpy()) | (old.isna().to_numpy() & new.isna().to_numpy())))
    if not len(unequal):
        return ""
    row, column = unequal[0]
    was, now = (float(table.to_numpy()[row, column]) for table in (old, new))
    return f"{old.columns[column]} after round {both[row]:g} was {was!r}, is {now!r}"
