"""The comparison of whole folders of runs, of which one was killed and resumed."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np

from jdfl.results.checkpoints import SNAPSHOTS
from jdfl.store import lease, manifest, snapshots


def differences(one: Path, other: Path) -> list[str]:
    """What differs between two folders of runs, in everything but times and their names; nothing where they are equal.

    Hidden files count. Of checkpoints the numbers and the content of the newest are compared, not how they lie there.
    """
    found: list[str] = []
    names = [_names(folder) for folder in (one, other)]
    found += [f"only in one of them: {name}" for name in sorted(names[0] ^ names[1])]
    for name in sorted(names[0] & names[1]):
        mine, theirs = (_content(folder / name) for folder in (one, other))
        if mine != theirs:
            found.append(f"{name}: {mine!r:.200} is {theirs!r:.200}")
    mine, theirs = (snapshots.read(folder / SNAPSHOTS) for folder in (one, other))
    if _plain(mine.plain) != _plain(theirs.plain):
        found.append(f"checkpoint: {_plain(mine.plain)!r:.300} is {_plain(theirs.plain)!r:.300}")
    if mine.number != theirs.number or list(mine.arrays) != list(theirs.arrays):
        found.append(f"checkpoint {mine.number} of {list(mine.arrays)} is {theirs.number} of {list(theirs.arrays)}")
    else:
        found += [
            f"checkpoint: {name}"
            for name, array in mine.arrays.items()
            if not np.array_equal(array, theirs.arrays[name], equal_nan=array.dtype.kind == "f")
        ]
    return found


def _names(folder: Path) -> set[str]:
    """Of all files."""
    assert not (folder / lease.NAME).exists()
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def _content(path: Path) -> Any:
    """What is compared of a file."""
    if path.parent.name == SNAPSHOTS or path.name in (lease.LOG, manifest.PRIVATE):  # of which two runs have others
        return None
    if path.name == manifest.NAME:
        return sorted(name for name in json.loads(path.read_text())["files"] if not name.startswith(SNAPSHOTS))
    if path.suffix == ".json":
        return _plain(json.loads(path.read_text()))
    if path.name == "summary.md":
        return re.sub(r"(?m)^.*(seconds|wall|compil).*$", "", path.read_text())
    return path.read_bytes()


_APART = ("seconds", "compile_seconds", "date", "token", "released")  # the last: also of where it was cut off


def _plain(told: Any) -> Any:
    """Plain data without times, at any depth."""
    if isinstance(told, list):
        return [_plain(one) for one in told]
    if not isinstance(told, dict):
        return told
    return {name: _plain(value) for name, value in told.items() if name not in _APART}
