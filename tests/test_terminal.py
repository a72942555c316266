"""What commands and experiments print fits a terminal, and the first line of it comes before JAX is imported."""

import io
import json
import os
import re
import subprocess
import sys

import pytest

from experiments import ledger
from experiments.common import Row, grid
from experiments.gallery import experiments
from jdfl.base import terminal
from jdfl.cli import flags_of, load_schema, main
from jdfl.cli.helping import help_text
from jdfl.lab.table import Cell, Grid, write
from tests.docs.blocks import ROOT

TINY = "--problem.m 4 --problem.n 20 --problem.s 2 --problem.rows 5 9 --network complete --steps 6 --stop none"
NOISY = "--algorithm d-psgd --algorithm.clip 1 --algorithm.mechanism gaussian --algorithm.mechanism.multiplier 4"


def wide(text: str, columns: int = 80) -> list[str]:
    """Lines that do not fit, except for those of a single long word, such as a path."""
    return [line for line in text.splitlines() if len(line) > columns and " " in line.strip()]


@pytest.mark.parametrize("columns", [80, 120])
def test_help_of_all_commands_and_kinds_and_tables_of_all_experiments_fit(columns, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", str(columns))
    known = load_schema()
    for name, command in known["commands"].items():
        assert wide(help_text(command, flags_of(name), []), columns) == [], name
    run = known["commands"]["run"]
    for flag in flags_of("run"):
        for kind in flag.kinds:
            asked = [f"--{flag.name}={kind}"]
            assert wide(help_text(run, flags_of("run", *asked), asked), columns) == [], kind
    for words in ("--help", "list --help", "completion --help", "list"):
        assert main(words.split()) == 0
        assert wide(capsys.readouterr().out, columns) == [], words
    for path in sorted(ledger.RESULTS.glob("*.json")):
        shown = grid(ledger.rows_of(path.stem))
        text = write(shown, "text", "out/name.md")
        assert wide(text, columns) == [], path.stem
        vital = (row[place].text for row in shown.rows for place in shown.vital)
        assert [cell for cell in vital if cell != "–" and cell.split(" (")[0] not in text] == [], path.stem


def test_a_table_keeps_what_is_vital_and_counts_what_it_leaves_out(monkeypatch):
    """Of a sweep over a value in a long column beside thirty metrics, and of numbers of a paper beside ours."""
    monkeypatch.setenv("COLUMNS", "80")
    heads = ["point", "a swept value", "same", "empty", *(f"metric {i} ± 95 % CI" for i in range(30))]
    rows = [
        [Cell(f"{i}"), Cell(f"swept{i}{i * 'x'}"), Cell("7"), Cell(""), *[Cell(f"{i}.5 ± 0.1")] * 30] for i in range(60)
    ]
    text = write(Grid(heads, rows, []), "text", "FILE")
    assert wide(text) == []
    assert all(f"swept{i}" in text for i in range(60))
    shown = len(re.findall("metric", text.split("0.1")[0]))
    assert f"{30 - shown} more columns are in FILE" in text
    assert "In all 60 rows: same: 7." in text
    assert "empty" not in text
    few = write(Grid(heads, rows[:2], []), "text", "FILE")
    assert all(f"metric {i} ± 95 % CI  0.5 ± 0.1" in re.sub(" +", " ", few).replace("CI ", "CI  ") for i in range(30))
    assert "more column" not in few
    names = [f"a quantity {i} of the paper" for i in range(8)]
    paper = [Row(f"case {case}", name, case + 0.25, case + 0.5, 0.0, 1) for case in range(5) for name in names]
    blocks = re.findall(r"(?m)^case [ \w,.]*$", write(grid(paper), "text").replace("\n-", "\n"))
    assert len(blocks) > 5
    assert wide(write(grid(paper), "text")) == []
    lines = [line.split() for line in write(grid(paper), "text").splitlines() if line.startswith("case 3")]
    assert {tuple(line[2:4]) for line in lines} == {("3.25", "3.5")}


class Tty(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_what_is_printed_stands_above_the_line_in_a_terminal(monkeypatch):
    stream = Tty()
    monkeypatch.setattr(sys, "stdout", stream)
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(terminal, "TERMINAL", 0.01)
    assert not terminal.say("nobody listens")
    with terminal.Heartbeat():
        assert terminal.say("loading")
        print("a table")
        print("begun", end="")
        terminal.say("this must not remove it")
        print(", ended")
    screen = re.sub(r"[^\n]*\r\x1b\[K", "", stream.getvalue())  # what stays
    assert screen == "a table\nbegun, ended\n"
    assert sys.stdout is stream
    assert "loading" in stream.getvalue()


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_real_commands_and_experiments_fit_and_say_first_that_they_load(tmp_path):
    env = os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "80"}

    def done(words: str) -> str:
        found = subprocess.run(
            [sys.executable, "-m", *words.split()], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
        )
        assert found.returncode in (0, 4), f"{words}\n{found.stderr[-3000:]}"
        assert re.match(r" *\d+ s  loading", found.stderr) or "--help" in words, words
        assert wide(found.stdout) == [], words
        return found.stdout

    assert json.loads(done("jdfl account --releases 3 --multiplier 6 --json"))["releases"] == 3
    for words in (
        f"run {TINY} --repeats 2 --algorithm.s 2",
        f"account {NOISY} {TINY}",
        f"account {NOISY} {TINY} --observer pairs",
        *("account --releases 3 --multiplier 6", "choose", "choose --directed", "data list"),
        f"sweep {TINY} --algorithm.s 2 --over algorithm.rate=0.1,0.2 --seeds 2",
        f"compare {TINY} --algorithms d-psgd dsgt --seeds 2",
        f"audit {NOISY} {TINY} --runs 200",
    ):
        done(f"jdfl {words}")
    for folder in sorted((tmp_path / "runs").iterdir()):
        done(f"jdfl verify {folder}")
    done("experiments list")
    for name in ("theory_constants", "published_sums", "lemma2_counterexample", "ceps_table5"):
        assert name in [one.name for one in experiments()]
        done(f"experiments.{name} --quick")
