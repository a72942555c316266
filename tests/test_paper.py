"""The archive for a paper has the folder's numbers and commands that repeat them, and the same bytes every time."""

import json
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import jdfl
from jdfl.cli import main
from jdfl.lab.paper import write_paper
from jdfl.lab.table import number
from tests.refused import refused
from tests.study.test_study import TINY

SHORT = [*TINY, "--steps", "6", "--metrics", "objective", "objective_local"]
LONE = [*SHORT, "--stop", "none", "--algorithm", "d-psgd"]
WORK = {
    "run": ["run", *LONE],
    "sweep": [
        "sweep",
        *LONE,
        "--over",
        "algorithm.lr=0.01,0.02",
        "algorithm.order=combine-then-adapt,adapt-then-combine",
    ],
    "names": ["sweep", *LONE, "--over", "network=ring,complete", "--by", "objective_local"],
    "compare": ["compare", *SHORT, "--algorithms", "d-psgd", "--no-tune", "--seeds", "2"],
}


@pytest.fixture(autouse=True)
def apart(monkeypatch, tmp_path):
    """In an empty folder."""
    monkeypatch.chdir(tmp_path)


def opened(path: Path) -> dict[str, str]:
    with zipfile.ZipFile(path) as archive:
        archive.extractall("taken")
        return {name: archive.read(name).decode("latin-1") for name in archive.namelist()}


def numbers(kind: str, folder: Path) -> list[str]:
    """What the table has to show."""
    if kind == "run":
        found = json.loads((folder / "summary.json").read_text())
        return [number(value) for value in (*found["metrics"].values(), found["bytes"])]
    if kind == "compare":
        return [jdfl.load(folder).table("latex")]
    by = "objective" if kind == "sweep" else "objective_local"
    return [number(value) for value in pd.read_parquet(folder / "results.parquet").groupby("point")[by].mean()]


@pytest.mark.rotated(2)
@pytest.mark.filterwarnings("ignore:Not tuned")
@pytest.mark.parametrize("kind", WORK)
def test_the_archive_repeats_the_work_and_has_its_numbers(kind, capsys):
    assert main([*WORK[kind], "--folder", "one", "--quiet"]) == 0
    capsys.readouterr()
    assert main(["export", "--paper", "one", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    path = Path("one/paper.zip")
    assert said["files"] == [str(path)]
    files, before = opened(path), path.read_bytes()
    assert f"/MediaBox [ 0 0 {72 * 3.3:g}"[:20] in files["figure.pdf"]
    assert said["provenance"] in files["README.md"]
    assert json.loads(files["provenance.json"])["hash"] == said["provenance"]
    assert [one for one in numbers(kind, Path("one")) if one not in files["table.tex"]] == []
    versions = dict(line.split("==") for line in files["requirements.txt"].splitlines())
    assert versions["numpy"] == np.__version__
    assert {"jdfl", "jax", "scipy", "matplotlib"} < set(versions)

    assert main(["export", "one", "--paper", "--to", "again.zip", "--json"]) == 0
    assert Path("again.zip").read_bytes() == before
    (command,) = (line for line in files["README.md"].splitlines() if "--folder" in line)
    words = command[command.index("env/bin/jdfl ") :].split()[1:]
    words[words.index("--config") + 1] = f"taken/{words[words.index('--config') + 1]}"
    assert main([*words, "--quiet"]) == 0
    assert write_paper("again")[1] == said["provenance"]


def test_what_python_saved_needs_its_script_and_what_is_not_finished_is_refused(capsys):
    problem = jdfl.from_arrays(np.random.default_rng(0).normal(size=(40, 3)), np.arange(40) % 2, nodes=4)
    private = jdfl.DPSGD(gradients=jdfl.Gradients(clip=1.0, mechanism=jdfl.privacy.Gaussian(2.0)))
    result = jdfl.run(private, problem.declared(*problem.entering), jdfl.network.ring(4), steps=3, key=1)
    folder = result.save("saved")
    with refused("--script FILE"):
        write_paper(folder)
    Path("made.py").write_text("print(1)\n")
    files = opened(write_paper(folder, script="made.py")[0])
    assert files["made.py"] == "print(1)\n"
    assert "env/bin/python made.py" in files["README.md"]
    assert "can compute and remove it" in files["README.md"]  # the noise, of a seed
    (folder / "summary.md").write_text("better")
    with refused("summary.md"):
        write_paper(folder, script="made.py")
    (folder / "manifest.json").unlink()
    assert main(["export", "--paper", str(folder)]) == 2
    assert "jdfl resume saved" in capsys.readouterr().err
