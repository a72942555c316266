"""`jdfl resume`: a run that was killed, interrupted or out of time comes to what it would have come to."""

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

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
OFTEN = ["--checkpoint-every", "2", "--chunk", "2"]


@pytest.fixture(autouse=True)
def apart(monkeypatch, tmp_path):
    """In an empty folder, without the cache."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JDFL_CACHE", "0")


def run(*flags: str, status: int = 0) -> Path:
    """The folder of a new run."""
    before = set(Path("runs").glob("*"))
    assert main([*RUN, "--quiet", *flags]) == status
    (folder,) = set(Path("runs").glob("*")) - before
    return folder


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


def killed(*_: object, **__: object) -> None:
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


def test_settings_that_somebody_has_changed_are_refused(capsys):
    folder = run("--steps", "3")
    file = folder / "config.yaml"
    text = file.read_text()
    for other in ("", text.replace("0.01", "0.02"), text.partition("#")[0], text + "steps: 5\n"):
        file.write_text(other)
        for command in (
            ["resume", str(folder), "--steps", "5"],
            ["verify", str(folder)],
            ["account", "--run", str(folder)],
        ):
            assert main(command) == 2, (command, other)
            assert "config.yaml as it was written, got another content" in capsys.readouterr().err
    file.write_text(text)
    assert main(["resume", str(folder), "--steps", "5", "--quiet"]) == 0


def test_a_run_that_is_done_goes_on_in_its_folder():
    folder = run("--steps", "5")
    files = {one.name for one in folder.iterdir()}
    assert main(["resume", str(folder), "--steps", "9", "--quiet"]) == 0
    check_same(folder, run("--steps", "9"))
    assert {one.name for one in folder.iterdir()} == files


@pytest.mark.parametrize("at", [2, 6])
def test_a_run_that_is_cut_off_leaves_what_it_needs_to_go_on(monkeypatch, at):
    def fail(_: Progress, snapshot: Snapshot) -> None:
        if snapshot.rounds == at:
            raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(Progress, "__call__", fail)
        with pytest.raises(MemoryError):
            main([*RUN, "--steps", "9", *OFTEN])
    if at == 2:  # before there is a checkpoint, nothing is left
        assert not list(Path("runs").iterdir())
        return
    (folder,) = Path("runs").iterdir()
    assert {one.name for one in folder.iterdir()} == {"config.yaml", "environment.json", "events", JOURNAL, SNAPSHOTS}
    assert journal.read(folder / JOURNAL).rows(RECORDS)["round"].tolist() == list(range(7))
    with pytest.raises(FileNotFoundError, match=rf"cut off\. Resume it: jdfl resume {folder}"):
        read_run(folder)
    assert main(["resume", str(folder), "--quiet"]) == 0
    check_same(folder, run("--steps", "9", "--chunk", "2"))


@pytest.mark.rotated(2)
@pytest.mark.parametrize("rule", [[], ["--stop", "consensus", "--stop.tolerance", "1e9"]], ids=["steps", "stop rule"])
def test_a_run_that_is_killed_when_it_is_done_is_written(monkeypatch, rule):
    steps = ["--steps", "9", *rule]
    with monkeypatch.context() as patch:
        patch.setattr(Views, "end", killed)
        with pytest.raises(MemoryError):
            main([*RUN, *steps])
    (folder,) = Path("runs").iterdir()
    assert not (folder / "summary.json").exists()
    assert main(["resume", str(folder), "--quiet"]) == 0
    check_same(folder, run(*steps))


@pytest.mark.parametrize("flags", [["--max-seconds", "-1"], ["--diverged-above", "-1"], ["--every", "0"]], ids=str)
def test_a_resumed_folder_is_never_removed(flags, capsys):
    folder = run("--steps", "5")
    whole = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert main(["resume", str(folder), "--steps", "9", *flags]) == 2
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == whole
    shutil.rmtree(folder / SNAPSHOTS)
    assert main(["resume", str(folder), "--steps", "9"]) == 2
    assert "checkpoints of the finished run" in capsys.readouterr().err
    assert read_run(folder).summary["rounds"] == 5
    (folder / "summary.json").unlink()  # as of a run that was killed before there was a checkpoint
    (folder / "notes.txt").write_text("mine")
    assert main(["resume", str(folder), "--steps", "9", *flags]) == 2
    assert (folder / "notes.txt").read_text() == "mine"
    assert (folder / "config.yaml").exists()


@pytest.mark.slow
def test_a_run_that_is_killed_when_it_is_done_goes_on_as_far_as_asked(monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(Views, "end", killed)
        with pytest.raises(MemoryError):
            main([*RUN, "--steps", "5"])
    (folder,) = Path("runs").iterdir()
    assert main(["resume", str(folder), "--steps", "9", "--quiet"]) == 0
    check_same(folder, run("--steps", "9"))


@pytest.mark.slow
def test_a_run_without_a_checkpoint_starts_again():
    folder, whole = run("--steps", "9"), run("--steps", "9")
    config = (folder / "config.yaml").read_text()
    shutil.rmtree(folder)
    folder.mkdir()
    (folder / "config.yaml").write_text(config)
    assert main(["resume", str(folder), "--quiet"]) == 0
    check_same(folder, whole)


@pytest.mark.slow
def test_a_run_out_of_time_says_so_and_goes_on(capsys):
    folder = run("--steps", "9", "--max-seconds", "1e-6", "--chunk", "2", status=124)
    assert "no time is left for another round after round 2" in capsys.readouterr().err
    assert read_run(folder).summary["ending"] == "time limit"
    assert main(["resume", str(folder), "--quiet"]) == 0
    check_same(folder, run("--steps", "9", "--chunk", "2"))
    assert main([*RUN, "--max-seconds", "0"]) == 2
    assert "max_seconds = 0" in capsys.readouterr().err


def test_a_run_that_diverged_is_not_gone_on_with(capsys):
    folder = run("--algorithm.lr", "1e12", status=3)
    assert main(["resume", str(folder), "--steps", "900"]) == 2
    assert "which diverged: " in capsys.readouterr().err


@pytest.mark.slow
def test_other_versions_are_refused_or_accepted(capsys, monkeypatch):
    folder, whole, version = run("--steps", "5"), run("--steps", "9"), jdfl.__version__
    with monkeypatch.context() as patch:
        patch.setattr(jdfl, "__version__", "9.9")
        assert main(["resume", str(folder), "--steps", "9"]) == 2
        assert f"jdfl: was {version}, is 9.9. Install those, or" in capsys.readouterr().err
        assert read_run(folder).summary["rounds"] == 5
        assert main(["resume", str(folder), "--steps", "9", "--any-version", "--algorithm.lr", "0.3"]) == 2
        assert "the settings of the run that is resumed. algorithm.lr: was" in capsys.readouterr().err
        assert main(["resume", str(folder), "--steps", "9", "--any-version", "--quiet"]) == 0
    kept = snapshots.read(folder / SNAPSHOTS).told["warnings"]
    assert any("made before by other code, with the same noise" in warning for warning in kept)
    pd.testing.assert_frame_equal(read_run(folder).history, read_run(whole).history, check_exact=True)


@pytest.mark.rotated(2)
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 143)])
def test_signals_end_a_run_and_keep_it(monkeypatch, number, status):
    def told(_: Progress, snapshot: Snapshot) -> None:
        if snapshot.rounds == 4:
            os.kill(os.getpid(), number)

    usual = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
    before = signal.signal(number, usual)  # which a shell, or nohup, may have taken from its jobs
    try:
        with monkeypatch.context() as patch:
            patch.setattr(Progress, "__call__", told)
            assert main([*RUN, "--steps", "9", "--chunk", "2"]) == status
    finally:
        signal.signal(number, before)
    (folder,) = Path("runs").iterdir()
    assert read_run(folder).summary["rounds"] == 4
    assert main(["resume", str(folder), "--quiet"]) == 0
    check_same(folder, run("--steps", "9", "--chunk", "2"))


def test_ctrl_c_in_the_last_chunk_keeps_the_whole_run(monkeypatch):
    def told(_: Progress, snapshot: Snapshot) -> None:
        if snapshot.rounds == 9:
            os.kill(os.getpid(), signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with monkeypatch.context() as patch:
            patch.setattr(Progress, "__call__", told)
            assert main([*RUN, "--steps", "9", "--chunk", "4"]) == 130
    finally:
        signal.signal(signal.SIGINT, before)
    (folder,) = Path("runs").iterdir()
    assert read_run(folder).summary["ending"] == "steps"
    assert main(["verify", str(folder), "--rounds", "2"]) == 0


@pytest.mark.parametrize("ending", ["terminated", "killed", "at once"])
def test_the_same_command_given_again_goes_on_and_then_does_nothing(monkeypatch, capsys, ending):
    """As a queue does that starts a job again."""
    noise = ["--algorithm.clip", "1", "--algorithm.mechanism", "gaussian", "--privacy.epsilon", "8", "--seed", "0"]
    args = [*RUN, *noise, "--steps", "9", *OFTEN, "--quiet", "--folder", "queue/mine"]

    def told(_: Views, snapshot: Snapshot) -> None:
        if snapshot.rounds == 4 and ending == "terminated":
            os.kill(os.getpid(), signal.SIGTERM)
        elif snapshot.rounds == 4:
            raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(Views, "begin" if ending == "at once" else "__call__", killed if ending == "at once" else told)
        if ending == "terminated":
            assert main(args) == 143
        else:
            with pytest.raises(MemoryError):
                main(args)
    assert main(args) == 0
    (before,) = Path("queue").iterdir()
    check_same(before, run(*noise, "--steps", "9", "--chunk", "2"))
    kept = (before / manifest.NAME).read_bytes()
    capsys.readouterr()
    assert main(args) == 0
    assert "mine has ended: all 9 rounds are done" in capsys.readouterr().out
    assert (before / manifest.NAME).read_bytes() == kept
    for other, name in (("--seed", "seed"), ("--steps", "steps")):
        assert main([*args, other, "3"]) == 2
        assert re.search(rf"got other ones of [a-z, ]*{name}\.", capsys.readouterr().err)
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
    folder = run("--steps", "9", *OFTEN)
    assert "no space left; the run goes on, and tries again" in capsys.readouterr().err
    assert calls == [2, 4, 6, 8, 9]
    assert snapshots.newest(folder / SNAPSHOTS) == 9


FULL = """
import resource, signal, sys
from jdfl.cli import main
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), resource.RLIM_INFINITY))  # the room of a file
sys.exit(main(sys.argv[2:]))
"""


def test_a_run_that_was_cut_off_is_not_said_to_have_released_less(capsys):
    noise = [
        "--algorithm.clip",
        "1",
        "--algorithm.mechanism",
        "gaussian",
        "--algorithm.mechanism.multiplier",
        "3",
        "--seed",
        "0",
    ]
    folder = run("--steps", "4", *noise)
    (folder / manifest.NAME).unlink()  # as of a run to 9 rounds that was killed after 6
    (folder / "summary.json").unlink()
    file = folder / "config.yaml"
    settings = file.read_text().partition("#")[0]
    file.write_text(manifest.signed(settings.replace("steps: 4", "steps: 9")))
    content = journal.read(folder / JOURNAL)
    later = content.rows(RECORDS)[[-1, -1]]
    later["round"] = 5, 6
    more = Journal.resume(folder / JOURNAL, content.end)
    more.append(RECORDS, later)
    more.sync()
    more.close()
    capsys.readouterr()
    assert main(["account", "--run", str(folder)]) == 2
    assert f"was cut off: what it released after its last checkpoint is not counted. First: jdfl resume {folder}" in (
        capsys.readouterr().err
    )
    assert main(["resume", str(folder), "--steps", "5"]) == 2
    assert "at least the 6 rounds that are recorded" in capsys.readouterr().err
    for flags, name in (
        (["--stop", "consensus", "--stop.tolerance", "1e9"], "stop"),
        (["--privacy.epsilon", "2"], "privacy.epsilon"),
        (["--diverged-above", "1e-9"], "diverged_above"),
    ):
        assert main(["resume", str(folder), *flags]) == 2
        assert f"Expected {name} as in " in capsys.readouterr().err
    assert main(["resume", str(folder), "--quiet"]) == 0
    check_same(folder, run("--steps", "9", *noise))
    assert main(["account", "--run", str(folder)]) == 0


def with_room(room: int, args: list[str]) -> subprocess.CompletedProcess[str]:
    """A command where no file can have more bytes than `room`."""
    command, alike = [sys.executable, "-c", FULL, str(room), *args], {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
    return subprocess.run(
        command, capture_output=True, text=True, timeout=240, check=False, env={**os.environ, **alike}
    )


@pytest.mark.slow
@pytest.mark.parametrize(("room", "what"), [(1_000, "the journal"), (3_000, "a checkpoint into"), (20_000, "")])
def test_a_full_disk_ends_in_words_and_the_run_goes_on_later(room, what):
    args = [*RUN, "--steps", "30", "--checkpoint-every", "5", "--chunk", "5"]
    done = with_room(room, args)
    assert done.returncode == 5, done.stderr
    lines = done.stderr.splitlines()
    if what:
        assert any(f"Could not write {what}" in line and "the run goes on" in line for line in lines), lines
    assert "jdfl: error: Could not write the results" in lines[-1]
    assert "Traceback" not in done.stderr
    (folder,) = Path("runs").iterdir()
    assert not (folder / manifest.NAME).exists()
    assert f"jdfl resume {folder}" in lines[-1]
    assert main(["resume", str(folder), "--quiet"]) == 0
    check_same(folder, run(*args[len(RUN) :]))


@pytest.mark.slow
def test_a_run_without_a_checkpoint_goes_on_as_itself_alone(capsys):
    folder = run("--steps", "6")
    shutil.rmtree(folder / SNAPSHOTS)
    (folder / manifest.NAME).unlink()
    before = (folder / "config.yaml").read_bytes()
    for flags, name in (
        (["--seed", "5"], "seed"),
        (["--algorithm.lr", "0.02"], "algorithm"),
        (["--every", "2"], "every"),
    ):
        assert main(["resume", str(folder), *flags]) == 2
        assert f"got other ones of {name}." in capsys.readouterr().err
        assert (folder / "config.yaml").read_bytes() == before
    assert main(["resume", str(folder), "--steps", "8", "--quiet"]) == 0
    check_same(folder, run("--steps", "8"))


def test_records_are_neither_lost_nor_left_out_by_another_every(capsys):
    folder = run("--steps", "12", "--every", "5")
    before = (folder / "metrics.csv").read_bytes()
    for every in ("2", "10", "1"):
        assert main(["resume", str(folder), "--steps", "20", "--every", every]) == 2
        assert f"rounds 0, 5, 10, 12, got every = {every}." in capsys.readouterr().err
        assert (folder / "metrics.csv").read_bytes() == before


# ---------------------------------------------------------------- made again


@pytest.mark.slow
def test_a_run_is_made_again_and_compared(capsys):
    folder = run("--steps", "9", "--every", "2")
    capsys.readouterr()
    assert main(["verify", str(folder), "--rounds", "5"]) == 0
    assert "\nthe same: 5 rounds, " in capsys.readouterr().out
    assert main(["verify", str(folder)]) == 0
    assert "\nthe same: 9 rounds, " in capsys.readouterr().out

    def nudge(rows: np.ndarray) -> np.ndarray:
        rows = rows.copy()
        rows["objective"][rows["round"] == 4] *= 1 + 1e-15
        return rows

    rewrite(folder, nudge)
    assert main(["verify", str(folder)]) == 1
    assert "NOT the same: objective after round 4 was" in capsys.readouterr().out

    assert main(["verify", str(folder), "--algorithm.lr", "0.02"]) == 1
    shown = capsys.readouterr().out
    assert "changed: algorithm.lr: was 0.01, is 0.02" in shown
    assert main(["verify", str(folder), "--rounds", "0"]) == 2
    assert main(["verify", "--rounds", "1"]) == 2
    assert main(["verify", str(folder / SNAPSHOTS)]) == 2
    for content in (b"", b"{}\n", b"what"):
        (folder / JOURNAL).write_bytes(content)
        assert main(["verify", str(folder)]) == 2


def test_what_is_not_made_again_is_not_called_the_same(capsys):
    folder = run("--steps", "9", "--every", "2")
    for flags, words in (
        (["--steps", "4"], "it had 9 rounds, now it ends after 4"),
        (["--stop", "objective", "--stop.value", "100"], "it had 9 rounds, now it ends after"),
        (["--every", "3"], "of round 2 there was a record, now there is none"),
    ):
        capsys.readouterr()
        assert main(["verify", str(folder), *flags]) == 1
        assert f"NOT the same: {words}" in capsys.readouterr().out

    rewrite(folder, lambda rows: rows[rows["round"] != 4])
    assert main(["verify", str(folder)]) == 1
    assert "NOT the same: of round 4 there was no record, now there is one" in capsys.readouterr().out
