"""Whenever work dies, or its disk fails, its folder is that of unbroken work once it goes on, or it is refused."""

import contextlib
import errno
import io
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from jdfl.cli import main
from jdfl.store import lease, manifest
from tests import comparing
from tests.conftest import turn
from tests.counting import note
from tests.crashing import every_point, failing
from tests.killing import differences
from tests.test_killed_runs import RUNS, TINY

_OFTEN = ["--chunk", "4", "--checkpoint-every", "8", "--quiet"]
SMALL = """
steps: 4
seeds: 1
tuning_seeds: 1
problem: {m: 4, n: 20, s: 2, rows: [5, 9]}
network: ring
extend: 0
grids: ["lr=0.01,0.02"]
metrics: [objective]
algorithms: [d-psgd, dsgt]
"""
_POINTS = ["--algorithm", "d-psgd", "--stop", "none", "--steps", "4", "--metrics", "objective"]
_OVER = ["--over", "algorithm.lr=0.01,0.02", "network=ring,complete"]


class Work(NamedTuple):
    """A command that begins work in a folder, and what differs between two such folders."""

    begin: list[str]  # without the folder
    resume: list[str]  # flags
    settings: str  # the file without which there is nothing to go on from
    different: Callable[[Path, Path], list[str]]


def a_run(name: str, steps: int) -> Work:
    return Work(["run", *TINY, *RUNS[name], "--steps", str(steps), *_OFTEN], _OFTEN[2:], "config.yaml", differences)


WORK = {
    **{name: a_run(name, 40) for name in ("gradients", "ceps", "budget", "partpsp stop rule", "delays")},
    "compare": Work(
        ["compare", "--config", "small.yaml", "--quiet"], ["--quiet"], "config.yaml", comparing.comparisons
    ),
    "sweep": Work(["sweep", *TINY, *_POINTS, *_OVER, "--quiet"], ["--quiet"], "study.yaml", comparing.studies),
}


@pytest.fixture(autouse=True)
def here(undrawn: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """In an empty folder."""
    monkeypatch.chdir(tmp_path)
    Path("small.yaml").write_text(SMALL)


def quietly(args: list[str]) -> tuple[int, str]:
    """The status of a command, and what it says."""
    said = io.StringIO()
    with warnings.catch_warnings(), contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
        warnings.simplefilter("ignore")
        status = main(args)
    return status, said.getvalue()


def goes_on(folder: Path, whole: Path, work: Work) -> list[str]:
    """What differs after a resume; nothing where it is refused since there was nothing yet."""
    (folder / lease.NAME).unlink(missing_ok=True)  # its holder, this process, lives
    begun, done = (folder / work.settings).is_file(), (folder / manifest.NAME).is_file()
    status, said = quietly(["resume", str(folder), *work.resume])
    if status and not begun:  # it begins when the same command is given again
        status, said = quietly([*work.begin, "--folder", str(folder)])
    return work.different(whole, folder) if status == 0 or (done and status == 2) else [f"status {status}: {said}"]


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", WORK)
def test_work_that_dies_at_any_point_goes_on(name: str) -> None:
    work, whole = WORK[name], Path("out/work")
    with every_point(Path("out"), Path("points")) as points:
        assert main([*work.begin, "--folder", str(whole)]) == 0
    found, before = dict[str, list[str]](), None
    for i, point in enumerate(points.names):
        folder = Path("points", str(i), "work")
        files = {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        if folder.is_dir() and files != before and (wrong := goes_on(folder, whole, work)):
            found[f"{i}: {point}"] = wrong
        shutil.rmtree(folder.parent, ignore_errors=True)
        before = files
    note("crash points", name, len(points.names), found)
    assert not found
    assert len(points.names) > 30


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("lasting", [False, True], ids=["once", "from then on"])
@pytest.mark.parametrize("name", WORK)
def test_a_disk_that_fails_at_any_operation_is_said(name: str, lasting: bool) -> None:
    """Each operation fails in work of its own, every second one as on a full disk, the others as on a broken one."""
    work, whole, folder, found = WORK[name], Path("out/whole"), Path("out/work"), dict[str, list[str]]()
    with failing(Path("out"), 10**9, errno.EIO, lasting=lasting) as counted:
        assert main([*work.begin, "--folder", str(whole)]) == 0
    for i in range(counted.count):
        code = (errno.ENOSPC, errno.EIO)[(i + turn()) % 2]
        with failing(folder, i, code, lasting=lasting) as disk:
            status, said = quietly([*work.begin, "--folder", str(folder)])
        wrong: list[str] = []
        if status not in (0, 2, 5):
            wrong = [f"status {status}: {said}"]
        elif status == 0 and lasting and disk.failed:
            wrong = ["status 0, though nothing could be written any more"]
        elif disk.failed and not said.strip():
            wrong = [f"status {status}, without a word"]
        elif folder.is_dir():
            wrong = goes_on(folder, whole, work)
            if disk.failed:  # a checkpoint that could not be written is warned of, and the one after it is compared
                wrong = [one for one in wrong if not one.startswith("only in one of them: checkpoints/")]
        if wrong:
            found[f"{i}: {disk.failed}"] = wrong
        shutil.rmtree(folder, ignore_errors=True)
    note(f"operations that fail {'from then on' if lasting else 'once'}", name, counted.count, found)
    assert not found
    assert counted.count > 20
