"""What a terminal shows: text in lines that fit it, and a sign of life while something takes long.

Only the standard library is imported, so that a command says that it is loading before JAX is.
"""

import shutil
import sys
import textwrap
import threading
import time
from typing import Any, Self, TextIO

READABLE = 100  # characters of a line where there is no terminal, and at most of a sentence
TERMINAL, FILE = 1.0, 8.0  # seconds between two signs of one thing
APART = 2.0  # seconds between two lines of a file
_CLEAR = "\r\x1b[K"


def width() -> int:
    """Characters of a line: COLUMNS of the environment, or those of the terminal, or 100 where there is none."""
    return shutil.get_terminal_size((READABLE, 24)).columns


def wrapped(text: str, lead: str = "", indent: str | None = None, room: int | None = None) -> str:
    """A text in lines that fit, without breaking words, such as paths.

    Args:
        text: Sentences, a line for each paragraph or item of a list. Lines that fit stay as they are.
        lead: What stands before the text.
        indent: What stands before the further lines of a paragraph; None: as many spaces as it begins with.
        room: Characters of a line; None: those of the terminal, at most 100.
    """
    room, lines = min(width(), READABLE) if room is None else room, list[str]()
    for line in f"{lead}{text}".split("\n"):
        plain = line.lstrip(" ")
        own = " " * (len(lead) or len(line) - len(plain) + 2 * plain.startswith("- "))
        how: Any = {"break_on_hyphens": False, "break_long_words": False}
        later = own if indent is None else indent
        lines += [line] if len(line) <= room else textwrap.wrap(line, room, subsequent_indent=later, **how)
    return "\n".join(lines)


class Heartbeat:
    """Says what goes on, and for how long: a line that changes in place in a terminal, a line now and then in a file.

        with Heartbeat() as beat:
            beat.say("loading")

    What is printed meanwhile stands above the line. `say` of this module is that of the last one that has begun.

    Args:
        stream: Where it is written; None: stderr.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._live, self._drawn, self._within = self._stream.isatty(), False, False
        self._what, self._began, self._last = "", time.monotonic(), -APART
        self.lock, self._over = threading.RLock(), threading.Event()
        self._thread = threading.Thread(target=self._beat, name="heartbeat", daemon=True)

    def __enter__(self) -> Self:
        say("")
        _beats.append(self)
        for name in ("stdout", "stderr"):
            if self._live and getattr(sys, name).isatty():
                setattr(sys, name, _Above(getattr(sys, name), self))
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self.say("")
        _beats.remove(self)
        for name in ("stdout", "stderr"):
            if isinstance(above := getattr(sys, name), _Above):
                setattr(sys, name, above.stream)

    def say(self, what: str, *, new: bool = True) -> None:
        """What goes on from now on; nothing is shown while it is empty.

        In a file something `new` is written at once, unless the last line is less than two seconds old.
        """
        self._what = what
        if not what:
            self.clear()
        elif self._live or (new and time.monotonic() - self._last >= APART):
            self._draw()

    def print(self, text: str) -> None:
        """Text that stays, on the stream."""
        with self.lock:
            self.clear()
            self._stream.write(f"{text}\n")
            self._stream.flush()

    def clear(self, within: bool = False) -> None:
        """Remove the line from a terminal; it does not come back `within` a line that something else has begun."""
        with self.lock:
            if self._drawn:
                self._stream.write(_CLEAR)
                self._stream.flush()
            self._drawn, self._within = False, within

    def _beat(self) -> None:
        while not self._over.wait(TERMINAL if self._live else FILE):
            self._draw()

    def _draw(self) -> None:
        with self.lock:
            if self._what and not self._within:
                line = f"{time.monotonic() - self._began:4.0f} s  {self._what}"
                self._stream.write(f"{_CLEAR}{line[: width() - 1]}" if self._live else f"{line}\n")
                self._stream.flush()
                self._drawn, self._last = self._live, time.monotonic()


class _Above:
    """A stream to the terminal in which a heartbeat has a line."""

    def __init__(self, stream: TextIO, beat: Heartbeat) -> None:
        self.stream, self._of = stream, beat

    def write(self, text: str) -> int:
        with self._of.lock:
            self._of.clear(within=not text.endswith("\n"))
            return self.stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


_beats: list[Heartbeat] = []


def say(what: str, *, new: bool = True) -> bool:
    """Let the last heartbeat that has begun say what goes on; returns whether there is one."""
    if _beats:
        _beats[-1].say(what, new=new)
    return bool(_beats)
