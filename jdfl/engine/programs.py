"""Compiled programs are mapped memory, and Linux limits the number of mappings of a process."""

from pathlib import Path

import jax

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
