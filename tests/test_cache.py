"""Compiled programs on disk: whose they are, and what becomes of one that cannot be read."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import jax
import pytest

import jdfl
from jdfl.engine.cache import use_cache


def test_the_cache_is_for_this_user_only(tmp_path, monkeypatch):
    settings, folder = {}, tmp_path / "cache" / "jdfl" / "xla"
    monkeypatch.setattr(jax.config, "update", settings.__setitem__)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for mine, users in (("0", None), ("1", str(tmp_path))):
        monkeypatch.setenv("JDFL_CACHE", mine)
        monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR", raising=False)
        if users:
            monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", users)
        use_cache()
        assert settings == {}
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR")
    use_cache()
    assert settings["jax_compilation_cache_dir"] == str(folder)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert settings["jax_persistent_cache_min_compile_time_secs"] == 0
    settings.clear()
    monkeypatch.setattr(os, "getuid", lambda: folder.stat().st_uid + 1)
    use_cache()
    assert settings == {}


@pytest.mark.slow
def test_an_entry_of_the_cache_that_is_half_written_is_compiled_again(tmp_path):
    env = {**os.environ, "PYTHONPATH": str(Path(jdfl.__file__).parents[1]), "XDG_CACHE_HOME": str(tmp_path)}
    for name in ("JAX_COMPILATION_CACHE_DIR", "JDFL_CACHE", "PYTHONWARNINGS"):  # of the tests
        env.pop(name, None)
    small = ["--algorithm", "d-psgd", "--problem.m", "2", "--problem.n", "9", "--problem.s", "2", "--stop", "none"]
    command = [sys.executable, "-m", "jdfl", "run", *small, "--steps", "1", "--quiet", "--out", str(tmp_path / "runs")]
    for last in (False, True):
        done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=300, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        entries = list((tmp_path / "jdfl" / "xla").glob("*-cache"))
        assert entries
        for entry in () if last else entries:
            os.truncate(entry, entry.stat().st_size // 2)
