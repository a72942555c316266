"""Available memory of the devices, and errors for runs that would not fit."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

_GIB = 2**30
_MEMINFO = Path("/proc/meminfo")
_GROUP = Path("/sys/fs/cgroup")


def available(devices: int = 1) -> int | None:
    """Bytes that can still be allocated on `devices` devices like the default one; None where this is unknown.

    For a GPU it is the limit minus the memory in use; for a CPU, however many devices it simulates, what Linux reports
    as available, within the limit of the control group.
    """
    device = jax.local_devices()[0]
    if device.platform == "cpu":
        return host()
    stats = device.memory_stats() or {}
    if "bytes_limit" not in stats:
        return None
    return devices * (int(stats["bytes_limit"]) - int(stats.get("bytes_in_use", 0)))


def host() -> int | None:
    """Bytes that the host can still allocate, as Linux reports them; None on other systems."""
    return min([*_system(), *_group()], default=None)


def require(needed: Mapping[str, int], most: int, m: int, remedy: str, room: int | None) -> None:
    """Raise an error for a run that needs more memory than is available."""
    total = sum(needed.values())
    if room is None or total <= room:
        return
    parts = " + ".join(f"{_size(size)} ({what})" for what, size in needed.items())
    fits = f"At most m = {most} nodes would fit" if most > 0 else "Not even one node would fit"
    raise ValueError(
        f"Expected at most {_size(room)} of memory, which the device has left, got m = {m} nodes that need about "
        f"{parts} = {_size(total)}. {fits}. {remedy}"
    )


def size_of(tree: Any) -> int:
    """Bytes of a tree of arrays or their shapes; keys count as their words, Python numbers as float32."""
    return sum(
        int(np.prod(np.shape(leaf), dtype=np.int64)) * getattr(getattr(leaf, "dtype", np.dtype("f4")), "itemsize", 4)
        for leaf in jax.tree.leaves(tree)
    )


def _size(count: int) -> str:
    return f"{count / _GIB:.3g} GiB" if count >= 0.01 * _GIB else f"{count / 2**20:.3g} MiB"


def _system() -> list[int]:
    """The memory that Linux can provide without swapping; empty on other systems."""
    try:
        lines = _MEMINFO.read_text().splitlines()
    except OSError:
        return []
    return [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]


def _group() -> list[int]:
    """What is left of the control group's limit, if there is one; file caches can be dropped."""
    try:
        limit = (_GROUP / "memory.max").read_text().strip()
        used = int((_GROUP / "memory.current").read_text())
        stat = dict(line.split() for line in (_GROUP / "memory.stat").read_text().splitlines())
    except (OSError, ValueError):
        return []
    return [] if limit == "max" else [int(limit) - used + int(stat.get("inactive_file", 0))]
