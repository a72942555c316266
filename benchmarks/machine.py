"""The machine of a benchmark: processor, memory, versions, and the memory bandwidth available to its process.

Bandwidth limits the majority of rounds, so a figure means little without it. It is measured by the process of the
benchmark, on its default device and with its threads, over an array several times the size of usual caches.
"""

import os
import platform
import re
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from jdfl.results.folder import environment

VERSIONS = ("python", "jax", "jaxlib", "numpy", "backend", "device", "devices")
MEASURED, QUICK = (1024, 131_072), (64, 131_072)  # float32: 512 MiB, and 32 MiB that caches may hold
CALLS = 4  # that are timed together


@dataclass(frozen=True)
class Machine:
    """Everything but the name of the machine; None where it was not recorded or is unknown."""

    cpu: str | None = None
    cores: int | None = None  # that the process may use
    memory_gb: float | None = None
    os: str | None = None
    python: str | None = None
    jax: str | None = None
    jaxlib: str | None = None
    numpy: str | None = None
    backend: str | None = None
    device: str | None = None
    devices: int | None = None
    read_gb_per_s: float | None = None
    copy_gb_per_s: float | None = None  # what is read and what is written both count

    @property
    def short(self) -> str:
        """The processor, its cores and an accelerator."""
        gpu = None if self.backend in (None, "cpu") else self.device
        return ", ".join(word for word in (self.cpu, _counted(self.cores, "core"), gpu) if word is not None)

    def __str__(self) -> str:
        """One line of all that is known."""
        known = [
            self.cpu,
            _counted(self.cores, "core"),
            _unless_none(self.memory_gb, "{:.0f} GB"),
            self.os,
            *(_unless_none(getattr(self, name), name + " {}") for name in ("python", "jax", "jaxlib", "numpy")),
            None if self.backend in (None, "cpu") else f"{_counted(self.devices, 'device')} {self.device}",
            _unless_none(self.read_gb_per_s, "reading {:.3g} GB/s"),
            _unless_none(self.copy_gb_per_s, "copying {:.3g} GB/s"),
            "bandwidth not recorded" if self.read_gb_per_s is None else None,
        ]
        return ", ".join(word for word in known if word is not None)


def _unless_none(value: Any, form: str) -> str | None:
    return None if value is None else form.format(value)


def _counted(count: int | None, noun: str) -> str | None:
    return _unless_none(count, "{} " + noun + ("" if count == 1 else "s"))


def describe(quick: bool = False) -> Machine:
    """The machine that this process runs on; its bandwidth is measured, in a few seconds."""
    told = environment()
    read, copied = bandwidth(quick)
    return Machine(
        cpu=processor(),
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        memory_gb=memory(),
        os=f"{platform.system()} {'.'.join(platform.release().split('.')[:2])}",
        read_gb_per_s=read,
        copy_gb_per_s=copied,
        **{name: told[name] for name in VERSIONS},
    )


def processor() -> str:
    """The processor's model, or its architecture where the system gives no more detail."""
    if platform.system() == "Darwin":
        command = ["sysctl", "-n", "machdep.cpu.brand_string"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    told = Path("/proc/cpuinfo")
    model = re.search(r"^model name\s*:\s*(.+)$", told.read_text(), re.MULTILINE) if told.exists() else None
    return model[1].strip() if model else platform.machine()


def memory() -> float | None:
    """Main memory in GB."""
    if not hasattr(os, "sysconf"):
        return None
    return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1)


@jax.jit
def read_sum(x: Array) -> Array:
    """An array, read once."""
    return jnp.sum(x)


@jax.jit
def read_max(x: Array) -> Array:
    """An array, read once in another way: which of the two is faster differs between machines."""
    return jnp.max(x)


@partial(jax.jit, donate_argnames="to", keep_unused=True)
def negative(x: Array, to: Array) -> Array:
    """-x, written to the memory of `to`: on a CPU allocating memory takes longer than the copy itself."""
    del to
    return -x


def bandwidth(quick: bool = False) -> tuple[float, float]:
    """GB/s of reading and of copying, each the best of several: other work on the machine can only slow it down."""
    shape, repeats = (QUICK, 2) if quick else (MEASURED, 7)
    x = jnp.ones(shape, jnp.float32)
    to = [jnp.zeros_like(x)]

    def copy() -> Array:
        for _ in range(CALLS):
            to.append(negative(x, to.pop()))
        return to[0]

    ways = [partial(lambda read: [read(x) for _ in range(CALLS)], read) for read in (read_sum, read_max)]
    reading = min(_fastest(way, repeats) for way in ways)
    moved = CALLS * x.nbytes / 1e9
    return moved / reading, 2 * moved / _fastest(copy, repeats)


def _fastest(work: Callable[[], Any], repeats: int) -> float:
    """The fewest seconds of some calls, after one to compile."""
    jax.block_until_ready(work())
    seconds = []
    for _ in range(repeats):
        began = time.perf_counter()
        jax.block_until_ready(work())
        seconds.append(time.perf_counter() - began)
    return min(seconds)
