"""`jdfl resume`: a run that was killed, interrupted or out of time comes to what it would have come to."""

import functools
import os
import re
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import jdfl
from jdfl.cli import main
from jdfl.engine.progress import Progress
from jdfl.engine.records import JOURNAL, RECORDS, SNAPSHOTS
from jdfl.engine.result import Snapshot
from jdfl.lab.results import read_run
from jdfl.lab.views import Views
from jdfl.store import journal, manifest, snapshots
from jdfl.store.journal import Journal

TINY = ["--problem.m", "4", "--problem.n", "20", "--problem.s", "2", "--problem.rows", "5", "9"]
RUN = ["run", *TINY, "--stop", "none", "--algorithm", "d-psgd", "--algorithm.lr", "0.01"]
SHORT, LONG = ("--steps", "5", "--chunk", "2"), ("--steps", "9", "--chunk", "2")
OFTEN = ("--checkpoint-every", "2")
NOISE = ("--seed", "0", "--algorithm.clip", "1", "--algorithm.mechanism", "gaussian")
KNOWN = (*NOISE, "--algorithm.mechanism.multiplier", "3")
pytestmark = pytest.mark.usefixtures("undrawn")


@pytest.fixture(autouse=True)
def apart(monkeypatch, tmp_path):
    """In an empty folder, without the cache."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JDFL_CACHE", "0")


@pytest.fixture(scope="module")
def whole(undrawn, tmp_path_factory) -> Callable[..., Path]:
    """The folder of the run with some flags that nothing disturbed; it is not to be changed."""
    place = tmp_path_factory.mktemp("whole")

    @functools.cache
    def made(*flags: str) -> Path:
        folder = place / str(len(list(place.iterdir())))
        assert main([*RUN, "--quiet", *flags, "--folder", str(folder)]) == 0
        return folder

    return made


@pytest.fixture
def copy(whole) -> Callable[..., Path]:
    """A copy of it."""
    return lambda *flags: Path(shutil.copytree(whole(*flags), "mine"))


def check_same(one: Path, other: Path) -> None:
    """The same in everything but time and place."""
    pd.testing.assert_frame_equal(read_run(one).history, read_run(other).history, check_exact=True)
    np.testing.assert_array_equal(read_run(one).params, read_run(other).params)
    for name in ("metrics.csv", "config.yaml", "provenance.json", "nodes.csv", "links.csv", "split.csv"):
        assert (one / name).read_bytes() == (other / name).read_bytes(), name
    mine, others = (snapshots.read(folder / SNAPSHOTS) for folder in (one, other))
    assert (mine.number, list(mine.arrays)) == (others.number, list(others.arrays))
    for name, array in mine.arrays.items():
        np.testing.assert_array_equal(array, others.arrays[name])
    summaries = [read_run(folder).summary for folder in (one, other)]
    for summary in summaries:
        summary["seconds"] = summary["compile_seconds"] = None
    assert summaries[0] == summaries[1]


def ended(command: list[str], at: int, how: Callable[[], Any]) -> int:
    """The status of a command, the run of which something befalls after round `at`."""

    def told(_: Progress, snapshot: Snapshot) -> None:
        if snapshot.rounds == at:
            how()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Progress, "__call__", told)
        return main(command)


def fail(*_: object) -> None:
    """Ends a run with nothing to say."""
    raise MemoryError


def rewrite(folder: Path, change: Callable[[np.ndarray], np.ndarray]) -> None:
    """Write the journal of a run again, with other records [k]."""
    content = journal.read(folder / JOURNAL)
    (folder / JOURNAL).unlink()
    again = Journal.create(folder / JOURNAL, content.origin)
    for name, rows in content.tables.items():
        again.append(name, change(rows) if name == RECORDS else rows)
    again.sync()
    again.close()


def test_settings_that_somebody_has_changed_are_refused(copy, capsys):
    folder = copy(*SHORT)
    file = folder / "config.yaml"
    text = file.read_text()
    for other in ("", text.replace("0.01", "0.02"), text.partition("#")[0], text + "steps: 5\n"):
        file.write_text(other)
        for command in (["resume", str(folder), "--steps", "9"], ["verify", str(folder)], ["account", "--run", "mine"]):
            assert main(command) == 2, (command, other)
            assert "config.yaml" in capsys.readouterr().err


def test_a_run_that_is_done_goes_on_in_its_folder(whole, copy):
    folder = copy(*SHORT)
    files = {one.name for one in folder.iterdir()}
    assert main(["resume", str(folder), "--steps", "9", "--quiet"]) == 0
    check_same(folder, whole(*LONG))
    assert {one.name for one in folder.iterdir()} == files


def test_a_run_that_is_cut_off_leaves_what_it_needs_to_go_on(whole, monkeypatch):
    for at in (2, 6):
        with pytest.raises(MemoryError):
            ended([*RUN, *LONG, *OFTEN], at, fail)
        folders = list(Path("runs").iterdir())
        assert len(folders) == (at == 6)  # before there is a checkpoint, nothing is left
    (folder,) = folders
    assert {one.name for one in folder.iterdir()} == {"config.yaml", "environment.json", "events", JOURNAL, SNAPSHOTS}
    assert journal.read(folder / JOURNAL).rows(RECORDS)["round"].tolist() == list(range(7))
    with pytest.raises(FileNotFoundError, match=f"jdfl resume {folder}"):
        read_run(folder)
    with monkeypatch.context() as patch:
        patch.setattr(Views, "end", fail)
        with pytest.raises(MemoryError):  # and once more when it is done
            main(["resume", str(folder)])
    assert not (folder / "summary.json").exists()
    assert main(["resume", str(folder), "--quiet"]) == 0
    check_same(folder, whole(*LONG))


def test_signals_and_limits_of_time_end_a_run_and_keep_it(whole):
    for number, at, status, ending in (
        (signal.SIGINT, 4, 130, "interrupted"),
        (signal.SIGTERM, 4, 143, "terminated"),
        (signal.SIGINT, 9, 130, "steps"),
        (None, 9, 124, "time limit"),
    ):
        usual = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
        before = number and signal.signal(number, usual)  # which a shell, or nohup, may have taken from its jobs
        try:
            limit = [] if number else ["--max-seconds", "1e-6"]
            how = functools.partial(os.kill, os.getpid(), number or 0)
            assert ended([*RUN, *LONG, *limit, "--folder", f"{number}-{at}"], at, how) == status
        finally:
            if number:
                signal.signal(number, before)
        folder = Path(f"{number}-{at}")
        assert read_run(folder).summary["ending"] == ending
        if ending != "steps":
            assert main(["resume", str(folder), "--quiet"]) == 0
        check_same(folder, whole(*LONG))


def test_a_resumed_folder_is_never_removed(copy):
    folder, wrong = copy(*SHORT), (["--max-seconds", "-1"], ["--diverged-above", "-1"], ["--every", "0"])
    content = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    for flags in wrong:
        assert main(["resume", str(folder), "--steps", "9", *flags]) == 2
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == content
    shutil.rmtree(folder / SNAPSHOTS)
    assert main(["resume", str(folder), "--steps", "9"]) == 2
    assert read_run(folder).summary["rounds"] == 5
    (folder / "summary.json").unlink()  # as of a run that was killed before there was a checkpoint
    (folder / "notes.txt").write_text("mine")
    for flags in wrong:
        assert main(["resume", str(folder), "--steps", "9", *flags]) == 2
    assert (folder / "notes.txt").read_text() == "mine"
    assert (folder / "config.yaml").exists()


def test_a_run_without_a_checkpoint_starts_again_as_itself_alone(whole, copy, capsys):
    folder = copy(*LONG)
    shutil.rmtree(folder / SNAPSHOTS)
    (folder / manifest.NAME).unlink()
    config = (folder / "config.yaml").read_text()
    for flags in (["--seed", "5"], ["--algorithm.lr", "0.02"], ["--every", "2"]):
        assert main(["resume", str(folder), *flags]) == 2
        assert f" {flags[0].strip('-').partition('.')[0]}." in capsys.readouterr().err
        assert (folder / "config.yaml").read_text() == config
    assert main(["resume", str(folder), "--quiet"]) == 0
    check_same(folder, whole(*LONG))
    shutil.rmtree(folder)
    folder.mkdir()
    (folder / "config.yaml").write_text(config)
    assert main(["resume", str(folder), "--quiet"]) == 0
    check_same(folder, whole(*LONG))


def test_a_run_that_diverged_is_not_gone_on_with(capsys):
    assert main([*RUN, *SHORT, "--algorithm.lr", "1e30", "--folder", "mine"]) == 3
    assert main(["resume", "mine", "--steps", "900"]) == 2
    assert "diverged" in capsys.readouterr().err


def test_other_versions_are_refused_or_accepted(whole, copy, capsys, monkeypatch):
    folder, again = copy(*SHORT), ["resume", "mine", "--steps", "9"]
    with monkeypatch.context() as patch:
        patch.setattr(jdfl, "__version__", "9.9")
        assert main(again) == 2
        assert "is 9.9." in capsys.readouterr().err
        assert main([*again, "--any-version", "--algorithm.lr", "0.3"]) == 2
        assert "algorithm.lr" in capsys.readouterr().err
        assert read_run(folder).summary["rounds"] == 5
        assert main([*again, "--any-version", "--quiet"]) == 0
    kept = snapshots.read(folder / SNAPSHOTS).told["warnings"]
    assert any("made before by other code, with the same noise" in warning for warning in kept)
    pd.testing.assert_frame_equal(read_run(folder).history, read_run(whole(*LONG)).history, check_exact=True)


@pytest.mark.rotated(3)
@pytest.mark.parametrize("ending", ["terminated", "killed", "at once"])
def test_the_same_command_given_again_goes_on_and_then_does_nothing(whole, monkeypatch, capsys, ending):
    """As a queue does that starts a job again."""
    noise = (*NOISE, "--privacy.epsilon", "8") if ending == "at once" else KNOWN
    args = [*RUN, *LONG, *noise, *OFTEN, "--quiet", "--folder", "queue/mine"]

    def told(_: Views, snapshot: Snapshot) -> None:
        if snapshot.rounds == 4 and ending == "terminated":
            os.kill(os.getpid(), signal.SIGTERM)
        elif snapshot.rounds == 4:
            raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(Views, *(("begin", fail) if ending == "at once" else ("__call__", told)))
        if ending == "terminated":
            assert main(args) == 143
        else:
            with pytest.raises(MemoryError):
                main(args)
    assert main(args) == 0
    (before,) = Path("queue").iterdir()
    check_same(before, whole(*LONG, *noise))
    kept = (before / manifest.NAME).read_bytes()
    capsys.readouterr()
    assert main(args) == 0
    assert "all 9 rounds are done" in capsys.readouterr().out
    assert (before / manifest.NAME).read_bytes() == kept
    for other in ("seed", "steps"):
        assert main([*args, f"--{other}", "3"]) == 2
        assert re.search(rf"got other ones of [a-z, ]*{other}\.", capsys.readouterr().err)
    assert main([*args, "--repeats", "2"]) == 2
    Path("other").mkdir()
    Path("other/letter.txt").touch()
    assert main([*args[:-1], "other"]) == 2
    assert "letter.txt" in capsys.readouterr().err


@pytest.mark.filterwarnings("default")
def test_a_checkpoint_that_cannot_be_written_does_not_end_a_run(monkeypatch, capsys):
    write, calls = snapshots.Writer.write, []

    def full(self, number, arrays, told):
        calls.append(number)
        if len(calls) <= 2:
            raise OSError("Could not write a checkpoint: no space left")
        write(self, number, arrays, told)

    monkeypatch.setattr(snapshots.Writer, "write", full)
    assert main([*RUN, *LONG, *OFTEN, "--quiet", "--folder", "mine"]) == 0
    assert "no space left; the run goes on" in capsys.readouterr().err
    assert calls == [2, 4, 6, 8, 9]
    assert snapshots.newest(Path("mine", SNAPSHOTS)) == 9


def test_a_run_that_was_cut_off_is_not_said_to_have_released_less(whole, copy, capsys):
    folder = copy(*SHORT, *KNOWN)
    (folder / manifest.NAME).unlink()  # as of a run to 9 rounds that was killed after 7
    (folder / "summary.json").unlink()
    settings = (folder / "config.yaml").read_text().partition("#")[0]
    (folder / "config.yaml").write_text(manifest.signed(settings.replace("steps: 5", "steps: 9")))
    content = journal.read(folder / JOURNAL)
    later = content.rows(RECORDS)[[-1, -1]]
    later["round"] = 6, 7
    more = Journal.resume(folder / JOURNAL, content.end)
    more.append(RECORDS, later)
    more.sync()
    more.close()
    assert main(["account", "--run", str(folder)]) == 2
    assert f"not counted. First: jdfl resume {folder}" in capsys.readouterr().err
    for flags, word in (
        (["--steps", "5"], "at least the 7 rounds"),
        (["--stop", "consensus", "--stop.tolerance", "1e9"], "Expected stop as in "),
        (["--privacy.epsilon", "2"], "Expected privacy.epsilon as in "),
        (["--diverged-above", "1e-9"], "Expected diverged_above as in "),
    ):
        assert main(["resume", str(folder), *flags]) == 2
        assert word in capsys.readouterr().err
    assert main(["resume", str(folder), "--quiet"]) == 0
    check_same(folder, whole(*LONG, *KNOWN))
    assert main(["account", "--run", str(folder)]) == 0


def test_records_are_neither_lost_nor_left_out_by_another_every(copy, capsys):
    folder = copy(*LONG, "--every", "5")
    for every in ("2", "10", "1"):
        assert main(["resume", str(folder), "--steps", "20", "--every", every]) == 2
        assert f"rounds 0, 5, 9, got every = {every}." in capsys.readouterr().err


def test_a_run_is_made_again_and_compared(copy, capsys):
    folder = copy(*LONG, "--every", "2")
    verify = ["verify", str(folder)]

    def nudge(rows: np.ndarray) -> np.ndarray:
        rows = rows.copy()
        rows["objective"][rows["round"] == 4] *= 1 + 1e-15
        return rows

    capsys.readouterr()
    for flags, status, words in (
        (["--rounds", "5"], 0, "\nthe same: 5 rounds, "),
        ([], 0, "\nthe same: 9 rounds, "),
        (["--steps", "4"], 1, "NOT the same: it had 9 rounds, now it ends after 4"),
        (["--every", "3"], 1, "NOT the same: of round 2 there was a record, now there is none"),
        (["--algorithm.lr", "0.02"], 1, "changed: algorithm.lr: was 0.01, is 0.02"),
    ):
        assert main([*verify, *flags]) == status
        assert words in capsys.readouterr().out
    assert main([*verify, "--rounds", "0"]) == main(["verify", "--rounds", "1"]) == 2
    for change, words in (
        (nudge, "NOT the same: objective after round 4 was"),
        (lambda rows: rows[rows["round"] != 4], "NOT the same: of round 4 there was no record, now there is one"),
    ):
        rewrite(folder, change)
        assert main(verify) == 1
        assert words in capsys.readouterr().out
    for content in (b"", b"{}\n", b"what"):
        (folder / JOURNAL).write_bytes(content)
        assert main(verify) == 2
