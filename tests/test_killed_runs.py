"""Private, faulty and late runs that are killed and resumed leave the folder of a run that nobody disturbed."""

import contextlib
import os
import random
import sys
from pathlib import Path

import pandas as pd
import pytest

from jdfl.cli import main
from jdfl.engine.progress import Progress
from jdfl.engine.records import JOURNAL, RECORDS, SNAPSHOTS
from jdfl.engine.result import Snapshot
from jdfl.lab.results import read_run
from jdfl.lab.views import Views
from jdfl.store import journal
from tests.counting import note
from tests.killing import Doomed, Server, differences, until_whole

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
KILLS = int(os.environ.get("JDFL_KILLS", "4"))  # of every one


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks at processes as Linux shows them")
@pytest.mark.parametrize("name", RUNS)
def test_killed_runs_leave_the_folder_of_a_run_that_was_not(tmp_path, name):
    """Killed at some moments, while a checkpoint is written, and while the end is, in one or in several runs."""
    draw, server, struck, found = random.Random(name), Server(tmp_path / "cache"), 0, []
    args = ["run", *TINY, *RUNS[name], *STEPS, *HOW]
    try:
        assert server.run([*args, "--out", str(tmp_path / "whole")]) == 0
        whole = only(tmp_path / "whole")
        records = _records(tmp_path / "whole")
        for number in range(5 * KILLS):
            out = tmp_path / f"out{number}"
            folder, more = until_whole(server, args, HOW, out, dooms(draw, records, out)[: KILLS - struck])
            struck += more
            found += differences(whole, folder)
            if struck == KILLS:
                break
        note("SIGKILL", name, struck, found)
        assert not found
        assert struck == KILLS
    finally:
        server.close()


def dooms(draw: random.Random, records: int, out: Path) -> list[Doomed]:
    """A little after two of the records, while a checkpoint is written, and while the end is; in random order."""

    def going_on() -> Doomed:
        there, later, since = draw.randrange(records), draw.uniform(0, 0.2), [float("inf")]

        def doomed(seconds: float) -> bool:
            if since[0] > seconds and _records(out) > there:
                since[0] = seconds
            return seconds > since[0] + later

        return doomed

    def keeping(_: float) -> bool:
        return any(out.glob("*/checkpoints/*tmp*"))

    late = draw.choice(["metrics.parquet", "params.npz", "provenance.json", "summary.md", "figure.png", ".*"])

    def ending(_: float) -> bool:
        return any(out.glob("*/metrics.parquet")) and any(out.glob(f"*/{late}"))

    chosen: list[Doomed] = [going_on(), going_on(), keeping, ending]
    draw.shuffle(chosen)
    return chosen


def _records(out: Path) -> int:
    """How many the only run there has written."""
    with contextlib.suppress(OSError, ValueError):
        return len(journal.read(only(out) / JOURNAL).rows(RECORDS))
    return 0


# ---------------------------------------------------------------- a few, in this process


@pytest.fixture
def here(monkeypatch, tmp_path):
    """In an empty folder, without the cache."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JDFL_CACHE", "0")


def command(name: str, out: str, *more: str) -> list[str]:
    """A run of few rounds."""
    often = ["--steps", "30", "--chunk", "4", "--checkpoint-every", "3"]
    return ["run", *TINY, *RUNS[name], *often, "--out", out, *more]


def only(out: str | Path) -> Path:
    """The folder of the only run there."""
    (folder,) = Path(out).iterdir()
    return folder


def dies(*_: object, **__: object) -> None:
    """Ends a run with nothing to say."""
    raise MemoryError


@pytest.mark.parametrize("name", ["budget", pytest.param("partpsp stop rule", marks=pytest.mark.slow)])
def test_a_run_that_is_cut_off_on_its_way_and_while_its_end_is_written(here, monkeypatch, name):
    more = ["--stop.value", "1.1"] if name == "partpsp stop rule" else []
    assert main(command(name, "whole", *more)) == 0

    def fails(_: Progress, snapshot: Snapshot) -> None:
        if snapshot.rounds == 8:
            raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(Progress, "__call__", fails)
        with pytest.raises(MemoryError):
            main(command(name, "killed", *more))
    folder, resume = only("killed"), ["--quiet", "--checkpoint-every", "3"]
    (folder / ".0123456789ab.partial.params.npz").touch()
    (folder / SNAPSHOTS / "9.orbax-checkpoint-tmp-1").mkdir()
    for _ in range(2):
        with monkeypatch.context() as patch:
            patch.setattr(Views, "end", dies)
            with pytest.raises(MemoryError):
                main(["resume", str(folder), *resume])
    assert main(["resume", str(folder), *resume]) == 0
    assert not differences(only("whole"), folder)
    assert read_run(folder).summary["ending"] == name.removeprefix("partpsp ")
    nodes = pd.read_csv(folder / "nodes.csv")
    assert not nodes.duplicated(["round", "node"]).any()
    assert nodes["round"].unique().tolist()[:3] == [4, 8, 12]
    assert len(pd.read_csv(folder / "releases.csv")) == len(nodes["round"].unique())


def test_a_budget_without_a_round_has_no_moments(here):
    assert main(command("partpsp", "out", "--privacy.epsilon", "5")) == 0
    assert read_run(only("out")).summary["rounds"] == 0
    assert not (only("out") / "nodes.csv").exists()
    assert pd.read_csv(only("out") / "releases.csv").to_numpy().tolist() == [[0, 0]]
