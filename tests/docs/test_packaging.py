"""What is built and published: metadata, wheel and sdist.

The slow tests build both and try them elsewhere; where JDFL_DIST names a folder that has them, they try those.
"""

import ast
import os
import pkgutil
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Sequence
from importlib.metadata import PathDistribution
from pathlib import Path

import hatchling.build
import pytest
import yaml

import jdfl
from jdfl.cli import main

pytestmark = pytest.mark.timeout(1800)  # a new environment takes minutes
ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
LEFT_OUT = {".ci", ".github", ".pre-commit-config.yaml"}  # of the sdist: what only a checkout needs
ALWAYS = {".gitignore", "LICENSE", "README.md", "pyproject.toml"}  # which hatchling puts in by itself
TINY = "--problem.m 4 --problem.n 20 --problem.s 2 --algorithm d-psgd --stop none --steps 3 --quiet --out runs"


def tracked() -> set[str]:
    """The files in git; skips where this is no checkout."""
    if not (ROOT / ".git").exists():
        pytest.skip("no checkout, so that git does not tell which files there are")
    found = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60)
    return set(found.stdout.split("\0")) - {""}


def pythons() -> list[str]:
    """The versions that noxfile.py has."""
    for line in ast.parse((ROOT / "noxfile.py").read_text(encoding="utf-8")).body:
        if isinstance(line, ast.Assign) and ast.unparse(line.targets[0]) == "JAX":
            return list(ast.literal_eval(line.value))
    raise AssertionError("noxfile.py has no JAX")


@pytest.fixture
def metadata(tmp_path, monkeypatch) -> PathDistribution:
    """What a wheel says of itself."""
    monkeypatch.chdir(ROOT)
    return PathDistribution(tmp_path / hatchling.build.prepare_metadata_for_build_wheel(str(tmp_path)))


def test_metadata_and_versions_are_the_same_everywhere(metadata):
    told, oldest = metadata.metadata, pythons()[0]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    newest = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert newest is not None
    versions = [metadata.version, PROJECT["project"]["version"], citation["version"], newest[1]]
    assert versions == [jdfl.__version__] * 4
    assert (metadata.name, told["License-Expression"]) == ("jdfl", "Apache-2.0")
    assert set(told.get_all("Provides-Extra") or []) == set(PROJECT["project"]["optional-dependencies"])
    assert {name: pkgutil.resolve_name(place) for name, place in PROJECT["project"]["scripts"].items()} == {
        "jdfl": main
    }
    classifiers = re.findall(r"Python :: (3\.\d+)$", "\n".join(told.get_all("Classifier") or []), re.M)
    assert told["Requires-Python"] == f">={oldest}"
    assert classifiers == pythons()
    assert PROJECT["tool"]["ruff"]["target-version"] == f"py{oldest.replace('.', '')}"
    assert PROJECT["tool"]["basedpyright"]["pythonVersion"] == oldest


def done(*command: str | Path, folder: Path, **environment: str) -> str:
    """What a command prints in a folder, with no jdfl but that of `environment`; it must end well."""
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    words, env = [str(word) for word in command], {**inherited, **environment}
    told = subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True, timeout=1500, check=False)
    assert told.returncode == 0, f"{command}\n{told.stdout[-2000:]}\n{told.stderr[-4000:]}"
    return told.stdout


def use(jdfl_command: Sequence[str | Path], folder: Path, **environment: str) -> None:
    """Version, list, a run and its page, from a folder outside of the checkout."""

    def told(*words: str) -> str:
        return done(*jdfl_command, *words, folder=folder, **environment).strip()

    assert told("--version") == f"jdfl {jdfl.__version__}"
    assert "d-psgd" in told("list")
    run = folder / told("run", *TINY.split())
    assert (run / "summary.json").is_file()
    page = folder / told("report", str(run))
    assert "<style>" in page.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> tuple[Path, Path]:
    """Wheel and sdist, the wheel made from the unpacked sdist."""
    place = Path(os.environ.get("JDFL_DIST") or tmp_path_factory.mktemp("dist")).absolute()
    if not os.environ.get("JDFL_DIST"):
        done(sys.executable, "-m", "build", "--no-isolation", "--outdir", place, ROOT, folder=place)
    (wheel,), (sdist,) = place.glob("*.whl"), place.glob("*.tar.gz")
    assert wheel.name == f"jdfl-{jdfl.__version__}-py3-none-any.whl"
    assert sdist.name == f"jdfl-{jdfl.__version__}.tar.gz"
    return wheel, sdist


@pytest.mark.slow
def test_wheel_has_the_package_and_nothing_else(built):
    names = set(zipfile.ZipFile(built[0]).namelist())
    about = f"jdfl-{jdfl.__version__}.dist-info"
    files = ("METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE")
    assert {name for name in names if name.startswith(about)} == {f"{about}/{file}" for file in files}
    package = {name for name in names if not name.startswith(about)}
    data = ("__init__.pyi", "problems/__init__.pyi", "models/__init__.pyi", "problems/checksums.txt")
    data += ("py.typed", "lab/page.html", "lab/style.css")
    assert {f"jdfl/{file}" for file in data} <= package
    assert package == {name for name in tracked() if name.startswith("jdfl/")}


@pytest.mark.slow
def test_sdist_has_what_its_tests_need(built, tmp_path):
    with tarfile.open(built[1]) as archive:
        archive.extractall(tmp_path, filter="data")
    (folder,) = tmp_path.iterdir()
    found = {str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()}
    assert found - {"PKG-INFO"} == {name for name in tracked() if name.partition("/")[0] not in LEFT_OUT}
    collect = (sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider")
    assert "test_keys.py" in done(*collect, folder=folder, PYTHONPATH=str(folder))


@pytest.mark.slow
def test_installed_wheel_works_elsewhere(built, tmp_path):
    site = tmp_path / "site"
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index")
    done(*pip, "--target", site, built[0], folder=tmp_path)
    where = done(sys.executable, "-c", "import jdfl; print(jdfl.__file__)", folder=tmp_path, PYTHONPATH=str(site))
    assert Path(where.strip()) == site / "jdfl" / "__init__.py"
    use((sys.executable, "-m", "jdfl"), tmp_path, PYTHONPATH=str(site))
    assert (
        done(site / "bin" / "jdfl", "--version", folder=tmp_path, PYTHONPATH=str(site)) == f"jdfl {jdfl.__version__}\n"
    )


@pytest.mark.slow
def test_wheel_with_its_dependencies_is_all_that_is_needed(built, tmp_path):
    """In a new environment, as `pip install jdfl` makes it; it takes the network."""
    index = (sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", "index", "lazy-loader")
    if subprocess.run(index, cwd=tmp_path, capture_output=True, timeout=120, check=False).returncode:
        pytest.skip("no package index can be reached")
    done(sys.executable, "-m", "venv", "new", folder=tmp_path)
    done("new/bin/python", "-m", "pip", "install", "--quiet", built[0], folder=tmp_path)
    use((tmp_path / "new/bin/jdfl",), tmp_path)
    assert "No broken requirements" in done("new/bin/python", "-m", "pip", "check", folder=tmp_path)
