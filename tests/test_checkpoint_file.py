"""The file of a checkpoint: what is none, is damaged or is of another format is told, and a file is always whole."""

import json
import os
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import jdfl
from jdfl.checkpoint import Checkpoint, read_checkpoint
from tests.toy import FEW, network, problem

NOISY = jdfl.Gradients(clip=1.0, mechanism=jdfl.Gaussian(0.5), batch=3, sampling="poisson")
PRIVATE = jdfl.DPSGD(lr=0.02, gradients=NOISY)


@pytest.fixture(scope="module")
def part() -> jdfl.Result:
    """The first rounds of a private run."""
    return jdfl.run(PRIVATE, problem, network, key=3, steps=5, every=2, metrics=FEW)


def read(path: Path) -> Checkpoint:
    return read_checkpoint(path, PRIVATE, problem, network)


def test_files_that_are_none_are_told(part, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"none\.npz, found none. Give the state\.npz"):
        read(tmp_path / "none.npz")
    with pytest.raises(FileNotFoundError, match="found none"):
        read(tmp_path)
    path, array = tmp_path / "state.npz", tmp_path / "array.npy"
    np.save(array, np.zeros(3))
    np.savez(tmp_path / "params.npz", params=np.zeros(3))
    for content in (b"", b"rounds: 5\n", b"PK\x03\x04", array.read_bytes(), (tmp_path / "params.npz").read_bytes()):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"state\.npz, got a file that cannot be read"):
            read(path)


def test_a_damaged_file_is_told_or_the_same(part, tmp_path):
    path = Checkpoint.of(part).write(tmp_path / "state.npz")
    whole, good = path.read_bytes(), read(path)
    for length in range(0, len(whole), max(1, len(whole) // 20)):
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError, match="cannot be read"):
            read(path)
    told = 0
    for place in range(0, len(whole), max(1, len(whole) // 60)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])
        try:
            found = read(path)
        except ValueError:
            told += 1
            continue
        for leaf, like in zip(jax.tree.leaves(found.state), jax.tree.leaves(good.state), strict=True):
            np.testing.assert_array_equal(leaf, like)
        assert found.history.equals(good.history)
        assert (found.ledger.as_dict(), found.key, found.sums) == (good.ledger.as_dict(), good.key, good.sums)
    assert told > 30


def test_another_format_is_told(part, tmp_path):
    path = Checkpoint.of(part).write(tmp_path / "state.npz")
    with np.load(path) as arrays:
        held = dict(arrays)
    told = json.loads(held["told"].tobytes())
    for change, words in (({"format": 2}, "format 1, got 2. Use the same jdfl"), ({"key": None}, "cannot be read")):
        held["told"] = np.frombuffer(json.dumps(told | change).encode(), np.uint8)
        np.savez(path, **held)
        with pytest.raises(ValueError, match=words):
            read(path)


@pytest.mark.parametrize("fails", ["writing", "renaming"])
def test_a_file_is_whole_or_the_one_before(part, tmp_path, monkeypatch, fails):
    path = Checkpoint.of(part).write(tmp_path / "state.npz")
    before = path.read_bytes()

    def full(file, *_: Any, **__: Any) -> None:
        if fails == "writing":
            file.write(b"PK")
        raise OSError("no space left")

    monkeypatch.setattr(*((np, "savez") if fails == "writing" else (os, "replace")), full)
    with pytest.raises(OSError, match="no space"):
        Checkpoint.of(part).write(path)
    with pytest.raises(OSError, match="no space"):
        Checkpoint.of(part).write(tmp_path / "new.npz")
    assert path.read_bytes() == before
    assert [one.name for one in tmp_path.iterdir()] == ["state.npz"]
