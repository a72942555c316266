"""A job is kept whole or not at all, once; what a process leaves that is killed is nothing or everything."""

import errno
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from jdfl.store import jobs, lease, manifest
from jdfl.store.jobs import FailedJobsError, Jobs, TerminatedError, name_of, opened
from jdfl.store.lease import HeldError, LostError, UnwrittenError
from tests.refused import refused

ORIGIN = {"work": "test", "versions": {"code": "1"}}


def writes(text: str, called: list[str] | None = None) -> Callable[[Path], None]:
    """A job that writes a file."""

    def make(folder: Path) -> None:
        (folder / "sub").mkdir()
        (folder / "sub" / "text").write_text(text)
        if called is not None:
            called.append(text)

    return make


def left(folder: Path) -> set[str]:
    return {path.name for path in (folder / jobs.PLACE).iterdir()}


def test_a_job_is_done_once(tmp_path):
    called: list[str] = []
    kept = Jobs(tmp_path)
    assert kept.find("one") is None
    for _ in range(2):
        place = kept.done("one", writes("a", called))
    assert called == ["a"]
    assert (place / "sub" / "text").read_text() == "a"
    assert kept.find("one") == place == Jobs(tmp_path).find("one")
    kept.done("two", writes("b", called))
    assert called == ["a", "b"]
    assert left(tmp_path) == {"one", "two"}
    kept.clear()
    assert list(tmp_path.iterdir()) == []
    names = [name_of(1, "a"), name_of("1", "a"), name_of(1, "b"), name_of([1, "a"]), name_of(1), name_of({"a": 1})]
    assert len(set(names)) == len(names)
    assert name_of({"a": 1, "b": 2}) == name_of({"b": 2, "a": 1})


def test_a_damaged_job_is_done_again(tmp_path):
    words = '{"format": 1, "files": {"sub/text": "none"}}'
    damages = [("sub/text", "abd"), ("sub/text", None), *((manifest.NAME, one) for one in ("{", words, None))]
    for file, content in damages:
        place = Jobs(tmp_path).done("one", writes("abc"))
        (place / file).write_text(content) if content else (place / file).unlink()
        called: list[str] = []
        with pytest.warns(UserWarning, match="done again"):
            again = Jobs(tmp_path).done("one", writes("abc", called))
        assert called == ["abc"]
        assert (again / "sub" / "text").read_text() == "abc"
        assert left(tmp_path) == {"one"}


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError, RuntimeError("out"), OSError("odd")])
def test_one_that_ends_in_an_error_leaves_nothing(tmp_path, error):
    def make(folder: Path) -> None:
        writes("a")(folder)
        raise error

    mistakes = (KeyboardInterrupt, ValueError)
    with pytest.raises(error if error in mistakes else FailedJobsError):
        Jobs(tmp_path).done("one", make)
    assert left(tmp_path) == set()
    for code in (errno.ENOSPC, errno.EROFS, errno.EIO, errno.EDQUOT):  # no failure of the job
        error = OSError(code, os.strerror(code))
        with pytest.raises(UnwrittenError):
            Jobs(tmp_path, retry=3).done("one", make)


def test_one_that_fails_is_tried_again_so_often_and_no_more(tmp_path):
    tries: list[int] = []

    def make(folder: Path) -> None:
        assert list(folder.iterdir()) == []
        writes("a")(folder)
        tries.append(len(tries))
        if len(tries) < 3:
            raise RuntimeError("RESOURCE_EXHAUSTED")

    with pytest.raises(FailedJobsError), pytest.warns(UserWarning, match="1 of 1"):
        Jobs(tmp_path, retry=1).done("one", make)
    assert len(tries) == 2
    tries.clear()
    with pytest.warns(jobs.JobsWarning) as told:
        assert Jobs(tmp_path, retry=2).done("one", make).is_dir()
    assert len(tries) == 3
    assert len(told) == 2


def test_a_folder_has_one_work_of_one_version_and_no_damaged_origin(tmp_path):
    with opened(tmp_path, ORIGIN) as kept:
        kept.done("one", writes("a"))
        with pytest.raises(HeldError), opened(tmp_path, ORIGIN):
            pass
    (tmp_path / jobs.PLACE / ".cut off").mkdir()
    with opened(tmp_path, ORIGIN) as kept:
        assert kept.find("one")
        assert left(tmp_path) == {"one"}
    with refused(str(tmp_path)), opened(tmp_path, ORIGIN | {"work": "another"}):
        pass
    other = ORIGIN | {"versions": {"code": "2"}}
    with refused("code: was 1, is 2"), opened(tmp_path, other):
        pass
    with opened(tmp_path, other, any_version=True) as kept:
        assert kept.find("one")
    assert not (tmp_path / lease.NAME).exists()

    for text in ("", "{", "[]", "null", '{"format": 2}', '{"format": 1, "versions": 3}', "[" * 10**5):
        (tmp_path / jobs.ORIGIN).write_text(text)
        with refused(str(tmp_path / jobs.ORIGIN)), opened(tmp_path, ORIGIN):
            pass


def test_a_folder_that_is_removed_or_taken_over_ends_the_work(tmp_path):
    folder = tmp_path / "work"
    folder.mkdir()

    def removed(_: Path) -> None:
        folder.rename(tmp_path / "elsewhere")

    with opened(folder, ORIGIN) as kept:
        with pytest.raises(LostError):
            kept.done("one", removed)
        with pytest.raises(LostError):
            kept.done("two", writes("a"))
        assert not folder.exists()  # nothing makes it again


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_signals_end_the_work_as_ctrl_c_does(tmp_path, number):
    usual = signal.signal(number, signal.SIG_DFL)
    try:
        with pytest.raises(TerminatedError), opened(tmp_path, ORIGIN) as kept:
            kept.done("one", lambda _: os.kill(os.getpid(), number))
        assert left(tmp_path) == set()
        assert signal.getsignal(number) is signal.SIG_DFL
        assert not (tmp_path / lease.NAME).exists()
    finally:
        signal.signal(number, usual)
