"""The lease on a folder: one process at a time writes into it, and others get its name.

The file `lease` in the folder says who holds it. Its holder has it locked, which ends with the process, however that
ends, and touches it now and then, which is what other machines can see, and all can where the file system has no locks.
A lease whose holder is gone is taken over.
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

NAME = "lease"
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

    def __init__(self, folder: Path, file: int, told: bytes, before: str) -> None:
        self.before = before
        self._path, self._file, self._told = folder / NAME, file, told
        os.ftruncate(file, 0)
        os.pwrite(file, self._told, 0)
        self._over = threading.Event()
        self._beats = threading.Thread(target=self._beat, name="lease", daemon=True)
        self._beats.start()

    @classmethod
    def take(cls, folder: Path, patience: float = SILENT) -> "Lease":
        """Take the lease on a folder, which must exist."""
        path, told = folder / NAME, _told()
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
                    return cls(folder, file, told, _words(holder) if holder else "")
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
            told = os.read(file, len(self._told) + 1)
        finally:
            os.close(file)
        if told != self._told:
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


def _told() -> bytes:
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # in a container, whose user has no name
        user = str(os.getuid())
    since = datetime.now(UTC).isoformat(timespec="seconds")
    told = {"host": platform.node(), "process": os.getpid(), "user": user, "since": since, "id": uuid4().hex}
    return json.dumps(told | {"machine": _machine()}).encode() + b"\n"


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
    told = (holder.get(name, "unknown") for name in ("process", "user", "host", "since"))
    return "process {} of {} on {}, since {}".format(*told)


def _refusal(folder: Path, holder: dict[str, Any]) -> str:
    who = _words(holder) if holder else "a process that is just beginning"
    return (
        f"Expected a folder into which no other process writes, got {folder}, which {who} is writing into. Wait until "
        "it has ended, or end it there with kill."
    )
