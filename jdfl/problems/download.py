"""Downloads over HTTP that continue after an interruption, by requests. Host only.

The first bytes of FILE are in FILE.partial next to it, and FILE.partial.json describes the version on the server that
they belong to. Both are removed when FILE is complete, and FILE appears complete.
"""

import fcntl
import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from email.utils import parsedate_to_datetime
from pathlib import Path
from types import TracebackType

import requests
import urllib3  # whose answers are those of requests, and whose errors their bodies raise

from jdfl.base import checks

_TIMEOUT = 30  # seconds without an answer
_WAITS = (1.0, 2.0, 4.0)  # seconds before the tries after the first; they begin again whenever the file has grown
_PIECE = 2**16  # bytes written at once
_PASSING = (408, 425, 429, 500, 502, 503, 504)  # statuses that may be others soon
_GZIP = ("gzip", "x-gzip")

Tell = Callable[[str], object]


@dataclass(frozen=True)
class Known:
    """What is known of a file before it is downloaded."""

    sha256: str
    source: str
    """Who says so, for the message about another file."""


@dataclass(frozen=True)
class _Version:
    """The version of a file on a server that a download began with."""

    address: str
    validator: str  # what If-Range takes: a strong ETag or Last-Modified; "": the server gives neither
    size: int | None  # bytes; None: the server does not say


def download(address: str, path: Path, known: Known | None, tell: Tell) -> str:
    """Download a file, or what is missing of it, and return its SHA-256; a file that is there is kept.

    A connection that is lost is tried again a few times. What has come stays there after any interruption, and the
    next call continues from it, unless the file has changed on the server, or the server cannot continue.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with _Partial(path) as partial:
        if path.is_file():  # another process has completed it meanwhile
            return sha256(path)
        _complete(address, partial, tell)
        found = sha256(partial.path)
        if known is not None and found != known.sha256:
            raise ValueError(
                f"Expected {address} with SHA-256 {known.sha256}, {known.source}, got {found}: it is damaged or "
                f"another release. {set_aside(partial.path, path)}"
            )
        partial.publish()
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


def tidy(path: Path) -> None:
    """Remove what a process leaves behind that is killed when the file has just appeared."""
    about = _Partial(path).about
    if path.is_file() and about.exists():  # unlink alone may fail on read-only disks
        about.unlink(missing_ok=True)


class _Partial:
    """What there is of a file, locked against others as long as the context lasts."""

    def __init__(self, target: Path) -> None:
        self.target = target
        self.path = target.with_name(f"{target.name}.partial")
        self.about = target.with_name(f"{target.name}.partial.json")

    def __enter__(self) -> "_Partial":
        while True:
            self._file = self.path.open("ab", buffering=0)
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # ends with the process, however that ends
            except BlockingIOError as error:
                self._file.close()
                raise BlockingIOError(
                    f"Expected no other download of {self.target}, got one under way. Wait for its end."
                ) from error
            if self._named():
                return self
            self._file.close()  # it was renamed after it was opened

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._named() and self.size == 0:  # nothing to continue from
            self.path.unlink()
        if not self._named():
            self.about.unlink(missing_ok=True)
        self._file.close()

    def _named(self) -> bool:
        """Whether the file that is open has the name yet."""
        try:
            return os.path.samestat(os.fstat(self._file.fileno()), self.path.stat())
        except FileNotFoundError:
            return False

    @property
    def size(self) -> int:
        """Bytes that are there."""
        return os.fstat(self._file.fileno()).st_size

    @property
    def version(self) -> _Version | None:
        """The version that they are of; None where that is not known."""
        try:
            return _Version(**json.loads(self.about.read_text(encoding="utf-8")))
        except (FileNotFoundError, ValueError, TypeError):  # missing, or not whole
            return None

    def begin(self, version: _Version) -> None:
        """Drop what is there, for what comes of a version."""
        self._file.truncate(0)
        os.fsync(self._file.fileno())  # before the old bytes could pass for the new version's
        with self.about.open("w", encoding="utf-8") as about:
            json.dump(asdict(version), about)
            about.flush()
            os.fsync(about.fileno())

    def append(self, piece: bytes) -> None:
        """Write the bytes that follow."""
        left = memoryview(piece)
        while left:
            left = left[self._file.write(left) :]

    def publish(self) -> None:
        """Give the file its name, when it is on the disk."""
        os.fsync(self._file.fileno())
        os.replace(self.path, self.target)
        folder = os.open(self.target.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _complete(address: str, partial: _Partial, tell: Tell) -> None:
    """Ask until the file is complete; OSError with a remedy where that fails."""
    most, tried = partial.size, 0
    while True:
        try:
            if _ask(address, partial, tell):
                return
            error, passing = OSError("the connection ended early"), True
        except requests.HTTPError as bad:
            error, passing = bad, bad.response is not None and bad.response.status_code in _PASSING
        except (requests.ConnectionError, requests.Timeout, urllib3.exceptions.HTTPError) as lost:
            error, passing = lost, True
        except OSError as other:  # no room, say, or requests' other errors
            error, passing = other, False
        if partial.size > most:
            most, tried = partial.size, 0
        if not passing or tried == len(_WAITS):
            kept = f"{partial.size:,} bytes are kept, and the same command continues. " if partial.size else ""
            raise OSError(
                f"Could not download {address}: {checks.said(error)}. {kept}Without a network, download it on another "
                f"machine and put it at {partial.target}."
            ) from error
        reason = str(error) if len(str(error)) < 80 else type(error).__name__
        tell(f"interrupted after {partial.size:,} bytes, {reason}: trying again in {_WAITS[tried]:g} s")
        time.sleep(_WAITS[tried])
        tried += 1


def _ask(address: str, partial: _Partial, tell: Tell) -> bool:
    """Send one request and write what comes; returns whether the file is complete."""
    had, version = partial.size, partial.version
    if version is None or version.address != address:
        version = _Version(address, "", None)
    if had and had == version.size:
        return True
    head = {"Accept-Encoding": "identity"}  # or the bytes would not be the file's
    if continued := bool(had and version.validator):
        head |= {"Range": f"bytes={had}-", "If-Range": version.validator}
    with requests.get(address, headers=head, stream=True, timeout=_TIMEOUT) as answer:
        rest = _rest(answer, had, version) if continued and answer.status_code == 206 else None
        if continued and rest is None and answer.status_code in (206, 416):
            tell(f"beginning again, since the server does not send the bytes after the first {had:,}: {address}")
            partial.begin(replace(version, validator="", size=None))
            return _ask(address, partial, tell)
        if rest is None and answer.status_code != 200:
            raise requests.HTTPError(f"{answer.status_code} {answer.reason}", response=answer)
        encoding = answer.headers.get("Content-Encoding", "identity")
        if encoding != "identity" and not (encoding in _GZIP and partial.target.suffix == ".gz"):
            raise requests.RequestException(f"the server encodes it as {encoding}, although asked not to")
        if rest is None:
            rest = _Version(address, _validator(answer.headers), _length(answer.headers))
            tell(f"{_beginning(had, version, rest)} {address}")
            partial.begin(rest)
        else:
            tell(f"continuing after {had:,}{f' of {rest.size:,}' if rest.size else ''} bytes: {address}")
        _refuse_full(partial, rest.size)
        for piece in answer.raw.stream(_PIECE, decode_content=False):
            partial.append(piece)
    return rest.size is None or partial.size == rest.size


def _beginning(had: int, before: _Version, now: _Version) -> str:
    """What a download from the first byte is called."""
    if not had:
        return "downloading"
    if not before.validator:
        return "beginning again, since the version of the existing bytes is not known:"
    why = "the server cannot continue" if before.validator == now.validator else "the file has changed on the server"
    return f"beginning again, since {why}:"


def _rest(answer: requests.Response, had: int, version: _Version) -> _Version | None:
    """The version whose bytes after the first `had` an answer holds, with its size; None where it holds others."""
    found = re.fullmatch(r"bytes (\d{1,18})-\d+/(\d{1,18}|\*)", answer.headers.get("Content-Range", ""))
    if found is None or _validator(answer.headers) not in ("", version.validator):
        return None
    size = version.size if found[2] == "*" else int(found[2])
    return replace(version, size=size) if int(found[1]) == had and version.size in (None, size) else None


def _validator(headers: Mapping[str, str]) -> str:
    """What If-Range takes: a strong ETag, or a date that no second change can share (RFC 9110, 13.1.5); or ""."""
    tag, changed, now = (headers.get(name, "") for name in ("ETag", "Last-Modified", "Date"))
    if tag.startswith('"'):
        return tag
    try:
        return changed if (parsedate_to_datetime(now) - parsedate_to_datetime(changed)).total_seconds() >= 1 else ""
    except (ValueError, TypeError):  # missing, or no dates
        return ""


def _length(headers: Mapping[str, str]) -> int | None:
    """The length of an answer's body; None where it is not said."""
    length = headers.get("Content-Length", "")
    return int(length) if re.fullmatch(r"\d{1,18}", length) else None


def _refuse_full(partial: _Partial, size: int | None) -> None:
    """OSError where the rest of the file has no room."""
    free = shutil.disk_usage(partial.path.parent).free
    if size is not None and size - partial.size > free:
        raise OSError(f"{size - partial.size:,} bytes are to come, and {free:,} are free")
