"""The writer of a journal: what it refuses, full disks, and files that somebody else has changed."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from jdfl.store import journal
from jdfl.store.journal import Journal
from jdfl.store.lease import LostError
from tests.store.journals import APPENDED, ORIGIN, A, expected, held, positions, small, split

MORE = np.array([(7,), (8,)], A)


def test_nothing_is_written_before_flush_and_an_existing_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    made = Journal.create(path, ORIGIN)
    empty = path.read_bytes()
    made.append("a", MORE)
    assert path.read_bytes() == empty
    assert journal.read(path).end == positions(empty)[0]
    made.flush()
    whole = path.read_bytes()
    assert journal.read(path).end == made.position
    with pytest.raises(FileExistsError):
        Journal.create(path, ORIGIN)
    assert path.read_bytes() == whole
    made.close()


PWRITE = os.pwrite


def test_create_and_sync_wait_for_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda file: synced.append(os.fstat(file).st_ino))
    made = Journal.create(tmp_path / "journal", ORIGIN)
    file, folder = (tmp_path / "journal").stat().st_ino, tmp_path.stat().st_ino
    assert synced == [file, folder]
    made.append("a", MORE)
    made.flush()
    assert synced == [file, folder]
    made.sync()
    assert synced == [file, folder, file]
    made.close()


UNREADABLE = {
    "int32": np.dtype([("x", "<i4")]),
    "half": np.dtype([("x", "<f2")]),
    "big-endian": np.dtype([("x", ">f8")]),
    "truth": np.dtype([("x", "?")]),
    "text": np.dtype([("x", "<U3")]),
    "object": np.dtype([("x", "O")]),
    "several": np.dtype([("x", "<f8", (2,))]),
    "nested": np.dtype([("x", [("y", "<f8")])]),
    "gaps": np.dtype([("x", "<f4"), ("y", "<f8")], align=True),
    "no columns": np.dtype([]),
    "no names": np.dtype("<f8"),
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_rows_that_could_not_be_read_are_refused_before_anything_changes(tmp_path: Path, name: str) -> None:
    made, path = small(tmp_path / "journal"), tmp_path / "journal"
    before, place = path.read_bytes(), made.position
    for table in ("a", "new"):
        with pytest.raises(ValueError):
            made.append(table, np.zeros(2, UNREADABLE[name]))
        assert made.position == place
        made.flush()
        assert path.read_bytes() == before
    made.append("new", MORE)
    made.flush()
    assert held({"new": journal.read(path).rows("new")}) == held({"new": MORE})
    made.close()


def test_all_rows_of_a_table_have_its_columns(tmp_path: Path) -> None:
    made = small(tmp_path / "journal")
    for other in ([("x", "<f8")], [("y", "<i8")], [("x", "<i8"), ("y", "<i8")], [("z", "<f4"), ("y", "<f8")]):
        for table in ("a", "b"):
            with pytest.raises(ValueError, match=table):
                made.append(table, np.zeros(1, other))
    made.close()


def test_more_rows_than_an_entry_may_have_come_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "_MOST", 100)
    rows = np.arange(1000).view(A)
    made = Journal.create(tmp_path / "journal", ORIGIN)
    made.append("a", rows)
    made.flush()
    made.close()
    found = journal.read(tmp_path / "journal")
    assert (held(found.tables), found.end, found.damage) == (held({"a": rows}), made.position, "")


def test_what_stands_after_a_position_goes_when_something_is_written_and_not_before(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    small(path).close()
    file = path.read_bytes()
    for place in positions(file):
        path.write_bytes(file + b"a part of an entry")
        again = Journal.resume(path, place)
        again.flush()
        again.sync()
        assert path.read_bytes() == file + b"a part of an entry"
        again.append("a", MORE)
        again.flush()
        found = path.read_bytes()
        assert found.startswith(file[: place.offset])
        assert journal.read(path).end == again.position
        want = expected(split(file)[1][: place.number])
        want["a"] = A, want.get("a", (A, b""))[1] + MORE.tobytes()
        assert held(journal.read(path).tables) == want
        again.close()


def with_room(room: int, most: int, error: int = errno.ENOSPC) -> Callable[[int, bytes, int], int]:
    """An `os.pwrite` that writes `most` bytes at a time, and fails when it has written `room` bytes."""

    def pwrite(file: int, data: bytes, at: int) -> int:
        nonlocal room
        part = data[: min(room, most)]
        if not part:
            raise OSError(error, os.strerror(error))
        room -= len(part)
        return PWRITE(file, part, at)

    return pwrite


def test_a_full_disk_leaves_the_file_whole_and_the_next_flush_writes_everything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small(tmp_path / "whole").close()
    want = (tmp_path / "whole").read_bytes()
    path = tmp_path / "journal"
    made = Journal.create(path, ORIGIN)
    start = path.read_bytes()
    for table, rows in APPENDED:
        made.append(table, rows)
    for room in range(len(want) - len(start)):
        monkeypatch.setattr(os, "pwrite", with_room(room, most=50))
        with pytest.raises(OSError, match=str(path)) as error:
            made.flush()
        assert not isinstance(error.value, LostError)
        assert path.read_bytes() == start
    monkeypatch.setattr(os, "pwrite", with_room(10**6, most=7))
    made.flush()
    assert path.read_bytes() == want
    made.close()


def test_what_is_appended_after_a_failed_flush_comes_after_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small(tmp_path / "whole").close()
    made = Journal.create(tmp_path / "journal", ORIGIN)
    for table, rows in APPENDED:
        made.append(table, rows)
        with monkeypatch.context() as patch:
            patch.setattr(os, "pwrite", with_room(20, most=10**6))
            with pytest.raises(OSError, match="No space"):
                made.sync()
    made.sync()
    assert (tmp_path / "journal").read_bytes() == (tmp_path / "whole").read_bytes()
    made.close()


def test_a_writer_that_cuts_nothing_off_would_leave_a_part_of_an_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = small(tmp_path / "journal")
    made.append("a", MORE)
    monkeypatch.setattr(os, "ftruncate", lambda *_: None)
    monkeypatch.setattr(os, "pwrite", with_room(20, most=50))
    with pytest.raises(OSError):
        made.flush()
    assert journal.read(tmp_path / "journal").damage
    made.close()


@pytest.mark.parametrize("room", [0, 1, 20])
def test_a_journal_for_which_there_is_no_room_can_be_created_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    path = tmp_path / "journal"
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", with_room(room, most=50))
        with pytest.raises(OSError, match="No space"):
            Journal.create(path, ORIGIN)
    assert not path.exists()
    Journal.create(path, ORIGIN).close()
    assert journal.read(path).origin == ORIGIN


def replace(path: Path) -> None:
    path.with_name("other").write_bytes(path.read_bytes())
    path.with_name("other").rename(path)


def move(path: Path) -> None:
    path.parent.rename(path.parent.with_name("moved"))


def put_a_file(path: Path) -> None:
    move(path)
    path.parent.write_bytes(b"")


CHANGES: dict[str, Callable[[Path], object]] = {
    "removed": Path.unlink,
    "replaced": replace,
    "emptied": lambda path: os.truncate(path, 0),
    "shorter": lambda path: os.truncate(path, path.stat().st_size - 1),
    "earlier": lambda path: os.truncate(path, positions(path.read_bytes())[-2].offset),
    "longer": lambda path: os.truncate(path, path.stat().st_size + 1),
    "folder moved": move,
    "folder now a file": put_a_file,
}


def lost(made: Journal, path: Path, change: Callable[[Path], object]) -> bool:
    """Whether it is told that somebody changed the file, and what is there now is left as it is."""
    change(path)
    now = path.read_bytes() if path.exists() else None
    try:
        made.flush()
    except LostError:
        return (path.read_bytes() if path.exists() else None) == now
    finally:
        made.close()
    return False


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The path of a journal in a folder of its own."""
    (tmp_path / "run").mkdir()
    return tmp_path / "run" / "journal"


@pytest.mark.parametrize("more", [True, False])
@pytest.mark.parametrize("name", CHANGES)
def test_a_file_that_somebody_else_changed_is_told(path: Path, name: str, more: bool) -> None:
    made = small(path)
    if more:
        made.append("a", MORE)
    assert lost(made, path, CHANGES[name])


@pytest.mark.parametrize("name", [name for name in CHANGES if name != "longer"])
def test_one_that_was_changed_after_it_was_read_is_told(path: Path, name: str) -> None:
    small(path).close()
    made = Journal.resume(path, positions(path.read_bytes())[-1])
    made.append("a", MORE)
    assert lost(made, path, CHANGES[name])


@pytest.mark.parametrize("name", CHANGES)
def test_a_writer_that_does_not_look_would_tell_nothing(path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = small(path)
    made.append("a", MORE)
    monkeypatch.setattr(Journal, "_check", lambda self: None)
    assert not lost(made, path, CHANGES[name])
