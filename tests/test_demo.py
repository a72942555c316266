"""The demo as somebody sees it who has just installed jdfl: in a terminal of 80 columns, in a file, and as a page."""

import io
import os
import re
import subprocess
import sys
import time
from itertools import pairwise

import pytest

from experiments import demo_parts
from jdfl.base import terminal
from jdfl.base.terminal import Heartbeat
from jdfl.cli import main
from tests.docs.blocks import ROOT

COLUMNS, GAP = 80, 3.0  # of the terminal; seconds without a sign


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_demo_fits_a_terminal_is_never_silent_and_says_first_what_was_found(tmp_path, monkeypatch):
    env, pipe = os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": str(COLUMNS)}, subprocess.PIPE
    command = [sys.executable, "-m", "experiments.demo", "--quick", "--seeds", "2"]
    with subprocess.Popen(command, cwd=tmp_path, env=env, stdout=pipe, stderr=subprocess.STDOUT, text=True) as child:
        told = [("", time.monotonic()), *((line.rstrip("\n"), time.monotonic()) for line in child.stdout)]
    assert child.returncode == 0
    assert max(later - before for (_, before), (_, later) in pairwise(told)) <= terminal.FILE + terminal.APART + GAP
    lines = [line for line, _ in told]
    assert [line for line in lines if len(line) > COLUMNS or "\x1b" in line] == []
    final = [line for line in lines if line and not re.match(r" *\d+ s  ", line)]
    assert final[0].startswith("1. ")
    (head,) = [i for i, line in enumerate(final) if line.split()[:3] == ["variant", "rounds", "objective"]]
    assert head > [line[:2] for line in final].index("3.")
    rows = [line.split() for line in final if re.match(r" +(No)?DP-", line)]
    assert [re.sub(r" \(", "(", " ".join(row)).count(" ") for row in rows] == [4, 4]
    assert final[-4] == "next: three commands to try"
    assert {path.suffix for path in (tmp_path / "out").iterdir()} >= {".html", ".png", ".json"}
    monkeypatch.chdir(tmp_path)
    assert [main(words.split()) for words in demo_parts.COMMANDS] == [0] * 3


def test_a_file_gets_a_line_now_and_then(monkeypatch):
    monkeypatch.setattr(terminal, "FILE", 0.05)
    stream = io.StringIO()
    with Heartbeat(stream) as beat:
        beat.say("loading")
        beat.say("too soon after the last line")
        time.sleep(0.3)
        beat.print("done")
    told = stream.getvalue().splitlines()
    assert told[0].endswith("  loading")
    assert 3 <= len(told) <= 9
    assert told[-1] == "done"
    assert all("\x1b" not in line and "\r" not in line for line in told)
    assert terminal.FILE + terminal.APART <= 10
    assert terminal.TERMINAL <= GAP / 2


def test_the_least_value_is_that_of_least_squares_on_the_support():
    problem = demo_parts.jdfl.problems.example1(m=4, n=30, s=3, rows=(10, 20), seed=1)
    known = demo_parts.sparse_optimum(problem, 3).value
    assert demo_parts.least_value(problem) == pytest.approx(known, abs=1e-9)
    assert len(demo_parts.HEADS) == len(demo_parts.HEADS2) == 5
    assert len(demo_parts.VARIANTS) == 4
