"""Compiled programs are mapped memory, of which Linux gives a process so many pieces only."""

from pathlib import Path

import jax

_MAPS, _LIMIT = Path("/proc/self/maps"), Path("/proc/sys/vm/max_map_count")
_SHARE = 0.5  # of the limit: what is compiled between two looks takes far less than the rest


def make_room() -> None:
    """Forget all that JAX has compiled so far where this process is close to the limit: beyond it, it would crash.

    What is used again is compiled again. On systems without such files there is nothing to do.
    """
    try:
        near = pieces() > _SHARE * int(_LIMIT.read_text())
    except (OSError, ValueError):
        return
    if near:
        jax.clear_caches()


def pieces() -> int:
    """How many pieces of memory this process has mapped; 0 where no file says so."""
    return _MAPS.read_bytes().count(b"\n") if _MAPS.exists() else 0
