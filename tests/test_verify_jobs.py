"""`jdfl verify` of sweeps and comparisons sees a changed file, and a changed number whose manifest was changed too."""

import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from jdfl.cli import main
from jdfl.lab.files import write
from jdfl.store import manifest
from tests.test_crash_points import SMALL, WORK

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished sweep and a finished comparison."""
    place = tmp_path_factory.mktemp("made")
    (place / "small.yaml").write_text(SMALL)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        patch.setenv("JDFL_CACHE", "0")
        for name in ("sweep", "compare"):
            assert main([*WORK[name].begin, "--folder", name]) == 0
    return place


@pytest.fixture
def here(made: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """In a folder with copies of both."""
    monkeypatch.setenv("JDFL_CACHE", "0")
    monkeypatch.chdir(shutil.copytree(made, tmp_path / "copy"))


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("name", ["sweep", "compare"])
def test_a_changed_file_is_not_the_same(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", name, "--parts", "9"]) == 0
    said = capsys.readouterr().out
    assert "the same: every file" in said
    assert "the same: 2 parts" in said
    assert main(["verify", name, "--parts", "0"]) == 2
    Path(name, "table.md").write_text("| better |\n")
    Path(name, "curves.parquet").unlink()
    assert main(["verify", name]) == 1
    said = capsys.readouterr().out
    assert "NOT the same: table.md" in said
    assert "NOT the same: curves.parquet is missing" in said


@pytest.mark.usefixtures("here")
def test_a_number_that_was_forged_with_its_manifest_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    """All checksums are right: only making it again shows it."""
    (table,) = sorted(Path("sweep").glob("jobs/*/runs.parquet"))[:1]
    runs = pd.read_parquet(table)
    runs.loc[0, "objective"] = float(np.nextafter(runs.loc[0, "objective"], 0.0))
    runs.to_parquet(table, index=False)
    for folder in (table.parent, Path("sweep")):
        write(folder / manifest.NAME, manifest.of(folder))
    assert main(["verify", "sweep", "--parts", "9"]) == 1
    assert "objective in row 0 was" in capsys.readouterr().out

    arrays = dict(np.load("compare/comparison.npz"))
    told = json.loads(Path("compare/comparison.json").read_text())
    place = told["results"][-1]["of"]["params"]["at"]
    content = arrays[place].copy()
    content.reshape(-1)[0] += 1
    arrays[place] = content
    np.savez("compare/comparison.npz", **arrays)
    write(Path("compare", manifest.NAME), manifest.of(Path("compare")))
    assert main(["verify", "compare", "--parts", "9"]) == 1
    assert "the parameters of seed" in capsys.readouterr().out


@pytest.mark.usefixtures("here")
def test_unfinished_work_has_what_is_finished(capsys: pytest.CaptureFixture[str]) -> None:
    shutil.rmtree(sorted(Path("sweep").glob("jobs/*"))[0])
    Path("sweep", manifest.NAME).unlink()
    assert main(["verify", "sweep", "--parts", "9"]) == 0
    said = capsys.readouterr().out
    assert "not checked: the files, without a manifest" in said
    assert "the same: 1 part," in said
    shutil.rmtree(Path("sweep", "jobs"))
    assert main(["verify", "sweep"]) == 2
    assert "without one" in capsys.readouterr().err
