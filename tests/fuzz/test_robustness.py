"""A few attacks of `python -m tests.robustness`, and what such attacks have found, each by itself."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from jdfl.cli import main
from jdfl.store import manifest
from tests.robustness.__main__ import attacked
from tests.test_killed_runs import DPSGD, GAUSSIAN, NONE, TINY

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("undrawn")]


SLOW = (("folders", 25), ("calls", 150), ("inputs", 300))


@pytest.mark.parametrize(
    ("part", "count"), [("inputs", 25), *(pytest.param(*one, marks=pytest.mark.slow) for one in SLOW)]
)
def test_nothing_bad_comes_of_some_attacks(part, count):
    """Of inputs, some are whole runs of odd settings."""
    tally, _ = attacked(part, 0, range(count), few=True)
    assert tally.bad == []
    assert tally.counts.total() == count
    assert len(tally.counts) > 1


@pytest.fixture(scope="module")
def made(undrawn, tmp_path_factory) -> Path:
    """A folder with two runs that are finished."""
    base = tmp_path_factory.mktemp("made")
    run = ["run", *TINY, *DPSGD, *GAUSSIAN, *NONE, "--steps", "4", "--quiet", "--folder"]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(base)
        for args in ([*run, "run0"], [*run, "run1", "--seed", "1"]):
            assert main(args) == 0
    return base


@pytest.fixture
def copied(made, tmp_path) -> Callable[..., Path]:
    """A function that copies one of these folders, without some files."""

    def copy(name: str, *without: str) -> Path:
        folder = Path(shutil.copytree(made / name, tmp_path / name))
        for file in without:
            (folder / file).unlink()
        return folder

    return copy


CUT = (manifest.NAME, "summary.json")  # which a run that was cut off has not written yet


def test_a_journal_that_is_damaged_after_the_last_checkpoint_is_not_taken_for_whole(made, copied, capsys):
    folder = copied("run0", *CUT)
    whole = (folder / "journal").read_bytes()
    for damaged in (whole + b"\0" * 40, whole[:-1]):
        (folder / "journal").write_bytes(damaged)
        assert main(["resume", str(folder), "--quiet"]) == 2
    assert "Remove " in capsys.readouterr().err
    (folder / "checkpoints" / "4.npz").unlink()
    assert main(["resume", str(folder), "--quiet"]) == 0
    assert (folder / "journal").read_bytes() == (made / "run0" / "journal").read_bytes()


def test_a_page_is_not_made_of_changed_tables_or_settings(made, copied, capsys):
    folder = copied("run0")
    for name in ("nodes.csv", "releases.csv", "config.yaml", "summary.json"):
        content = (folder / name).read_text()
        (folder / name).write_text(content.replace("1", "2", 1))
        assert main(["report", str(folder)]) == 2
        assert name in capsys.readouterr().err
        (folder / name).write_text(content)
    assert main(["report", str(folder)]) == 0
    for name in CUT:
        (folder / name).unlink()
    (folder / "nodes.csv").write_text("round,node,shared\n4,0,123456\n")
    assert main(["report", str(folder)]) == 0
    page = (folder / "report.html").read_text()
    assert "123456" not in page  # it is made of the journal
    assert "cut off" in page
    config = (folder / "config.yaml").read_text()
    (folder / "config.yaml").write_text(f"{config}\n")
    assert main(["report", str(folder)]) == 2
    assert "config.yaml as it was written" in capsys.readouterr().err
    (folder / "config.yaml").write_text(config)
    whole = (folder / "journal").read_bytes()
    (folder / "journal").write_bytes(whole[: whole.index(b"\n") + 1])
    assert main(["report", str(folder)]) == 2
    assert "found none yet" in capsys.readouterr().err
    (folder / "journal").write_bytes(whole)
    assert main(["export", str(folder)]) == 0
    assert "has not ended: these are its records so far" in capsys.readouterr().err
    shutil.copyfile(made / "run1" / "journal", folder / "journal")  # of another run
    for command in ("report", "export"):
        assert main([command, str(folder)]) == 2
    assert "journal" in capsys.readouterr().err
