"""The folders that commands begin, go on in, and remove again."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from jdfl.engine.booking import RESERVED
from jdfl.engine.records import JOURNAL, RECORD
from jdfl.lab.files import tidy
from jdfl.lab.results import new_run_folder
from jdfl.store import jobs, lease
from jdfl.store.lease import LostError, UnwrittenError

Written = TypeVar("Written")
_SOON = {JOURNAL, RECORD, lease.LOG, lease.NAME, jobs.ORIGIN, RESERVED}  # in the folder of work that was soon killed


def begun(out: Path, folder: Path | None, label: str) -> Path:
    """The folder for new work: a new one in `out`, or the `folder`, which must be empty or not there."""
    if folder is None:
        return new_run_folder(out, label)
    folder.mkdir(parents=True, exist_ok=True)
    tidy(folder)
    others = {path.name for path in folder.iterdir()} - _SOON
    if others:
        raise FileExistsError(
            f"Expected --folder with such work in it, empty, or not there, got {folder}, which has "
            f"{sorted(others)[0]}. Name another."
        )
    return folder


def discard(folder: Path) -> None:
    """Remove the folder of work that left nothing to go on from."""
    shutil.rmtree(folder, ignore_errors=True)


def written(folder: Path, write: Callable[[], Written]) -> Written:
    """What `write` returns, which writes results into a folder.

    UnwrittenError, which says how to write them later, where that is not possible.
    """
    try:
        return write()
    except LostError:
        raise
    except OSError as error:
        remedy = f"Once it can be done: jdfl resume {folder}"
        raise UnwrittenError(f"Could not write the results: {error}. {remedy}") from error
