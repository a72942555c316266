"""Runs of the command line that are killed and resumed, and the comparison of their whole folders."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from jdfl.engine.records import JOURNAL, SNAPSHOTS
from jdfl.store import events, lease, manifest, snapshots

_SERVER = """
import os, sys
from jdfl.cli import main
for line in sys.stdin:
    child = os.fork()
    if child == 0:
        os.dup2(os.open(os.devnull, os.O_RDWR), 1)
        os._exit(main(line.split()))
    print(child, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""

Doomed = Callable[[float], bool]  # by the seconds since a command began


class Server:
    """Runs the command line in children that have imported everything already, and kills them."""

    def __init__(self, cache: Path) -> None:
        environment = {**os.environ, "JDFL_CACHE": "1", "XDG_CACHE_HOME": str(cache), "JAX_PLATFORMS": "cpu"}
        command, pipe = [sys.executable, "-c", _SERVER], subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment)

    def run(
        self, args: list[str], doomed: Doomed = lambda seconds: False, number: signal.Signals = signal.SIGKILL
    ) -> int:
        """The exit status, minus the signal where it killed the child, which gets it as soon as it is `doomed`."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(*args, file=self._process.stdin, flush=True)
        child, began = int(self._process.stdout.readline()), time.monotonic()
        while _runs(child):
            if doomed(time.monotonic() - began):
                os.kill(child, number)
                break
            time.sleep(0.0005)
        return int(self._process.stdout.readline())

    def close(self) -> None:
        """End it."""
        self._process.communicate()


def _runs(child: int) -> bool:
    try:
        return Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def until_whole(server: Server, run: list[str], resume: list[str], out: Path, dooms: list[Doomed]) -> tuple[Path, int]:
    """The folder of a run that is killed by each of `dooms` in turn and gone on with, and how many of them struck."""
    args, struck = [*run, "--out", str(out)], 0
    for doomed in [*dooms, lambda seconds: False]:
        status = server.run(args, doomed)
        if status == -signal.SIGKILL:
            struck += 1
        else:
            assert status == 0, (status, args)
        for folder in out.glob("*"):
            if (folder / manifest.NAME).exists():
                return folder, struck
            if (folder / "config.yaml").exists():
                args = ["resume", str(folder), *resume]
            else:  # it was killed before there was anything to go on from
                assert {one.name for one in folder.iterdir() if not one.name.startswith(".")} <= {
                    JOURNAL,
                    events.NAME,
                    lease.NAME,
                }
                for one in folder.iterdir():
                    one.unlink()
                folder.rmdir()
    raise AssertionError(f"{args} came to no end")


def differences(one: Path, other: Path) -> list[str]:
    """What differs between two folders of runs, in everything but times and their names; nothing where they are equal.

    Hidden files count. Of checkpoints the numbers and the content of the newest are compared, not how they lie there.
    """
    found: list[str] = []
    names = [_names(folder) for folder in (one, other)]
    found += [f"only in one of them: {name}" for name in sorted(names[0] ^ names[1])]
    for name in sorted(names[0] & names[1]):
        mine, theirs = (_content(folder / name) for folder in (one, other))
        if mine != theirs:
            found.append(f"{name}: {mine!r:.200} is {theirs!r:.200}")
    mine, theirs = (snapshots.read(folder / SNAPSHOTS) for folder in (one, other))
    if _plain(mine.told) != _plain(theirs.told):
        found.append(f"checkpoint: {_plain(mine.told)!r:.300} is {_plain(theirs.told)!r:.300}")
    if mine.number != theirs.number or list(mine.arrays) != list(theirs.arrays):
        found.append(f"checkpoint {mine.number} of {list(mine.arrays)} is {theirs.number} of {list(theirs.arrays)}")
    else:
        found += [
            f"checkpoint: {name}"
            for name, array in mine.arrays.items()
            if not np.array_equal(array, theirs.arrays[name], equal_nan=array.dtype.kind == "f")
        ]
    return found


def _names(folder: Path) -> set[str]:
    """Of all files, and of the folders of checkpoints."""
    kept = folder / SNAPSHOTS
    files = (path for path in folder.rglob("*") if path.is_file() and not path.is_relative_to(kept))
    assert not (folder / lease.NAME).exists()
    return {str(path.relative_to(folder)) for path in (*files, *kept.glob("*"))}


def _content(path: Path) -> Any:
    """What is compared of a file."""
    if path.is_dir() or path.name in (events.NAME, manifest.PRIVATE):  # of which two runs have others
        return None
    if path.name == manifest.NAME:
        return sorted(name for name in json.loads(path.read_text())["files"] if not name.startswith(SNAPSHOTS))
    if path.suffix == ".json":
        return _plain(json.loads(path.read_text()))
    if path.name == "summary.md":
        return re.sub(r"(?m)^.*(seconds|wall|compil).*$", "", path.read_text())
    return path.read_bytes()


_APART = ("seconds", "compile_seconds", "date", "token", "released")  # the last: also of where it was cut off


def _plain(told: Any) -> Any:
    """Plain data without times, at any depth."""
    if isinstance(told, list):
        return [_plain(one) for one in told]
    if not isinstance(told, dict):
        return told
    return {name: _plain(value) for name, value in told.items() if name not in _APART}
