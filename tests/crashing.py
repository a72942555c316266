"""What a folder looks like at every moment at which its process could die."""

import builtins
import contextlib
import io
import os
import shutil
import threading
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

_BEFORE = ("fsync", "replace", "rename", "unlink", "remove", "ftruncate", "mkdir", "rmdir")  # of os


class Points:
    """Copies of the folders in `watched`, in `kept`/0, 1, ...: one before every operation on files, and torn writes.

    What the operating system has is what a process leaves that is killed.
    """

    def __init__(self, watched: Path, kept: Path) -> None:
        self._watched, self._kept = watched, kept
        self._copying, self._one = threading.local(), threading.Lock()  # checkpoints are renamed by another thread
        self.names: list[str] = []  # of the operation before which each copy was made

    def point(self, name: str) -> None:
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


@contextlib.contextmanager
def every_point(watched: Path, kept: Path) -> Generator[Points]:
    """The points of what is done inside, in this process; other threads and C++ write on in between."""
    points, saved = Points(watched, kept), {name: getattr(os, name) for name in (*_BEFORE, "pwrite")}
    opened = io.open

    def before(name: str) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            points.point(name)
            return saved[name](*args, **kwargs)

        return call

    def pwrite(file: int, content: bytes, at: int) -> int:
        """First a half of it, as of a write that is cut off."""
        points.point("pwrite")
        if len(content) > 1:
            saved["pwrite"](file, content[: len(content) // 2], at)
            points.point("half of a pwrite")
        return saved["pwrite"](file, content, at)

    def opening(file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        if "w" in mode or "a" in mode or "x" in mode or "+" in mode:
            points.point("open")
        return opened(file, mode, *args, **kwargs)

    try:
        for name in _BEFORE:
            setattr(os, name, before(name))
        os.pwrite = pwrite
        io.open = builtins.open = opening
        yield points
        points.point("end")
    finally:
        io.open = builtins.open = opened
        for name, function in saved.items():
            setattr(os, name, function)
