"""What came of attacks, by kind; time limits; commands whose words are kept."""

import contextlib
import io
import os
import signal
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from random import Random
from types import FrameType
from typing import Any

from jdfl.cli import main
from tests.fuzz.judge import unclean

STATUS = {0, 1, 2, 3, 5, 124, 130, 143}  # that commands promise


class WrongError(Exception):
    """Something that must not come of an attack; its first argument is the kind: TRACEBACK, HANG or SILENT."""


TRACEBACK, HANG, SILENT = "traceback from inside", "hang", "silent wrong result"
BAD = (TRACEBACK, HANG, SILENT)


class TooLongError(BaseException):
    """The time limit of an attack is over."""


@contextlib.contextmanager
def limited(seconds: float) -> Generator[None]:
    """Raises TooLongError inside after so many seconds."""

    def over(number: int, frame: FrameType | None) -> None:
        raise TooLongError("".join(traceback.format_stack(frame)[-4:]))

    usual = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, seconds, 5)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, usual)


@dataclass(frozen=True)
class Said:
    """How a command ended, and what it said."""

    status: int
    out: str
    err: str

    @property
    def warned(self) -> bool:
        """Whether it warned."""
        return "warning:" in self.err


def said(args: Sequence[str]) -> Said:
    """A command in this process; WrongError for an exception, a status that is not promised, or no words about it."""
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", "backslashreplace", write_through=True) for _ in range(2))
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), warnings.catch_warnings():
        warnings.simplefilter("always")
        try:
            status = main(args)
        except Exception as error:
            raise WrongError(TRACEBACK, f"{shown(error)} of jdfl {args}") from error
    found = Said(status, *(stream.buffer.getvalue().decode() for stream in (out, err)))
    if "Traceback (most" in found.err or status not in STATUS:
        raise WrongError(TRACEBACK, f"status {status} and {found.err[-600:]} of jdfl {args}")
    if status not in (0, 1) and not found.err.strip():
        raise WrongError(TRACEBACK, f"status {status} without a word of jdfl {args}")
    return found


def shown(error: BaseException) -> str:
    """An error with the place where it was raised."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f"{os.path.basename(frames[-1].filename)}:{frames[-1].lineno}" if frames else "nowhere"
    return f"{type(error).__name__} at {place}: {str(error)[:300]}"


def clean(error: Exception, what: object) -> None:
    """WrongError unless an error is one that jdfl promises, in words."""
    if wrong := unclean(error):
        raise WrongError(TRACEBACK, f"{wrong}: {shown(error)} of {what!r:.300}") from error


@dataclass
class Tally:
    """Outcomes by kind, and the bad ones with their numbers."""

    seed: int
    part: str
    counts: Counter[str] = field(default_factory=Counter[str])
    bad: list[str] = field(default_factory=list[str])

    def attack(self, number: int, one: Callable[[Random], str], seconds: float) -> None:
        """One attack, whose randomness follows from the seed and the number, and which takes so long at most."""
        begun = time.monotonic()
        try:
            with limited(seconds):
                outcome = one(Random(f"{self.seed} {self.part} {number}"))
        except WrongError as error:
            outcome, words = error.args
            self._bad(number, outcome, words)
        except TooLongError as error:
            outcome = HANG
            self._bad(number, HANG, f"after {time.monotonic() - begun:.0f} s at {error}")
        self.counts[outcome] += 1

    def _bad(self, number: int, outcome: str, words: str) -> None:
        line = f"{outcome}: {words} -- python -m tests.robustness --seed {self.seed} --part {self.part} --only {number}"
        self.bad.append(line)
        print(line, flush=True)

    def told(self) -> dict[str, Any]:
        """As plain data."""
        counted = {"attacks": self.counts.total(), **{name: self.counts[name] for name in BAD}}
        return {"seeds": [self.seed], **counted, "outcomes": dict(sorted(self.counts.items()))}
