"""Who works in a folder: the lease, which one process at a time has, and the log of what happened to the work.

The file `lease` in the folder says who holds it. Its holder has it locked, which ends with the process, however that
ends, and touches it now and then, which is what other machines can see, and all can where the file system has no locks.
A lease whose holder is gone is taken over.

The log is the file `events`: a line of JSON per event, with its time, machine and process. Lines are only appended, and
no result is made of it: equal runs have other events.
"""

import contextlib
import errno
import fcntl
import getpass
import json
import os
import platform
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

NAME, LOG = "lease", "events"
BEAT = 5.0  # seconds between two signs of life
SILENT = 6 * BEAT  # seconds without one after which a holder on another machine counts as gone
_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS)


class HeldError(OSError):
    """Another process writes into the folder."""


class LostError(OSError):
    """What this process wrote was removed, replaced or changed by somebody else."""


class UnwrittenError(OSError):
    """A run is done, but its results could not be written."""


class Lease:
    """The lease on a folder, from when it was taken until `release`.

    `before` says in words who held it and is gone; it is empty where nobody did.
    """

    def __init__(self, folder: Path, file: int, text: bytes, before: str) -> None:
        self.before = before
        self._path, self._file, self._text = folder / NAME, file, text
        os.ftruncate(file, 0)
        os.pwrite(file, self._text, 0)
        self._over = threading.Event()
        self._beats = threading.Thread(target=self._beat, name="lease", daemon=True)
        self._beats.start()

    @classmethod
    def take(cls, folder: Path, patience: float = SILENT) -> "Lease":
        """Take the lease on a folder, which must exist."""
        path, text = folder / NAME, _own_text()
        while True:
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            try:
                locked = _lock(file)
                if locked is False:
                    raise HeldError(_refusal(folder, _begun(file)))
                holder = _holder(file)
                watched = bool(holder) and (locked is None or holder.get("machine") != _machine())
                if watched and _same(file, path) and _lives(path, patience):
                    raise HeldError(_refusal(folder, holder))
                if _same(file, path):
                    return cls(folder, file, text, _words(holder) if holder else "")
            except BaseException:
                os.close(file)
                raise
            os.close(file)  # its holder has just given it back

    def check(self) -> None:
        """LostError unless the lease is still this one."""
        try:
            file = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)  # in a run after every chunk
        except (FileNotFoundError, NotADirectoryError):
            raise LostError(f"Expected the folder {self._path.parent} of this run, found its lease removed.") from None
        try:
            text = os.read(file, len(self._text) + 1)
        finally:
            os.close(file)
        if text != self._text:
            raise LostError(
                f"Expected the lease {self._path} of this run, found that of another process. It took this one for "
                "dead, and goes on with the run."
            )

    def release(self) -> None:
        """Give it back: the file is removed, if it is still this lease. To be called once."""
        self._over.set()
        self._beats.join()
        with contextlib.suppress(OSError):
            self.check()
            self._path.unlink()
        os.close(self._file)

    def _beat(self) -> None:
        while not self._over.wait(BEAT):
            with contextlib.suppress(OSError):
                self.check()  # another one is not kept alive
                os.utime(self._file)


def _own_text() -> bytes:
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # in a container, whose user has no name
        user = str(os.getuid())
    since = datetime.now(UTC).isoformat(timespec="seconds")
    holder = {"host": platform.node(), "process": os.getpid(), "user": user, "since": since, "id": uuid4().hex}
    return json.dumps(holder | {"machine": _machine()}).encode() + b"\n"


def _machine() -> str:
    """What is the same for all processes that see one another's locks, although other machines may have this name."""
    try:
        return (
            Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        )  # the same in containers, another after a boot
    except OSError:
        return platform.node()  # systems other than Linux


def _lock(file: int) -> bool | None:
    """Whether the lock could be had; None where the file system has none: then signs of life alone count."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        return None
    return True


def _same(file: int, path: Path) -> bool:
    """Whether a path leads to an open file."""
    try:
        return os.path.samestat(os.fstat(file), path.stat())
    except FileNotFoundError:
        return False


def _holder(file: int) -> dict[str, Any]:
    """Who holds it as the file says; empty where it says nothing, as of a lease that is just being taken."""
    try:
        return dict(json.loads(os.pread(file, 4096, 0)))
    except (ValueError, TypeError, RecursionError):
        return {}


def _begun(file: int) -> dict[str, Any]:
    """Who holds it, with a second for one that is just taking it to say so."""
    until = time.monotonic() + 1
    while not (holder := _holder(file)) and time.monotonic() < until:
        time.sleep(0.01)
    return holder


def _lives(path: Path, patience: float) -> bool:
    """Whether a holder gives a sign of life, and has not given the lease back. No clocks are compared, which differ."""
    until = time.monotonic() + patience
    try:
        seen = _touched(path)
        while time.monotonic() < until:
            time.sleep(min(0.5, patience))
            if _touched(path) != seen:
                return True
    except FileNotFoundError:
        return False
    return False


def _touched(path: Path) -> int:
    """When a file was touched last. It is opened, since network file systems then ask the server."""
    with path.open("rb") as file:
        return os.fstat(file.fileno()).st_mtime_ns


def _words(holder: dict[str, Any]) -> str:
    words = (holder.get(name, "unknown") for name in ("process", "user", "host", "since"))
    return "process {} of {} on {}, since {}".format(*words)


def _refusal(folder: Path, holder: dict[str, Any]) -> str:
    who = _words(holder) if holder else "a process that is just beginning"
    return (
        f"Expected a folder into which no other process writes, got {folder}, which {who} is writing into. Wait until "
        "it has ended, or end it there with kill."
    )


def note(folder: Path, event: str, **about: Any) -> None:
    """Append an event, and wait until the disk has it; a folder that is gone is not made again."""
    here = {
        "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "host": platform.node(),
        "process": os.getpid(),
    }
    line = json.dumps({**here, "event": event, **about}).encode() + b"\n"
    file = os.open(folder / LOG, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        size = os.fstat(file).st_size
        if size and os.pread(file, 1, size - 1) != b"\n":  # of a line that was cut off
            line = b"\n" + line
        os.write(file, line)
        os.fsync(file)
    finally:
        os.close(file)


def read_log(folder: Path) -> list[dict[str, Any]]:
    """The events in a folder, without lines that are not whole; none where there is no such file."""
    found: list[dict[str, Any]] = []
    with contextlib.suppress(FileNotFoundError):
        for line in (folder / LOG).read_bytes().split(b"\n"):
            with contextlib.suppress(ValueError, TypeError, RecursionError):
                found.append(dict(json.loads(line)))
    return found
