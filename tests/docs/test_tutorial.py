"""Who does what docs/own-algorithm.md says has an algorithm that keeps the laws of the contract."""

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


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the repository in which the recipe is followed: two files and one command."""
    folder = tmp_path_factory.mktemp("copy")
    skip = shutil.ignore_patterns("__pycache__", ".venv", ".git", "site", "out", "runs", "results", ".*_cache")
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
