"""The writer of a journal: what it refuses, full disks, and files that somebody else has changed."""

import errno
import os
from collections.abc import Callable
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from jdfl.store import journal
from jdfl.store.journal import Journal
from jdfl.store.lease import LostError
from tests.refused import refused
from tests.store.journals import APPENDED, ORIGIN, A, expected, held, move, positions, put_a_file, small, split

MORE = np.array([(7,), (8,)], A)
PWRITE = os.pwrite
UNREADABLE = [
    *(np.dtype([("x", name)]) for name in ("<i4", "<f2", ">f8", "?", "<U3", "O")),
    *(np.dtype([("x", "<f8", (2,))]), np.dtype([("x", [("y", "<f8")])]), np.dtype([]), np.dtype("<f8")),
    np.dtype([("x", "<f4"), ("y", "<f8")], align=True),
]


def test_a_new_file_and_what_is_synced_are_on_the_disk_and_nothing_is_written_before_flush(tmp_path, monkeypatch):
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda file: synced.append(os.fstat(file).st_ino))
    path = tmp_path / "journal"
    made = Journal.create(path, ORIGIN)
    file, folder, empty = path.stat().st_ino, tmp_path.stat().st_ino, path.read_bytes()
    made.append("a", MORE)
    assert path.read_bytes() == empty
    assert journal.read(path).end == positions(empty)[0]
    made.flush()
    assert synced == [file, folder]
    made.sync()
    assert synced == [file, folder, file]
    assert journal.read(path).end == made.position
    whole = path.read_bytes()
    with pytest.raises(FileExistsError):
        Journal.create(path, ORIGIN)
    assert path.read_bytes() == whole
    made.close()


def test_rows_that_could_not_be_read_are_refused_before_anything_changes(tmp_path):
    made, path = small(tmp_path / "journal"), tmp_path / "journal"
    before, place = path.read_bytes(), made.position
    others = [[("x", "<f8")], [("y", "<i8")], [("x", "<i8"), ("y", "<i8")], [("z", "<f4"), ("y", "<f8")]]
    wrong = [(table, kind) for table in ("a", "new") for kind in UNREADABLE]
    for table, kind in wrong + [(table, np.dtype(kind)) for table in ("a", "b") for kind in others]:
        with pytest.raises(ValueError):
            made.append(table, np.zeros(2, kind))
        assert made.position == place
    made.flush()
    assert path.read_bytes() == before
    made.append("new", MORE)
    made.flush()
    assert held({"new": journal.read(path).rows("new")}) == held({"new": MORE})
    made.close()


def test_more_rows_than_an_entry_may_have_come_back(tmp_path, monkeypatch):
    monkeypatch.setattr(journal, "_MOST", 100)
    rows = np.arange(1000).view(A)
    made = Journal.create(tmp_path / "journal", ORIGIN)
    made.append("a", rows)
    made.flush()
    made.close()
    found = journal.read(tmp_path / "journal")
    assert (held(found.tables), found.end, found.damage) == (held({"a": rows}), made.position, "")


def test_what_stands_after_a_position_goes_when_something_is_written_and_not_before(tmp_path):
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


def test_a_full_disk_leaves_the_file_whole_and_the_next_flush_writes_everything(tmp_path, monkeypatch):
    small(tmp_path / "whole").close()
    want, path = (tmp_path / "whole").read_bytes(), tmp_path / "journal"
    for room in (0, 1, 20):
        monkeypatch.setattr(os, "pwrite", with_room(room, most=50))
        with pytest.raises(OSError):
            Journal.create(path, ORIGIN)
        assert not path.exists()
    monkeypatch.setattr(os, "pwrite", PWRITE)
    made = Journal.create(path, ORIGIN)
    start = path.read_bytes()
    for table, rows in APPENDED:
        made.append(table, rows)
        for room in range(0, len(want) - len(start), 1 if table == "b" else 7):
            monkeypatch.setattr(os, "pwrite", with_room(room, most=50))
            if room < 20:
                with refused(OSError, str(path)) as error:
                    made.flush()
                assert not isinstance(error.value, LostError)
                assert path.read_bytes() == start
    monkeypatch.setattr(os, "pwrite", with_room(10**6, most=7))
    made.flush()
    assert path.read_bytes() == want
    made.close()


def replace(path: Path) -> None:
    path.with_name("other").write_bytes(path.read_bytes())
    path.with_name("other").rename(path)


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


def test_a_file_that_somebody_else_changed_is_told_and_left(tmp_path):
    for kind, name in product(("waiting", "nothing waiting", "resumed"), CHANGES):
        if (kind, name) == ("resumed", "longer"):
            continue  # what stands after a position is nobody's
        path = tmp_path / kind / name / "run" / "journal"
        path.parent.mkdir(parents=True)
        made = small(path)
        if kind == "resumed":
            made.close()
            made = Journal.resume(path, positions(path.read_bytes())[-1])
        if kind != "nothing waiting":
            made.append("a", MORE)
        CHANGES[name](path)
        now = path.read_bytes() if path.exists() else None
        with pytest.raises(LostError):
            made.flush()
        assert (path.read_bytes() if path.exists() else None) == now
        made.close()
