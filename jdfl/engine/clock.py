"""Wall time, with what JAX spends on tracing and compilation apart.

JAX tells a listener of every compilation; it is registered once, when this module is imported.
"""

import math
import time
from typing import Any, NamedTuple

import jax

_compile_seconds = 0.0


def _listen(event: str, duration_secs: float, **_: Any) -> None:
    global _compile_seconds
    if event.startswith("/jax/core/compile/"):
        _compile_seconds += duration_secs


jax.monitoring.register_event_duration_secs_listener(_listen)


class Alarm:
    """Says every so many seconds, and from the start, that it is time; never, if it is given None."""

    def __init__(self, seconds: float | None) -> None:
        self.seconds, self._since = seconds, time.monotonic()

    def rings(self) -> bool:
        """Whether so many seconds have passed since it said so last."""
        late = self.seconds is not None and time.monotonic() - self._since >= self.seconds
        self._since = time.monotonic() if late else self._since
        return late


class Deadline:
    """Some seconds from now, in which pieces of work of about the same length have to end; without end, if None."""

    def __init__(self, seconds: float | None) -> None:
        self.seconds, self._began, self._shortest = seconds, time.monotonic(), math.inf
        self.start()

    def start(self) -> None:
        """A piece begins."""
        self._last, self._compiled = time.monotonic(), _compile_seconds

    def too_late(self) -> bool:
        """Whether another piece, as long as the shortest so far, would end too late; to be asked after each.

        Of which compilation is no part.
        """
        now = time.monotonic()
        self._shortest = min(self._shortest, max(0.0, now - self._last - (_compile_seconds - self._compiled)))
        self.start()
        return self.seconds is not None and now - self._began + self._shortest > self.seconds


class Spent(NamedTuple):
    """Seconds of work, and of tracing and compilation beside it."""

    seconds: float
    compile_seconds: float


class Clock:
    """Measures from when it is made, on top of what was `spent` before."""

    def __init__(self, spent: Spent | None = None) -> None:
        self._spent = spent or Spent(0.0, 0.0)
        self._began, self._compiled = time.perf_counter(), _compile_seconds

    def read(self) -> Spent:
        """All that was spent so far."""
        compiling = _compile_seconds - self._compiled
        working = max(0.0, time.perf_counter() - self._began - compiling)
        return Spent(self._spent.seconds + working, self._spent.compile_seconds + compiling)
