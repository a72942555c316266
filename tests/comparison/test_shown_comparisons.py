"""Every comparison that commands of README, docs and help show, small: no grid is constant."""

import dataclasses
import re
import shlex

import pytest

import jdfl
from jdfl.cli import compare as command
from jdfl.lab.settings import build
from tests.docs.blocks import ROOT

pytestmark = pytest.mark.filterwarnings("ignore")
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
HELP = [line.split("     ")[0].strip() for line in command._EXAMPLES.splitlines() if line.startswith("  jdfl compare")]


def said() -> list[str]:
    """Every command that says what it compares, without those of files that are not there."""
    found = dict.fromkeys(HELP)
    for page in PAGES:
        text = page.read_text(encoding="utf-8").replace("\\\n", " ")
        for line in re.findall(r"jdfl compare [^`\n|]*", text):
            found[" ".join(shlex.split(line, comments=True))] = None
    return [line for line in found if "--algorithms" in line]


def holds(found: jdfl.Comparison) -> None:
    """Every tuned method has a choice at every budget, from points that differ."""
    for view in (found, *found.views):
        for label, how in view.tuned.items():
            fine = not (how.alike or how.failure or how.lone)
            assert not how.grid or view.by == "stop" or fine, f"{label}, {view.by}: {how}"


def play(line: str) -> jdfl.Comparison:
    """The comparison of a command line, on a smaller problem, with one seed."""
    config, _ = command.parse(shlex.split(line)[2:])
    if hasattr(config.problem, "rows"):
        problem = dataclasses.replace(config.problem, m=8, n=min(config.problem.n, 100), s=min(config.problem.s, 5))
        config = dataclasses.replace(config, problem=problem, steps=min(config.steps, 40))
    entries, problem, network, options = build(dataclasses.replace(config, seeds=1, tuning_seeds=1, extend=0))
    return jdfl.compare(entries, problem, network, **options)


def test_the_commands_are_found():
    assert len(said()) >= 5


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("line", said())
def test_what_a_command_compares(line):
    holds(play(line))
