"""Available memory, errors for runs that would not fit, and functions of rows in blocks that fit in a cache."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jdfl.base.backend import backend

_GIB = 2**30
_MEMINFO = Path("/proc/meminfo")
_GROUP = Path("/sys/fs/cgroup")
# Size of a block of a row-wise function's result: 2 MB of float32, which a cache holds; elsewhere memory is the limit.
_NUMBERS, _ELSEWHERE = {"cpu": 2**19}, 2**28


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


def in_blocks(function: Callable[..., Any], *rows: Any, numbers: int = 0) -> Any:
    """`function`, which maps every row of trees of arrays [m, ...] to a row of its result [m, ...], block by block.

    Intermediate results then need memory for one block only, and repeated passes over a row read it from the cache.
    Two blocks or fewer are processed at once.
    """
    m = jax.tree.leaves(rows)[0].shape[0]
    made = jax.eval_shape(function, *rows)
    widest = max(x.size for x in jax.tree.leaves((rows, made))) // max(m, 1)
    widest = max(widest, numbers)
    size = max(1, _NUMBERS.get(backend(), _ELSEWHERE) // max(widest, 1))
    if m <= 2 * size:
        return function(*rows)

    def block(b: Array, whole: Any) -> Any:
        first = jnp.minimum(b * size, m - size)  # the last block repeats some rows
        part = function(*jax.tree.map(lambda x: lax.dynamic_slice_in_dim(x, first, size), rows))
        return jax.tree.map(lambda x, new: lax.dynamic_update_slice_in_dim(x, new, first, 0), whole, part)

    nothing = jax.tree.map(lambda x: lax.empty(x.shape, x.dtype), made)  # every row is written
    return lax.fori_loop(0, -(-m // size), block, nothing)


def at_once(rows: int, numbers: int, few: int = 1, parts: int = 18) -> int:
    """How many of some rows to process at a time, where each takes many passes.

    On a CPU a few, which stay in its cache; elsewhere a part of all, at least 256, as far as memory allows.
    """
    if backend() == "cpu":
        return min(rows, few)
    return max(1, min(rows, max(256, -(-rows // parts)), _ELSEWHERE // 4 // max(numbers, 1)))
