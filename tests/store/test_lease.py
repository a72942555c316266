"""One process at a time has the lease on a folder; the others are told which, and a dead holder is no hindrance."""

import errno
import fcntl
import getpass
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from jdfl.store import lease
from jdfl.store.lease import HeldError, Lease, LostError
from tests.refused import refused

PROCESS = """
import sys
from pathlib import Path
from jdfl.store.lease import HeldError, Lease
held = None
for line in sys.stdin:
    try:
        if line == "release\\n":
            if held:
                held.release()
            held, told = None, "released"
        elif line.startswith("take "):
            held = Lease.take(Path(line[5:-1]))
            told = "taken " + held.before
        else:
            told = "ready"
    except HeldError as error:
        told = f"refused {error}"
    print(told, flush=True)
"""


class Other:
    """Another process, which takes a lease and releases it when it is asked to."""

    def __init__(self) -> None:
        pipe = subprocess.PIPE
        self.process = subprocess.Popen([sys.executable, "-c", PROCESS], stdin=pipe, stdout=pipe, text=True)
        self.begin("ready?")
        assert self.answer() == "ready"

    def begin(self, line: str) -> None:
        assert self.process.stdin
        print(line, file=self.process.stdin, flush=True)

    def answer(self) -> str:
        assert self.process.stdout
        return self.process.stdout.readline().strip()

    def take(self, folder: Path) -> str:
        self.begin(f"take {folder}")
        return self.answer()

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def others() -> Iterator[Callable[[int], list[Other]]]:
    """A function that starts other processes, which are ended after the test."""
    started: list[Other] = []

    def start(number: int) -> list[Other]:
        started.extend(Other() for _ in range(number))
        return started[-number:]

    yield start
    for one in started:
        one.kill()


Start = Callable[[int], list[Other]]


def names(words: str, process: int, folder: Path) -> bool:
    """Whether words name the holder of the lease in a folder."""
    told = json.loads((folder / lease.NAME).read_text())
    known = [f"process {process} ", getpass.getuser(), platform.node(), told["since"]]
    return told["process"] == process and all(word in words for word in known)


def test_another_process_is_refused_and_told_who_has_it(tmp_path: Path, others: Start) -> None:
    (one,) = others(1)
    with_it = Lease.take(tmp_path)
    words = one.take(tmp_path)
    assert words.startswith("refused")
    assert names(words, os.getpid(), tmp_path)
    assert str(tmp_path) in words
    with pytest.raises(HeldError) as error:  # the same process, too
        Lease.take(tmp_path)
    assert names(str(error.value), os.getpid(), tmp_path)
    with_it.check()
    with_it.release()
    assert not (tmp_path / lease.NAME).exists()
    assert one.take(tmp_path) == "taken"
    with pytest.raises(HeldError) as error:
        Lease.take(tmp_path)
    assert names(str(error.value), one.process.pid, tmp_path)


def test_the_lease_of_a_killed_process_is_taken_over_at_once(tmp_path: Path, others: Start) -> None:
    one, two = others(2)
    assert one.take(tmp_path) == "taken"
    told = two.take(tmp_path)
    one.kill()
    began = time.monotonic()
    held = Lease.take(tmp_path)
    assert time.monotonic() - began < lease.SILENT / 10
    assert f"process {one.process.pid} " in held.before
    assert held.before in told
    assert names(two.take(tmp_path), os.getpid(), tmp_path)
    held.release()
    again = Lease.take(tmp_path)
    assert again.before == ""
    again.release()


STRESS = """
import sys, time
from pathlib import Path
from jdfl.store.lease import HeldError, Lease
folder, until, times = Path(sys.argv[1]), time.monotonic() + float(sys.argv[2]), 0
while time.monotonic() < until:
    try:
        held = Lease.take(folder)
    except HeldError:
        continue
    (folder / "inside").mkdir()  # fails where another one is inside
    held.check()
    (folder / "inside").rmdir()
    held.release()
    times += 1
print(times)
"""


@pytest.mark.parametrize("seconds", [0.3, pytest.param(20, marks=pytest.mark.slow)])
def test_there_are_never_two_holders(tmp_path: Path, seconds: float) -> None:
    command = [sys.executable, "-c", STRESS, str(tmp_path), str(seconds)]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    told = [one.communicate()[0] for one in processes]
    assert [one.returncode for one in processes] == [0] * 3
    assert sum(map(int, told))


def test_a_lease_that_is_given_back_between_open_and_lock_is_taken_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, lock = Lease.take(tmp_path), lease._lock

    def late(file: int) -> bool | None:
        monkeypatch.setattr(lease, "_lock", lock)
        first.release()
        return lock(file)

    monkeypatch.setattr(lease, "_lock", late)
    held = Lease.take(tmp_path)
    assert held.before == ""
    held.check()
    with pytest.raises(HeldError):
        Lease.take(tmp_path)
    held.release()


def replace(path: Path) -> None:
    path.with_name("new").write_text(path.read_text().replace('"id": "', '"id": "0'))
    path.with_name("new").rename(path)


def move(path: Path) -> None:
    path.parent.rename(path.parent.with_name("moved"))


def put_a_file(path: Path) -> None:
    move(path)
    path.parent.write_text("")


CHANGES: dict[str, Callable[[Path], object]] = {
    "removed": Path.unlink,
    "rewritten": lambda path: path.write_text(json.dumps({"host": "other", "process": 1})),
    "replaced": replace,
    "emptied": lambda path: os.truncate(path, 0),
    "folder moved": move,
    "folder now a file": put_a_file,
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_lost_lease_is_told_and_what_is_there_now_stays(tmp_path: Path, name: str) -> None:
    (tmp_path / "run").mkdir()
    path = tmp_path / "run" / lease.NAME
    held = Lease.take(tmp_path / "run")
    held.check()
    CHANGES[name](path)
    now = path.read_bytes() if path.exists() else None
    for _ in range(2):
        with refused(LostError, str(path.parent)):
            held.check()
    held.release()
    assert (path.read_bytes() if path.exists() else None) == now


def test_a_lease_can_be_taken_where_nothing_can_be_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for content in (b"", b"{", b"[" * 4096, b"3", b"\xff" * 5000):
        (tmp_path / lease.NAME).write_bytes(content)
        held = Lease.take(tmp_path)
        assert held.before == ""
        held.check()
        held.release()
    for error in (OSError, KeyError):
        monkeypatch.setattr(getpass, "getuser", lambda error=error: (_ for _ in ()).throw(error()))
        held = Lease.take(tmp_path)
        assert json.loads((tmp_path / lease.NAME).read_bytes())["user"] == str(os.getuid())
        held.release()


def test_an_error_of_the_disk_leaves_nothing_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(file: int, how: int) -> None:
        raise OSError(errno.EIO, "broken")

    before = len(os.listdir("/proc/self/fd"))
    with monkeypatch.context() as patch:
        patch.setattr(fcntl, "flock", fail)
        with pytest.raises(OSError):
            Lease.take(tmp_path)
    assert len(os.listdir("/proc/self/fd")) == before
    Lease.take(tmp_path).release()
