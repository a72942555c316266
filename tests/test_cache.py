"""Compiled programs on disk: whose they are."""

import os
import stat

import jax

from jdfl.engine.compiling import use_cache


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
