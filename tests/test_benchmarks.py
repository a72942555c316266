"""The suite of benchmarks: what is found, run and skipped, what is written, and the page made of it."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks import __main__ as suite
from benchmarks import common, page
from benchmarks.common import Benchmark, Record, Row
from benchmarks.machine import Machine

KNOWN = common.discover()
GOOD = Row("a", "top_k / jdfl", 2.5, "x", ">= 2", True, "2–3 (of 3)")
MISSED = Row("b", "jdfl / top_k", 3.0, "x", "< 2", False)


def written(folder, name, *rows):
    """A file as `report` writes it."""
    (folder / f"{name}.json").write_text(json.dumps(asdict(Record(Machine(cpu="some", cores=2), rows))))


@pytest.fixture
def processes(monkeypatch):
    """Stand-ins by name for what a benchmark's process does: a function of the folder that gives the exit code."""
    doings, commands = {}, []

    def run(command):
        words = command[3:]  # after what makes it mortal
        commands.append(words)
        return SimpleNamespace(returncode=doings[words[2].removeprefix("benchmarks.")](Path(words[4])))

    monkeypatch.setattr(suite.subprocess, "run", run)
    monkeypatch.setattr(suite, "discover", lambda: {name: Benchmark(name, "About.") for name in sorted(doings)})
    return SimpleNamespace(doings=doings, commands=commands)


def test_every_benchmark_keeps_the_contract_and_explains_goals_that_it_misses():
    for name, found in KNOWN.items():
        path = common.FOLDER / f"{found.name}.py"
        assert path.is_file()
        assert f"python -m benchmarks.{name} [--quick] [--out DIR]" in path.read_text()
        assert found.result, "the page has a sentence about every benchmark"
    for path in page.RESULTS.glob("*.json"):
        missed = [row for row in common.read(path).rows if row.met is False]
        assert KNOWN[path.stem].limit or not missed, path


def test_wrong_arguments_are_refused():
    """`--compare` into the folder of records would overwrite what it compares with."""
    for arguments in (["noize", "--show"], ["--compare", "--quick"], ["--compare", "--out", str(page.RESULTS)]):
        with pytest.raises(SystemExit, match="2"):
            suite.main(arguments)


def test_a_crash_is_told_a_missed_goal_is_none_and_the_same_command_goes_on(processes, tmp_path, capsys):
    measured = {"a": 3, "b": 0}
    for name in measured:
        processes.doings[name] = lambda out, name=name: written(out, name, GOOD, MISSED) or measured[name]
    again = ["--quick", "--out", str(tmp_path)]
    assert suite.main(again) == 1
    said = capsys.readouterr().out
    assert "a crashed with exit code 3" in said
    assert "1 of 2 benchmarks measured, 1 of 2 goals met" in said
    measured["a"] = 0
    assert suite.main(again) == 0
    assert [words[2] for words in processes.commands[2:]] == ["benchmarks.a"]
    assert "2 of 2 benchmarks measured" in capsys.readouterr().out


def test_the_page_in_the_repository_is_what_the_figures_give_and_has_every_missed_goal():
    text = page.PAGE.read_text(encoding="utf-8")
    assert text == page.page(), "run python -m benchmarks --page"
    plain = text.replace("\\", "").replace("&lt;", "<")
    for name, record in page.records().items():
        for row in (row for row in record.rows if row.met is False):
            value = " ".join(f"{row.value:.3g} {row.unit} | {row.goal} |".split())
            assert f"| `{name}` | {row.case} | {row.measure} | {value}" in plain


def test_a_worse_ratio_ends_the_quick_set_with_an_error(processes, tmp_path, monkeypatch, capsys):
    records, out = tmp_path / "records", tmp_path / "out"
    records.mkdir()
    monkeypatch.setattr(suite.page, "RESULTS", records)
    written(records, "one", replace(MISSED, value=1.19, spread="1.15–1.2 (of 3)"))
    for value, spread, worse in ((1.18, "1.17–1.2 (of 3)", 0), (2.3, "2.2–2.4 (of 3)", 1)):
        now = replace(MISSED, value=value, spread=spread)
        processes.doings["one"] = lambda folder, now=now: written(folder, "one", now) or 0
        assert suite.main(["--compare", "--out", str(out)]) == worse
        assert f"{worse} ratios worse" in capsys.readouterr().out
    assert suite.main(["--out", str(out)]) == 0
