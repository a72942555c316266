"""Every comparison that commands of README, docs and help, and experiments, show, small: no grid is constant."""

import dataclasses
import re
import shlex

import numpy as np
import pytest

import jdfl
from experiments import ceps_table4, every_method, fair_comparison
from jdfl.cli import compare as command
from jdfl.lab.settings import build
from tests.docs.blocks import ROOT
from tests.refused import refused

pytestmark = pytest.mark.filterwarnings("ignore")
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
HELP = [line.split("     ")[0].strip() for line in command._EXAMPLES.splitlines() if line.startswith("  jdfl compare")]
PROGRAMS = {"fair_comparison", "ceps_table4", "every_method"}  # experiments that compare; each has a small form below


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


@pytest.fixture
def small(monkeypatch) -> list[jdfl.Comparison]:
    """Comparisons that are made, with one seed and few rounds."""
    made: list[jdfl.Comparison] = []
    whole = jdfl.Experiment.run

    def fewer(self, **given):
        tuning = self.tuning and dataclasses.replace(self.tuning, keys=self.tuning.keys[:1], extend=0)
        made.append(whole(dataclasses.replace(self, tuning=tuning, trials=1), **given))
        return made[-1]

    monkeypatch.setattr(jdfl.Experiment, "run", fewer)
    return made


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
    calls = {one.stem for one in (ROOT / "experiments").glob("*.py") if "jdfl.compare(" in one.read_text()}
    assert calls == PROGRAMS | {"attack_beside", "interval_coverage"}  # which show nothing of it


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("line", said())
def test_what_a_command_compares(line):
    holds(play(line))


def test_a_step_size_that_a_seed_refuses_is_made_smaller():
    setting = fair_comparison.SMALL[0]
    given = setting.draw(0), setting.network(0)
    steepest = float(np.max(np.asarray(given[0].curvature)))
    found = fair_comparison.accepted(jdfl.NIDS(lr=50 / steepest), *given)
    found.check(*given)
    with refused("lr"):
        dataclasses.replace(found, lr=found.lr / 0.95).check(*given)
    assert fair_comparison.accepted(found, *given) == found
    with refused("doubly stochastic"):
        fair_comparison.accepted(found, given[0], jdfl.network.star(8, weights="uniform"))


def not_alike(found: jdfl.Comparison) -> None:
    """At its smallest budgets some methods cannot pay for a round: its tables leave them out there."""
    for view in (found, *found.views):
        assert view.by == "stop" or not any(how.alike for how in view.tuned.values())


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_what_the_fair_comparison_compares():
    for setting in fair_comparison.SMALL:
        not_alike(fair_comparison.compare(setting, 1, quick=True))


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_what_other_experiments_compare(small):
    holds(every_method.compare(every_method.SMALL, 1, ["d-psgd", "extra", "nids"]))
    small.clear()
    ceps_table4.tuned(1, methods=ceps_table4.METHODS[:1])
    assert len(small) == 2
    for found in small:
        not_alike(found)
