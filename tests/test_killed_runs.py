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
    """After two of the records, while a checkpoint is written, and while the end is; in random order."""
    first, second = draw.randrange(records), draw.randrange(records)
    late = draw.choice(["metrics.parquet", "params.npz", "provenance.json", "summary.md", "figure.png", ".*"])
    chosen: list[Doomed] = [
        lambda _: _records(out) > first,
        lambda _: _records(out) > second,
        lambda _: any(out.glob("*/checkpoints/*tmp*")),
        lambda _: any(out.glob("*/metrics.parquet")) and any(out.glob(f"*/{late}")),
    ]
    draw.shuffle(chosen)
    return chosen


def _records(out: Path) -> int:
    """How many the only run there has written."""
    with contextlib.suppress(OSError, ValueError):
        return len(journal.read(only(out) / JOURNAL).rows(RECORDS))
    return 0


def only(out: str | Path) -> Path:
    """The folder of the only run there."""
    (folder,) = Path(out).iterdir()
    return folder


def test_a_run_that_is_cut_off_on_its_way_and_while_its_end_is_written(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JDFL_CACHE", "0")
    command = ["run", *TINY, *RUNS["budget"], "--steps", "30", "--chunk", "4", "--checkpoint-every", "3", "--out"]
    assert main([*command, "whole"]) == 0

    def fails(_: Progress, snapshot: Snapshot) -> None:
        if snapshot.rounds == 8:
            raise MemoryError

    def dies(*_: object, **__: object) -> None:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(Progress, "__call__", fails)
        with pytest.raises(MemoryError):
            main([*command, "killed"])
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
    assert read_run(folder).summary["ending"] == "budget"
    nodes = pd.read_csv(folder / "nodes.csv")
    assert not nodes.duplicated(["round", "node"]).any()
    assert nodes["round"].unique().tolist()[:3] == [4, 8, 12]
    assert len(pd.read_csv(folder / "releases.csv")) == len(nodes["round"].unique())
