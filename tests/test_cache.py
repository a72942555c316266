"""Compiled programs on disk: whose they are, and that Python and the command line share them."""

import os
import stat
import subprocess
import sys
from collections import defaultdict
from types import SimpleNamespace

from jdfl.base.backend import use_cache


def test_the_cache_is_for_this_user_only_and_for_these_instructions(tmp_path, monkeypatch):
    settings, home = defaultdict(lambda: None), tmp_path / "cache" / "jdfl" / "xla"

    class Config:
        update = staticmethod(settings.__setitem__)
        jax_compilation_cache_dir = property(lambda self: settings["jax_compilation_cache_dir"])

    monkeypatch.setattr("jdfl.base.backend.jax", SimpleNamespace(config=Config()))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("JDFL_CACHE", "0")
    use_cache()
    assert settings["jax_compilation_cache_dir"] is None
    monkeypatch.setenv("JDFL_CACHE", "1")
    use_cache()
    (folder,) = home.iterdir()
    assert settings["jax_compilation_cache_dir"] == str(folder)
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    assert settings["jax_persistent_cache_min_compile_time_secs"] == 0
    settings["jax_compilation_cache_dir"] = "of the user"
    use_cache()
    assert settings["jax_compilation_cache_dir"] == "of the user"
    settings.clear()
    monkeypatch.setattr("jdfl.base.backend._instructions", lambda: "others")
    use_cache()
    assert settings["jax_compilation_cache_dir"] not in (None, str(folder))
    settings.clear()
    monkeypatch.setattr(os, "getuid", lambda: folder.stat().st_uid + 1)
    use_cache()
    assert settings["jax_compilation_cache_dir"] is None


def test_python_has_the_cache_of_the_command_line(tmp_path):
    environment = {**os.environ, "JDFL_CACHE": "", "XDG_CACHE_HOME": str(tmp_path), "JAX_COMPILATION_CACHE_DIR": ""}
    code = "import jdfl; jdfl.run; import jax; print(jax.config.jax_compilation_cache_dir)"
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.startswith(str(tmp_path / "jdfl" / "xla"))
