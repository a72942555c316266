"""A process forgets compiled programs before it has more of them than Linux maps."""

import jax
import jax.numpy as jnp
import pytest

from jdfl.engine import programs


@pytest.fixture
def limit(monkeypatch, tmp_path):
    """A function that sets how many pieces of memory a process may map."""
    monkeypatch.setattr(programs, "_LIMIT", tmp_path / "limit")
    return lambda count: (tmp_path / "limit").write_text(f"{count}\n")


@pytest.mark.parametrize(("times", "forgets"), [(1.5, True), (4, False)])
def test_programs_are_forgotten_close_to_the_limit(limit, compilations, times, forgets):
    function = jax.jit(lambda x: 3 * x + 1)
    x = jnp.float32(2)
    function(x)
    mapped = programs.pieces()
    if not mapped:
        pytest.skip("no file says what this process has mapped")
    before = compilations()
    limit(int(times * mapped))
    programs.make_room()
    assert float(function(x)) == 7  # compared on the host, which compiles nothing
    assert (compilations() > before) == forgets


def test_where_no_file_tells_a_limit_nothing_is_done(limit, compilations):
    function = jax.jit(lambda x: 5 * x)
    x = jnp.float32(2)
    function(x)
    before = compilations()
    programs.make_room()
    assert (function(x), compilations()) == (10, before)
