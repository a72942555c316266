"""Wall time, with tracing and compilation by JAX measured separately.

JAX reports every compilation to a listener, which is registered once, when this module is imported.
"""

import time
from pathlib import Path
from typing import Any, NamedTuple

import jax

_compile_seconds = 0.0


def _listen(event: str, duration_secs: float, **_: Any) -> None:
    global _compile_seconds
    if event.startswith("/jax/core/compile/"):
        _compile_seconds += duration_secs


jax.monitoring.register_event_duration_secs_listener(_listen)


def compiled() -> float:
    """Seconds that this process has spent on tracing and compilation."""
    return _compile_seconds


class Spent(NamedTuple):
    """Seconds of work, and seconds of tracing and compilation."""

    seconds: float
    compile_seconds: float


class Clock:
    """Measures from its creation, in addition to the time `spent` before."""

    def __init__(self, spent: Spent | None = None) -> None:
        self._spent = spent or Spent(0.0, 0.0)
        self._began, self._compiled = time.perf_counter(), _compile_seconds

    def read(self) -> Spent:
        """The time spent so far."""
        compiling = _compile_seconds - self._compiled
        working = max(0.0, time.perf_counter() - self._began - compiling)
        return Spent(self._spent.seconds + working, self._spent.compile_seconds + compiling)


_MAPS, _LIMIT = Path("/proc/self/maps"), Path("/proc/sys/vm/max_map_count")
_SHARE = 0.5  # of the limit: programs compiled between two checks need far less than the rest


def make_room() -> None:
    """Clear all compiled programs if this process is close to the limit, beyond which it would crash.

    Programs that are used again are compiled again. On systems without these files nothing is done.
    """
    try:
        near = pieces() > _SHARE * int(_LIMIT.read_text())
    except (OSError, ValueError):
        return
    if near:
        jax.clear_caches()


def pieces() -> int:
    """The number of memory mappings of this process; 0 where the system does not report it."""
    return _MAPS.read_bytes().count(b"\n") if _MAPS.exists() else 0
