"""The script of docs/first-figure.md: what the page shows is the file, and it prints what the page says."""

import math
import os
import re
import shutil
import subprocess
import sys

import pytest

from tests.docs.blocks import ROOT, blocks

FOLDER = ROOT / "docs/first-figure"
SCRIPT = FOLDER / "first_figure.py"


def shown() -> tuple[str, str]:
    """The script and the transcript of the page."""
    found = blocks(ROOT / "docs/first-figure.md")
    (script,) = (one.text for one in found if one.title == SCRIPT.name)
    (transcript,) = (one.text for one in found if one.mark == "output")
    return script, transcript


def agrees(printed: str, transcript: str) -> bool:
    """Whether all words are the same, and all numbers up to a tenth: machines round and tune a little differently."""
    words, wanted = printed.split(), transcript.split()
    return len(words) == len(wanted) and all(map(_near, words, wanted))


def _near(word: str, wanted: str) -> bool:
    if not all(re.fullmatch(r"\d*\.?\d+", one) for one in (word, wanted)):
        return word == wanted
    return math.isclose(float(word), float(wanted), rel_tol=0.1)


def test_the_page_shows_the_script():
    assert shown()[0] == SCRIPT.read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_script_prints_the_transcript(tmp_path):
    folder = shutil.copytree(FOLDER, tmp_path / "first-figure")
    env = {**os.environ, "PYTHONPATH": str(ROOT), "MPLBACKEND": "Agg"}
    done = subprocess.run(
        [sys.executable, "-P", SCRIPT.name], cwd=folder, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stderr
    assert agrees(done.stdout, shown()[1]), done.stdout
    assert (folder / "figure.pdf").stat().st_size > 5_000
