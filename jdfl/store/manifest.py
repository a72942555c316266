"""The manifest of a folder: the size and SHA-256 of every file in it, written last. A text that has its own SHA-256."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jdfl.store import lease

NAME, PRIVATE = "manifest.json", "private.key"
_FORMAT = 1
_SIGN = "# sha256 of the lines above: "


def of(folder: Path, apart: Sequence[str] = ()) -> dict[str, Any]:
    """The manifest of a folder as plain data, of all files but itself, the lease, private keys, and those `apart`."""
    others = {NAME, lease.NAME, PRIVATE, *apart}
    files = sorted(
        path for path in folder.rglob("*") if path.is_file() and path.relative_to(folder).parts[0] not in others
    )
    return {"format": _FORMAT, "files": {path.relative_to(folder).as_posix(): _about(path) for path in files}}


def differences(folder: Path) -> tuple[list[str], list[str]]:
    """What is not as the manifest of a folder says.

    Returns:
        What was changed or is missing, a sentence per file; and the names of files that were added since, such as a
            report.

    Raises FileNotFoundError where there is no manifest, and ValueError where it is damaged.
    """
    listed, here = _listed(folder), of(folder)["files"]
    found = [f"{name} is missing" for name in listed if name not in here]
    for name, (size, digest) in listed.items():
        if name in here and _is_log(folder / name):
            here[name] = _about(folder / name, size)
        if name in here and here[name]["bytes"] != size:
            found.append(f"{name} has {here[name]['bytes']} bytes, had {size}")
        elif name in here and here[name]["sha256"] != digest:
            found.append(f"{name} was changed")
    return found, [name for name in here if name not in listed]


def check(folder: Path, names: Sequence[str] | None = None) -> None:
    """Raise ValueError where files are not as the manifest of a folder says; one without a manifest is not checked."""
    if not (folder / NAME).is_file():
        return
    for name, (size, digest) in _listed(folder).items():
        if names is None or name in names:
            path = folder / name
            if not path.is_file():
                wrong = "is missing"
            elif _about(path, size if _is_log(path) else None) != {"bytes": size, "sha256": digest}:
                wrong = "was changed"
            else:
                continue
            raise ValueError(
                f"Expected the files in {folder} as they were written, got others: {name} {wrong}. Put it back, or do "
                "the work again."
            )


def signed(text: str) -> str:
    """A text with its SHA-256 in a last line, which is a comment in YAML."""
    return f"{text}{_SIGN}{hashlib.sha256(text.encode()).hexdigest()}\n"


def check_signed(text: str, place: Path) -> None:
    """Raise ValueError unless a text is as `signed` has returned it, or unsigned where its folder has no journal."""
    content, sign, digest = text.rpartition(_SIGN)
    if not sign and not (place.parent / "journal").is_file():
        return
    if not sign or digest != f"{hashlib.sha256(content.encode()).hexdigest()}\n":
        raise ValueError(
            f"Expected {place} as it was written, got another content. Put it back; to go on with other settings, give "
            "them as flags, and to begin another run: jdfl run --config FILE."
        )


def _listed(folder: Path) -> dict[str, tuple[int, str]]:
    """Size and SHA-256 by name, as the manifest has them."""
    path = folder / NAME
    if not path.is_file():
        raise FileNotFoundError(f"Expected {NAME} in {folder}, found none: what is there was not finished.")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        format, files = content["format"], dict(content["files"])
        listed = {str(name): (int(one["bytes"]), str(one["sha256"])) for name, one in files.items()}
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
        raise ValueError(f"Expected the manifest of a folder at {path}, got a damaged file: {error!r:.200}.") from error
    if format != _FORMAT:
        raise ValueError(
            f"Expected a manifest of format {_FORMAT} at {path}, got {format!r}. Use the jdfl that wrote it."
        )
    return listed


def _is_log(path: Path) -> bool:
    """Whether lines may have been added to a file since it was listed."""
    return path.name == lease.LOG


def _about(path: Path, most: int | None = None) -> dict[str, Any]:
    """Size and SHA-256 of a file, or of its first bytes."""
    if most is not None:
        begun = path.read_bytes()[:most]
        return {"bytes": len(begun), "sha256": hashlib.sha256(begun).hexdigest()}
    with path.open("rb") as file:
        return {"bytes": path.stat().st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}
