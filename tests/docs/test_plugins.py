"""Kinds of an installed package are in every command; a broken or clashing one harms nobody and is named."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT

MODULE = '''
    """An algorithm, a codec, a network and a problem of another package."""

    from typing import ClassVar

    from jdfl import codecs, network, problems
    from jdfl.algorithms import DPSGD
    from jdfl.base import struct
    from jdfl.base.settings import Positive


    @struct.dataclass
    class Lazy(DPSGD):
        """Nobody hurries."""

        kind: ClassVar[str] = "lazy"
        pause: Positive = 2.0
        """Rounds for which a node rests."""


    @struct.dataclass
    class Half(codecs.Dense):
        """Half of the precision."""

        kind: ClassVar[str] = "half"


    def ladder(m: int, rungs: int = 1) -> network.Static:
        """A ring with rungs.

        Args:
            m: The number of nodes.
            rungs: Links across the ring.
        """
        return network.from_edges([(i, (i + 1) % m) for i in range(m)] + [(i, m - 1 - i) for i in range(rungs)], m)


    def tiny(m: int = 4) -> problems.LinearRegression:
        """A tiny problem."""
        return problems.example1(m=m, n=20, s=2, rows=(5, 9))


    @struct.dataclass
    class Untyped:
        """Its annotation names nothing."""

        size: "Missing" = 3


'''
POINTS = """
    [jdfl.algorithms]
    lazy = lazy_package:Lazy

    [jdfl.codecs]
    half = lazy_package:Half

    [jdfl.networks]
    ladder = lazy_package:ladder

    [jdfl.problems]
    tiny = lazy_package:tiny
"""
BROKEN = """
    [jdfl.algorithms]
    ceps = bad_package:Clash
    gone = bad_package:Gone
    absent = no_such_module:Thing
    number = lazy_package:__doc__
    untyped = lazy_package:Untyped
    lazy = lazy_package:Half
"""


def install(site: Path, name: str, points: str) -> None:
    """What pip leaves behind in a --target folder: the metadata with its entry points."""
    about = site / f"{name.replace('-', '_')}-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(textwrap.dedent(points))
    (about / "INSTALLER").write_text("pip\n")
    (about / "RECORD").write_text("")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The --target folder with the package."""
    folder = tmp_path_factory.mktemp("site")
    (folder / "lazy_package.py").write_text(textwrap.dedent(MODULE).lstrip())
    install(folder, "lazy-package", POINTS)
    return folder


def jdfl(site: Path, work: Path, *lines: str) -> subprocess.CompletedProcess[str]:
    """Some command lines, one after another in a fresh process that has the folder on its path."""
    path = os.pathsep.join([str(site), str(ROOT)])
    env = {**os.environ, "PYTHONPATH": path, "COLUMNS": "80"}
    code = f"from jdfl.cli import main\nimport sys\nsys.exit(max(main(line.split()) for line in {lines!r}))"
    command = [sys.executable, "-P", "-c", code]
    return subprocess.run(command, cwd=work, env=env, capture_output=True, text=True, timeout=240, check=False)


CHOSEN = "--problem tiny --network ladder --network.rungs 2 --algorithm lazy --algorithm.pause 3"
CHOSEN += " --algorithm.codec half --steps 2 --stop none"


def test_kinds_of_a_package_are_listed_explained_and_run(site, tmp_path):
    kinds = ["--algorithm lazy", "--algorithm.codec half", "--network ladder", "--problem tiny"]
    helps = [f"run {kind} --help" for kind in kinds] + ["run --help", "run --network --help", "compare --help"]
    done = jdfl(site, tmp_path, "list", *helps, f"run {CHOSEN} --quiet")
    assert done.returncode == 0, done.stderr
    assert "lazy-package" not in done.stderr
    text = " ".join(done.stdout.split())
    for line in ("Nobody hurries.", "Half of the precision.", "A ring with rungs.", "A tiny problem."):
        assert f"{line} (from lazy-package)" in text
    for line in ("Rounds for which a node rests.", "Links across the ring."):
        assert line in text
    (file,) = (one for one in tmp_path.glob("runs/*/config.yaml") if "pause: 3.0" in one.read_text())
    assert {"kind: lazy", "kind: half", "kind: ladder", "kind: tiny", "pause: 3.0", "rungs: 2"} <= {
        line.strip() for line in file.read_text().splitlines()
    }


def test_broken_and_clashing_packages_are_named_and_left_out(site, tmp_path, tmp_path_factory):
    other = tmp_path_factory.mktemp("other")
    install(other, "other-package", BROKEN)
    (other / "bad_package.py").write_text("raise OSError('no luck')\n")
    both = Path(f"{other}{os.pathsep}{site}")
    done = jdfl(both, tmp_path, "list", f"run {CHOSEN} --quiet")
    assert done.returncode == 0, done.stderr
    warnings = [line for line in done.stderr.splitlines() if line.startswith("jdfl: warning: ")]
    assert len(warnings) == 6, done.stderr
    assert all("The package other-package adds the kind" in line for line in warnings)
    for kind, said in {
        "ceps": "but jdfl has one of that name",
        "lazy": "but lazy-package has one of that name",
        "gone": "OSError: no luck",
        "absent": "No module named 'no_such_module'",
        "number": "expected a class or a function",
        "untyped": "name 'Missing' is not defined",
    }.items():
        assert any(f"kind {kind!r}" in line and said in line for line in warnings), kind
    assert "Nobody hurries. (from lazy-package)" in done.stdout
    assert "\n  ceps " in done.stdout
