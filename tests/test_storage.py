"""Snapshots on disk: what was written comes back, whole, or the one before, or it is told."""

import contextlib
import errno
from collections.abc import Callable
from functools import partial
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from jdfl.engine.checkpoint import Checkpoint
from jdfl.results.checkpoints import SNAPSHOTS, read_checkpoint, write_checkpoint
from jdfl.store import snapshots as storage
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
def kept(tmp_path: Path) -> Path:
    """The folder of snapshots."""
    return tmp_path / "snapshots"


def damage(file: Path, change: Callable[[bytes], bytes]) -> None:
    """Change the content of a file."""
    file.write_bytes(change(file.read_bytes()))


def test_what_is_written_comes_back_and_the_two_newest_are_kept(kept):
    storage.write(kept, 7, ARRAYS, {"words": ["a", None], "odd": float("inf")})
    found = storage.read(kept)
    assert (found.number, found.plain) == (7, {"words": ["a", None], "odd": float("inf")})
    assert list(found.arrays) == list(ARRAYS)
    for one, array in zip(found.arrays.values(), ARRAYS.values()):
        assert (one.dtype, one.shape, one.tobytes()) == (array.dtype, array.shape, array.tobytes())
    for number in (10, 20, 30):
        storage.write(kept, number, ARRAYS, {})
    assert sorted(one.name for one in kept.iterdir()) == ["20.npz", "30.npz"]
    assert storage.newest(kept) == 30
    storage.write(kept, 20, ARRAYS, {"again": True})
    assert [one.name for one in kept.iterdir()] == ["20.npz"]
    assert storage.read(kept).plain == {"again": True}


def test_folders_without_one_and_those_of_another_format_are_told(tmp_path):
    read = partial(read_checkpoint, algorithm=Gossip(), problem=problem(), network=network())
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("12")
    for name in ("none", "empty", "file"):
        assert storage.newest(tmp_path / name) is None
        with refused(FileNotFoundError, name, "checkpoints"):
            read(tmp_path / name)
    with pytest.raises(OSError, match="file/checkpoints"):
        storage.write(tmp_path / "file" / "checkpoints", 1, ARRAYS, {})
    write_checkpoint(tmp_path / "other", Checkpoint.of(run(steps=2)))
    found = storage.read(tmp_path / "other" / SNAPSHOTS)
    storage.write(tmp_path / "other" / SNAPSHOTS, 2, found.arrays, found.plain | {"format": 1})
    with refused("format 8", "1"):
        read(tmp_path / "other")


def test_a_damaged_one_is_told_and_the_one_before_taken(kept):
    for change in (
        lambda content: content[: len(content) // 2],
        lambda content: content.replace(b"number", b"numbre"),
        lambda content: content[:-9] + bytes([content[-9] ^ 0xFF]) + content[-8:],
    ):
        storage.write(kept, 1, ARRAYS, {"number": 1})
        storage.write(kept, 2, ARRAYS, {"number": 2})
        damage(kept / "2.npz", change)
        with pytest.warns(UserWarning, match="snapshots/2"):
            assert storage.read(kept).plain == {"number": 1}
        damage(kept / "1.npz", change)
        with refused("snapshots/2"):
            storage.read(kept)


def test_a_snapshot_that_fails_costs_itself_alone(kept):
    storage.write(kept, 1, ARRAYS, {"number": 1})
    for at in range(12):
        with failing(kept, at, errno.EIO, lasting=False) as disk, contextlib.suppress(OSError):
            storage.write(kept, 2, ARRAYS, {"number": 2})
        assert storage.read(kept).number in (1, 2)
        storage.write(kept, 2, ARRAYS, {})
        assert storage.newest(kept) == 2
        assert not list(kept.glob(".*"))
        if not disk.failed:
            break
    assert at > 2
