"""Folders of several jobs: `jdfl verify` sees what was changed, and nobody begins in one that is held."""

import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from jdfl.cli import main
from jdfl.store import lease, manifest
from jdfl.store.files import write
from tests.test_crash_points import SMALL, WORK

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("undrawn", "here")]


@pytest.fixture(scope="module")
def made(undrawn: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished sweep and a finished comparison."""
    place = tmp_path_factory.mktemp("made")
    (place / "small.yaml").write_text(SMALL)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        for name in ("sweep", "compare"):
            assert main([*WORK[name].begin, "--folder", name]) == 0
    return place


@pytest.fixture
def here(made: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """In a folder with copies of both."""
    monkeypatch.chdir(shutil.copytree(made, tmp_path / "copy"))


@pytest.mark.parametrize("name", ["sweep", "compare"])
def test_a_changed_file_is_not_the_same(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", name, "--parts", "9"]) == 0
    assert "the same: 2 parts" in capsys.readouterr().out
    Path(name, "table.md").write_text("| better |\n")
    Path(name, "curves.parquet").unlink()
    assert main(["verify", name]) == 1
    said = capsys.readouterr().out
    assert "NOT the same: table.md" in said
    assert "NOT the same: curves.parquet is missing" in said


def test_a_number_that_was_forged_with_its_manifest_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    """All checksums are right: only making it again shows it."""
    (table,) = sorted(Path("sweep").glob("jobs/*/runs.parquet"))[:1]
    runs = pd.read_parquet(table)
    runs.loc[0, "objective"] = float(np.nextafter(runs.loc[0, "objective"], 0.0))
    runs.to_parquet(table, index=False)
    arrays = dict(np.load("compare/comparison.npz"))
    np.savez("compare/comparison.npz", **{name: one + 1 if one.ndim == 2 else one for name, one in arrays.items()})
    for folder in (table.parent, Path("sweep"), Path("compare")):
        write(folder / manifest.NAME, manifest.of(folder))
    for name, said in (("sweep", "objective in row 0 was"), ("compare", "the parameters of seed")):
        assert main(["verify", name, "--parts", "9"]) == 1
        assert said in capsys.readouterr().out


def test_unfinished_work_has_what_is_finished(capsys: pytest.CaptureFixture[str]) -> None:
    shutil.rmtree(sorted(Path("sweep").glob("jobs/*"))[0])
    Path("sweep", manifest.NAME).unlink()
    assert main(["verify", "sweep", "--parts", "9"]) == 0
    assert "the same: 1 part," in capsys.readouterr().out
    shutil.rmtree(Path("sweep", "jobs"))
    assert main(["verify", "sweep"]) == 2


def test_one_that_begins_in_a_folder_that_is_held_leaves_it(capsys: pytest.CaptureFixture[str]) -> None:
    Path("mine").mkdir()
    held = lease.Lease.take(Path("mine"))
    try:
        for command in (WORK["gradients"].begin, WORK["sweep"].begin, WORK["compare"].begin):
            assert main([*command, "--folder", "mine"]) == 2
            assert "is writing into" in capsys.readouterr().err
        held.check()  # it is still there
    finally:
        held.release()
