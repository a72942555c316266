"""Run directories: what was run, on what, and what came out, in files that other programs read.

    config.yaml        the configuration, as it was given
    environment.json   versions, platform, device
    metrics.csv        a row per record: round, metrics, totals so far
    metrics.parquet    the same
    params.npz         the final parameters, `params` [m, n]
    checkpoints/       where the run stands, for resuming it; not of a run that diverged
    summary.json       totals, final metrics, times
    summary.md         the same in words
    figure.png         metrics against rounds and bytes, where a drawing function was given

A directory with its final name is whole: everything is written to a hidden folder beside it, which is then renamed.
"""

import json
import platform
import shutil
from collections.abc import Callable, Mapping
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
from jdfl.checkpoint import Checkpoint
from jdfl.privacy import Accounting
from jdfl.result import Result
from jdfl.summary import summary, summary_text

Draw = Callable[[Mapping[str, pd.DataFrame], Path], object]
CHECKPOINTS = "checkpoints"
FILES = (
    "config.yaml",
    "environment.json",
    "metrics.csv",
    "metrics.parquet",
    "params.npz",
    "summary.json",
    "summary.md",
)


@dataclass(frozen=True)
class Run:
    """A run directory in memory."""

    config_yaml: str
    environment: dict[str, Any]
    history: pd.DataFrame
    params: np.ndarray  # [m, n]
    summary: dict[str, Any]


def new_run_folder(base: str | Path, label: str) -> Path:
    """Make an empty folder in `base`, named by the time (UTC) and `label`; two calls never get the same one."""
    base = Path(base)
    base.mkdir(parents=True, exist_ok=True)
    stem = f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{label}"
    number = 1
    while True:
        folder = base / (stem if number == 1 else f"{stem}-{number}")
        try:
            folder.mkdir()
        except FileExistsError:
            number += 1
        else:
            return folder


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
    """Write the run directory `folder`, whole or not at all; `draw` (`jdfl.report.figure`) makes figure.png.

    `delta` and `accounting` are as for `jdfl.account`.

    An empty folder may be there already. FileExistsError for one with content, unless `overwrite`, which replaces it.
    """
    folder = Path(folder)
    refuse_occupied(folder, overwrite)
    folder.parent.mkdir(parents=True, exist_ok=True)
    partial = folder.parent / f".{folder.name}.{uuid4().hex[:12]}"
    partial.mkdir()
    try:
        _write(partial, config_yaml, result, draw, delta, accounting)
        refuse_occupied(folder, overwrite)
        put_in_place(partial, folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return folder


def refuse_occupied(folder: Path, overwrite: bool) -> None:
    """FileExistsError for a file, and unless `overwrite` for a folder with content."""
    if folder.is_dir():
        if not overwrite and any(folder.iterdir()):
            raise FileExistsError(f"Expected no folder or an empty one at {folder}, got one with content. "
                                  "Choose another name, or pass overwrite=True to replace it.")  # fmt: skip
    elif folder.exists():
        raise FileExistsError(f"Expected a folder at {folder}, got a file. Choose another name.")


def _write(
    folder: Path,
    config_yaml: str,
    result: Result,
    draw: Draw | None,
    delta: float | None,
    accounting: Accounting,
) -> None:
    (folder / "config.yaml").write_text(config_yaml, encoding="utf-8")
    _write_json(folder / "environment.json", environment())
    result.history.to_csv(folder / "metrics.csv", index=False)
    result.history.to_parquet(folder / "metrics.parquet", index=False)
    np.savez_compressed(folder / "params.npz", params=np.asarray(result.params))
    if result.state is not None and result.diverged is None:
        Checkpoint.of(result).write(folder / CHECKPOINTS)
    told = summary(result, delta=delta, accounting=accounting)
    _write_json(folder / "summary.json", told)
    (folder / "summary.md").write_text(summary_text(told), encoding="utf-8")
    if draw is not None:
        draw({"": result.history}, folder / "figure.png")


def put_in_place(partial: Path, folder: Path) -> None:
    """Rename; what stood there is moved aside first and put back if the rename fails."""
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
    """Read a run directory back. FileNotFoundError names what is missing in a folder that is not one."""
    folder = Path(folder)
    missing = [name for name in FILES if not (folder / name).is_file()]
    if missing:
        raise FileNotFoundError(f"Expected a run directory at {folder}, found no {', '.join(missing)} in it.")
    with np.load(folder / "params.npz", allow_pickle=False) as arrays:
        params = arrays["params"]
    return Run(
        (folder / "config.yaml").read_text(encoding="utf-8"),
        json.loads((folder / "environment.json").read_text(encoding="utf-8")),
        pd.read_parquet(folder / "metrics.parquet"),
        params,
        json.loads((folder / "summary.json").read_text(encoding="utf-8")),
    )


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


def _write_json(path: Path, data: Any) -> None:
    path.write_text(json.dumps(data, indent=2, allow_nan=False, default=str) + "\n", encoding="utf-8")
