"""The demo as somebody sees it who has just installed jdfl: in a terminal of 80 columns, in a file, and as a page."""

import io
import os
import pty
import re
import shlex
import shutil
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import pytest

from experiments import demo_parts, heartbeat
from experiments.heartbeat import Heartbeat
from jdfl.cli import main
from tests.docs.blocks import ROOT

COLUMNS, GAP = 80, 3.0  # of the terminal; seconds without a sign
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


@pytest.fixture(scope="module")
def seen(tmp_path_factory) -> tuple[str, float, Path]:
    """What the small demo writes to a terminal, the longest silence in seconds, and its folder."""
    folder = tmp_path_factory.mktemp("demo")
    told, terminal = pty.openpty()
    env = os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": str(COLUMNS), "TERM": "xterm"}
    command = [sys.executable, "-m", "experiments.demo", "--quick", "--seeds", "2"]
    began = time.monotonic()
    child = subprocess.Popen(command, cwd=folder, env=env, stdin=terminal, stdout=terminal, stderr=terminal)
    os.close(terminal)
    parts, times = list[bytes](), [began]
    while True:
        try:
            part = os.read(told, 2**16)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        parts.append(part)
        times.append(time.monotonic())
    os.close(told)
    assert child.wait(60) == 0, b"".join(parts)
    return b"".join(parts).decode(), max(b - a for a, b in pairwise(times)), folder


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_demo_fits_a_terminal_is_never_silent_and_says_first_what_was_found(seen):
    text, gap, folder = seen
    assert gap <= GAP
    plain = text.replace("\x1b[K", "")
    assert "\x1b" not in plain
    lines = re.split(r"[\r\n]+", plain)  # everything that was ever on a line of the terminal
    assert [line for line in lines if len(line) > COLUMNS] == []
    final = [line for line in lines if line and not re.match(r" *\d+ s  ", line)]
    assert final[0].startswith("1. ")
    (head,) = [i for i, line in enumerate(final) if line.split()[:3] == ["variant", "rounds", "objective"]]
    assert head > [line[:2] for line in final].index("3.")
    rows = [line.split() for line in final if re.match(r" +(No)?DP-", line)]
    assert [re.sub(r" \(", "(", " ".join(row)).count(" ") for row in rows] == [4, 4]
    assert final[-4] == "next: three commands to try"
    assert {path.suffix for path in (folder / "out").iterdir()} >= {".html", ".png", ".json"}


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")
def test_the_page_of_the_demo_is_not_clipped(seen):
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    wider = "all => all.filter(e => e.scrollWidth > e.clientWidth + 1).map(e => e.outerHTML.slice(0, 80))"
    with sync_api.sync_playwright() as playwright:
        sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=sandbox)
        for width in (390, 1280):  # pixels of a phone and of a laptop
            page = chromium.new_context(viewport={"width": width, "height": 900}).new_page()
            page.goto((seen[2] / "out" / "demo.html").as_uri())
            page.wait_for_selector("figure .plot svg")
            for fold in page.locator("details").all():
                fold.locator("summary").first.click()
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            assert page.eval_on_selector_all(".wide, pre, figure, details", wider) == []
            assert page.locator("main section").first.locator("h2, p, table").first.text_content() == "What was found"
        chromium.close()


@pytest.mark.slow
def test_the_commands_to_try_work(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert len(demo_parts.COMMANDS) == 3
    for words in demo_parts.COMMANDS:
        assert main(shlex.split(words)) == 0
        assert capsys.readouterr().out


def test_a_file_gets_a_line_now_and_then(monkeypatch):
    monkeypatch.setattr(heartbeat, "FILE", 0.05)
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
    assert heartbeat.FILE + heartbeat.APART <= 10
    assert heartbeat.TERMINAL <= GAP / 2


def test_the_least_value_is_that_of_least_squares_on_the_support():
    problem = demo_parts.jdfl.problems.example1(m=4, n=30, s=3, rows=(10, 20), seed=1)
    known = demo_parts.sparse_optimum(problem, 3).value
    assert demo_parts.least_value(problem) == pytest.approx(known, abs=1e-9)
    assert len(demo_parts.HEADS) == len(demo_parts.HEADS2) == 5
    assert len(demo_parts.VARIANTS) == 4
