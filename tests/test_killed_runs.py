"""Runs that are killed and resumed leave the folder of an undisturbed run; one that loses its folder ends."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest

import jdfl
from jdfl.cli import main
from jdfl.cli.running import Views
from jdfl.engine.progress import Progress
from jdfl.engine.result import Result, Snapshot
from jdfl.results.checkpoints import JOURNAL, SNAPSHOTS
from jdfl.results.folder import read_run
from jdfl.store import lease
from tests import toy
from tests.counting import note
from tests.killing import differences

TINY = ["--seed", "0", "--problem.m", "6", "--problem.n", "20", "--problem.s", "2", "--problem.rows", "5", "9"]
DPSGD = ["--algorithm", "d-psgd", "--algorithm.lr", "0.01"]
GAUSSIAN = ["--algorithm.mechanism", "gaussian", "--algorithm.mechanism.multiplier", "5", "--algorithm.clip", "1"]
CEPS = ["--algorithm", "ceps", "--algorithm.clip", "5", "--algorithm.sigma", "0.4"]
CEPS += ["--algorithm.mechanism", "gaussian", "--algorithm.mechanism.multiplier", "3"]
PARTPSP = ["--algorithm", "partpsp", "--algorithm.clip", "1", "--algorithm.dpps.b", "100", "--network", "exponential"]
NONE = ["--stop", "none"]
AGP = ["--algorithm", "agp", "--algorithm.lr", "0.001", "--network", "timed", "--network.latency", "exponential"]
OUTAGES = ["--network.down", "0.1", "--network.up", "0.5"]
RUNS = {
    "gradients": [*DPSGD, *GAUSSIAN, *NONE],
    "ceps": [*CEPS, *NONE],
    "budget": [*DPSGD, *GAUSSIAN, *NONE, "--privacy.epsilon", "3"],
    "partpsp": [*PARTPSP, *NONE],
    "partpsp stop rule": [*PARTPSP, "--problem.public", "stop", "--stop", "objective", "--stop.value", "0.4"],
    "delays": [*DPSGD, *GAUSSIAN, *NONE, "--network", "delays", "--network.bound", "3"],
    "outages": [*DPSGD, *GAUSSIAN, *NONE, "--network", "outages", *OUTAGES],
    "timed": [*DPSGD, *GAUSSIAN, *NONE, "--network", "timed"],
    "events budget": [*AGP, *GAUSSIAN, *NONE, "--privacy.epsilon", "3"],
}
STEPS = ["--steps", "120", "--chunk", "4"]
HOW = ["--quiet", "--checkpoint-every", "12"]
RUN = ["run", *TINY, *DPSGD, *NONE, "--steps", "12", "--chunk", "2", "--checkpoint-every", "2"]
KILLS = int(os.environ.get("JDFL_KILLS", "4"))  # of every one


@pytest.fixture(autouse=True)
def here(undrawn: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """In an empty folder."""
    monkeypatch.chdir(tmp_path)


def ended(args: list[str], folder: str, most: float = float("inf")) -> int:
    """The status of a process with this command, which gets SIGKILL when the folder's journal has so many bytes."""
    command = [sys.executable, "-m", "jdfl", *args, "--folder", folder]
    environment = {**os.environ, "JDFL_CACHE": "1", "XDG_CACHE_HOME": "cache", "JAX_PLATFORMS": "cpu"}
    process, file = subprocess.Popen(command, env=environment), Path(folder, JOURNAL)
    while process.poll() is None:
        if file.is_file() and file.stat().st_size > most:
            process.kill()
        time.sleep(0.0005)
    return process.wait()


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", RUNS)
def test_killed_runs_leave_the_folder_of_a_run_that_was_not(name):
    """Killed at some moments, some of which are while a checkpoint is written, or the end; each time begun again."""
    draw, args = random.Random(name), ["run", *TINY, *RUNS[name], *STEPS, *HOW]
    assert ended(args, "whole") == 0
    size = Path("whole", JOURNAL).stat().st_size
    for share in sorted(draw.random() for _ in range(KILLS)):
        assert ended(args, "killed", share * size) == -signal.SIGKILL
    assert ended(args, "killed") == 0
    found = differences(Path("whole"), Path("killed"))
    note("SIGKILL", name, KILLS, found)
    assert not found


def test_a_run_that_is_cut_off_on_its_way_and_while_its_end_is_written(monkeypatch):
    command = ["run", *TINY, *RUNS["budget"], "--steps", "30", "--chunk", "4", "--checkpoint-every", "3", "--folder"]
    assert main([*command, "whole"]) == 0

    def dies(_: object, now: Snapshot | Result) -> None:
        if now.rounds >= 8:
            raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(Progress, "on_chunk", dies)
        with pytest.raises(MemoryError):
            main([*command, "killed"])
    folder, resume = Path("killed"), ["--quiet", "--checkpoint-every", "3"]
    (folder / ".0123456789ab.partial.params.npz").touch()
    (folder / SNAPSHOTS / ".0123456789ab.partial.9.npz").touch()
    with monkeypatch.context() as patch:
        patch.setattr(Views, "on_end", dies)
        with pytest.raises(MemoryError):
            main(["resume", str(folder), *resume])
    assert main(["resume", str(folder), *resume]) == 0
    assert not differences(Path("whole"), folder)
    assert read_run(folder).summary["ending"] == "budget"
    nodes = pd.read_csv(folder / "nodes.csv")
    assert not nodes.duplicated(["round", "node"]).any()
    assert nodes["round"].unique().tolist()[:3] == [4, 8, 12]
    assert len(pd.read_csv(folder / "releases.csv")) == len(nodes["round"].unique())


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
def test_a_folder_that_is_not_the_runs_any_more_ends_it(monkeypatch, capsys, change):
    folder, left = Path("mine/run"), dict[str, bytes]()

    def strike(_: Progress, now: Snapshot) -> None:
        if now.rounds == 2:
            shutil.copytree(folder, "backup", ignore=shutil.ignore_patterns(lease.NAME, "*tmp*"))
        if now.rounds == 4:
            change(folder)
            left.update(files(folder))

    with monkeypatch.context() as patch:
        patch.setattr(Progress, "on_chunk", strike)
        assert main([*RUN, "--folder", str(folder)]) == 5
    shown = capsys.readouterr()
    assert "Nothing more is written there" in shown.err
    assert "Traceback" not in shown.err
    assert files(folder) == left
    if change in (put_back, replaced):  # it is whole, though not this run's: another process can go on
        (folder / lease.NAME).unlink(missing_ok=True)
        assert main(["resume", str(folder), "--quiet", "--checkpoint-every", "2"]) == 0
        assert main([*RUN, "--quiet", "--folder", "whole"]) == 0
        assert not differences(Path("whole"), folder)


@pytest.mark.filterwarnings("default")
def test_the_result_of_a_lost_folder_is_returned():
    store = jdfl.Checkpoints("kept", every=2)

    def strike(now: jdfl.Snapshot) -> None:
        if now.rounds == 4:
            removed(Path("kept"))

    with pytest.warns(UserWarning, match="kept"):
        found = toy.run(steps=20, callbacks=[strike, store], options=jdfl.Options(chunk=2))
    assert (found.ending, found.rounds) == ("interrupted", 4)
    assert "removed" in found.reason
    assert store.lost
