"""What every signal does to every kind of work; the same command, given again as by a queue, goes on to the same."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from jdfl.engine.records import JOURNAL
from jdfl.store import events, lease, manifest
from tests.killing import Server
from tests.test_crash_points import WORK, a_run, quietly
from tests.test_killed_runs import RUNS, TINY

STATUS = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 143, signal.SIGKILL: -signal.SIGKILL}
KINDS = {"run": a_run("gradients", 400), "sweep": WORK["sweep"], "compare": WORK["compare"]}
pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks at processes as Linux shows them")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("signals")


@pytest.fixture(scope="module")
def server(place: Path):
    """In a folder with the settings of a comparison."""
    from tests.test_crash_points import SMALL

    (place / "small.yaml").write_text(SMALL)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        made = Server(place / "cache")
        yield made
        made.close()


@pytest.fixture(scope="module")
def whole(server: Server, place: Path) -> dict[str, Path]:
    """Work that nothing disturbed."""
    for kind, work in KINDS.items():
        assert server.run([*work.begin, "--folder", f"whole-{kind}"]) == 0
    return {kind: place / f"whole-{kind}" for kind in KINDS}


def under_way(folder: Path):
    """Whether something of the work is kept already, which is not all."""

    def doomed(seconds: float) -> bool:
        kept = list(folder.glob("jobs/[!.]*")) or list(folder.glob("checkpoints/*[0-9]"))
        return bool(kept) and not (folder / manifest.NAME).exists()

    return doomed


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("number", STATUS, ids=lambda number: number.name)
@pytest.mark.parametrize("kind", KINDS)
def test_a_queue_that_starts_it_again(
    server: Server, whole: dict[str, Path], place: Path, kind: str, number: signal.Signals
) -> None:
    work, folder = KINDS[kind], place / f"{kind}-{number.name}"
    command, statuses = [*work.begin, "--folder", str(folder)], []
    for _ in range(3):  # preempted, and started again
        statuses.append(server.run(command, under_way(folder), number))
    for _ in range(2):  # to the end; and once more, which does nothing
        statuses.append(server.run(command))
        assert statuses[-1] == 0
    assert set(statuses) <= {0, STATUS[number], -number}  # which shells show as 143: it had not begun anything
    assert statuses[0] == STATUS[number]
    assert not work.different(whole[kind], folder)
    told = [one["event"] for one in events.read(folder)]
    assert told[0] == "begun"
    assert "resumed" in told
    assert not (folder / lease.NAME).exists()
    assert not [path for path in folder.rglob("*") if "partial" in path.name or "tmp" in path.name]


@pytest.mark.parametrize("kind", KINDS)
def test_one_that_begins_in_a_folder_that_is_held_leaves_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Before, it removed the folder of the other process, which had kept nothing yet."""
    from tests.test_crash_points import SMALL

    monkeypatch.chdir(tmp_path)
    Path("small.yaml").write_text(SMALL)
    Path("mine").mkdir()
    held = lease.Lease.take(Path("mine"))
    try:
        status, said = quietly([*KINDS[kind].begin, "--folder", "mine"])
        assert status == 2
        assert "is writing into" in said
        held.check()  # it is still there
    finally:
        held.release()


def _long(folder: Path) -> list[str]:
    steps = ["--steps", "100000000", "--chunk", "50", "--checkpoint-every", "1000", "--quiet"]
    return ["run", *TINY, *RUNS["gradients"], *steps, "--folder", str(folder)]


@pytest.mark.parametrize("count", [5, pytest.param(50, marks=pytest.mark.slow)])
@pytest.mark.timeout(600)
def test_a_second_process_is_refused_every_time(tmp_path: Path, count: int) -> None:
    folder = tmp_path / "run"
    process = subprocess.Popen([sys.executable, "-m", "jdfl", *_long(folder)], stderr=subprocess.DEVNULL)
    try:
        until = time.monotonic() + 120
        while not (folder / "config.yaml").exists() and time.monotonic() < until:
            time.sleep(0.05)
        for i in range(count):
            again = ["resume", str(folder), "--quiet"] if i % 2 else _long(folder)
            status, said = quietly(again)
            assert status == 2
            assert f"process {process.pid} of" in said
        assert process.poll() is None
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 143
    assert json.loads((folder / "summary.json").read_text())["ending"] == "terminated"
    assert manifest.differences(folder) == ([], [])
    assert (folder / JOURNAL).stat().st_size > 0
    verify = [sys.executable, "-m", "jdfl", "verify", str(folder), "--rounds", "2"]  # compiled as there
    assert subprocess.run(verify, check=False, stdout=subprocess.DEVNULL).returncode == 0
