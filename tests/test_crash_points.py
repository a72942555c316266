"""Whatever the moment at which a run dies, its folder is that of an unbroken one once it is resumed, or is refused."""

import shutil
import warnings
from pathlib import Path

import pytest

from jdfl.cli import main
from jdfl.store import lease
from tests.crashing import every_point
from tests.killing import differences
from tests.test_killed_runs import RUNS, TINY

OFTEN = ["--chunk", "4", "--checkpoint-every", "8", "--quiet"]
QUICK = 7  # points of a run


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """In an empty folder, with a cache of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JDFL_CACHE", "0")


def died(name: str, steps: int) -> tuple[Path, list[Path], list[str]]:
    """The folder of an unbroken run, what it was like at every point, and the operations there."""
    args = ["run", *TINY, *RUNS[name], "--steps", str(steps), *OFTEN, "--folder", "out/run"]
    with every_point(Path("out"), Path("points")) as points:
        assert main(args) == 0
    return Path("out/run"), [Path("points", str(i), "run") for i in range(len(points.names))], points.names


def goes_on(folder: Path, whole: Path) -> list[str]:
    """What differs after a resume; nothing where it is refused since there was nothing yet."""
    (folder / lease.NAME).unlink(missing_ok=True)  # its holder, this process, lives
    begun = (folder / "config.yaml").is_file()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        status = main(["resume", str(folder), *OFTEN[2:]])
    if not begun:
        return [] if status == 2 else [f"status {status} of a folder without settings"]
    if status == 2 and (folder / "manifest.json").is_file():
        return differences(whole, folder)  # it was done
    return differences(whole, folder) if status == 0 else [f"status {status}"]


def check(name: str, steps: int, most: int | None) -> int:
    """The number of points that were tried."""
    whole, points, names = died(name, steps)
    some = range(len(points)) if most is None else sorted({k * (len(points) - 1) // (most - 1) for k in range(most)})
    found = {}
    for i in some:
        if points[i].is_dir() and (wrong := goes_on(points[i], whole)):
            found[f"{i}: {names[i]}"] = wrong
        shutil.rmtree(points[i], ignore_errors=True)
    print(f"{name}: {len(some)} of {len(points)} points, wrong: {found}", flush=True)
    assert not found
    return len(some)


@pytest.mark.filterwarnings("ignore")
def test_a_run_that_dies_at_some_points_goes_on() -> None:
    assert check("gradients", 16, QUICK) == QUICK


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["gradients", "ceps", "budget", "partpsp stop rule", "delays"])
def test_a_run_that_dies_at_any_point_goes_on(name: str) -> None:
    assert check(name, 40, None) > 150
