"""Run directories: what was run, on what, and what came out, in files that other programs read.

    config.yaml        the configuration, as it was given
    environment.json   versions, platform, device
    checkpoints/       where the run stands, for resuming it; not of a run that diverged before there was one. The exact
                       state of the nodes: no guarantee covers it
    metrics.csv        a row per record: round, metrics, totals so far; grows while the run is under way
    metrics.parquet    the same, when the run has ended
    params.npz         the final parameters, `params` [m, n]
    provenance.json    code, libraries, settings and data, and the hash of it all
    figure.png         metrics against rounds and bytes, where a drawing function was given
    summary.md         totals, final metrics, times, in words
    summary.json       the same; it comes last, so that a directory that has it is whole

and, of runs of the command line, the tables of `jdfl.lab.watch`.
Every file is written beside its place and then moved there, so that none is ever half there.
"""

import json
import os
import platform
import shutil
import warnings
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any
from uuid import uuid4

import jax
import numpy as np
import pandas as pd

import jdfl
from jdfl import storage
from jdfl.checkpoint import Checkpoint
from jdfl.lab.summary import summary, summary_text
from jdfl.privacy import Accounting
from jdfl.privacy.relation import uncovered
from jdfl.result import Result, Snapshot

Draw = Callable[[Mapping[str, pd.DataFrame], Path, str], object]  # histories, file, hash of the provenance
CHECKPOINTS = "checkpoints"
_PARTIAL = f".{'[0-9a-f]' * 12}.partial.*"  # names of files that are not yet in their place
FILES = (
    "config.yaml",
    "environment.json",
    "metrics.csv",
    "metrics.parquet",
    "params.npz",
    "provenance.json",
    "summary.json",
    "summary.md",
)


@dataclass(frozen=True)
class Run:
    """A run directory in memory."""

    config_yaml: str
    environment: dict[str, Any]
    history: pd.DataFrame  # a row per record
    params: np.ndarray  # [m, n]
    summary: dict[str, Any]


def new_run_folder(base: str | Path, label: str) -> Path:
    """Make an empty folder in `base`, named by the time (UTC) and `label`; two calls never get the same one.

    OSError where nothing can be written.
    """
    base = Path(base)
    stem = f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{label}"
    number = 1
    try:
        base.mkdir(parents=True, exist_ok=True)
        while True:
            folder = base / (stem if number == 1 else f"{stem}-{number}")
            try:
                folder.mkdir()
            except FileExistsError:
                number += 1
            else:
                return folder
    except OSError as error:
        raise OSError(
            f"Expected a folder for runs that can be written to, got {str(base)!r}: {error}. Name another."
        ) from error


def write_run(
    folder: str | Path,
    config_yaml: str,
    result: Result,
    *,
    draw: Draw | None = None,
    overwrite: bool = False,
    delta: float | None = None,
    accounting: Accounting = "sound",
) -> Path:
    """Write the run directory `folder`, whole or not at all; `draw` (`jdfl.lab.drawing.figure`) makes figure.png.

    `delta` and `accounting` are as for `jdfl.account`.

    An empty folder may be there already. FileExistsError for one with content, unless `overwrite`, which replaces it.
    """
    folder = Path(folder)
    refuse_occupied(folder, overwrite)
    folder.parent.mkdir(parents=True, exist_ok=True)
    partial = folder.parent / f".{folder.name}.{uuid4().hex[:12]}"
    partial.mkdir()
    try:
        begin_run(partial, config_yaml)
        if result.state is not None and result.diverged is None:
            Checkpoint.of(result).write(partial / CHECKPOINTS)
        end_run(partial, result, draw=draw, delta=delta, accounting=accounting)
        refuse_occupied(folder, overwrite)
        put_in_place(partial, folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return folder


def begin_run(folder: Path, config_yaml: str) -> None:
    """Write what is known of a run before its first round; what an earlier one has come to is removed."""
    for name in ("summary.json", "metrics.csv"):
        (folder / name).unlink(missing_ok=True)
    tidy(folder)
    with placed(folder / "config.yaml") as path:
        path.write_text(config_yaml, encoding="utf-8")
    write_json(folder / "environment.json", environment())


def end_run(
    folder: Path, result: Result, *, draw: Draw | None, delta: float | None, accounting: Accounting
) -> dict[str, Any]:
    """Write what a run has come to, except for its checkpoint; returns its summary.

    `draw` makes its figure.
    """
    with placed(folder / "metrics.csv") as path:
        result.history.to_csv(path, index=False)
    with placed(folder / "metrics.parquet") as path:
        result.history.to_parquet(path, index=False)
    with placed(folder / "params.npz") as path:
        np.savez_compressed(path, params=np.asarray(result.params), **_coverage(result))
    write_json(folder / "provenance.json", result.provenance.as_dict())
    told = summary(result, delta=delta, accounting=accounting)
    with placed(folder / "summary.md") as path:
        path.write_text(summary_text(told), encoding="utf-8")
    if draw is not None:
        with placed(folder / "figure.png") as path:
            draw({"": result.history}, path, result.provenance.hash)
    tidy(folder)
    storage.tidy(folder / CHECKPOINTS)
    write_json(folder / "summary.json", told)
    return told


def _coverage(result: Result) -> dict[str, Any]:
    """Beside parameters that a privacy report does not cover: the words that say so."""
    local = result.guarantee.local if result.guarantee.event is not None else ""
    return {"coverage": np.asarray(uncovered(local))} if local else {}


class Onward:
    """A callback of `jdfl.run` that writes what the run is, and appends its records to metrics.csv as they are made.

    `before` holds the records of a run that is resumed. Its folder stays as it is until the run has gone on, for it may
    be refused.
    """

    def __init__(self, folder: Path, config_yaml: str, before: pd.DataFrame | None = None) -> None:
        self._folder, self._config, self._before = folder, config_yaml, before
        if before is None:
            begin_run(folder, config_yaml)

    def __call__(self, snapshot: Snapshot) -> None:
        """Append what a chunk of rounds brought, as `snapshot` has it."""
        self.begin()
        metrics = self._folder / "metrics.csv"
        try:
            if snapshot.rows:
                pd.DataFrame(snapshot.rows).to_csv(metrics, mode="a", index=False, header=not metrics.exists())
        except OSError as error:  # they are all written again when the run has ended
            warnings.warn(f"Could not write to {metrics}: {error}. The run goes on.", stacklevel=2)

    def begin(self) -> None:
        """Write what the run is, if it is resumed and that has not been done: it has gone on, or is over."""
        if self._before is not None:
            begin_run(self._folder, self._config)
            with placed(self._folder / "metrics.csv") as path:
                self._before.to_csv(path, index=False)
            self._before = None


def tidy(folder: Path) -> None:
    """Remove what `placed` leaves where the process is killed."""
    for partial in folder.glob(_PARTIAL):
        partial.unlink(missing_ok=True)


def refuse_occupied(folder: Path, overwrite: bool) -> None:
    """FileExistsError for a file, and unless `overwrite` for a folder with content."""
    if folder.is_dir():
        if not overwrite and any(folder.iterdir()):
            raise FileExistsError(f"Expected no folder or an empty one at {folder}, got one with content. "
                                  "Choose another name, or pass overwrite=True to replace it.")  # fmt: skip
    elif folder.exists():
        raise FileExistsError(f"Expected a folder at {folder}, got a file. Choose another name.")


def put_in_place(partial: Path, folder: Path) -> None:
    """Rename `partial` to `folder`; what stood there is moved aside first and put back if the rename fails."""
    aside = None
    if folder.exists():
        aside = partial.with_name(partial.name + ".old")
        folder.rename(aside)
    try:
        partial.rename(folder)
    except BaseException:
        if aside is not None:
            aside.rename(folder)
        raise
    if aside is not None:
        shutil.rmtree(aside, ignore_errors=True)


def read_run(folder: str | Path) -> Run:
    """Read a run directory back. FileNotFoundError names what is missing, ValueError what is damaged."""
    folder = Path(folder)
    missing = [name for name in FILES if not (folder / name).is_file()]
    if "summary.json" in missing and "config.yaml" not in missing:
        raise FileNotFoundError(
            f"Expected a finished run at {folder}, found one that was cut off. Go on with it: jdfl resume {folder}"
        )
    if missing:
        raise FileNotFoundError(f"Expected a run directory at {folder}, found no {', '.join(missing)} in it.")
    return Run(
        _read(folder / "config.yaml", _text),
        _read(folder / "environment.json", lambda file: json.loads(_text(file))),
        _read(folder / "metrics.parquet", pd.read_parquet),
        _read(folder / "params.npz", _params),
        _read(folder / "summary.json", lambda file: json.loads(_text(file))),
    )


def _read(file: Path, read: Callable[[Path], Any]) -> Any:
    """What is in a file; ValueError that names it where it is damaged."""
    try:
        return read(file)
    except Exception as error:  # every format fails in ways of its own
        words = " ".join(str(error).split())[:200] or repr(error)
        raise ValueError(f"Expected a whole file at {file}, got a damaged one: {words}. Make the run again.") from error


def _text(file: Path) -> str:
    return file.read_text(encoding="utf-8")


def _params(file: Path) -> np.ndarray:
    with file.open("rb") as stream, np.load(stream, allow_pickle=False) as arrays:
        return arrays["params"]


def environment() -> dict[str, Any]:
    """What a run depends on besides its configuration."""
    devices = jax.devices()
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "jdfl": jdfl.__version__,
        "python": platform.python_version(),
        "jax": jax.__version__,
        "jaxlib": version("jaxlib"),
        "numpy": np.__version__,
        "platform": platform.platform(),
        "backend": jax.default_backend(),
        "device": devices[0].device_kind,
        "devices": len(devices),
        "x64": bool(jax.config.jax_enable_x64),  # pyright: ignore[reportAttributeAccessIssue]
    }


def write_json(path: Path, data: Any) -> None:
    """Write plain data as JSON, whole or not at all."""
    with placed(path) as place:
        place.write_text(json.dumps(data, indent=2, allow_nan=False, default=str) + "\n", encoding="utf-8")


@contextmanager
def placed(path: Path) -> Generator[Path]:
    """Where to write a file that is then moved to `path`, once it is on the disk."""
    partial = path.with_name(f".{uuid4().hex[:12]}.partial.{path.name}")
    try:
        yield partial
        with partial.open("rb+") as file:
            os.fsync(file.fileno())
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
