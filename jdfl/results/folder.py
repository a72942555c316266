"""Folders of runs: what was run, on what, and with which result, in files that other programs can read.

    config.yaml        the settings, of a run of the command line
    environment.json   versions of all packages that jdfl depends on, platform, device, XLA_FLAGS
    private.key        of a run with noise, its token, and its private key if that comes from the operating system: for
                       its owner alone, and not to be published
    journal            everything that was recorded while the run went on; the tables below are made of it
    events             a log: when the run was begun and resumed, and how it ended
    checkpoints/       what is needed to resume the run; missing if it diverged before the first checkpoint. It has the
                       exact state of the nodes, which no guarantee covers
    metrics.csv        a row per record: round, metrics, totals so far
    metrics.parquet    the same
    nodes.csv, links.csv, split.csv, timeline.csv, releases.csv   of runs of the command line: see
                       `jdfl.lab.watch`
    params.npz         the final parameters, `params` [m, n]
    provenance.json    code, libraries, settings and data, and the hash of all of these
    figure.png         the first metric against rounds and bytes, if there are metrics
    result.json, .npz  everything else that `jdfl.load` needs
    summary.md         totals, final metrics and times in words
    summary.json       the same as data
    manifest.json      size and SHA-256 of every file; it comes last, so that a folder that has it is complete

While a run goes on, the folder has the first of these, and a lease that says which process writes into it.
`jdfl export` writes the tables of such a folder. A key that was given is not in it, since the noise can be removed with
it. Every file is written under another name and then renamed, so that none is ever partial.
"""

import functools
import os
import platform
import re
import warnings
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, distribution, version
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd

from jdfl.base import hooks
from jdfl.base.absent import Absent
from jdfl.base.keys import key_data, key_digest, typed_key
from jdfl.engine.checkpoint import Checkpoint
from jdfl.engine.metrics import COUNTS
from jdfl.engine.provenance import versions
from jdfl.engine.result import BAD, Result
from jdfl.privacy import Accounting
from jdfl.privacy.report import uncovered
from jdfl.results import stored
from jdfl.results.checkpoints import JOURNAL, RECORDS, SNAPSHOTS, history_of, write_checkpoint
from jdfl.results.summary import summary, summary_text
from jdfl.store import journal, manifest, snapshots
from jdfl.store.files import placed, placed_folder, read, tidy, write

TABLES = ("nodes", "links", "split", "timeline")  # of the journal, besides the records

_ALWAYS = "environment.json metrics.csv metrics.parquet params.npz provenance.json result.json result.npz summary.md"
FILES = (*_ALWAYS.split(), "summary.json")


@dataclass(frozen=True)
class Run:
    """The folder of a run in memory.

    `jdfl.results.read_run` reads it; `jdfl.load` gives a `Result`. The `summary` has totals, final metrics, times and
    what can be claimed about privacy, as plain data. `jdfl.read_checkpoint` reads the state of the nodes.
    """

    config_yaml: str  # the settings; empty for a folder of `Result.save`
    environment: dict[str, Any]
    history: pd.DataFrame  # a row per record
    params: np.ndarray  # [m, n]
    summary: dict[str, Any]


def new_run_folder(base: str | Path, label: str) -> Path:
    """Make an empty folder in `base`, named after the time (UTC) and `label`, and return its path.

    No other call gets the same folder, not even from another process. OSError where nothing can be written.
    """
    base = Path(base)
    stem = f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{label}"
    folder, number = base / stem, 1
    try:
        base.mkdir(parents=True, exist_ok=True)
        while True:
            try:
                folder.mkdir()
                return folder
            except FileExistsError:
                number += 1
                folder = base / f"{stem}-{number}"
    except OSError as error:
        raise OSError(
            f"Expected a folder for runs that can be written to, got {str(base)!r}: {error}. Name another."
        ) from error


def write_run(
    folder: str | Path,
    result: Result,
    *,
    config_yaml: str = "",
    overwrite: bool = False,
    delta: float | None = None,
    accounting: Accounting = "sound",
) -> Path:
    """Write the folder of a `result`, whole or not at all; returns its path.

    There is a config.yaml if `config_yaml` is not empty. FileExistsError for a folder with content and no `overwrite`.
    `delta` and `accounting` are those of `jdfl.account`.
    """
    with placed_folder(folder, overwrite=overwrite) as partial:
        begin_run(partial, config_yaml)
        if result.state is not None and not isinstance(result.state, Absent) and result.ending not in BAD:
            write_checkpoint(partial, Checkpoint.of(result))
        end_run(partial, result, delta=delta, accounting=accounting)
    return Path(folder)


def begin_run(folder: Path, config_yaml: str) -> None:
    """Write what is known of a run before its first round; it is not complete any more, if it was.

    There is a config.yaml if `config_yaml` is not empty.
    """
    for name in (manifest.NAME, "summary.json"):
        (folder / name).unlink(missing_ok=True)
    tidy(folder)
    if config_yaml:
        write(folder / "config.yaml", config_yaml)
    write(folder / "environment.json", environment())


def end_run(folder: Path, result: Result, *, delta: float | None, accounting: Accounting) -> dict[str, Any]:
    """Write the `result` of a run, except for its journal and checkpoints; returns its summary.

    `delta` and `accounting` are those of `jdfl.account`.
    """
    write(folder / "metrics.csv", result.history)
    write(folder / "metrics.parquet", result.history)
    content = journal.read(folder / JOURNAL) if (folder / JOURNAL).is_file() else None
    found = {name: history_of(content.rows(name)) for name in TABLES} if content else {}
    for name, table in (found | {"releases": releases(result, accounting)}).items():
        if len(table):
            write(folder / f"{name}.csv", _named(table, result.node_names))
        else:
            (folder / f"{name}.csv").unlink(missing_ok=True)
    local = result.guarantee.local if result.guarantee.event is not None else ""
    words: Any = {"coverage": np.asarray(uncovered(local))} if local else {}  # for readers of the parameters alone
    with placed(folder / "params.npz") as path:
        np.savez_compressed(path, params=np.asarray(result.params), **words)
    write(folder / "provenance.json", result.provenance.as_dict())
    nowhere: Any = None  # they are in the files above
    stored.write_value(folder, "result", replace(result, params=nowhere, history=nowhere))
    numbers = summary(result, delta=delta, accounting=accounting)
    write(folder / "summary.md", summary_text(numbers))
    if any(name not in COUNTS for name in result.history.columns):
        with placed(folder / "figure.png") as path:
            hooks.find("plot")(result, ["round", "bytes"], None, width="page").fig.savefig(path)
    write(folder / "summary.json", numbers)
    tidy(folder)
    snapshots.tidy(folder / SNAPSHOTS)
    write(folder / manifest.NAME, manifest.of(folder))
    return numbers


def releases(result: Result, accounting: Accounting = "sound") -> pd.DataFrame:
    """The most releases of a node at some moments of a run: a row per moment; none without a sound guarantee."""
    if result.guarantee.event is None or not result.guarantee.claimed or accounting != "sound":
        return pd.DataFrame()
    known = sorted(({result.rounds: result.releases} | result.moments).items())
    return pd.DataFrame({"round": [k for k, _ in known], "most_releases": [int(one.max()) for _, one in known]})


def _named(table: pd.DataFrame, names: Any) -> pd.DataFrame:
    """A table with the names of the nodes in its columns, where they have other names than their numbers."""
    for column, title in {"node": "name", "hears": "hears_name", "to": "to_name"}.items():
        if column in table and names is not None and not isinstance(names, range):
            table = table.assign(**{title: [names[i] if i >= 0 else "" for i in table[column].astype(int)]})
    return table


def tables(folder: str | Path) -> dict[str, pd.DataFrame]:
    """The tables in TABLES that have rows, and metrics, of a run that goes on, was cut off or has ended.

    Raises FileNotFoundError where there is no journal, and ValueError where nothing is recorded in it, or it is not
    that of this run as it ended. Warns if the journal is damaged, and returns what comes before the damage.
    """
    folder = Path(folder)
    content = journal.read(folder / JOURNAL)
    if content.damage:
        warnings.warn(f"Of the journal in {folder}, {content.damage}: what comes before is read.", stacklevel=2)
    else:
        manifest.check(folder, [JOURNAL])
    config = folder / "config.yaml"
    text = config.read_text(encoding="utf-8", errors="replace") if config.is_file() else ""
    seed, secret = re.search(r"(?m)^seed: (\d{1,18})$", text), re.search(r"(?m)^key_file: (?!null$)", text)
    if seed and not secret and content.origin.get("key") != key_digest(key_data(typed_key(int(seed[1])))):
        raise ValueError(f"Expected the {JOURNAL} of the run in {folder}, got that of another run. Put it back.")
    found = {"metrics": history_of(content.rows(RECORDS))} | {name: history_of(content.rows(name)) for name in TABLES}
    found = {name: table for name, table in found.items() if len(table)}
    if not found:
        raise ValueError(f"Expected a journal with records in {folder}, got one without any.")
    return found


def export(folder: str | Path, to: str | Path | None = None) -> list[Path]:
    """Write the `tables` of a run as CSV into the folder `to`, which is made, or into its own; returns the files."""
    place = Path(folder if to is None else to)
    names = stored.read_result(Path(folder)).node_names if (Path(folder) / manifest.NAME).is_file() else None
    found = {place / f"{name}.csv": _named(table, names) for name, table in tables(folder).items()}
    place.mkdir(parents=True, exist_ok=True)
    for path, table in found.items():
        write(path, table)
    return list(found)


def read_run(folder: str | Path) -> Run:
    """Read the folder of a run, as `Result.save` and the command line write it.

    Raises FileNotFoundError that names what is missing, and how to resume a run that was cut off, and ValueError that
    names a damaged file, or one that was changed since it was written.
    """
    folder = Path(folder)
    missing = [name for name in FILES if not (folder / name).is_file()]
    if "summary.json" in missing and (folder / "config.yaml").is_file():
        raise FileNotFoundError(
            f"Expected a finished run at {folder}, found one that was cut off. Resume it: jdfl resume {folder}"
        )
    if missing:
        raise FileNotFoundError(f"Expected the folder of a run at {folder}, found no {', '.join(missing)} in it.")
    config = read(folder / "config.yaml") if (folder / "config.yaml").is_file() else ""
    names = ("environment.json", "metrics.parquet", "params.npz", "summary.json")
    found = Run(config, *(read(folder / name) for name in names))
    manifest.check(folder, (*FILES, "config.yaml"))
    return found


def environment() -> dict[str, Any]:
    """What a run depends on besides its settings: versions, platform, devices, and XLA_FLAGS of the environment."""
    devices = jax.devices()
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "jdfl": versions()["jdfl"],
        "python": platform.python_version(),
        "jax": jax.__version__,
        "jaxlib": version("jaxlib"),
        "numpy": np.__version__,
        "platform": platform.platform(),
        "backend": jax.default_backend(),
        "device": devices[0].device_kind,
        "devices": len(devices),
        "x64": bool(jax.config.jax_enable_x64),  # pyright: ignore[reportAttributeAccessIssue]
        "xla_flags": os.environ.get("XLA_FLAGS", ""),
        "packages": dict(_packages()),
    }


@functools.cache
def _packages() -> tuple[tuple[str, str], ...]:
    """The installed packages that jdfl depends on, itself included, and their versions; plugins of JAX as well."""
    found, left = dict[str, str](), ["jdfl"]
    while left:
        try:
            one = distribution(left.pop())
        except PackageNotFoundError:  # of another platform, or of an extra
            continue
        name = one.name.lower()
        if name not in found:
            found[name] = one.version
            needed = (line.partition(";") for line in one.requires or ())
            plain = [what for what, _, when in needed if "extra" not in when or name.startswith("jax")]
            left += [re.split(r"[^\w.-]", what.strip(), maxsplit=1)[0] for what in plain]
    return tuple(sorted(found.items()))
