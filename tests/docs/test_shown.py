"""Programs beside the pages: the script of docs/first-figure.md, the notebooks, and the pictures."""

import os
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import jax
import matplotlib as mpl
import pytest

from tests.docs.blocks import ROOT, blocks
from tests.docs.test_code_blocks import same

DOCS = ROOT / "docs"
SCRIPT = DOCS / "first-figure" / "first_figure.py"
SHOWN = {block.title or block.mark: block.text for block in blocks(DOCS / "first-figure.md")}
PAGES = ("concepts.md", "first-figure.md", "index.md", "../README.md")
IMAGE = re.compile(r"(?s)!\[(.*?)\]\((?:docs/)?pictures/([\w-]+\.svg)\)")
PICTURES = {name: words for page in PAGES for words, name in IMAGE.findall((DOCS / page).read_text(encoding="utf-8"))}


def test_the_script_and_every_picture_are_shown_and_pictures_are_told_in_words():
    assert SHOWN[SCRIPT.name] == SCRIPT.read_text(encoding="utf-8")
    assert sorted(PICTURES) == sorted(path.name for path in (DOCS / "pictures").iterdir())
    assert all((DOCS / "pictures" / name).stat().st_size <= 200_000 for name in PICTURES)
    assert all(len(words.split()) > 15 for words in PICTURES.values())


def ran(script: Path, folder: Path, timeout: int) -> str:
    """What a program prints that is run in a folder."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), "MPLBACKEND": "Agg"}
    command = [sys.executable, "-P", str(script)]
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False, timeout=timeout)
    assert done.returncode == 0, done.stderr
    return done.stdout + ("".join(line for line in done.stderr.splitlines() if "Warning" in line))


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_script_prints_the_transcript(tmp_path):
    """Up to a tenth of its numbers: machines round and tune a little differently."""
    folder = shutil.copytree(SCRIPT.parent, tmp_path / "first-figure")
    printed = ran(folder / SCRIPT.name, folder, 800)
    assert same(printed, SHOWN["output"], within=0.1), printed
    assert (folder / "figure.pdf").stat().st_size > 5_000


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("notebook", sorted((ROOT / "notebooks").glob("*.py")), ids=lambda path: path.stem)
def test_cells_of_notebooks_run_in_order(notebook, tmp_path):
    ran(notebook, tmp_path, 800)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.filterwarnings("ignore:gamma = ")  # of CHOCO-SGD, as tuned in README
def test_all_pictures_are_drawn(tmp_path):
    script: dict[str, Any] = runpy.run_path(str(DOCS / "_pictures.py"), run_name="pictures")
    assert {f"{name}.svg" for name in script["PICTURES"]} == set(PICTURES)
    with mpl.rc_context(), jax.numpy_rank_promotion("allow"):  # as users have it
        script["main"](tmp_path)
    for name in PICTURES:
        assert len(list(ElementTree.parse(tmp_path / name).iter())) > 20, name
