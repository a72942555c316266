"""Jobs in a folder: parts of a longer piece of work, which are kept one by one when they are done, each whole.

jobs.json   what the work is, and the versions that it was begun with
jobs/NAME/  what a job has made, and its manifest; the name identifies the work of the job
events      when the work was begun, resumed, cut off and ended

A job that is kept is not done again. One that was cut off leaves nothing, and is done from its beginning.
"""

import errno
import hashlib
import json
import shutil
import signal
import threading
import warnings
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any
from uuid import uuid4

from jdfl.store import manifest
from jdfl.store.files import sync_path, write
from jdfl.store.lease import Lease, LostError, UnwrittenError, note

ORIGIN, PLACE = "jobs.json", "jobs"
_FORMAT = 2
_SIGNALS = (signal.SIGTERM, signal.SIGHUP)
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EACCES)


class FailedJobsError(RuntimeError):
    """Some jobs failed. All others are done and kept."""


class JobsWarning(UserWarning):
    """A job is done again, since it failed or its files are damaged."""


class TerminatedError(KeyboardInterrupt):
    """SIGTERM or SIGHUP, which end work in jobs as Ctrl-C does."""


class Jobs:
    """The jobs of a folder. Several processes may do different jobs of one folder at the same time.

    Args:
        folder: The folder, which must exist.
        retry: How often a job that fails is tried again, from 0.
        lease: The lease on the folder, which is looked at before and after every job; None: another process has it.
    """

    def __init__(self, folder: Path, retry: int = 0, lease: Lease | None = None) -> None:
        self.folder, self.retry, self._lease = folder, retry, lease

    @property
    def token(self) -> str:
        """What distinguishes the work of this folder from that of others; the same whenever it goes on."""
        return str(_read(self.folder / ORIGIN)["token"])

    def find(self, name: str) -> Path | None:
        """The folder of a finished job; None for one that is not done, or whose files are damaged, with a warning."""
        place = self.folder / PLACE / name
        if not place.is_dir():
            return None
        try:
            changed = manifest.differences(place)[0]
        except (FileNotFoundError, ValueError) as error:
            changed = [str(error)]
        if changed:
            warnings.warn(f"{place} is damaged ({changed[0]}): this job is done again.", JobsWarning, stacklevel=3)
            return None
        return place

    def done(self, name: str, make: Callable[[Path], None]) -> Path:
        """The folder of a job, which is done now unless it was done before."""
        if (found := self.find(name)) is not None:
            return found
        attempt = 0
        while True:
            try:
                return self._made(name, make)
            except LostError:
                raise
            except (OSError, RuntimeError, MemoryError) as error:
                said = f"{type(error).__name__}: {' '.join(str(error).split())}"
                if getattr(error, "errno", None) in _FULL:
                    raise UnwrittenError(
                        f"Could not keep a job in {self.folder}: {error}. What was done before is kept; once it can be "
                        "written, the same command goes on."
                    ) from error
                if attempt == self.retry:
                    raise FailedJobsError(f"A job failed, {said}") from error
                attempt += 1
                again = f"it is tried again, {attempt} of {self.retry}"
                warnings.warn(f"A job failed, {said}; {again}.", JobsWarning, stacklevel=2)

    def _made(self, name: str, make: Callable[[Path], None]) -> Path:
        place = self.folder / PLACE / name
        partial = place.with_name(f".{name}.{uuid4().hex[:12]}")
        self._check()
        place.parent.mkdir(exist_ok=True)
        partial.mkdir()
        try:
            make(partial)
            self._check()
            write(partial / manifest.NAME, manifest.of(partial))
            for path in [*partial.rglob("*"), partial]:
                sync_path(path)
            if place.exists() and self.find(name) is None:
                shutil.rmtree(place)
            if not place.exists():  # or another process has done it at the same time
                partial.rename(place)
                sync_path(place.parent)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
        return place

    def _check(self) -> None:
        if self._lease is not None:
            self._lease.check()

    def clear(self) -> None:
        """Remove all jobs and what belongs to them: everything that was made of them is written elsewhere."""
        shutil.rmtree(self.folder / PLACE, ignore_errors=True)
        (self.folder / ORIGIN).unlink(missing_ok=True)


@contextmanager
def opened(folder: Path, origin: Mapping[str, Any], *, any_version: bool = False, retry: int = 0) -> Generator[Jobs]:
    """The jobs of a folder that no other process works in; SIGTERM and SIGHUP end the work as Ctrl-C does."""
    lease = Lease.take(folder)
    try:
        before = {"before": lease.before} if lease.before else {}
        if lease.before:
            message = f"The work in {folder} was not ended by {lease.before}; it goes on with what is not done"
            warnings.warn(f"{message}.", stacklevel=3)
        new = _begin(folder, {"format": _FORMAT, "token": uuid4().hex[:16], **origin}, any_version)
        note(folder, "begun" if new else "resumed", **before)
        with _ended_by_signals():
            try:
                yield Jobs(folder, retry, lease)
            except BaseException as error:
                with suppress(OSError):
                    note(folder, "cut off", by=type(error).__name__, said=str(error)[:500])
                raise
    finally:
        lease.release()


def _begin(folder: Path, origin: dict[str, Any], any_version: bool) -> bool:
    """Write the origin of the work, or compare it with that of work that goes on; returns whether it is new."""
    for partial in (folder / PLACE).glob(".*"):  # of jobs that were cut off
        shutil.rmtree(partial, ignore_errors=True)
    path = folder / ORIGIN
    if path.is_file():
        before = _read(path)
        free = {"versions": {}, "token": ""} | ({"settings": ""} if any_version else {})
        if {**before, **free} != {**origin, **free}:
            raise ValueError(
                f"Expected the work that was begun in {folder}, got other work, or other settings. Put the file of its "
                "settings back, or name another folder."
            )
        changed = _changed(before["versions"], origin["versions"])
        if changed and not any_version:
            raise ValueError(
                f"Expected the code and libraries that the work in {folder} was begun with, got others: "
                f"{'; '.join(changed)}. Begin again in another folder, or mix both with --any-version."
            )
        return False
    write(path, origin)
    return True


@contextmanager
def _ended_by_signals() -> Generator[None]:
    """SIGTERM and SIGHUP raise TerminatedError in the main thread, where nothing else is done at them."""
    replaced: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():
        for number in (one for one in _SIGNALS if signal.getsignal(one) is signal.SIG_DFL):
            replaced[number] = signal.signal(number, _end)
    try:
        yield
    finally:
        for number, usual in replaced.items():
            signal.signal(number, usual)


def name_of(*parts: Any) -> str:
    """A name that identifies work, made of everything that its result depends on, as plain data."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:24]


def _read(path: Path) -> dict[str, Any]:
    try:
        found = dict(json.loads(path.read_text(encoding="utf-8")))
        if found["format"] == _FORMAT:
            return {**found, "versions": {str(name): str(one) for name, one in dict(found["versions"]).items()}}
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise ValueError(f"Expected the origin of the work at {path}, got a damaged file: {error!r:.200}.") from error
    raise ValueError(
        f"Expected the origin of work in format {_FORMAT} at {path}, got {found['format']!r:.40}. Use the jdfl that "
        "wrote it, or name another folder."
    )


def _changed(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    return [f"{name}: was {one}, is {now[name]}" for name, one in before.items() if now.get(name, one) != one]


def _end(number: int, _: FrameType | None) -> None:
    raise TerminatedError(signal.Signals(number).name)
