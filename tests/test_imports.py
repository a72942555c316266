"""`import jdfl` and the help import next to nothing; what is public is there."""

import subprocess
import sys

import pytest

import jdfl

HEAVY = ("jax", "flax", "sklearn", "pandas", "scipy", "matplotlib", "tyro", "networkx", "orbax", "dp_accounting")


@pytest.mark.parametrize(
    "code",
    ["import jdfl", "from jdfl.cli import main; main(['--help'])", "from jdfl.cli import main; main(['--version'])"],
)
def test_nothing_heavy_is_imported_before_it_is_needed(code):
    told = f"import sys\n{code}\nprint([name for name in {HEAVY} if name in sys.modules], file=sys.stderr)"
    found = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True, timeout=60)
    assert found.stderr.strip() == "[]"


def test_all_public_names_are_there():
    assert jdfl.__all__
    for name in jdfl.__all__:
        assert getattr(jdfl, name) is not None
    assert set(jdfl.__all__) <= set(dir(jdfl))
    assert not hasattr(jdfl, "nothing")


def test_modules_do_not_hide_what_has_their_name():
    code = "import jdfl, jdfl.auditing.run, jdfl.lab.experiment, jdfl.engine.runner\n"
    code += "print(*map(callable, (jdfl.audit, jdfl.compare, jdfl.run)))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert found.stdout.split() == ["True"] * 3
