"""Numbered snapshots in a folder: a file NUMBER.npz each, complete or absent. The two newest stay.

The older one is there in case the newest is damaged.
"""

import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jdfl.store import files

_KEPT = 2


class Stored(NamedTuple):
    """What was passed to `write`."""

    number: int
    arrays: dict[str, np.ndarray]
    plain: dict[str, Any]


def write(folder: Path, number: int, arrays: Mapping[str, np.ndarray], plain: Mapping[str, Any]) -> None:
    """Write a snapshot into a folder, which is made if its parent folder exists; OSError where that fails.

    Those with this and higher numbers go, and so do all but the newest two.
    """
    try:
        folder.mkdir(exist_ok=True)
        for later in numbers(folder):
            if later > number:
                _file(folder, later).unlink()
        files.write_arrays(_file(folder, number), arrays, plain)
        files.sync_path(folder)
        files.sync_path(folder.parent)
        tidy(folder)
    except Exception as error:  # of NumPy and of zip as well
        words = " ".join(str(error).split())[:300]
        raise OSError(f"Could not write a checkpoint into {folder}: {words}") from error


def tidy(folder: Path) -> None:
    """Remove what a killed writer leaves behind: unfinished snapshots, and those due for removal."""
    files.tidy(folder)
    for number in numbers(folder)[:-_KEPT]:
        _file(folder, number).unlink(missing_ok=True)


def newest(folder: Path) -> int | None:
    """The number of the newest snapshot; None where there is none."""
    return max(numbers(folder), default=None)


def read(folder: Path, check: Callable[[Stored], object] = lambda found: None) -> Stored:
    """The newest complete snapshot; warns of damaged ones.

    Args:
        folder: The folder of the snapshots.
        check: Raises ValueError for a snapshot that is of no use, so that the one before is taken.

    Raises FileNotFoundError where there is none, ValueError where all are damaged.
    """
    if not (known := numbers(folder)):
        raise FileNotFoundError(
            f"Expected a checkpoint at {folder}, found none. Give the folder `checkpoints` in a run's folder."
        )
    damage = ""
    for number in reversed(known):
        path = _file(folder, number)
        try:
            found = Stored(number, *files.read_arrays(path))
            check(found)
        except Exception as error:  # zip, NumPy and JSON each raise their own errors
            damage = damage or f"{path}: {' '.join(str(error).split())[:300] or repr(error)}"
            continue
        if damage:
            warnings.warn(f"A checkpoint is damaged, and the one before it is used: {damage}", stacklevel=2)
        return found
    raise ValueError(
        f"Expected a checkpoint at {folder}, got {len(known)}, none of them readable. The newest fails with "
        f"{damage}. Start the run again."
    )


def numbers(folder: Path) -> list[int]:
    """The numbers of the existing snapshots, ascending."""
    found = folder.glob("*.npz") if folder.is_dir() else ()
    return sorted(int(one.stem) for one in found if one.stem.isdecimal())


def _file(folder: Path, number: int) -> Path:
    return folder / f"{number}.npz"
