"""Who does what docs/own-algorithm.md says has an algorithm that keeps the laws of the contract."""

import inspect
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from jdfl import testing
from tests.contract import test_contract
from tests.docs.blocks import ROOT, Block, blocks

TITLED = [block for block in blocks(ROOT / "docs" / "own-algorithm.md") if block.title]
COMMAND = ["tests/contract", "-k", "QG-DSGDm", "-p", "no:cacheprovider"]
LAWS = len(testing.LAWS) + sum(
    inspect.isfunction(test) and list(inspect.signature(test).parameters) == ["row"]
    for name, test in vars(test_contract).items()
    if name.startswith("test_")
)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """What the tutorial needs of the repository, with what it says done."""
    skip = shutil.ignore_patterns("__pycache__")
    for folder in ("jdfl", "tests/contract"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=skip)
    for file in ("pyproject.toml", "tests/__init__.py", "tests/conftest.py", "tests/later.py", "tests/toy.py"):
        shutil.copy(ROOT / file, tmp_path / file)
    for block in TITLED:
        apply(block, tmp_path / block.title)
    return tmp_path


def apply(block: Block, file: Path) -> None:
    """Write a block that is a file, change the file that a block of language diff is about."""
    if block.language != "diff":
        assert not file.exists()
        file.write_text(block.text)
        return
    lines = block.text.splitlines(keepends=True)
    assert {line[0] for line in lines} == {" ", "+"}
    before = "".join(line[1:] for line in lines if line[0] == " ")
    text = file.read_text()
    assert text.count(before) == 1, f"{file.name} has not one place like\n{before}"
    file.write_text(text.replace(before, "".join(line[1:] for line in lines)))


def contract(folder: Path, *options: str) -> tuple[int, int, str]:
    """How many laws held and how many did not, and what was printed."""
    env = {**os.environ, "PYTHONPATH": str(folder)}
    command = [sys.executable, "-m", "pytest", *COMMAND, *options]
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=1200, check=False)
    counts = [re.search(rf"(\d+) {word}", done.stdout) for word in ("passed", "failed")]
    passed, failed = (int(count[1]) if count else 0 for count in counts)
    assert (done.returncode == 0) == (passed > 0 and not failed), done.stdout + done.stderr
    return passed, failed, done.stdout


def test_the_tutorial_has_one_file_and_one_registration():
    assert [block.language for block in TITLED] == ["python", "diff"]
    assert TITLED[0].text.count("\n") <= 40
    assert TITLED[1].title == "tests/contract/table.py"


@pytest.mark.slow
def test_its_algorithm_is_clean_and_keeps_all_laws(copy):
    files = sorted({block.title for block in TITLED})
    for command in (["check", "--no-cache"], ["format", "--check", "--no-cache"]):
        subprocess.run([sys.executable, "-m", "ruff", *command, *files], cwd=copy, check=True, timeout=60)
    passed, failed, told = contract(copy)
    assert (passed, failed) == (LAWS, 0), told


@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_a_broken_one_does_not(copy):
    file = copy / TITLED[0].title
    text = file.read_text()
    file.write_text(
        text.replace("0 * round", "1 + round").replace(
            "self.gradients(x, round)", "(self.gradients(x, round) + self.gradients(x, round)) / 2"
        )
    )
    passed, failed, told = contract(copy)
    assert failed > 0, told
    assert passed < LAWS
