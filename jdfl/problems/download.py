"""Downloads over HTTP that continue after an interruption, by requests. Host only.

The first bytes of FILE are in FILE.partial next to it, until FILE appears complete. Only a file whose SHA-256 is known
continues from them, since the file on the server may have changed; any other begins again.
"""

import fcntl
import hashlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, NamedTuple

import requests
import urllib3  # requests leaves errors of its bodies as they are

from jdfl.base import checks

_TIMEOUT = 30  # seconds without an answer
_WAITS = (1.0, 2.0, 4.0)  # seconds before the tries after the first; they begin again whenever the file has grown
_PIECE = 2**16  # bytes written at once
_TEMPORARY = (408, 425, 429, 500, 502, 503, 504)  # statuses after which another try may succeed

Tell = Callable[[str], object]


class Known(NamedTuple):
    """What is known of a file before it is downloaded."""

    sha256: str
    source: str  # who says so, for the message about another file


def download(address: str, path: Path, known: Known | None, tell: Tell) -> str:
    """Download a file, or what is missing of it, and return its SHA-256; a file that is there is kept.

    A connection that is lost is tried again a few times.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.partial")
    with partial.open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # ends with the process
        except BlockingIOError as error:
            raise BlockingIOError(
                f"Expected no other download of {path}, got one under way. Wait for its end."
            ) from error
        if path.is_file():  # another process has completed it meanwhile
            partial.unlink(missing_ok=True)
            return sha256(path)
        try:
            if known is None or sha256(partial) != known.sha256:
                _complete(address, file, path, known is not None, tell)
        except BaseException:
            if partial.stat().st_size == 0:  # nothing to continue from
                partial.unlink()
            raise
        os.fsync(file.fileno())
        found = sha256(partial)
        if known is not None and found != known.sha256:
            raise ValueError(
                f"Expected {address} with SHA-256 {known.sha256}, {known.source}, got {found}: it is damaged or "
                f"another release. {set_aside(partial, path)}"
            )
        os.replace(partial, path)
    return found


def sha256(path: Path) -> str:
    """The SHA-256 of a file."""
    with path.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def set_aside(path: Path, target: Path) -> str:
    """Rename a file that is not what it should be to TARGET.refused; returns what a person may do now."""
    refused = target.with_name(f"{target.name}.refused")
    os.replace(path, refused)
    return (
        f"What was downloaded is kept as {refused}. The same command downloads it again; if it is a release that "
        f"you trust, rename it to {target.name}."
    )


def _complete(address: str, file: IO[bytes], path: Path, continues: bool, tell: Tell) -> None:
    """Ask until the file is complete; OSError with a remedy where that fails."""
    most, tried = file.tell(), 0
    while True:
        if not continues:
            file.truncate(0)
        try:
            _ask(address, file, tell)
            return
        except (OSError, urllib3.exceptions.HTTPError) as error:
            file.flush()
            size = os.fstat(file.fileno()).st_size
            if size > most:
                most, tried = size, 0
            lost = isinstance(error, requests.ConnectionError | requests.Timeout | urllib3.exceptions.HTTPError)
            answer = getattr(error, "response", None)
            temporary = lost or (answer is not None and answer.status_code in _TEMPORARY)
            if not temporary or tried == len(_WAITS):
                kept = f"{size:,} bytes are kept, and the same command continues. " if size and continues else ""
                raise OSError(
                    f"Could not download {address}: {checks.said(error)}. {kept}Without a network, download it on "
                    f"another machine and put it at {path}."
                ) from error
            reason = str(error) if len(str(error)) < 80 else type(error).__name__
            tell(f"interrupted after {size:,} bytes, {reason}: trying again in {_WAITS[tried]:g} s")
            time.sleep(_WAITS[tried])
            tried += 1


def _ask(address: str, file: IO[bytes], tell: Tell) -> None:
    """Send one request and write what comes."""
    had = file.seek(0, os.SEEK_END)
    head = {"Accept-Encoding": "identity"}  # or the bytes would not be the file's
    if had:
        head["Range"] = f"bytes={had}-"
    with requests.get(address, headers=head, stream=True, timeout=_TIMEOUT) as answer:
        continued = answer.status_code == 206 and answer.headers.get("Content-Range", "").startswith(f"bytes {had}-")
        if had and not continued and answer.status_code in (200, 206, 416):
            tell(f"beginning again, since the server does not send the bytes after the first {had:,}: {address}")
            file.truncate(0)
            if answer.status_code != 200:
                _ask(address, file, tell)
                return
        elif answer.status_code != 200 and not (had and continued):
            raise requests.HTTPError(f"{answer.status_code} {answer.reason}", response=answer)
        else:
            tell(f"continuing after {had:,} bytes: {address}" if had else f"downloading {address}")
        length, written = answer.headers.get("Content-Length"), 0
        for piece in answer.raw.stream(_PIECE, decode_content=False):
            written += file.write(piece)
        file.flush()
    if length is not None and written < int(length):
        raise requests.ConnectionError("the connection ended early")
