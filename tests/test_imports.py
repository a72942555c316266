"""`import jdfl` and the help import next to nothing; what is public is there."""

import subprocess
import sys

import jdfl

HEAVY = ("jax", "flax", "sklearn", "pandas", "scipy", "matplotlib", "tyro", "networkx", "orbax", "dp_accounting")


def said(code):
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    return found.stderr.strip()


def test_nothing_heavy_is_imported_before_it_is_needed():
    code = "from jdfl.cli import main; main(['--help']); main(['--version'])"
    assert said(f"import sys\n{code}\nprint([one for one in {HEAVY} if one in sys.modules], file=sys.stderr)") == "[]"


def test_all_public_names_are_there_and_modules_do_not_hide_what_has_their_name():
    assert all(getattr(jdfl, name) is not None for name in jdfl.__all__)
    assert set(jdfl.__all__) <= set(dir(jdfl))
    code = "import sys, jdfl, jdfl.auditing.run, jdfl.lab.experiment, jdfl.engine.runner\n"
    code += "print(*map(callable, (jdfl.audit, jdfl.compare, jdfl.run)), file=sys.stderr)"
    assert said(code) == "True True True"
