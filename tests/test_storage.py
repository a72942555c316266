"""Snapshots on disk: what was written comes back, whole, or the one before, or it is told."""

import contextlib
import errno
import sys
import threading
from functools import partial
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from jdfl.engine.checkpoint import Checkpoint
from jdfl.engine.checkpoints import read_checkpoint
from jdfl.store import snapshots as storage
from jdfl.store.journal import Position
from tests.crashing import failing
from tests.refused import refused
from tests.toy import Gossip, network, problem, run

ARRAYS = {
    "none": np.zeros((0, 3)),
    "one": np.float32(3.5) * np.ones(()),
    "half": np.ones((3, 2), ml_dtypes.bfloat16) / 3,
    "flags": np.array([True, False]),
    "columns": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    "odd": np.array([np.nan, np.inf, -0.0], np.float16),
}


@pytest.fixture
def writer(tmp_path):
    writer = storage.Writer(tmp_path / "deep" / "snapshots")
    yield writer
    writer.close()


def damage(folder: Path, change) -> None:
    """Change the content of every file that holds some."""
    for file in folder.rglob("*"):
        if file.is_file() and (content := file.read_bytes()):
            file.write_bytes(change(content))


def test_what_is_written_comes_back(writer):
    writer.write(7, ARRAYS, {"words": ["a", None], "odd": float("inf")})
    writer.finish()
    found = storage.read(writer.folder)
    assert (found.number, found.told) == (7, {"words": ["a", None], "odd": float("inf")})
    assert list(found.arrays) == list(ARRAYS)
    for one, array in zip(found.arrays.values(), ARRAYS.values()):
        assert (one.dtype, one.shape, one.tobytes()) == (array.dtype, array.shape, array.tobytes())


def test_large_arrays_come_back_in_their_pieces(writer, monkeypatch):
    monkeypatch.setattr(storage, "_SMALL", 40)
    monkeypatch.setattr(storage, "_PART", 100)
    arrays = {f"a{i}": np.arange(i, dtype=np.float32) for i in (3, 200, 5, 6, 0, 4, 90)}
    writer.write(1, arrays, {})
    writer.finish()
    found = storage.read(writer.folder).arrays
    assert list(found) == list(arrays)
    assert all(np.array_equal(found[name], arrays[name]) for name in arrays)


def test_arrays_may_change_while_they_are_written(writer):
    x = np.zeros(2_000_000)
    writer.write(1, {"x": x}, {})
    x[:] = 1
    writer.finish()
    assert not storage.read(writer.folder).arrays["x"].any()


def test_the_two_newest_are_kept_and_a_past_that_is_written_anew_goes(writer):
    for number in (10, 20, 30):
        writer.write(number, ARRAYS, {})
    writer.finish()
    assert sorted(one.name for one in writer.folder.iterdir()) == ["20", "30"]
    assert storage.newest(writer.folder) == 30
    writer.write(20, ARRAYS, {"again": True})
    writer.finish()
    assert [one.name for one in writer.folder.iterdir()] == ["20"]
    assert storage.read(writer.folder).told == {"again": True}


def test_folders_without_one_and_those_of_another_format_are_told(tmp_path):
    read = partial(read_checkpoint, algorithm=Gossip(), problem=problem(), network=network())
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("12")
    for name in ("none", "empty", "file"):
        assert storage.newest(tmp_path / name) is None
        with refused(FileNotFoundError, name, "checkpoints"):
            read(tmp_path / name)
    writer = storage.Writer(tmp_path / "file" / "checkpoints")
    with pytest.raises(OSError, match="file/checkpoints"):
        writer.write(1, ARRAYS, {})
    arrays, told = Checkpoint.of(run(steps=2)).stored(Position(0, 0, ""))
    writer = storage.Writer(tmp_path / "other")
    writer.write(5, arrays, told | {"format": 1})
    writer.close()
    with refused("format 7", "1"):
        read(tmp_path / "other")


def test_a_damaged_one_is_told_and_the_one_before_taken(writer):
    for change in (
        lambda content: content[: len(content) // 2],
        lambda content: content[:-9] + bytes([content[-9] ^ 0xFF]) + content[-8:] if content[8:] else b"",
    ):
        writer.write(1, ARRAYS, {"number": 1})
        writer.write(2, ARRAYS, {"number": 2})
        writer.finish()
        damage(writer.folder / "2", change)
        with pytest.warns(UserWarning, match="snapshots/2"):
            assert storage.read(writer.folder).told == {"number": 1}
        damage(writer.folder / "1", change)
        with refused("snapshots/2"):
            storage.read(writer.folder)


def test_a_snapshot_that_fails_costs_itself_alone_and_no_thread_waits_for_it(tmp_path):
    for at in range(12):
        writer = storage.Writer(tmp_path / str(at))
        with failing(tmp_path, at, errno.EIO, lasting=False) as disk, contextlib.suppress(OSError):
            writer.write(1, ARRAYS, {})
            writer.finish()
        writer.write(2, ARRAYS, {})
        writer.close()
        assert (storage.newest(tmp_path / str(at)), bool(disk.failed)) == (2, True)
    frames = sys._current_frames()
    pools = {thread for thread, frame in frames.items() if frame.f_code.co_name == "_worker"}  # idle
    left = [one.name for one in threading.enumerate() if not one.daemon and one.ident in frames.keys() - pools]
    assert left == [threading.main_thread().name]
