"""A sign of life while something takes long. It imports nothing that takes long itself."""

import sys
import threading
import time
from types import TracebackType
from typing import Self, TextIO

TERMINAL, FILE = 1.0, 8.0  # seconds between two signs of one thing
APART = 2.0  # seconds between two lines of a file
_CLEAR = "\r\x1b[K"


class Heartbeat:
    """Says what goes on, and for how long: a line that changes in place in a terminal, a line now and then in a file.

        with Heartbeat() as beat:
            beat.say("compiling")
            beat.print("the first result")

    Args:
        stream: Where it is written; None: stdout.
        columns: Characters of a line at most; longer ones are cut in a terminal.
    """

    def __init__(self, stream: TextIO | None = None, columns: int = 80) -> None:
        self._stream = stream or sys.stdout
        self._columns, self._live = columns, self._stream.isatty()
        self._what, self._began, self._last = "", time.monotonic(), -APART
        self._lock, self._over = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._beat, name="heartbeat", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()
        self._write("")

    def say(self, what: str) -> None:
        """What goes on from now on; in a file it is written where the last line is some seconds old."""
        self._what = what
        if self._live or time.monotonic() - self._last >= APART:
            self._write(self._line())

    def print(self, text: str) -> None:
        """Text that stays."""
        self._write(f"{text}\n")

    def _line(self) -> str:
        line = f"{time.monotonic() - self._began:4.0f} s  {self._what}"
        return line[: self._columns - 1] if self._live else f"{line}\n"

    def _beat(self) -> None:
        while not self._over.wait(TERMINAL if self._live else FILE):
            self._write(self._line())

    def _write(self, text: str) -> None:
        with self._lock:
            self._stream.write(_CLEAR * self._live + text)
            self._stream.flush()
            self._last = time.monotonic()
