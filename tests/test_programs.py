"""A process forgets compiled programs before it has more of them than Linux maps."""

import jax
import jax.numpy as jnp
import pytest

from jdfl.engine import programs


@pytest.mark.parametrize("times", [None, 1.5, 4])
def test_programs_are_forgotten_close_to_the_limit(monkeypatch, tmp_path, compilations, times):
    monkeypatch.setattr(programs, "_LIMIT", tmp_path / "limit")
    function, x = jax.jit(lambda x: 3 * x + 1), jnp.float32(2)
    function(x)
    mapped, before = programs.pieces(), compilations()
    if times and not mapped:
        pytest.skip("no file says what this process has mapped")
    if times:
        (tmp_path / "limit").write_text(f"{int(times * mapped)}\n")
    programs.make_room()
    assert float(function(x)) == 7  # compared on the host, which compiles nothing
    assert (compilations() > before) == (times == 1.5)
