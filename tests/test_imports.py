"""`import jdfl` and the help import next to nothing; what is public is there."""

import subprocess
import sys

import jdfl

HEAVY = ("jax", "flax", "sklearn", "pandas", "scipy", "matplotlib", "networkx", "orbax", "dp_accounting")


def test_nothing_heavy_is_imported_before_it_is_needed():
    lines = ["--help", "--version", "list", "completion bash", "run --help", "run --network ring --help", "rnu"]
    lines += ["run --algoritm.lr .1", "run --algorithm dpsdg", "compare --network rnig", "run --network"]
    code = f"import sys\nfrom jdfl.cli import main\nfor line in {lines}: main(line.split())\n"
    code += f"print([one for one in {HEAVY} if one in sys.modules], file=sys.stderr)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert found.stderr.splitlines()[-1] == "[]"


def test_all_public_names_are_there():
    assert all(getattr(jdfl, name) is not None for name in jdfl.__all__)
    assert set(jdfl.__all__) <= set(dir(jdfl))
    assert all(map(callable, (jdfl.audit, jdfl.compare, jdfl.run)))  # not modules of that name
