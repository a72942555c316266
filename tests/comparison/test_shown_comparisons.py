"""Every comparison that README, docs, notebooks, help and experiments show, small: no grid is constant."""

import ast
import dataclasses
import re
import shlex
from pathlib import Path

import jax
import numpy as np
import pytest

import jdfl
from experiments import ceps_table4, every_method, fair_comparison
from jdfl.cli import compare as command
from jdfl.lab.settings import build
from tests.docs.blocks import ROOT, blocks

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


def shown() -> list[tuple[Path, int, str]]:
    """(page, line, code) of every block of Python that compares, with what it needs of those before it."""
    found = []
    for page in [*PAGES, *sorted((ROOT / "notebooks").glob("*.py"))]:
        texts = [page.read_text(encoding="utf-8")] if page.suffix == ".py" else [
            block.text for block in blocks(page) if block.language == "python"
        ]  # fmt: skip
        body = [one for text in texts for one in ast.parse(text).body]
        for i, one in enumerate(body):
            if any(call in ast.unparse(one) for call in ("jdfl.compare(", "experiment.run()")):
                found.append((page, i, needed(body[:i], one)))
    return found


def needed(before: list[ast.stmt], last: ast.stmt) -> str:
    """The statements that the last one depends on, and itself."""
    kept, names = [last], {node.id for node in ast.walk(last) if isinstance(node, ast.Name)}
    for one in reversed(before):
        made = {node.id for node in ast.walk(one) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
        defined = isinstance(one, ast.ClassDef | ast.FunctionDef) and one.name in names
        if isinstance(one, ast.Import | ast.ImportFrom) or defined or (isinstance(one, ast.Assign) and made & names):
            kept.insert(0, one)
            names |= {node.id for node in ast.walk(one) if isinstance(node, ast.Name)}
    return "\n".join(map(ast.unparse, kept))


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
    assert {page.name for page, _, _ in shown()} >= {"README.md", "experiments.md", "first_run.py"}
    calls = {one.stem for one in (ROOT / "experiments").glob("*.py") if "jdfl.compare(" in one.read_text()}
    assert calls == PROGRAMS | {"attack_beside", "interval_coverage"}  # which show nothing of it


@pytest.mark.slow
def test_what_the_readmes_command_compares():
    (line,) = (one for one in said() if "extra" in one)
    holds(play(line))


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("line", said())
def test_what_a_command_compares(line):
    holds(play(line))


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("page", "place", "code"), shown(), ids=lambda one: one.name if isinstance(one, Path) else "")
def test_what_a_block_compares(page, place, code, small, monkeypatch, tmp_path):
    files = page.with_suffix("")  # what a page has beside it
    monkeypatch.chdir(files if files.is_dir() else tmp_path)
    with jax.numpy_rank_promotion("allow"):  # as everywhere outside of these tests
        exec(compile(code, str(page), "exec"), {"__name__": "__main__"})
    assert small, f"{page}, statement {place}"
    for found in small:
        holds(found)


def test_a_step_size_that_a_seed_refuses_is_made_smaller():
    setting = fair_comparison.SMALL[0]
    given = setting.draw(0), setting.network(0)
    steepest = float(np.max(np.asarray(given[0].curvature)))
    found = fair_comparison.accepted(jdfl.NIDS(lr=50 / steepest), *given)
    found.check(*given)
    with pytest.raises(ValueError, match="Expected lr <= "):
        dataclasses.replace(found, lr=found.lr / 0.95).check(*given)
    assert fair_comparison.accepted(found, *given) == found
    with pytest.raises(ValueError, match="doubly stochastic"):
        fair_comparison.accepted(found, given[0], jdfl.network.star(8, weights="uniform"))


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_what_the_fair_comparison_compares():
    """At its smallest budgets some methods cannot pay for a round: its tables leave them out there."""
    for setting in fair_comparison.SMALL:
        found = fair_comparison.compare(setting, 1, quick=True)
        for view in (found, *found.views):
            assert not any(how.alike for how in view.tuned.values())


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_what_the_comparison_of_all_methods_compares():
    holds(every_method.compare(every_method.SMALL, 1, ["d-psgd", "extra", "nids"]))


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_what_table4_compares(small):
    ceps_table4.tuned(1, methods=ceps_table4.METHODS[:1])
    assert len(small) == 2
    for found in small:
        for view in (found, *found.views):
            assert view.by == "stop" or not any(how.alike for how in view.tuned.values())


def test_a_constant_grid_is_caught():
    """The README's command as it once was: a budget that pays for no round of any baseline."""
    with pytest.raises(AssertionError, match="d-psgd"):
        holds(play("jdfl compare --algorithms d-psgd --steps 20 --problem.n 60 --by bytes --budget 500"))
