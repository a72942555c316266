"""Wall time, with what JAX spends on tracing and compilation apart.

JAX tells a listener of every compilation; it is registered once, when this module is imported.
"""

import time
from typing import Any

import jax

_compile_seconds = 0.0


def _listen(event: str, duration_secs: float, **_: Any) -> None:
    global _compile_seconds
    if event.startswith("/jax/core/compile/"):
        _compile_seconds += duration_secs


jax.monitoring.register_event_duration_secs_listener(_listen)


class Clock:
    """Wall time of a block: `seconds` without tracing and compilation, which are in `compile_seconds`."""

    def __enter__(self) -> "Clock":
        self._began, self._compiled = time.perf_counter(), _compile_seconds
        return self

    def __exit__(self, *_: object) -> None:
        self.compile_seconds = _compile_seconds - self._compiled
        self.seconds = max(0.0, time.perf_counter() - self._began - self.compile_seconds)
