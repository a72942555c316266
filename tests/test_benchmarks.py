"""The suite of benchmarks: what is found, run and skipped, what is written, and the page made of it."""

import json
import platform
import re
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks import __main__ as suite
from benchmarks import common, device, machine, page, versions
from benchmarks.common import Benchmark, Record, Row
from benchmarks.machine import Machine
from jdfl.store.jobs import Jobs

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


@pytest.mark.parametrize("name", KNOWN)
def test_every_benchmark_keeps_the_contract(name):
    found = KNOWN[name]
    path = common.FOLDER / f"{found.name}.py"
    assert path.is_file(), "NAME is the file's name"
    assert found.about.endswith(".")
    assert f"python -m benchmarks.{name} [--quick] [--out DIR]" in path.read_text()


def test_files_beside_the_benchmarks_are_none():
    helpers = {"common", "device_parts", "machine", "page", "torch_loop", "versions", "waited"}
    helpers |= {"aot", "collectives", "hlo", "hlo_text", "methods", "shared"}
    assert not {*helpers, "__main__"} & set(KNOWN)
    assert list(KNOWN) == sorted(KNOWN)
    assert KNOWN["partpsp_vs_loop"].needs == ("torch",)


def test_a_new_file_is_found_without_being_imported(tmp_path):
    (tmp_path / "new.py").write_text(FILE % 'NEEDS = ("nothing_of_this_name",)\nLIMIT = ("Because " "it is.")')
    (tmp_path / "helper.py").write_text('"""No NAME."""\n')
    assert common.discover(tmp_path) == {
        "new": Benchmark("new", "One line.", ("nothing_of_this_name",), "Because it is.")
    }


def test_names_are_run_once_in_the_documented_order():
    assert suite.chosen([], "abc") == ["a", "b", "c"]
    assert suite.chosen(["c", "a", "c"], "abc") == ["a", "c"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["noize"],
        ["--list", "noize"],
        ["--retry", "-1"],
        ["--page", "noise"],
        ["--page", "--list"],
        ["--compare", "--quick"],
        ["--compare", "--out", str(page.RESULTS)],
    ],
)
def test_wrong_arguments_end_with_usage(arguments, capsys):
    with pytest.raises(SystemExit) as ended:
        suite.main(arguments)
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert "usage" in said
    assert ("nearest is 'noise'" in said) == ("noize" in arguments)


def test_the_list_says_what_every_benchmark_measures(capsys):
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


def test_an_interrupted_suite_goes_on(processes, tmp_path, capsys):
    def interrupted(_):
        raise KeyboardInterrupt

    processes.doings |= {"a": lambda out: written(out, "a", GOOD) or 0, "b": interrupted}
    assert suite.main(["--out", str(tmp_path)]) == 130
    assert "the same command goes on" in capsys.readouterr().err
    assert not list(tmp_path.glob("unfinished/jobs/.*"))
    processes.doings["b"] = lambda out: written(out, "b", GOOD) or 0
    assert suite.main(["b", "--out", str(tmp_path)]) == 0
    assert suite.main(["--out", str(tmp_path)]) == 0
    assert [words[2][-1] for words in processes.commands] == ["a", "b", "b", "b"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.json", "b.json"]


def test_one_that_crashes_is_tried_again(processes, tmp_path):
    left = iter([3, 0])
    processes.doings["a"] = lambda out: written(out, "a", GOOD) or next(left)
    with pytest.warns(UserWarning, match="exit code 3; it is tried again, 1 of 1"):
        assert suite.main(["--retry", "1", "--out", str(tmp_path)]) == 0
    assert len(processes.commands) == 2


def test_figures_of_an_earlier_time_are_not_taken_for_new_ones(processes, tmp_path, capsys):
    written(tmp_path, "quiet", GOOD)
    processes.doings["quiet"] = lambda _: 0
    assert suite.main(["--out", str(tmp_path)]) == 0
    assert "quiet skipped: it wrote no figures" in capsys.readouterr().out


def test_a_benchmark_without_its_packages_is_skipped_by_name(processes, tmp_path):
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
    assert str(here).endswith("reading 70 GB/s, copying 50 GB/s")


def test_a_machine_says_what_is_known_of_it():
    assert str(Machine(cpu="some", cores=1, jax="1.2")) == "some, 1 core, jax 1.2, bandwidth not recorded"
    gpu = Machine(cpu="some", cores=16, memory_gb=127.6, backend="gpu", device="H200", devices=1, read_gb_per_s=4000.0)
    assert str(gpu) == "some, 16 cores, 128 GB, 1 device H200, reading 4e+03 GB/s"


def test_bandwidth_is_measured_in_memory_that_is_there_already(monkeypatch):
    x, to = jnp.ones((64, 64), jnp.float32), jnp.zeros((64, 64), jnp.float32)
    place = to.unsafe_buffer_pointer()
    assert machine.negative(x, to).unsafe_buffer_pointer() == place
    monkeypatch.setattr(machine, "QUICK", (64, 64))
    assert all(rate > 0 for rate in machine.bandwidth(quick=True))


def test_what_is_reported_is_read_back(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(common, "describe", lambda quick: Machine(cpu="some", devices=2 if quick else 1))
    common.report("title", [GOOD, MISSED], tmp_path, "name", quick=True)
    assert common.read(tmp_path / "name.json") == Record(Machine(cpu="some", devices=2), (GOOD, MISSED))
    common.show("title", [{"shape": "[m, n]"}])
    assert "[m, n]" in capsys.readouterr().out


def test_a_section_of_the_page_is_plain_markdown():
    said = page.section(Benchmark("one", "About."), Record(Machine(cpu="some"), (GOOD, Row("|b|", "<", 1234.5, ""))))
    assert said.splitlines() == [
        "## one",
        "",
        "About.",
        "",
        "`python -m benchmarks.one`",
        "",
        "some, bandwidth not recorded.",
        "",
        "<!-- age of the record of one -->",
        "",
        "| case | measure | value | unit | goal | met | spread |",
        "| --- | --- | --- | --- | --- | --- | --- |",
        r"| a | top\_k / jdfl | 2.5 | x | >= 2 | yes | 2–3 (of 3) |",
        r"| \|b\| | &lt; | 1.23e+03 |  |  |  |  |",
    ]


def test_the_page_begins_with_the_goals():
    said = page.goals({"one": Record(Machine(cpu="some"), (GOOD, MISSED, Row("|b|", "<", 1234.5, "")))})
    assert "| [one](#one) | 1 of 2 |" in said
    assert MISSED.case in said
    assert "1.23e+03" not in said


def test_figures_of_no_benchmark_are_refused(tmp_path):
    written(tmp_path, "nothing_of_this_name", GOOD)
    with pytest.raises(ValueError, match="found nothing_of_this_name"):
        page.page(tmp_path)


def test_the_page_says_why_goals_are_missed():
    record = Record(Machine(cpu="some"), (GOOD, MISSED))
    assert page.section(Benchmark("one", "About.", (), "Because it is."), record).endswith(" |\n\nBecause it is.\n")
    assert page.section(Benchmark("one", "About."), record).endswith(" |\n")


@pytest.mark.parametrize("name", [path.stem for path in sorted(page.RESULTS.glob("*.json"))])
def test_missed_goals_are_explained(name):
    missed = [row for row in common.read(page.RESULTS / f"{name}.json").rows if row.met is False]
    assert KNOWN[name].limit or not missed


def test_the_page_in_the_repository_is_what_the_figures_give():
    assert page.PAGE.read_text(encoding="utf-8") == page.page(), "run python -m benchmarks --page"


def test_methods_share_a_device_as_far_as_its_memory_goes(monkeypatch):
    monkeypatch.setattr(device, "AT_ONCE", 3)
    small, large = (device.Case(device.PLAIN, size) for size in (device.SMALLEST, device.MOST))
    most = device.space(device.MOST)
    assert device.groups([small] * 4 + [large] * 2, 1.5 * most) == [[small] * 3, [small, large], [large]]
    assert device.groups([large], most / 2) == [[large]]


@pytest.mark.parametrize("room", [1.0, 1e9])
def test_methods_that_fail_beside_others_are_tried_alone(monkeypatch, room, capsys):
    asked, cases = [], [device.Case(method, device.SMALLEST) for method in device.METHODS[:2]]
    good = '{"seconds": [0.5], "peak": 1.0, "least": 1e9, "expected": 1.0, "cost": [[[2.0, 1e6, 0.0, 0.0]], 1.0]}'

    def process(flag, method, *size):
        """The second method has memory for itself alone."""
        asked.append(method)
        fails = method == 1 and len(asked) == 2 and room > 1
        out = SimpleNamespace(readline=lambda: "" if fails else "2.0")
        return SimpleNamespace(stdout=out, returncode=int(fails), communicate=lambda go: (good, "no memory"))

    monkeypatch.setattr(device, "asked", process)
    monkeypatch.setattr(device, "groups", lambda cases, _: [cases] if room > 1 else [[case] for case in cases])
    rows = device.timed(cases, 1.0, float("inf"))
    assert [row.case for row in rows if row.measure == "rounds a second"] == [str(case) for case in cases]
    assert asked == ([0, 1, 1] if room > 1 else [0, 1])
    assert ("no memory" in capsys.readouterr().err) == (room > 1)
    assert device.timed(cases, 1.0, float("-inf")) == []
    assert "not measured" in capsys.readouterr().out


def test_results_unlike_the_cpu_are_counted_and_named():
    shares, counts, bad = device.judged(
        {"same": (1e-7, 0.0), "not": (0.5, 0.0), "counts": (0.0, 1.0), "nan": (np.nan, 0.0)}
    )[:3]
    assert (shares.value, shares.met, counts.value, counts.met) == (0.5, False, 0.75, False)
    assert (bad.case, bad.value) == ("not", 0.5)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_small_benchmarks_run_from_the_one_entry_point(tmp_path):
    command = [sys.executable, "-m", "benchmarks", "noise", "dpsgd_overhead", "--quick", "--out", str(tmp_path)]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert (
        said.index("dpsgd_overhead (1 of 2)") < said.index("noise (2 of 2)") < said.index("2 of 2 benchmarks measured")
    )
    for name in ("noise", "dpsgd_overhead"):
        record = common.read(tmp_path / f"{name}.json")
        assert record.rows
        assert record.machine.read_gb_per_s > 0


def ratio(value, low, high, goal="", measure="ours / theirs", unit="x"):
    return Row("a", measure, value, unit, goal, None, f"{low}–{high} (of 3)")


@pytest.mark.parametrize(
    ("now", "before", "drift"),
    [
        (ratio(2.3, 2.25, 2.4), ratio(1.18, 1.17, 1.2), "worse"),
        (ratio(1.0, 0.9, 1.0), ratio(1.18, 1.17, 1.2), "better"),
        (ratio(1.3, 1.25, 1.4), ratio(1.2, 1.1, 1.27), ""),  # the ranges overlap
        (ratio(1.25, 1.22, 1.3), ratio(1.18, 1.17, 1.2), ""),  # hardly apart
        (ratio(20, 19, 21, ">= 40"), ratio(50, 49, 51, ">= 40"), "worse"),
        (ratio(2.3, 2.25, 2.4, unit="s"), ratio(1.18, 1.17, 1.2, unit="s"), ""),
        (Row("a", "b", 3.0, "x"), Row("a", "b", 1.0, "x"), "worse"),
    ],
)
def test_a_drift_is_what_leaves_the_range_of_the_record(now, before, drift):
    assert suite.drifted(now, before) == drift


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
    text = page.page()
    assert text.count("<!-- age of") == len(list(page.RESULTS.glob("*.json")))
    assert "<!-- age of" not in page.aged(text)


def test_the_quick_set_measures_what_changes_slow_down():
    """The memory of a run at both sizes, the import, first runs, rounds and events, all with records as ratios."""
    rows = common.read(page.RESULTS / "basics.json").rows
    assert {one.unit for one in rows} == {"x"}
    measures = {one.measure for one in rows}
    assert len(measures) == 5
    assert [one.case[:5] for one in rows if one.measure == "memory of a run / data"] == ["m=32 ", "m=128"]


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


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nowhere"], r"Expected a checkout with jdfl/__init__.py, got .*nowhere"),
        ([str(common.FOLDER.parent), "roundz"], r"Expected a checkout with benchmarks/roundz.py"),
        ([str(common.FOLDER.parent), "--repeats", "0"], "Expected repeats >= 1, got 0"),
    ],
)
def test_versions_that_cannot_be_compared_are_refused(arguments, said, capsys):
    with pytest.raises(SystemExit):
        versions.main(arguments)
    assert re.search(said, " ".join(capsys.readouterr().err.split()))
