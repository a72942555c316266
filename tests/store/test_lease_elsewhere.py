"""Holders of a lease of whom only signs of life can be seen: on another machine, or where there are no locks."""

import contextlib
import errno
import fcntl
import json
import os
import platform
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from jdfl.store import lease
from jdfl.store.lease import HeldError, Lease, LostError

QUIET = 0.1  # seconds of patience with a holder that gives no sign of life
LONG = 20.0  # seconds, which a test ends before


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


@pytest.fixture
def without_locks(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """A file system that has no locks."""

    def flock(file: int, how: int) -> None:
        raise OSError(request.param, os.strerror(request.param))

    monkeypatch.setattr(fcntl, "flock", flock)


def test_a_silent_holder_on_another_machine_is_taken_over(tmp_path: Path) -> None:
    leave(tmp_path)
    held = Lease.take(tmp_path, QUIET)
    assert all(word in held.before for word in ("process 7 ", "somebody", "elsewhere", "2020-01-01"))
    held.check()
    held.release()
    assert Lease.take(tmp_path).release() is None


def refused(folder: Path, patience: float = LONG) -> bool:
    """Whether the lease is refused, before patience ends, and stays as it was."""
    before, began = (folder / lease.NAME).read_bytes(), time.monotonic()
    try:
        Lease.take(folder, patience).release()
    except HeldError as error:
        named = all(str(json.loads(before)[name]) in str(error) for name in ("host", "process", "user", "since"))
        return named and (folder / lease.NAME).read_bytes() == before and time.monotonic() - began < LONG
    return False


@pytest.mark.parametrize("host", ["elsewhere", platform.node()], ids=["other", "of this name"])
def test_one_on_another_machine_that_gives_a_sign_of_life_is_not(tmp_path: Path, host: str) -> None:
    """Also where that machine has this one's name, and its locks are its own."""
    with touched(leave(tmp_path, host)):
        assert refused(tmp_path)


def test_one_that_died_on_this_machine_is_taken_over_at_once(tmp_path: Path) -> None:
    Lease.take(tmp_path).release()
    told, began = json.loads(lease._told()), time.monotonic()
    (tmp_path / lease.NAME).write_text(json.dumps(told | {"process": 7}))
    held = Lease.take(tmp_path, LONG)
    assert time.monotonic() - began < LONG / 2
    assert "process 7 " in held.before
    held.release()


def test_one_that_ends_while_it_is_watched_is_no_hindrance_and_one_that_follows_it_is(tmp_path: Path) -> None:
    path, began = leave(tmp_path), time.monotonic()
    ending = threading.Timer(0.2, path.unlink)
    ending.start()
    held = Lease.take(tmp_path, LONG)
    ending.join()
    assert time.monotonic() - began < LONG / 2
    assert held.before == ""
    held.release()
    path, others = leave(tmp_path), []

    def follow() -> None:
        path.unlink()
        others.append(Lease.take(tmp_path))

    following = threading.Timer(0.2, follow)
    following.start()
    with pytest.raises(HeldError):
        Lease.take(tmp_path, LONG)
    following.join()
    others[0].check()
    others[0].release()


def test_a_holder_gives_signs_of_life_until_it_has_lost_the_lease(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    assert path.exists()


@pytest.mark.parametrize(
    ("without_locks", "host"),
    [(errno.ENOLCK, "elsewhere"), (errno.ENOTSUP, "here"), (errno.ENOSYS, "here")],
    indirect=["without_locks"],
)
@pytest.mark.usefixtures("without_locks")
def test_without_locks_a_silent_holder_is_taken_over_and_a_living_one_is_not(tmp_path: Path, host: str) -> None:
    path = leave(tmp_path, platform.node() if host == "here" else host, os.getppid())
    with touched(path):
        assert refused(tmp_path)
    held = Lease.take(tmp_path, QUIET)
    assert f"process {os.getppid()} " in held.before
    held.check()
    held.release()
    assert not path.exists()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lease, "BEAT", 0.02)
        held = Lease.take(tmp_path, QUIET)
        assert refused(tmp_path)  # by its signs of life
        held.check()
        held.release()
