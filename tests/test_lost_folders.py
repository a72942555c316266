"""A folder that is removed, replaced or changed while a run writes into it ends the run, and is left as it is."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import jdfl
from jdfl.cli import main
from jdfl.engine.progress import Progress
from jdfl.engine.records import JOURNAL
from jdfl.engine.result import Snapshot
from jdfl.store import lease
from tests import toy
from tests.killing import differences
from tests.test_resume_command import RUN

OFTEN = ["--steps", "12", "--chunk", "2", "--checkpoint-every", "2"]


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """In an empty folder, without the cache."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JDFL_CACHE", "0")


def removed(folder: Path) -> None:
    folder.rename("gone")  # at once, while a checkpoint may be written
    shutil.rmtree("gone", ignore_errors=True)


def put_back(folder: Path) -> None:
    """To what it was two rounds before, as from a backup."""
    removed(folder)
    shutil.copytree("backup", folder, dirs_exist_ok=True)  # a checkpoint that was being written makes it again


def replaced(folder: Path) -> None:
    content = (folder / JOURNAL).read_bytes()
    (folder / JOURNAL).unlink()
    (folder / JOURNAL).write_bytes(content)


def taken_over(folder: Path) -> None:
    """As by another machine that took this process for dead."""
    (folder / lease.NAME).write_text('{"host": "elsewhere"}')


def files(folder: Path) -> dict[str, bytes]:
    """All files but the lease and checkpoints, of which one may be written and renamed just now."""
    return {path.name: path.read_bytes() for path in folder.glob("*") if path.is_file() and path.name != lease.NAME}


@pytest.mark.rotated(3)
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("change", [removed, put_back, replaced, taken_over])
def test_a_folder_that_is_not_the_runs_any_more_ends_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], change: Callable[[Path], None]
) -> None:
    folder, left = Path("mine/run"), dict[str, bytes]()

    def strike(_: Progress, now: Snapshot) -> None:
        if now.rounds == 2:
            shutil.copytree(folder, "backup", ignore=shutil.ignore_patterns(lease.NAME, "*tmp*"))
        if now.rounds == 4:
            change(folder)
            left.update(files(folder))

    with monkeypatch.context() as patch:
        patch.setattr(Progress, "__call__", strike)
        assert main([*RUN, *OFTEN, "--folder", str(folder)]) == 5
    shown = capsys.readouterr()
    assert "Nothing more is written there" in shown.err
    assert "Traceback" not in shown.err
    assert files(folder) == left
    if change in (put_back, replaced):  # it is whole, though not this run's: another process can go on
        (folder / lease.NAME).unlink(missing_ok=True)
        assert main(["resume", str(folder), "--quiet", *OFTEN[4:]]) == 0
        assert main([*RUN, *OFTEN, "--quiet", "--out", "whole"]) == 0
        (whole,) = Path("whole").iterdir()
        assert not differences(whole, folder)


@pytest.mark.filterwarnings("default")
def test_the_result_of_a_lost_folder_is_returned(tmp_path: Path) -> None:
    store = jdfl.Checkpoints("kept", every=2)

    def strike(now: jdfl.Snapshot) -> None:
        if now.rounds == 4:
            removed(tmp_path / "kept")

    with pytest.warns(UserWarning, match="kept"):
        found = toy.run(steps=20, callbacks=[strike, store], options=jdfl.Options(chunk=2))
    assert (found.ending, found.rounds) == ("interrupted", 4)
    assert "removed" in found.reason
    assert store.lost
