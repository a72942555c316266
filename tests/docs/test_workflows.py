"""The workflows on GitHub check what `make test` and noxfile.py check, and the commands in CONTRIBUTING.md exist."""

import ast
import re
import shlex
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.docs.test_packaging import ROOT, pythons

TARGETS = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
NOX = ast.parse((ROOT / "noxfile.py").read_text(encoding="utf-8"))
SESSIONS = {function.name: function for function in NOX.body if isinstance(function, ast.FunctionDef)}
PYTHON = {"python-version": "${{ matrix.python }}"}


def github() -> Path:
    """The folder .github; skips in an unpacked sdist, which has none."""
    if not (ROOT / ".github").is_dir():
        pytest.skip("no .github: this is no checkout")
    return ROOT / ".github"


def read(file: Path) -> Any:
    return yaml.load(file.read_text(encoding="utf-8"), yaml.BaseLoader)  # which leaves `on` a text


def commands(workflow: Any) -> list[str]:
    return [step["run"] for job in workflow["jobs"].values() for step in job["steps"] if "run" in step]


def test_ci_runs_make_test_and_the_sessions_of_nox():
    workflow = read(github() / "workflows" / "ci.yml")
    nox = "pipx run nox --error-on-missing-interpreters -s tests-${{ matrix.python }}"
    assert commands(workflow) == ["make test", nox, "make docs-check", "make docs"]
    versions = workflow["jobs"]["versions"]
    assert versions["strategy"]["matrix"] == {"python": pythons()}
    assert [step["with"] for step in versions["steps"] if "with" in step] == [PYTHON]
    assert (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()[-1] == "make test"


@pytest.mark.parametrize("name", ["ci", "slow", "release"])
def test_workflows_are_allowed_little_and_end(name):
    workflow = read(github() / "workflows" / f"{name}.yml")
    assert workflow["permissions"] == {"contents": "read"}
    assert workflow["concurrency"]["cancel-in-progress"] == ("false" if name == "release" else "true")
    for job, about in workflow["jobs"].items():
        assert "timeout-minutes" in about
        assert about.get("permissions", {}) == ({"id-token": "write"} if job == "publish" else {})
        for step in about["steps"]:
            assert re.search(r"@(v\d+|release/v\d+)$", step.get("uses", "@v1")), step
    made = {word for command in commands(workflow) for word in re.findall(r"^make ([\w-]+)", command, re.MULTILINE)}
    assert made <= TARGETS


def test_commands_of_the_contributing_page_exist():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    fenced = "\n".join(re.findall(r"```\n(.*?)```", text, re.DOTALL)).splitlines()
    spans = re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
    seen = 0
    for line in [*fenced, *spans]:
        words = shlex.split(line, comments=True)
        for word, following in pairwise(words):
            if word == "make":
                assert following in TARGETS, line
            elif word == "-s" and "nox" in words:
                assert following.partition("-")[0] in SESSIONS, line
            elif word == "-m" and words[0].endswith("python") and following not in ("pip", "venv", "pytest"):
                assert find_spec(following) is not None, line
            else:
                continue
            seen += 1
        paths = [word for word in words if re.fullmatch(r"(jdfl|tests|docs|experiments|benchmarks)/[\w./]+", word)]
        assert all((ROOT / path).exists() for path in paths), line
    assert seen >= 6
