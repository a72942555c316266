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

import platform
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd

import jdfl
from jdfl.base import storage
from jdfl.engine.callbacks import Callback
from jdfl.engine.checkpoint import Checkpoint
from jdfl.engine.result import Result, Snapshot
from jdfl.engine.start import Start
from jdfl.lab.files import append, placed, read, tidy, whole, write
from jdfl.lab.summary import summary, summary_text
from jdfl.privacy import Accounting
from jdfl.privacy.relation import uncovered

Draw = Callable[[Mapping[str, pd.DataFrame], Path, str], object]  # histories, file, hash of the provenance
CHECKPOINTS = "checkpoints"
_TOLD = "config.yaml environment.json metrics.csv metrics.parquet params.npz provenance.json summary.json summary.md"
FILES = tuple(_TOLD.split())


@dataclass(frozen=True)
class Run:
    """A run directory in memory.

    `jdfl.results.read_run` reads it. The `summary` has totals, final metrics, times and what may be said of privacy, as
    plain data. The state of the nodes is not in it: `jdfl.read_checkpoint` reads that from the folder's checkpoints.
    """

    config_yaml: str
    environment: dict[str, Any]
    history: pd.DataFrame  # a row per record
    params: np.ndarray  # [m, n]
    summary: dict[str, Any]


def new_run_folder(base: str | Path, label: str) -> Path:
    """Make an empty folder in `base`, named by the time (UTC) and `label`, and return its path.

    Two calls never get the same one, not even those of several processes.

    Args:
        base: The folder of all runs, which is made if it is not there.
        label: The end of the folder's name, such as the algorithm's kind.

    Raises:
        OSError: Where nothing can be written, before a run has begun.
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
    config_yaml: str,
    result: Result,
    *,
    draw: Draw | None = None,
    overwrite: bool = False,
    delta: float | None = None,
    accounting: Accounting = "sound",
) -> Path:
    """Write the run directory `folder`, whole or not at all; returns its path.

    An empty folder may be there already. FileExistsError for one with content, unless `overwrite`, which replaces it.

    Args:
        folder: where the directory is to be.
        config_yaml: the configuration, as text.
        result: of the run.
        draw: what draws figure.png, such as `jdfl.lab.drawing.figure`; None: no figure.
        overwrite: whether a folder with content may be replaced.
        delta: as for `jdfl.account`.
        accounting: as for `jdfl.account`.
    """
    with whole(folder, overwrite=overwrite) as partial:
        begin_run(partial, config_yaml)
        if result.state is not None and result.diverged is None:
            Checkpoint.of(result).write(partial / CHECKPOINTS)
        end_run(partial, result, draw=draw, delta=delta, accounting=accounting)
    return Path(folder)


def begin_run(folder: Path, config_yaml: str) -> None:
    """Write what is known of a run before its first round; what an earlier one has come to is removed.

    Args:
        folder: The run's folder, which has to be there.
        config_yaml: The settings of the run, which become config.yaml.
    """
    for name in ("summary.json", "metrics.csv"):
        (folder / name).unlink(missing_ok=True)
    tidy(folder)
    write(folder / "config.yaml", config_yaml)
    write(folder / "environment.json", environment())


def end_run(
    folder: Path, result: Result, *, draw: Draw | None, delta: float | None, accounting: Accounting
) -> dict[str, Any]:
    """Write what a run has come to, except for its checkpoint; returns its summary.

    The summary comes last, so that a folder that has one is complete.

    Args:
        folder: The run's folder, which has to be there.
        result: The finished run.
        draw: Draws figure.png, as for `write_run`; None: there is none.
        delta: As for `jdfl.account`.
        accounting: As for `jdfl.account`.
    """
    write(folder / "metrics.csv", result.history)
    write(folder / "metrics.parquet", result.history)
    local = result.guarantee.local if result.guarantee.event is not None else ""
    words: Any = {"coverage": np.asarray(uncovered(local))} if local else {}  # of what a privacy report does not cover
    with placed(folder / "params.npz") as path:
        np.savez_compressed(path, params=np.asarray(result.params), **words)
    write(folder / "provenance.json", result.provenance.as_dict())
    told = summary(result, delta=delta, accounting=accounting)
    write(folder / "summary.md", summary_text(told))
    if draw is not None:
        with placed(folder / "figure.png") as path:
            draw({"": result.history}, path, result.provenance.hash)
    tidy(folder)
    storage.tidy(folder / CHECKPOINTS)
    write(folder / "summary.json", told)
    return told


class Onward(Callback):
    """Writes what the run is, and appends its records to metrics.csv as they are made.

    The folder of a run that is resumed stays as it is until the run has gone on, for it may be refused.

    Args:
        folder: The run's.
        config_yaml: The configuration, as text.
    """

    def __init__(self, folder: Path, config_yaml: str) -> None:
        self._folder, self._config = folder, config_yaml
        self._before: pd.DataFrame | None = None

    def begin(self, start: Start) -> None:
        """Write what the run is, unless it is resumed."""
        self._before = None if start.before is None else start.before.history
        if self._before is None:
            begin_run(self._folder, self._config)

    def __call__(self, now: Snapshot) -> None:
        """Append what a chunk of rounds brought, as `now` has it."""
        self._gone_on()
        metrics = self._folder / "metrics.csv"
        try:
            if now.rows:
                append(metrics, pd.DataFrame(now.rows))
        except OSError as error:  # they are all written again when the run has ended
            warnings.warn(f"Could not write to {metrics}: {error}. The run goes on.", stacklevel=2)

    def end(self, result: Result) -> None:
        """Write what the run is, if it is resumed and was over already."""
        self._gone_on()

    def _gone_on(self) -> None:
        if self._before is not None:
            begin_run(self._folder, self._config)
            write(self._folder / "metrics.csv", self._before)
            self._before = None


def read_run(folder: str | Path) -> Run:
    """Read the run directory `folder` back, as `write_run` and the command line write it.

    Raises FileNotFoundError that names what is missing, and how to go on with a run that was cut off, and ValueError
    that names the file which is damaged.
    """
    folder = Path(folder)
    missing = [name for name in FILES if not (folder / name).is_file()]
    if "summary.json" in missing and "config.yaml" not in missing:
        raise FileNotFoundError(
            f"Expected a finished run at {folder}, found one that was cut off. Go on with it: jdfl resume {folder}"
        )
    if missing:
        raise FileNotFoundError(f"Expected a run directory at {folder}, found no {', '.join(missing)} in it.")
    names = ("config.yaml", "environment.json", "metrics.parquet", "params.npz", "summary.json")
    return Run(*(read(folder / name) for name in names))


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
