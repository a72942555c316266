"""Who follows CONTRIBUTING's recipes has an algorithm, a codec, a network and a problem that keep their laws."""

import inspect
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import jdfl
from jdfl.algorithms import REGISTRY
from tests.contract import test_contract
from tests.docs.blocks import ROOT, blocks

TITLED = [block for block in blocks(ROOT / "docs" / "own-algorithm.md") if block.title]
FILES = [block for block in TITLED if block.language == "python"]
NAME, KIND = "DecentLaM", "decentlam"
RECIPE = re.search(
    r"(?ms)^- \*\*An algorithm:\*\*.*?(?=^- \*\*)", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
)
COMMAND = ["tests/contract", "tests/field", "-m", "", "-k", NAME, "-p", "no:cacheprovider"]
LAWS = sum(
    inspect.isfunction(test) and list(inspect.signature(test).parameters) == ["row"]
    for name, test in vars(test_contract).items()
    if name.startswith("test_")
)


CODEC = next(block.text for block in blocks(ROOT / "docs" / "own-codec.md") if "class Natural" in block.text)
WHEEL = '''

@checked
def wheel(m: Count, *, weights: Weights | None = None, format: FormatChoice = "auto") -> Static:
    """Wheel: node 0 is linked to all others, which form a ring.

    Args:
        m: The number of nodes.
        weights: Rule for the mixing weights; None: metropolis.
        format: How sums over neighbours are computed; auto looks at density, degrees and backend.
    """
    rim = np.arange(1, m)
    return build(linked(np.r_[0 * rim, rim], np.r_[rim, rim % (m - 1) + 1], m, False), weights, format, f"wheel(m={m})")
'''
HUBER = '''"""Huber's loss of residuals, quadratic up to one."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from jdfl.base import struct
from jdfl.base.settings import Count
from jdfl.problems.linear import LinearModel


@struct.dataclass
class Huber(LinearModel):
    """f_i(w) = mean_t h(<a_t, w> - b_t) with h(r) = r^2 / 2 up to |r| = 1, and |r| - 1/2 beyond."""

    def losses(self, w: Array, data: Any) -> Array:
        """The losses [q] of one node's data at the parameters w [n]."""
        size = jnp.abs(self.products(w, data[0]) - data[1])
        return jnp.where(size <= 1, 0.5 * size**2, size - 0.5)

    def slopes(self, w: Array, data: Any) -> Array:
        """The derivatives [q] of the losses by the scores."""
        return jnp.clip(self.products(w, data[0]) - data[1], -1, 1)


def huber(m: Count = 8, n: Count = 5) -> Huber:
    """Gaussian examples, ten of each node.

    Args:
        m: The number of nodes.
        n: The number of parameters.
    """
    draw = np.random.default_rng(0)
    A, b = draw.normal(size=(m, 10, n)).astype(np.float32), draw.normal(size=(m, 10)).astype(np.float32)
    curvature = jnp.asarray(np.linalg.norm(A, 2, axis=(1, 2)) ** 2 / 10)
    return Huber((jnp.asarray(A), jnp.asarray(b)), jnp.ones((m, 10)), curvature, name="Huber")
'''


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the repository in which the recipe is followed: two files and one command."""
    folder = tmp_path_factory.mktemp("copy")
    skip = shutil.ignore_patterns("__pycache__", ".venv", ".git", "site", "out", "runs", ".*_cache")
    for entry in ("jdfl", "tests", "docs", "tools", "experiments", "benchmarks", "notebooks"):
        shutil.copytree(ROOT / entry, folder / entry, ignore=skip)
    for file in ROOT.iterdir():
        if file.is_file():
            shutil.copy(file, folder)
    for block in FILES:
        assert not (folder / block.title).exists()
        (folder / block.title).write_text(block.text)
    run(folder, "tools.register")
    return folder


def run(folder: Path, *arguments: str, status: int = 0) -> str:
    """What a module prints that Python runs in a folder."""
    env = {**os.environ, "PYTHONPATH": str(folder)}
    command = [sys.executable, "-m", *arguments]
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=1200, check=False)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout


def test_the_recipe_is_two_files_and_a_command():
    """As the tutorial and CONTRIBUTING say; a method that jdfl includes is no example."""
    assert [block.title for block in FILES] == [f"jdfl/algorithms/{KIND}.py", f"tests/field/{KIND}.py"]
    assert max(block.text.count("\n") for block in FILES) <= 46
    assert RECIPE is not None
    laws = 'tests/contract tests/field -m "" -k NAME'
    for words in ("jdfl/algorithms", "tests/field", "python -m tools.register", laws):
        assert words in " ".join(RECIPE[0].split())
    assert KIND not in REGISTRY
    assert not hasattr(jdfl, NAME)


@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_who_follows_the_recipe_is_done(copy):
    """Nothing else has to be written: laws, loop, pages, docstrings, public names, the glossary, style."""
    files = ["jdfl", "tests/field", "tests/contract"]
    for command in (["check", "--no-cache"], ["format", "--check", "--no-cache"]):
        subprocess.run([sys.executable, "-m", "ruff", *command, *files], cwd=copy, check=True, timeout=60)
    counts = re.findall(r"(\d+) (passed|failed|error)", run(copy, "pytest", *COMMAND).splitlines()[-1])
    assert counts == [(str(LAWS), "passed")]
    for selection in (
        ["tests/docs/test_site.py", "-k", f"{KIND} or every"],
        [
            "tests/docs/test_docstrings.py",
            "tests/docs/test_public_names.py",
            "tests/docs/test_words.py",
            "tests/test_provenance.py",
        ],
        ["tests/contract", "-k", "registered"],
    ):
        run(copy, "pytest", "-q", "-x", "-p", "no:cacheprovider", *selection)
    assert NAME in run(copy, "jdfl", "list")


@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_a_codec_a_network_and_a_problem_are_a_file_and_a_row_each(copy):
    """As CONTRIBUTING says; the command line has them, and the laws of the library hold."""
    (copy / "jdfl/codecs/natural.py").write_text(CODEC)
    (copy / "jdfl/problems/huber.py").write_text(HUBER)
    families = copy / "jdfl/network/families.py"
    families.write_text(families.read_text() + WHEEL)
    rows = {
        "jdfl/config/families.py": {
            "    codecs.LowRank,\n": "    codecs.LowRank,\n    natural.Natural,\n",
            "network.torus, network.star)": "network.torus, network.star, wheel)",
            "_PROBLEMS = {\n": '_PROBLEMS = {\n    "huber": huber,\n',
            "from jdfl.config.kinds": "from jdfl.codecs import natural\nfrom jdfl.config.kinds",
            "\n_MOST = ": "from jdfl.network.families import wheel\nfrom jdfl.problems.huber import huber\n\n_MOST = ",
        },
        "tests/codecs/test_codecs.py": {
            "CODECS = EXACT": 'from jdfl.codecs.natural import Natural\n\nCODECS = {"natural": Natural()} | EXACT',
        },
        "tests/codecs/test_laws.py": {
            "LAWS = {\n": "from jdfl.codecs.natural import Natural\n\n"
            'LAWS = {\n    "natural": Law(Natural(), 1 / 8, EQUAL * 4 / 3, 1.0),\n',
        },
    }
    for name, changes in rows.items():
        text = (copy / name).read_text()
        for old, new in changes.items():
            assert text.count(old) == 1, (name, old)
            text = text.replace(old, new)
        (copy / name).write_text(text)
    run(copy, "tools.register")
    laws = "natural and not finite"  # its messages have a mark for numbers that are not finite, and can be packed
    done = run(copy, "pytest", "tests/codecs", "-m", "", "-k", laws, "-p", "no:cacheprovider")
    assert re.search(r"[1-9]\d* passed", done)
    laws = "import jdfl.testing as t; from jdfl.network.families import wheel; from jdfl.problems.huber import huber"
    (copy / "laws.py").write_text(f"{laws}\nt.check_network(wheel(6))\nt.check_problem(huber())\n")
    run(copy, "laws")
    chosen = "--problem huber --network wheel --algorithm choco-sgd --algorithm.codec natural --steps 3"
    assert "objective" in run(copy, "jdfl", "run", *chosen.split(), "--folder", "made")
    listed = run(copy, "jdfl", "list")
    assert all(re.search(rf"(?m)^  {name} ", listed) for name in ("natural", "wheel", "huber"))
