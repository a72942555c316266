"""A package of somebody else, installed with pip, has its algorithm in all of jdfl."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from jdfl import testing
from tests.docs.blocks import ROOT

PYPROJECT = """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "lazy-package"
version = "1.0"

[project.entry-points."jdfl.algorithms"]
lazy = "lazy_package:Lazy"

[tool.hatch.build.targets.wheel]
include = ["lazy_package.py"]
"""
MODULE = '''
from typing import ClassVar

from jdfl.algorithms import DPSGD
from jdfl.base import struct
from jdfl.base.settings import Positive


@struct.dataclass
class Lazy(DPSGD):
    """Nobody hurries."""

    kind: ClassVar[str] = "lazy"
    pause: Positive = 2.0
    """How long a node rests."""
'''
TESTS = """
import jdfl.testing
import lazy_package
import pytest

@pytest.mark.parametrize("law", jdfl.testing.LAWS)
def test_lazy(law):
    jdfl.testing.check_algorithm(lazy_package.Lazy(lr=0.02), law)
"""
SMALL = ["--problem.m", "4", "--problem.n", "20", "--problem.s", "2", "--problem.rows", "5", "9", "--quiet"]


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory):
    """A function that runs Python, in a folder of its own, where the package is installed; gives what was printed."""
    source, site, work = (tmp_path_factory.mktemp(name) for name in ("source", "site", "work"))
    (source / "pyproject.toml").write_text(PYPROJECT)
    (source / "lazy_package.py").write_text(MODULE)
    (work / "test_lazy.py").write_text(TESTS)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(site), str(ROOT)])}

    def run(*arguments: str | Path) -> str:
        command = [sys.executable, "-m", *map(str, arguments)]
        done = subprocess.run(command, cwd=work, env=env, capture_output=True, text=True, timeout=240, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    run("pip", "install", "--quiet", "--no-index", "--no-deps", "--no-build-isolation", "--target", site, source)
    return run


@pytest.mark.slow
def test_it_is_listed_and_runs(python):
    assert "Nobody hurries." in python("jdfl", "list")
    python("jdfl", "run", *SMALL, "--algorithm", "lazy", "--algorithm.pause=3", "--steps", "2", "--stop", "none")


@pytest.mark.slow
def test_it_is_compared(python):
    told = python("jdfl", "compare", *SMALL[:-1], "--algorithms", "lazy", "d-psgd", "--steps", "4")
    assert "lazy" in told.lower()


@pytest.mark.slow
def test_it_keeps_the_laws(python):
    assert f"{len(testing.LAWS)} passed" in python("pytest", "-p", "no:cacheprovider", "test_lazy.py")
