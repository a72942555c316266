"""Damage to one place of a folder."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from random import Random

from jdfl.store import lease

KINDS = ["flip", "cut", "empty", "remove", "other", "folder", "swap", "append", "emptied", "earlier"]


def damaged(folder: Path, draw: Random, other: Path, earlier: Sequence[Path]) -> str:
    """Damage a folder; says how, in words that begin with the kind.

    Args:
        folder: The folder.
        draw: The randomness.
        other: The folder of another work, whose files have the same names.
        earlier: The folder as it was at some moments before.
    """
    before = _contents(folder)
    while True:
        how = draw.choice(KINDS)
        what = _one(folder, how, draw, other, earlier)
        if what and _contents(folder) != before:
            return f"{how} {what}"


def _one(folder: Path, how: str, draw: Random, other: Path, earlier: Sequence[Path]) -> str:
    """What was damaged; empty where there is nothing that can be damaged like this."""
    if how == "emptied":
        return _emptied(folder, draw)
    if how == "earlier":
        return _put_back(folder, draw, draw.choice(earlier)) if earlier else ""
    path = _file(folder, draw)
    name = str(path.relative_to(folder))
    if how == "remove":
        path.unlink()
    elif how == "folder":
        path.unlink()
        path.mkdir()
    elif how == "other":
        if not (other / name).is_file():
            return ""
        shutil.copyfile(other / name, path)
    else:
        path.write_bytes(_bytes(path.read_bytes(), how, draw))
    return name


def _bytes(content: bytes, how: str, draw: Random) -> bytes:
    at = draw.randrange(len(content)) if content else 0
    if how == "flip" and content:
        return content[:at] + bytes([content[at] ^ 1 << draw.randrange(8)]) + content[at + 1 :]
    if how == "cut":
        return content[:at]
    if how == "append":
        return content + draw.choice([draw.randbytes(draw.randint(1, 60)), b"\n", b"\0" * 40, content[at:]])
    if how == "swap":
        lines = content.splitlines(keepends=True)
        if len(lines) > 1:
            i, j = draw.sample(range(len(lines)), 2)
            lines[i], lines[j] = lines[j], lines[i]
        return b"".join(lines)
    return b""


def _file(folder: Path, draw: Random) -> Path:
    """A file of a folder, mostly not one of those in folders in it, of which there are many."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != lease.NAME)
    own = [path for path in files if path.parent == folder]
    return draw.choice(own if own and draw.random() < 0.7 else files)


def _emptied(folder: Path, draw: Random) -> str:
    folders = sorted(path for path in folder.rglob("*") if path.is_dir())
    if not folders:
        return ""
    place = draw.choice([folders[0], draw.choice(folders)])
    for path in place.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
    return str(place.relative_to(folder))


def _put_back(folder: Path, draw: Random, before: Path) -> str:
    """One, two or three files or folders of an earlier state, as of a backup that was partly put back."""
    names = sorted(path.name for path in before.iterdir() if path.name != lease.NAME)
    chosen = draw.sample(names, min(len(names), draw.randint(1, 3)))
    for name in chosen:
        if (folder / name).is_dir():
            shutil.rmtree(folder / name)
        if (before / name).is_dir():
            shutil.copytree(before / name, folder / name)
        else:
            shutil.copyfile(before / name, folder / name)
    return ", ".join(chosen)


def _contents(folder: Path) -> dict[Path, bytes | None]:
    """Everything in a folder by its path."""
    return {path: path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}
