"""Two processes never write into one folder."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from jdfl.cli import main
from jdfl.engine.records import JOURNAL
from jdfl.store import lease, manifest
from tests.test_crash_points import SMALL, WORK
from tests.test_killed_runs import RUNS, TINY

RUN = ["run", *TINY, *RUNS["gradients"]]
pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks at processes as Linux shows them")


@pytest.mark.parametrize("begin", [RUN, WORK["sweep"].begin, WORK["compare"].begin], ids=["run", "sweep", "compare"])
def test_one_that_begins_in_a_folder_that_is_held_leaves_it(tmp_path, monkeypatch, capsys, begin):
    monkeypatch.chdir(tmp_path)
    Path("small.yaml").write_text(SMALL)
    Path("mine").mkdir()
    held = lease.Lease.take(Path("mine"))
    try:
        assert main([*begin, "--folder", "mine"]) == 2
        assert "is writing into" in capsys.readouterr().err
        held.check()  # it is still there
    finally:
        held.release()


@pytest.mark.timeout(600)
def test_a_second_process_is_refused_every_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "run"
    steps = ["--steps", "100000000", "--chunk", "50", "--checkpoint-every", "1000", "--quiet"]
    command = [*RUN, *steps, "--folder", str(folder)]
    process = subprocess.Popen([sys.executable, "-m", "jdfl", *command], stderr=subprocess.DEVNULL)
    try:
        until = time.monotonic() + 120
        while not list(folder.glob("checkpoints/*[0-9]")) and time.monotonic() < until:
            time.sleep(0.05)
        for again in (command, ["resume", str(folder), "--quiet"]):
            assert main(again) == 2
            assert f"process {process.pid} of" in capsys.readouterr().err
        assert process.poll() is None
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 143
    assert json.loads((folder / "summary.json").read_text())["ending"] == "terminated"
    assert manifest.differences(folder) == ([], [])
    assert (folder / JOURNAL).stat().st_size > 0
