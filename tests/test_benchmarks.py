"""The suite of benchmarks: what is found, run and skipped, what is written, and the page made of it."""

import json
import platform
import re
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks import __main__ as suite
from benchmarks import common, device, machine, page, versions
from benchmarks.common import Benchmark, Record, Row
from benchmarks.machine import Machine
from jdfl.store.jobs import Jobs
from tests.refused import refused

KNOWN = common.discover()
GOOD = Row("a", "top_k / jdfl", 2.5, "x", ">= 2", True, "2–3 (of 3)")
MISSED = Row("b", "jdfl / top_k", 3.0, "x", "< 2", False)
FILE = '"""One line.\n\nMore."""\n\nimport nothing_of_this_name\n\nNAME = "new"\n%s\n\ndef main(arguments):\n    pass\n'


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
    assert list(KNOWN) == sorted(KNOWN)
    assert not {"common", "machine", "page", "aot", "shared", "__main__"} & set(KNOWN)
    assert KNOWN["partpsp_vs_loop"].needs == ("torch",)
    assert (suite.chosen([], "abc"), suite.chosen(["c", "a", "c"], "abc")) == (["a", "b", "c"], ["a", "c"])
    for name, found in KNOWN.items():
        path = common.FOLDER / f"{found.name}.py"
        assert path.is_file(), "NAME is the file's name"
        assert found.about.endswith(".")
        assert f"python -m benchmarks.{name} [--quick] [--out DIR]" in path.read_text()
    for path in page.RESULTS.glob("*.json"):
        missed = [row for row in common.read(path).rows if row.met is False]
        assert KNOWN[path.stem].limit or not missed, path


def test_a_new_file_is_found_without_being_imported(tmp_path):
    (tmp_path / "new.py").write_text(FILE % 'NEEDS = ("nothing_of_this_name",)\nLIMIT = ("Because " "it is.")')
    (tmp_path / "helper.py").write_text('"""No NAME."""\n')
    assert common.discover(tmp_path) == {
        "new": Benchmark("new", "One line.", ("nothing_of_this_name",), "Because it is.")
    }


WRONG = ("noize", "--list noize", "--retry -1", "--page noise", "--page --list", "--compare --quick")


def test_wrong_arguments_end_with_usage_and_the_list_says_what_is_measured(capsys):
    for arguments in (*(words.split() for words in WRONG), ["--compare", "--out", str(page.RESULTS)]):
        with pytest.raises(SystemExit) as ended:
            suite.main(arguments)
        assert ended.value.code == 2
        said = capsys.readouterr().err
        assert "usage" in said
        assert ("nearest is 'noise'" in said) == ("noize" in arguments)
    assert suite.main(["--list"]) == 0
    said = capsys.readouterr().out
    assert all(name in said and found.about in said for name, found in KNOWN.items())


def test_a_goal_that_is_not_met_is_shown_and_no_crash(processes, tmp_path, capsys):
    processes.doings["one"] = lambda out: written(out, "one", GOOD, MISSED, Row("c", "free", 1.0, "s")) or 0
    assert suite.main(["--out", str(tmp_path)]) == 0
    assert [words[:4] for words in processes.commands] == [["-u", "-m", "benchmarks.one", "--out"]]
    said = capsys.readouterr().out
    assert ["NO" in line for line in said.splitlines() if line.startswith("│ one")] == [False, True]
    assert "1 of 1 benchmarks measured, 1 of 2 goals met" in said
    assert "free" not in said
    assert [path.name for path in tmp_path.iterdir()] == ["one.json"]


def test_a_crash_is_told_and_the_same_command_goes_on_with_it(processes, tmp_path, capsys):
    measured = {"a": 3, "b": 0, "c": 0}
    for name in measured:
        processes.doings[name] = lambda out, name=name: written(out, name, GOOD) or measured[name]
    assert suite.main(["--quick", "--out", str(tmp_path)]) == 1
    assert [words[-1] for words in processes.commands] == ["--quick"] * 3
    said = capsys.readouterr().out
    assert "a crashed with exit code 3" in said
    assert "2 of 3 benchmarks measured" in said
    measured["a"] = 0
    assert suite.main(["--quick", "--out", str(tmp_path)]) == 0
    assert [words[2] for words in processes.commands[3:]] == ["benchmarks.a"]
    assert "3 of 3 benchmarks measured" in capsys.readouterr().out
    processes.commands.clear()
    assert suite.main(["--quick", "--out", str(tmp_path)]) == 0
    assert len(processes.commands) == 3, "what ended is measured anew"


def test_one_that_crashes_is_tried_again(processes, tmp_path):
    left = iter([3, 0])
    processes.doings["a"] = lambda out: written(out, "a", GOOD) or next(left)
    with pytest.warns(UserWarning, match="1 of 1"):
        assert suite.main(["--retry", "1", "--out", str(tmp_path)]) == 0
    assert len(processes.commands) == 2


def test_figures_of_an_earlier_time_are_not_taken_and_missing_packages_are_named(processes, tmp_path, capsys):
    written(tmp_path, "quiet", GOOD)
    processes.doings["quiet"] = lambda _: 0
    assert suite.main(["--out", str(tmp_path)]) == 0
    assert "quiet skipped: it wrote no figures" in capsys.readouterr().out
    processes.commands.clear()
    needy = Benchmark("a", "About.", ("jax", "nothing_of_this_name"))
    done = suite.measure(needy, False, tmp_path, Jobs(tmp_path))
    assert done.why == "skipped: nothing_of_this_name is not installed"
    assert (done.crashed, processes.commands) == (False, [])


def test_a_machine_is_described_without_its_name(monkeypatch):
    monkeypatch.setattr(machine, "bandwidth", lambda quick: (70.0, 50.0))
    here = machine.describe()
    assert all(value is not None for value in asdict(here).values())
    assert (here.backend, here.read_gb_per_s, here.copy_gb_per_s) == ("cpu", 70.0, 50.0)
    assert not platform.node() or platform.node() not in json.dumps(asdict(here)).split('"')
    gpu = Machine(cpu="some", cores=16, memory_gb=127.6, backend="gpu", device="H200", devices=1, read_gb_per_s=4000.0)
    assert str(gpu) == "some, 16 cores, 128 GB, 1 device H200, reading 4e+03 GB/s"


def test_what_is_reported_is_read_back(monkeypatch, tmp_path):
    monkeypatch.setattr(common, "describe", lambda quick: Machine(cpu="some", devices=2 if quick else 1))
    common.report("title", [GOOD, MISSED], tmp_path, "name", quick=True)
    assert common.read(tmp_path / "name.json") == Record(Machine(cpu="some", devices=2), (GOOD, MISSED))


def test_the_page_has_goals_plain_sections_and_reasons(tmp_path):
    rows = (GOOD, MISSED, Row("|b|", "<", 1234.5, ""))
    record = Record(Machine(cpu="some"), rows)
    goals = page.goals({"one": record})
    assert "| [one](#one) | 1 of 2 |" in goals
    assert MISSED.case in goals
    assert "1.23e+03" not in goals
    lines = page.section(Benchmark("one", "About.", (), "Because it is."), record).splitlines()
    assert lines[:5] == ["## one", "", "About.", "", "`python -m benchmarks.one`"]
    assert r"| a | top\_k / jdfl | 2.5 | x | >= 2 | yes | 2–3 (of 3) |" in lines
    assert r"| \|b\| | &lt; | 1.23e+03 |  |  |  |  |" in lines
    assert lines[-1] == "Because it is."
    written(tmp_path, "nothing_of_this_name", GOOD)
    with refused("nothing_of_this_name"):
        page.page(tmp_path)


def test_the_page_in_the_repository_is_what_the_figures_give():
    assert page.PAGE.read_text(encoding="utf-8") == page.page(), "run python -m benchmarks --page"


def test_methods_share_a_device_as_far_as_its_memory_goes(monkeypatch):
    monkeypatch.setattr(device, "AT_ONCE", 3)
    small, large = (device.Case(device.PLAIN, size) for size in (device.SMALLEST, device.MOST))
    most = device.space(device.MOST)
    assert device.groups([small] * 4 + [large] * 2, 1.5 * most) == [[small] * 3, [small, large], [large]]
    assert device.groups([large], most / 2) == [[large]]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_small_benchmarks_run_from_the_one_entry_point(tmp_path):
    command = [sys.executable, "-m", "benchmarks", "noise", "dpsgd_overhead", "--quick", "--out", str(tmp_path)]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    order = [said.index(words) for words in ("dpsgd_overhead (1 of 2)", "noise (2 of 2)", "2 of 2 benchmarks measured")]
    assert order == sorted(order)
    for name in ("noise", "dpsgd_overhead"):
        record = common.read(tmp_path / f"{name}.json")
        assert record.rows
        assert record.machine.read_gb_per_s > 0


def ratio(value, low, high, goal="", measure="ours / theirs", unit="x"):
    return Row("a", measure, value, unit, goal, None, f"{low}–{high} (of 3)")


RECORDED = ratio(1.18, 1.17, 1.2)
DRIFTS = [
    (ratio(2.3, 2.25, 2.4), RECORDED, "worse"),
    (ratio(1.0, 0.9, 1.0), RECORDED, "better"),
    (ratio(1.3, 1.25, 1.4), ratio(1.2, 1.1, 1.27), ""),  # the ranges overlap
    (ratio(1.25, 1.22, 1.3), RECORDED, ""),  # hardly apart
    (ratio(20, 19, 21, ">= 40"), ratio(50, 49, 51, ">= 40"), "worse"),
    (ratio(2.3, 2.25, 2.4, unit="s"), ratio(1.18, 1.17, 1.2, unit="s"), ""),
    (Row("a", "b", 3.0, "x"), Row("a", "b", 1.0, "x"), "worse"),
]


def test_a_drift_is_what_leaves_the_range_of_the_record():
    assert [suite.drifted(now, before) for now, before, _ in DRIFTS] == [drift for _, _, drift in DRIFTS]


def test_a_worse_ratio_ends_the_quick_set_with_an_error(processes, tmp_path, monkeypatch, capsys):
    records, out = tmp_path / "records", tmp_path / "out"
    records.mkdir()
    monkeypatch.setattr(suite.page, "RESULTS", records)
    processes.doings["one"] = lambda folder: written(folder, "one", ratio(1.18, 1.17, 1.2)) or 0
    assert suite.main(["--compare", "--out", str(out)]) == 1
    assert "one: no record in" in capsys.readouterr().out
    written(records, "one", ratio(1.19, 1.15, 1.2))
    assert suite.main(["--compare", "--out", str(out)]) == 0
    assert "0 ratios worse" in capsys.readouterr().out
    processes.doings["one"] = lambda folder: written(folder, "one", ratio(2.3, 2.2, 2.4)) or 0
    assert suite.main(["--out", str(out)]) == 0
    assert suite.main(["--compare", "--out", str(out)]) == 1
    said = capsys.readouterr().out
    assert "1 ratios worse" in said
    assert ["ours / theirs" in line and "1.19" in line and "2.3" in line for line in said.splitlines()].count(True) == 1


def test_records_have_an_age(tmp_path):
    assert re.fullmatch(r"(Measured [\d,]+ commits ago\.|Measured at this commit\.)?", page.age("rounds"))
    assert page.age("rounds", tmp_path) == ""
    text = page.PAGE.read_text(encoding="utf-8")
    assert "<!-- age of" in text
    assert "<!-- age of" not in page.aged(text)


def test_versions_are_compared_pair_by_pair():
    """A machine that slows down between pairs makes neither slower."""
    alike, longer = [(1.0, 1.0), (3.0, 3.0), (9.0, 9.0)], [(1.1, 1.0), (2.0, 2.5), (5.5, 5.0)]
    (same, slower), more = versions.compared({("a", "a round"): alike, ("b", "a round"): longer})
    assert (same["here / there"], same[""]) == ("1.000", "")
    assert (slower["here / there"], slower["spread"], slower[""]) == ("1.100", "0.800–1.100", "slower")
    assert more == 1


def test_each_version_is_measured_by_its_own_code(tmp_path):
    """Also that which is not the one that is installed, and of which a file of the same name lies here."""
    for folder in ("jdfl", "benchmarks"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "__init__.py").write_text("SECONDS = 7.0\n")
    rows = "[dict(case='a', measure=unit, value=jdfl.SECONDS, unit=unit) for unit in ('s', 'x')]"
    (tmp_path / "benchmarks" / "rounds.py").write_text(
        f"import json, sys, jdfl\njson.dump({{'rows': {rows}}}, open(sys.argv[2] + '/rounds.json', 'w'))\n"
    )
    assert versions.measured(tmp_path, "rounds", quick=False) == {("a", "s"): 7.0}


def test_versions_that_cannot_be_compared_are_refused(capsys):
    here = str(common.FOLDER.parent)
    for arguments, said in (
        (["nowhere"], "nowhere"),
        ([here, "roundz"], "roundz"),
        ([here, "--repeats", "0"], "got 0"),
    ):
        with pytest.raises(SystemExit):
            versions.main(arguments)
        assert said in capsys.readouterr().err
