"""The backend that programs are made for, which decides between forms of the same computation, and their cache on disk.

It is JAX's default backend, unless a program is only compiled: `target` names another one then, of a device that need
not be there. Kernels of our own (`jdfl.kernels`) are used in code that is traced `with_kernels`; the cache of compiled
programs distinguishes it.
"""

import hashlib
import os
import platform
import re
import warnings
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Literal

import jax

Form = Literal["compiled", "interpreted"]

_targets: list[str] = []
_interpreting: list[bool] = []
_kernels = jax.make_user_context(None)


def backend() -> str:
    """The name of the backend: "cpu", "gpu" or "tpu"."""
    return _targets[-1] if _targets else jax.default_backend()


@contextmanager
def target(name: str) -> Generator[None]:
    """Trace programs for the backend `name` within this context.

    What was traced before is forgotten at both ends, as JAX does not know that it depends on this.
    """
    jax.clear_caches()
    _targets.append(name)
    try:
        yield
    finally:
        _targets.pop()
        jax.clear_caches()


def offered() -> Form | None:
    """How kernels of our own are executed here, if a run asks for them; None: this backend has none."""
    if _interpreting:
        return "interpreted"
    return "compiled" if backend() == "gpu" else None


@contextmanager
def interpreted() -> Generator[None]:
    """Within this context any backend has our own kernels, in JAX's interpreter of them: slow, for tests."""
    _interpreting.append(True)
    try:
        yield
    finally:
        _interpreting.pop()


def with_kernels(form: Form | None) -> AbstractContextManager[None]:
    """A context in which code is traced with kernels of our own, executed in this form; None: without any."""
    return _kernels(form)


def kernels() -> Form | None:
    """How kernels of our own are executed in the code that is traced; None: it has none."""
    return _kernels.value


def use_cache() -> None:
    """Keep compiled programs in a folder that only this user can enter, unless JDFL_CACHE=0 or it cannot be created.

    JAX's own settings take precedence. Processors with other instructions, which may share a home, have other folders.
    JAX does not write entries atomically: one that another process is writing, or was killed while writing, cannot be
    read and is compiled again, silently.
    """
    if os.environ.get("JDFL_CACHE", "") == "0" or getattr(jax.config, "jax_compilation_cache_dir"):  # noqa: B009
        return
    try:
        home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "jdfl" / "xla"
        folder = home / hashlib.sha256(_instructions().encode()).hexdigest()[:8]
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if any(one.is_symlink() or one.stat().st_uid != os.getuid() for one in (home, folder)):
            return  # it belongs to another user, whose programs would be run as ours
        home.chmod(0o700)
    except (OSError, RuntimeError, AttributeError):  # read-only, without a home, or a system without users
        return
    warnings.filterwarnings("ignore", "Error reading persistent compilation cache entry")
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


def _instructions() -> str:
    """What the processor can execute, as far as the system says it."""
    try:
        found = re.search(r"(?m)^(flags|Features)\s*: (.*)$", Path("/proc/cpuinfo").read_text(encoding="utf-8"))
    except OSError:
        found = None
    return f"{platform.machine()} {found[2] if found else platform.processor()}"


use_cache()
