"""The notebooks run from the first cell to the last, and become notebooks."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.py"))
notebooks = pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)


def cells(notebook: Path) -> list[tuple[str, str]]:
    """What every cell is, code or markdown, and its text."""
    found = []
    for part in ("\n" + notebook.read_text(encoding="utf-8")).split("\n# %%")[1:]:
        head, _, text = part.partition("\n")
        found.append(("markdown" if head.strip() == "[markdown]" else "code", text))
    return found


@notebooks
def test_cells_are_code_or_markdown(notebook: Path):
    for kind, text in cells(notebook):
        if kind == "code":
            compile(text, notebook.name, "exec")
        else:
            assert all(line.startswith("#") for line in text.strip().splitlines())


@pytest.mark.slow
@pytest.mark.timeout(900)
@notebooks
def test_cells_run_in_order(notebook: Path, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    subprocess.run([sys.executable, str(notebook)], check=True, timeout=800, cwd=tmp_path)
