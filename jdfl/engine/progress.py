"""The progress of runs and comparisons, in terminals, notebooks and logs."""

import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import timedelta
from html import escape
from importlib import import_module
from typing import Any, TextIO

import numpy as np
from rich.console import Console
from rich.filesize import decimal
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

from jdfl.base import checks, terminal
from jdfl.devices import processes
from jdfl.engine.callbacks import Callback
from jdfl.engine.metrics import COUNTS
from jdfl.engine.result import Snapshot
from jdfl.engine.start import Plan
from jdfl.privacy.report import upper

Announce = Callable[[str, str], object]  # (label of a method, what is done with it)
_APART = 2.0  # seconds between two epsilons, at least
_PATIENCE = 20  # and as many times what the last one took
_OFTEN = 0.2  # seconds between two updates of a notebook


class Progress(Callback):
    """Shows rounds done, rounds per second, a metric, bytes sent and the time left; before that, that it compiles.

        result = jdfl.run(..., callbacks=[jdfl.Progress()])

    In a terminal it is one line that changes in place, in a notebook an output that is updated. Anywhere else, such as
    the log of a cluster, nothing is written unless `lines` asks for it; the command line writes a line every eight
    seconds. Where a run has several processes, the first one writes.

    Args:
        label: The name shown in front, such as a method's; empty: none.
        lines: Seconds between two lines of plain text where there is neither a terminal nor a notebook; None: nothing
            is written there.
        stream: Where it is written; None: stderr, or the output of a notebook's cell.
        epsilon: Gives the epsilon of releases [m] of the nodes, which is then shown, too. It is asked every two seconds
            at most, and takes at most a twentieth of the time.
    """

    def __init__(
        self,
        label: str = "",
        *,
        lines: float | None = None,
        stream: TextIO | None = None,
        epsilon: Callable[[np.ndarray], float] | None = None,
    ) -> None:
        if lines is not None:
            checks.positive("It is the time between two lines in seconds.", lines=lines)
        self._label, self._epsilon, self._spent, self._due = label, epsilon, "", -np.inf
        self._screen = _screen(stream, lines)
        self._first: tuple[int, float] | None = None  # rounds, and when they were done

    def on_start(self, plan: Plan) -> None:
        """Show that the run compiles, until its first chunk of rounds is done."""
        self._first = None
        if processes.leads():
            before = 0 if plan.before is None else plan.before.rounds
            self._show(self._named("compiling"), before, plan.steps, "")

    def announce(self, label: str, what: str) -> None:
        """Show `what` a comparison does now with the method of a `label`, such as "D-PSGD: tuning 3/5, compiling"."""
        self._show(f"{label}: {what}", 0, None, "")

    def close(self) -> None:
        """End the line, which keeps the last state, also after a run that failed."""
        if self._screen is not None:
            self._screen.close()

    def on_chunk(self, now: Snapshot) -> None:
        """Show the state after a chunk of rounds."""
        here = time.monotonic()
        notes: list[str] = []
        if self._first is None:
            self._first = now.rounds, here
        elif here > self._first[1] and now.rounds > self._first[0]:
            speed = (now.rounds - self._first[0]) / (here - self._first[1])
            left = (now.steps - now.rounds) / speed
            notes += [f"{speed:.3g} rounds/s" if speed < 100 else f"{speed:,.0f} rounds/s", f"{_clock(left)} left"]
        shown = next((name for name in ("objective", *now.row) if name in now.row and name not in COUNTS), None)
        if shown is not None:
            notes.append(f"{shown.replace('_', ' ')} {now.row[shown]:.4g}")
        if "bytes" in now.row:
            notes.append(decimal(int(now.row["bytes"])))
        if self._epsilon is not None and self._screen is not None and here >= self._due:
            self._spent = f"epsilon {upper(self._epsilon(now.releases()), 3)}"
            took = time.monotonic() - here
            self._due = here + max(_APART, _PATIENCE * took)
        notes += [self._spent] if self._spent else []
        self._show(self._named("rounds"), now.rounds, now.steps, "  ".join(notes))

    def _show(self, text: str, done: int, total: int | None, note: str) -> None:
        if self._screen is not None:
            self._screen.show(text, done, total, note)

    def _named(self, what: str) -> str:
        return f"{self._label}: {what}" if self._label else what


@contextmanager
def announced(progress: "bool | Announce | Progress | None" = None) -> Generator[Announce]:
    """A function to announce what a comparison does; the line is closed at the end.

    `progress` None or True: as `Progress` shows it, in terminals and notebooks; False: not at all; a `Progress` of
    other settings; or a function of (label, what). ValueError for anything else.
    """
    if progress is False:
        yield lambda label, what: None
    elif progress is None or progress is True or isinstance(progress, Progress):
        shown = progress if isinstance(progress, Progress) else Progress()
        try:
            yield shown.announce
        finally:
            shown.close()
    else:
        checks.able(("__call__",), "True, False, a Progress or a function of (label, what)", progress=progress)
        yield progress


class _Terminal:
    """One line that changes in place; it also counts the seconds while nothing is reported."""

    def __init__(self, console: Console) -> None:
        columns = TextColumn("{task.description}"), BarColumn(24), TextColumn("{task.fields[note]}")
        self._bar = Bar(*columns, TimeElapsedColumn(), console=console)
        self._task = self._bar.add_task("", total=None, note="")

    def show(self, text: str, done: int, total: int | None, note: str) -> None:
        self._bar.update(self._task, description=_line(text, done, total, ""), completed=done, total=total, note=note)
        terminal.say("")
        self._bar.start()

    def close(self) -> None:
        self._bar.stop()


class _Lines:
    """Lines of plain text, the next one after so many seconds, or when something else begins or all is done."""

    def __init__(
        self, seconds: float, write: Callable[[str, int, int | None], object], end: Callable[[], object] | None = None
    ) -> None:
        self._seconds, self._write, self._end = seconds, write, end
        self._text, self._last = "", -np.inf
        self._pending: tuple[str, int, int | None] | None = None

    def show(self, text: str, done: int, total: int | None, note: str) -> None:
        now = time.monotonic()
        self._pending = _line(text, done, total, note), done, total
        if text != self._text or done == total or now - self._last >= self._seconds:
            self._text, self._last = text, now
            self._flush()

    def close(self) -> None:
        self._flush()
        if self._end is not None:
            self._end()

    def _flush(self) -> None:
        if self._pending is not None:
            self._write(*self._pending)
            self._pending = None


def _screen(stream: TextIO | None, lines: float | None) -> _Terminal | _Lines | None:
    """The place that fits where the program runs; None: nothing is shown."""
    if stream is None and (display := _notebook()) is not None:
        return _Lines(_OFTEN, *_in_cell(display))
    console = Console(file=stream or sys.stderr, force_jupyter=False)
    if console.is_terminal:
        return _Terminal(console)
    if lines is None:
        written = stream is None and terminal.say("")
        return _Lines(0.0, lambda line, done, _: terminal.say(line, new=not done)) if written else None
    return _Lines(float(lines), lambda line, *_: print(line, file=stream or sys.stderr, flush=True))


def _in_cell(display: Callable[..., Any]) -> tuple[Callable[[str, int, int | None], None], Callable[[], None]]:
    """What writes lines into an output of the cell, without widgets, and what puts the time in place of its bar."""
    handle: Any = None
    begun, last = time.monotonic(), ""

    def show(line: str, bar: str) -> None:
        nonlocal handle
        shown = {"text/plain": line, "text/html": f"<div>{bar}{escape(line)}</div>"}
        if handle is None:
            handle = display(shown, raw=True, display_id=True)
        else:
            handle.update(shown, raw=True)

    def write(line: str, done: int, total: int | None) -> None:
        nonlocal last
        share, last = ("", "") if total is None else (f" value={done} max={total}", f"{line}, ")
        show(line, f"<progress{share} style='vertical-align:middle'></progress> ")

    def end() -> None:
        if handle is not None:
            show(f"{last}ended after {_clock(time.monotonic() - begun)}", "")

    return write, end


def _notebook() -> Callable[..., Any] | None:
    """What displays in a notebook; None where this is none."""
    if "IPython" not in sys.modules or not hasattr(import_module("IPython").get_ipython(), "kernel"):
        return None
    return import_module("IPython.display").display


def _line(text: str, done: int, total: int | None, note: str) -> str:
    counted = "" if total is None else f" {done:,}/{total:,}"
    return f"{text}{counted}" + (f"  {note}" if note else "")


def _clock(seconds: float) -> str:
    text = str(timedelta(seconds=round(seconds)))
    return text[3:] if text.startswith("0:0") else text.removeprefix("0:")
