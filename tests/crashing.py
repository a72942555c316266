"""Every moment at which a process could die, or at which a file system could fail, in the work of a command."""

import builtins
import contextlib
import io
import os
import shutil
import threading
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

_BEFORE = ("fsync", "replace", "rename", "unlink", "remove", "ftruncate", "mkdir", "rmdir", "write")  # of os
_WRITING = ("fsync", "replace", "rename", "ftruncate", "mkdir", "write", "pwrite", "open")  # what a full disk fails


class Points:
    """Copies of the folders in `watched`, in `kept`/0, 1, ...: one before every operation on files, and torn writes.

    What the operating system has is what a process leaves that is killed.
    """

    def __init__(self, watched: Path, kept: Path) -> None:
        self._watched, self._kept = watched, kept
        self._copying, self._one = threading.local(), threading.Lock()  # checkpoints are renamed by another thread
        self.names: list[str] = []  # of the operation before which each copy was made

    def __call__(self, name: str, *_: Any) -> None:
        """Copy everything."""
        if getattr(self._copying, "now", False) or not self._watched.exists():
            return
        self._copying.now = True
        with self._one:
            copy = self._kept / str(len(self.names))
            try:
                shutil.copytree(self._watched, copy)
                self.names.append(name)
            except shutil.Error:  # a file that another thread has just removed
                shutil.rmtree(copy, ignore_errors=True)
        self._copying.now = False


class Failing:
    """Makes the operation number `at` on files in `watched` fail, and all that write later where it is `lasting`."""

    def __init__(self, watched: Path, at: int, code: int, *, lasting: bool) -> None:
        self._watched, self._at, self._code, self._lasting = watched.resolve(), at, code, lasting
        self._one = threading.Lock()
        self.count, self.failed = 0, ""

    def __call__(self, name: str, *args: Any) -> None:
        """Raise OSError where it is time."""
        if name not in _WRITING or not any(map(self._inside, args[:2])):
            return
        with self._one:
            number, self.count = self.count, self.count + 1
        if number == self._at or (self._lasting and number > self._at):
            self.failed = self.failed or name
            raise OSError(self._code, os.strerror(self._code))

    def _inside(self, given: Any) -> bool:
        """Whether a path, or the number of an open file, is in the folder."""
        if isinstance(given, int):
            try:
                given = os.readlink(f"/proc/self/fd/{given}")
            except OSError:
                return False
        return isinstance(given, str | Path) and Path(given).absolute().is_relative_to(self._watched)


def every_point(watched: Path, kept: Path) -> contextlib.AbstractContextManager[Points]:
    """The points of what is done inside, in this process; other threads and C++ write on in between."""
    return _patched(Points(watched, kept))


def failing(watched: Path, at: int, code: int, *, lasting: bool) -> contextlib.AbstractContextManager[Failing]:
    """`Failing` for what is done inside, in this process."""
    return _patched(Failing(watched, at, code, lasting=lasting))


@contextlib.contextmanager
def _patched(point: Any) -> Generator[Any]:
    """Calls `point` with the name and the arguments of every operation on files before it, and amid some."""
    saved = {name: getattr(os, name) for name in (*_BEFORE, "pwrite")}
    opened = io.open

    def before(name: str) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            point(name, *args)
            return saved[name](*args, **kwargs)

        return call

    def pwrite(file: int, content: bytes, at: int) -> int:
        """First a half of it, as of a write that is cut off."""
        point("pwrite", file)
        if len(content) > 1:
            saved["pwrite"](file, content[: len(content) // 2], at)
            point("half of a pwrite", file)
        return saved["pwrite"](file, content, at)

    def opening(file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        if "w" in mode or "a" in mode or "x" in mode or "+" in mode:
            point("open", file)
        return opened(file, mode, *args, **kwargs)

    try:
        for name in _BEFORE:
            setattr(os, name, before(name))
        os.pwrite = pwrite
        io.open = builtins.open = opening
        yield point
        if isinstance(point, Points):
            point("end")
    finally:
        io.open = builtins.open = opened
        for name, function in saved.items():
            setattr(os, name, function)
