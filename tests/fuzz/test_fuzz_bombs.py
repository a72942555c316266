"""Files made to harm: what unpacks without end, asks for memory or holds itself is refused before it is held."""

import pickle
import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jdfl.config import NETWORKS, PROBLEMS
from jdfl.problems import read_cifar10, read_idx, read_libsvm, read_mnist, read_qsar, readers
from tests.fuzz.judge import tried
from tests.fuzz.test_fuzz_files import PACK, cifar_folder, jpeg_folder, npz, one, tarred, zipped
from tests.later import Later

LIMIT = 2**20  # bytes that a file may unpack to here
ZEROS = bytes(48 * LIMIT)
LINES = Later(lambda: b"1 1:1\n" * (len(ZEROS) // 6))
HEAD = struct.pack(">BBBBI", 0, 0, 8, 1, len(ZEROS))
BOMBS: dict[str, tuple[Callable[[], bytes], Callable[[Path, bytes], Any]]] = {
    "libsvm, lines": (lambda: PACK[".gz"](LINES()), lambda at, content: read_libsvm(one(at, "d.gz", content))),
    "idx, xz": (lambda: PACK[".xz"](HEAD + ZEROS), lambda at, content: read_idx(one(at, "i.xz", content))),
    "qsar.zip": (lambda: zipped({"q.csv": ZEROS}), lambda at, content: read_qsar(one(at, "q.zip", content))),
    "tar.gz": (
        lambda: PACK[".gz"](tarred({"data_batch_1": ZEROS})),
        lambda at, content: read_cifar10(one(at, "c.tar.gz", content)),
    ),
    "npz": (
        lambda: npz(jpeg=np.frombuffer(ZEROS, np.uint8), y=[1], offsets=[0]),
        lambda at, content: (jpeg_folder(at, content), read_cifar10(at, verify=False)),
    ),
}


@pytest.fixture(scope="module", autouse=True)
def _imported():
    """What a reader imports when it is first called is not what it holds of a file."""
    import sklearn.datasets  # noqa: F401


@pytest.mark.rotated(3)
@pytest.mark.parametrize("kind", BOMBS)
def test_what_unpacks_without_end_is_refused_before_it_is_held(kind, tmp_path, monkeypatch):
    monkeypatch.setattr(readers, "_UNPACKED", LIMIT)
    monkeypatch.setattr(readers, "_TIMES", 1)
    pack, read = BOMBS[kind]
    content = pack()
    found = tried(lambda: used(lambda: read(tmp_path, content), 24 * LIMIT), kind)
    assert isinstance(found, ValueError)
    assert "unpacks to" in str(found)


def used(call: Callable[[], Any], most: int) -> Any:
    """What a call returns; AssertionError if Python and NumPy have held more than so many bytes meanwhile."""
    tracemalloc.start()
    try:
        return call()
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < most, f"{peak >> 20} MiB"


HEADS = [
    b"\x80\2]r\xff\xff\xff\x7f.",
    b"]p999999999999\n.",
    b"\x80\4\x95\xff\xff\xff\xff\xff\xff\xff\x7f].",
    b"(" * 2**18 + b".",
    b"]" + b"".join(b"q%c](h%ch%ce" % (i, i, i) for i in range(200)) + b".",
    pickle.dumps({b"data": np.zeros((1, 3072), np.uint8), b"labels": [None]}),
]
KNOT: Any = []  # labels that hold one another, so that writing them out would take 2^60 lines
for _ in range(60):
    KNOT = [KNOT, KNOT]
HEADS.append(pickle.dumps({b"data": np.zeros((1, 3072), np.uint8), b"labels": KNOT}, protocol=3))


def test_pickles_that_ask_for_memory_are_refused(tmp_path):
    for content in HEADS:
        cifar_folder(tmp_path, "data_batch_1", content)
        assert isinstance(tried(lambda: used(lambda: read_cifar10(tmp_path), 2**26), content), ValueError)


PLACES: dict[str, Callable[[Path], Any]] = {
    "libsvm": read_libsvm,
    "qsar": read_qsar,
    "idx": read_idx,
    "mnist": read_mnist,
    "cifar": read_cifar10,
    "links": lambda path: NETWORKS("edge-list-file", path=str(path)).build(m=4),
    "clients": lambda path: PROBLEMS("classification", partition="clients", clients=str(path)).build(),
}


@pytest.mark.parametrize("reader", PLACES)
def test_odd_places(reader, tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "empty").touch()
    (tmp_path / "latin").write_bytes("é\nü".encode("latin-1"))
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for place in ("", "missing", "folder", "folder/", "empty", "latin", "a" * 300, "empty/below", "\0", "loop"):
        found = tried(lambda place=place: PLACES[reader](tmp_path / place), place)
        assert isinstance(found, ValueError | OSError)
