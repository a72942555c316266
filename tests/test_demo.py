"""The demo as somebody sees it who has just installed jdfl: in a terminal of 80 columns, and as a page."""

import os
import subprocess
import sys
import time
from itertools import pairwise

import pytest

from experiments import demo
from jdfl.cli import main
from tests.docs.blocks import ROOT

COLUMNS, SILENCE = 80, 13.0  # of the terminal; seconds without a sign of life


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_demo_fits_a_terminal_is_never_silent_and_ends_with_commands_that_work(tmp_path, monkeypatch):
    env, pipe = os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": str(COLUMNS)}, subprocess.PIPE
    command = [sys.executable, "-u", "-m", "experiments.demo", "--quick", "--seeds", "2"]
    with subprocess.Popen(command, cwd=tmp_path, env=env, stdout=pipe, stderr=subprocess.STDOUT, text=True) as child:
        told = [("", time.monotonic()), *((line.rstrip("\n"), time.monotonic()) for line in child.stdout)]
    assert child.returncode == 0
    assert max(later - before for (_, before), (_, later) in pairwise(told)) <= SILENCE
    lines = [line for line, _ in told]
    assert [line for line in lines if len(line) > COLUMNS and not line.startswith("written:")] == []
    assert len([line for line in lines if line.startswith(("DP-1BCS", "NoDP-1BCS"))]) == 4
    assert {path.suffix for path in (tmp_path / "out").iterdir()} >= {".html", ".png", ".json"}
    monkeypatch.chdir(tmp_path)
    assert [main(words.split()) for words in demo.NEXT] == [0] * 3
