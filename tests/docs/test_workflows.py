"""The workflows on GitHub check what `make test` and noxfile.py check, and the commands in CONTRIBUTING.md exist."""

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
SESSIONS = set(re.findall(r"^def (\w+)", (ROOT / "noxfile.py").read_text(encoding="utf-8"), re.MULTILINE))


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
    assert workflow["jobs"]["versions"]["strategy"]["matrix"] == {"python": pythons()}
    assert (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()[-2:] == ["make test", "make docs-check"]


def test_workflows_are_allowed_little_and_end():
    for name in ("ci", "slow", "release"):
        workflow = read(github() / "workflows" / f"{name}.yml")
        assert workflow["permissions"] == {"contents": "read"}
        assert workflow["concurrency"]["cancel-in-progress"] == ("false" if name == "release" else "true")
        for job, about in workflow["jobs"].items():
            assert "timeout-minutes" in about
            assert about.get("permissions", {}) == ({"id-token": "write"} if job == "publish" else {})
        made = {word for one in commands(workflow) for word in re.findall(r"^make ([\w-]+)", one, re.MULTILINE)}
        assert made <= TARGETS


def test_commands_of_the_contributing_page_exist():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    fenced = "\n".join(re.findall(r"```\n(.*?)```", text, re.DOTALL)).splitlines()
    spans = re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
    seen = 0
    for line in [*fenced, *spans]:
        words = shlex.split(line, comments=True)
        for word, following in pairwise(words):
            checks = {
                "make": lambda name: name in TARGETS,
                "-s": lambda name, words=words: "nox" not in words or name.partition("-")[0] in SESSIONS,
                "-m": lambda name, words=words: (
                    not (name and words[0].endswith("python")) or find_spec(name) is not None
                ),
            }
            if word in checks:
                assert checks[word](following), line
                seen += 1
        paths = [word for word in words if re.fullmatch(r"(jdfl|tests|docs|experiments|benchmarks)/[\w./]+", word)]
        assert all((ROOT / path).exists() for path in paths), line
    assert seen >= 6
