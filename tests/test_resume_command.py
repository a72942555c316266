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
import pytest

import jdfl
from jdfl.cli import main
from jdfl.cli.running import Views
from jdfl.engine.progress import Progress
from jdfl.engine.result import Snapshot
from jdfl.results.checkpoints import JOURNAL, SNAPSHOTS
from jdfl.results.folder import read_run
from jdfl.store import manifest, snapshots

TINY = ["--problem.m", "4", "--problem.n", "20", "--problem.s", "2", "--problem.rows", "5", "9"]
RUN = ["run", *TINY, "--stop", "none", "--algorithm", "d-psgd", "--algorithm.lr", "0.01"]
SHORT, LONG = ("--steps", "5", "--chunk", "2"), ("--steps", "9", "--chunk", "2")
OFTEN = ("--checkpoint-every", "2")
NOISE = ("--seed", "0", "--algorithm.clip", "1", "--algorithm.mechanism", "gaussian")
KNOWN = (*NOISE, "--algorithm.mechanism.multiplier", "3")
pytestmark = pytest.mark.usefixtures("undrawn")


@pytest.fixture(autouse=True)
def apart(monkeypatch, tmp_path):
    """In an empty folder."""
    monkeypatch.chdir(tmp_path)


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
        patch.setattr(Progress, "on_chunk", told)
        return main(command)


def fail(*_: object) -> None:
    """Ends a run with nothing to say."""
    raise MemoryError


def test_settings_that_somebody_has_changed_are_refused(copy, capsys):
    folder = copy(*SHORT)
    file = folder / "config.yaml"
    text = file.read_text()
    changed, cut = text.replace("0.01", "0.02"), text.partition("#")[0]
    resume, verify, account = ["resume", "mine", "--steps", "9"], ["verify", "mine"], ["account", "--run", "mine"]
    for other, command in ((changed, resume), (changed, verify), (changed, account), (cut, resume)):
        file.write_text(other)
        assert main(command) == 2, (command, other)
        assert "config.yaml" in capsys.readouterr().err


def test_a_run_that_is_done_goes_on_in_its_folder(whole, copy):
    folder = copy(*SHORT)
    assert main(["resume", str(folder), "--steps", "9", "--quiet"]) == 0
    check_same(folder, whole(*LONG))


@pytest.mark.parametrize(
    ("number", "at", "status", "ending"), [(signal.SIGTERM, 4, 143, "terminated"), (signal.SIGINT, 9, 130, "steps")]
)
def test_signals_end_a_run_and_keep_it(whole, number, at, status, ending):
    usual = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
    before = signal.signal(number, usual)  # which a shell, or nohup, may have taken from its jobs
    try:
        assert ended([*RUN, *LONG, "--folder", "mine"], at, lambda: os.kill(os.getpid(), number)) == status
    finally:
        signal.signal(number, before)
    assert read_run("mine").summary["ending"] == ending
    assert ending == "steps" or main(["resume", "mine", "--quiet"]) == 0
    check_same(Path("mine"), whole(*LONG))


def test_a_limit_of_time_ends_a_run_and_keeps_it():
    assert main([*RUN, *LONG, "--quiet", "--max-seconds", "1e-6", "--folder", "mine"]) == 124
    summary = read_run("mine").summary
    assert (summary["ending"], summary["rounds"]) == ("time limit", 2)


def test_a_resumed_folder_is_never_removed(copy):
    folder, again = copy(*SHORT), ["resume", "mine", "--steps", "9"]
    content = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert main([*again, "--max-seconds", "-1"]) == main([*again, "--every", "0"]) == 2
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == content
    shutil.rmtree(folder / SNAPSHOTS)
    assert main(again) == 2
    assert read_run(folder).summary["rounds"] == 5
    (folder / "summary.json").unlink()  # as of a run that was killed before there was a checkpoint
    assert main([*again, "--max-seconds", "-1"]) == 2
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
    shutil.rmtree(folder)
    folder.mkdir()
    (folder / "config.yaml").write_text(config)
    assert main(["resume", str(folder), "--quiet"]) == 0
    check_same(folder, whole(*LONG))


def test_other_versions_are_refused_or_accepted(copy, capsys, monkeypatch):
    folder = copy(*SHORT)
    monkeypatch.setattr(jdfl, "__version__", "9.9")
    assert main(["resume", "mine", "--steps", "9"]) == 2
    assert "is 9.9." in capsys.readouterr().err
    assert main(["resume", "mine", "--steps", "9", "--any-version", "--quiet"]) == 0
    assert "made before by other code" in str(snapshots.read(folder / SNAPSHOTS).plain["warnings"])


@pytest.mark.rotated(2)
@pytest.mark.parametrize("at", [0, 4])
def test_the_same_command_given_again_goes_on_and_then_does_nothing(whole, monkeypatch, capsys, at):
    """As a queue does that starts a job again; at 0 noise was only calibrated when it was killed."""
    noise = KNOWN if at else (*NOISE, "--privacy.epsilon", "8")
    args = [*RUN, *LONG, *noise, *OFTEN, "--quiet", "--folder", "queue/mine"]

    def killed(_: Views, now: Any) -> None:
        if not at or now.rounds == at:
            raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(Views, "on_chunk" if at else "on_start", killed)
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
    assert main([*args, "--steps", "3"]) == 2
    assert re.search(r"got other ones of [a-z, ]*steps\.", capsys.readouterr().err)
    Path("other").mkdir()
    Path("other/letter.txt").touch()
    assert main([*args[:-1], "other"]) == 2
    assert "letter.txt" in capsys.readouterr().err


@pytest.mark.filterwarnings("default")
def test_a_checkpoint_that_cannot_be_written_does_not_end_a_run(monkeypatch, capsys):
    write, calls = snapshots.write, []

    def full(folder, number, arrays, plain):
        calls.append(number)
        if len(calls) <= 2:
            raise OSError("Could not write a checkpoint: no space left")
        write(folder, number, arrays, plain)

    monkeypatch.setattr(snapshots, "write", full)
    assert main([*RUN, *LONG, *OFTEN, "--quiet", "--folder", "mine"]) == 0
    assert "no space left; the run goes on" in capsys.readouterr().err
    assert snapshots.newest(Path("mine", SNAPSHOTS)) == 9


def test_a_run_that_was_cut_off_is_not_said_to_have_released_less(whole, capsys):
    folder = Path("mine")
    with pytest.raises(MemoryError):
        ended([*RUN, *LONG, *KNOWN, *OFTEN, "--folder", "mine"], 6, fail)
    assert main(["account", "--run", "mine"]) == 2
    assert "not counted. First: jdfl resume mine" in capsys.readouterr().err
    for flags, word in (
        (["--steps", "5"], "at least the 6 rounds"),
        (["--stop", "consensus", "--stop.tolerance", "1e9"], "Expected stop as in "),
        (["--privacy.epsilon", "2"], "Expected privacy.epsilon as in "),
    ):
        assert main(["resume", str(folder), *flags]) == 2
        assert word in capsys.readouterr().err
    assert main(["resume", str(folder), "--quiet"]) == 0
    check_same(folder, whole(*LONG, *KNOWN))
    assert main(["account", "--run", str(folder)]) == 0


def test_a_run_is_made_again_and_compared_and_records_are_not_left_out_by_another_every(copy, capsys):
    folder = copy(*LONG, "--every", "2")
    verify = ["verify", str(folder)]
    capsys.readouterr()
    for flags, status, words in (
        (["--rounds", "5"], 0, "\nthe same: 5 rounds, "),
        (["--steps", "4"], 1, "NOT the same: it had 9 rounds, now it ends after 4"),
        (["--metrics", "objective"], 1, ", now objective, messages, "),
        (["--every", "3"], 1, "NOT the same: of round 2 there was a record, now there is none"),
        (["--algorithm.lr", "0.02"], 1, "changed: algorithm.lr: was 0.01, is 0.02"),
    ):
        assert main([*verify, *flags]) == status
        assert words in capsys.readouterr().out
    assert main(["resume", str(folder), "--steps", "20", "--every", "3"]) == 2
    assert "rounds 0, 2, 4, 6, ..., got every = 3." in capsys.readouterr().err
    for text in ("what", "[]", "{}"):
        (folder / "provenance.json").write_text(text)
        assert main([*verify, "--rounds", "1"]) == 2
        assert "NOT the same: provenance.json" in capsys.readouterr().out
    (folder / JOURNAL).write_bytes(b"what")
    assert main(verify) == 2
