"""One process at a time has the lease on a folder; the others are told which, and a dead holder is no hindrance."""

import contextlib
import errno
import fcntl
import getpass
import json
import os
import platform
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from jdfl.store import lease
from jdfl.store.lease import HeldError, Lease, LostError
from tests.refused import refused as saying
from tests.store.journals import move, put_a_file

QUIET = 0.1  # seconds of patience with a holder that gives no sign of life
LONG = 20.0  # seconds, which a test ends before
HOLDER = """
import sys
from pathlib import Path
from jdfl.store.lease import HeldError, Lease
try:
    held = Lease.take(Path(sys.argv[1]))
    print("taken", flush=True)
    sys.stdin.read()
except HeldError as error:
    print(error)
"""


def other(folder: Path) -> tuple[subprocess.Popen[str], str]:
    """Another process, which tries to take a lease and keeps it, and what it tells."""
    pipe = subprocess.PIPE
    process = subprocess.Popen([sys.executable, "-c", HOLDER, str(folder)], stdin=pipe, stdout=pipe, text=True)
    assert process.stdout
    return process, process.stdout.readline().strip()


def names(words: str, process: int, folder: Path) -> bool:
    """Whether words name a folder and the holder of its lease."""
    told = json.loads((folder / lease.NAME).read_text())
    known = [str(folder), f"process {process} ", getpass.getuser(), platform.node(), told["since"]]
    return told["process"] == process and all(word in words for word in known)


def test_another_process_is_refused_and_told_who_has_it_and_a_killed_one_is_no_hindrance(tmp_path):
    held = Lease.take(tmp_path)
    process, told = other(tmp_path)
    process.communicate()
    assert names(told, os.getpid(), tmp_path)
    with pytest.raises(HeldError) as error:  # the same process, too
        Lease.take(tmp_path)
    assert names(str(error.value), os.getpid(), tmp_path)
    held.check()
    held.release()
    assert not (tmp_path / lease.NAME).exists()
    process, told = other(tmp_path)
    assert told == "taken"
    with pytest.raises(HeldError) as error:
        Lease.take(tmp_path)
    assert names(str(error.value), process.pid, tmp_path)
    process.kill()
    process.communicate()
    began = time.monotonic()
    held = Lease.take(tmp_path)
    assert time.monotonic() - began < lease.SILENT / 10
    assert f"process {process.pid} " in held.before
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
def test_there_are_never_two_holders(tmp_path, seconds):
    command = [sys.executable, "-c", STRESS, str(tmp_path), str(seconds)]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    told = [one.communicate()[0] for one in processes]
    assert [one.returncode for one in processes] == [0] * 3
    assert sum(map(int, told))


def test_a_lease_that_is_given_back_between_open_and_lock_is_taken_anew(tmp_path, monkeypatch):
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


CHANGES: dict[str, Callable[[Path], object]] = {
    "removed": Path.unlink,
    "rewritten": lambda path: path.write_text(json.dumps({"host": "other", "process": 1})),
    "emptied": lambda path: os.truncate(path, 0),
    "folder moved": move,
    "folder now a file": put_a_file,
}


def test_a_lost_lease_is_told_and_what_is_there_now_stays(tmp_path):
    for name, change in CHANGES.items():
        path = tmp_path / name / "run" / lease.NAME
        path.parent.mkdir(parents=True)
        held = Lease.take(path.parent)
        held.check()
        change(path)
        now = path.read_bytes() if path.exists() else None
        for _ in range(2):
            with saying(LostError, str(path.parent)):
                held.check()
        held.release()
        assert (path.read_bytes() if path.exists() else None) == now


def test_a_lease_can_be_taken_where_nothing_can_be_told(tmp_path, monkeypatch):
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


def leave(folder: Path, host: str = "elsewhere", process: int = 7, machine: str = "1") -> Path:
    """The lease of a holder that has no lock."""
    told = {"host": host, "process": process, "user": "somebody", "since": "2020-01-01", "id": "1", "machine": machine}
    (folder / lease.NAME).write_text(json.dumps(told))
    return folder / lease.NAME


@contextlib.contextmanager
def touched(path: Path) -> Iterator[None]:
    """Signs of life."""
    over = threading.Event()

    def go() -> None:
        while not over.wait(0.02):
            with contextlib.suppress(FileNotFoundError):  # it is being released
                os.utime(path)

    thread = threading.Thread(target=go)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def refused(folder: Path) -> bool:
    """Whether the lease is refused, before patience ends, and stays as it was."""
    before, began = (folder / lease.NAME).read_bytes(), time.monotonic()
    with pytest.raises(HeldError) as error:
        Lease.take(folder, LONG)
    named = all(str(json.loads(before)[name]) in str(error.value) for name in ("host", "process", "user", "since"))
    return named and (folder / lease.NAME).read_bytes() == before and time.monotonic() - began < LONG


@pytest.mark.parametrize("host", ["elsewhere", platform.node()], ids=["other", "of this name"])
def test_a_holder_on_another_machine_is_taken_over_when_it_gives_no_sign_of_life(tmp_path, host):
    """Also where that machine has this one's name, and its locks are its own."""
    with touched(leave(tmp_path, host)):
        assert refused(tmp_path)
    held = Lease.take(tmp_path, QUIET)
    assert all(word in held.before for word in ("process 7 ", "somebody", host, "2020-01-01"))
    told = json.loads((tmp_path / lease.NAME).read_bytes())
    held.release()
    (tmp_path / lease.NAME).write_text(json.dumps(told | {"process": 8}))  # which died on this machine
    began = time.monotonic()
    held = Lease.take(tmp_path, LONG)
    assert time.monotonic() - began < LONG / 2
    assert "process 8 " in held.before
    held.release()


def test_one_that_ends_while_it_is_watched_is_no_hindrance_and_one_that_follows_it_is(tmp_path):
    path, began, others = leave(tmp_path), time.monotonic(), []
    threading.Timer(0.2, path.unlink).start()
    held = Lease.take(tmp_path, LONG)
    assert time.monotonic() - began < LONG / 2
    assert held.before == ""
    held.release()
    leave(tmp_path)
    following = threading.Timer(0.2, lambda: (path.unlink(), others.append(Lease.take(tmp_path))))
    following.start()
    with pytest.raises(HeldError):
        Lease.take(tmp_path, LONG)
    following.join()
    others[0].check()
    others[0].release()


def test_a_holder_gives_signs_of_life_until_it_has_lost_the_lease(tmp_path, monkeypatch):
    monkeypatch.setattr(lease, "BEAT", 0.01)
    path = tmp_path / lease.NAME
    held = Lease.take(tmp_path)
    first, until = path.stat().st_mtime_ns, time.monotonic() + LONG
    while path.stat().st_mtime_ns == first:
        assert time.monotonic() < until
        time.sleep(0.01)
    leave(tmp_path)
    time.sleep(0.1)  # for a sign that was under way
    last = path.stat().st_mtime_ns
    time.sleep(0.1)
    assert path.stat().st_mtime_ns == last
    with pytest.raises(LostError):
        held.check()
    held.release()


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS, errno.EIO])
def test_without_locks_a_silent_holder_is_taken_over_and_a_living_one_is_not(tmp_path, monkeypatch, number):
    def flock(file: int, how: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", flock)
    if number == errno.EIO:  # which is told
        with pytest.raises(OSError, match=os.strerror(number)):
            Lease.take(tmp_path)
        return
    path = leave(tmp_path, platform.node(), os.getppid())
    with touched(path):
        assert refused(tmp_path)
    monkeypatch.setattr(lease, "BEAT", 0.02)
    held = Lease.take(tmp_path, QUIET)
    assert f"process {os.getppid()} " in held.before
    assert refused(tmp_path)  # by its signs of life
    held.check()
    held.release()
    assert not path.exists()
