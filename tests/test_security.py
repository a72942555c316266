"""Every statement of SECURITY.md has its test, and those without another place have theirs here."""

import ast
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import jdfl
from jdfl.cli import main
from jdfl.results.checkpoints import JOURNAL, RECORDS
from jdfl.store import journal, manifest
from jdfl.store.files import write
from jdfl.store.journal import Journal

ROOT = Path(__file__).parent.parent
ODD = "[/red]<a href=x>[bold]=1+1"


def test_every_statement_has_its_test() -> None:
    rows = [line.strip("|").split("|") for line in (ROOT / "SECURITY.md").read_text().splitlines() if line[:1] == "|"]
    assert len(rows) > 17
    for row in rows[2:]:
        file, _, name = row[2].strip(" `").partition("::")
        tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
        assert name in {one.name for one in tree.body if isinstance(one, ast.FunctionDef)}, row[1]


RISKS = re.compile(  # pickles, evaluated text, YAML of any kind but by a safe loader of our own, arrays of objects
    r"(?<![\w.])(?:eval|exec|compile|__import__)\(|os\.system|\.(?:unsafe|full)_load|allow_pickle=True|shell=True"
    r"|yaml\.load\((?!.*Loader=_Loader\b)|^\s*(?:import|from) (?:pickle|marshal|shelve|dill|cloudpickle)\b",
    re.MULTILINE,
)


def test_no_code_comes_out_of_a_file() -> None:
    for path in sorted((ROOT / "jdfl").rglob("*.py")):
        found = RISKS.findall(path.read_text(encoding="utf-8"))
        assert len(found) == (path.relative_to(ROOT).as_posix() == "jdfl/problems/readers.py"), (path, found)
    for text in ("import pickle", "eval(x)", "yaml.load(x)", "np.load(x, allow_pickle=True)", "run(x, shell=True)"):
        assert RISKS.search(text)


def test_a_forged_folder_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A checksum has no secret: who writes other records with it is believed, until the run is repeated."""
    monkeypatch.chdir(tmp_path)
    problem = jdfl.problems.example1(m=4, n=8, s=2, rows=(5, 8))
    folder = jdfl.run(jdfl.DPSGD(), problem, jdfl.network.ring(4), steps=3).save("run")
    content = journal.read(folder / JOURNAL)
    rows = content.rows(RECORDS).copy()
    rows["objective"] = 0
    (folder / JOURNAL).unlink()
    forged = Journal.create(folder / JOURNAL, content.origin)
    forged.append(RECORDS, rows)
    forged.sync()
    forged.close()
    write(folder / manifest.NAME, manifest.of(folder))
    assert manifest.differences(folder) == ([], [])
    assert not np.any(journal.read(folder / JOURNAL).rows(RECORDS)["objective"])


@pytest.mark.usefixtures("undrawn")
def test_names_are_text_in_a_terminal(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "300")
    tiny = ["--problem.m", "4", "--problem.n", "8", "--problem.s", "2", "--problem.rows", "5", "8"]
    monkeypatch.setattr("jdfl.cli.sweep._number", lambda value: ODD if isinstance(value, float) else str(value))
    args = ["sweep", *tiny, "--algorithm", "d-psgd", "--stop", "none", "--steps", "2", "--over", "algorithm.lr=.1,.2"]
    assert main(args) == 0
    assert ODD in capsys.readouterr().out


def test_a_name_is_no_formula_of_a_spreadsheet(tmp_path: Path) -> None:
    texts = ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "plain", "a=b", ""]
    write(tmp_path / "table.csv", pd.DataFrame({"=name": texts, "number": np.linspace(-1, 1, len(texts))}))
    found = pd.read_csv(tmp_path / "table.csv", keep_default_na=False)
    assert found["'=name"].tolist() == ["'=1+1", "'+1", "'-1", "'@SUM(A1)", "'\t=1", "plain", "a=b", ""]
    assert found["number"].min() == -1
