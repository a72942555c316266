"""Compiled programs on disk, so that the second run of a setting starts at once."""

import os
import warnings
from pathlib import Path

import jax


def use_cache() -> None:
    """Keep compiled programs in a folder that only this user can enter, unless JDFL_CACHE=0 or it cannot be created.

    JAX_COMPILATION_CACHE_DIR, the setting of JAX, takes precedence. JAX does not write entries atomically: one
    that another process is writing, or was killed while writing, cannot be read and is compiled again, silently.
    """
    if os.environ.get("JDFL_CACHE", "") == "0" or os.environ.get("JAX_COMPILATION_CACHE_DIR"):
        return
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "jdfl" / "xla"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if folder.is_symlink() or folder.stat().st_uid != os.getuid():
            return  # it belongs to another user, whose programs would be run as ours
        folder.chmod(0o700)
    except OSError:
        return
    warnings.filterwarnings("ignore", "Error reading persistent compilation cache entry")
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
