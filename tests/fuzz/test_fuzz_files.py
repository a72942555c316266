"""Files of data: what was damaged, cut or made to harm is told, in bounded time and memory; nothing is half read."""

import bz2
import gzip
import io
import lzma
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import strategies as st
from PIL import Image

from jdfl.config import NETWORKS
from jdfl.problems import read_cifar10, read_idx, read_libsvm, read_mnist, read_qsar
from tests.fuzz.judge import fuzz, sizes, tried
from tests.fuzz.strategies import damaged
from tests.problems.test_cifar import NAMES, cifar_like, old_pickled, pickled
from tests.problems.test_images import idx

PACK: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": lambda content: gzip.compress(content, mtime=0),
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
}
LIBSVM = b"-1 1:0.5 3:-2\n+1 2:1 # comment\n-1 \n+1 1:1e-3 4:7\n+1 3:0.25 4:-1e-30\n"
LINE = ";".join(["0", "1"] * 512)
QSAR = f"{LINE};positive\n{LINE[::-1]};negative\n".encode()
PICTURES = (np.arange(3 * 4 * 5) % 251).astype(np.uint8).reshape(3, 4, 5)
LABELS = np.array([0, 9, 4], np.uint8)
ODD_NUMBERS = ["nan", "inf", "-inf", "1e400", "-1", "0", "9" * 20, "2147483648", "4294967297", "x", "", "1.5"]


def zipped(files: dict[str, bytes]) -> bytes:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as archive:
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)
    return held.getvalue()


def tarred(files: dict[str, bytes]) -> bytes:
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(f"cifar/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return held.getvalue()


def npz(**arrays: Any) -> bytes:
    held = io.BytesIO()
    np.savez_compressed(held, **arrays)
    return held.getvalue()


def jpeg(colour: int) -> bytes:
    held = io.BytesIO()
    Image.new("RGB", (32, 32), (colour, 50, 200)).save(held, "JPEG")
    return held.getvalue()


BATCH = cifar_like(count=1)[0]
PARTS = [jpeg(10), jpeg(90)]
JPEG = npz(
    jpeg=np.frombuffer(b"".join(PARTS), np.uint8),
    offsets=np.cumsum([0, *map(len, PARTS)]),
    y=np.array([1, 2], np.uint8),
)


LINKS = io.BytesIO()
sp.save_npz(LINKS, sp.csr_matrix(np.roll(np.eye(4), 1, axis=1) + np.roll(np.eye(4), -1, axis=1)))


def idx_folder(folder: Path, part: str, content: bytes) -> None:
    """A set in the form of MNIST one of whose four files has this content."""
    good = {"images-idx3-ubyte": idx(PICTURES), "labels-idx1-ubyte": idx(LABELS)}
    for name in (f"{which}-{kind}" for which in ("train", "t10k") for kind in good):
        (folder / name).write_bytes(content if name.startswith(part) else good[name.partition("-")[2]])


def cifar_folder(folder: Path, name: str, content: bytes) -> None:
    """A folder of batches of which the third has this content."""
    for other in folder.iterdir():
        other.unlink()
    for batch in NAMES:
        (folder / batch).write_bytes(pickled(BATCH))
    (folder / name).write_bytes(content)


def jpeg_folder(folder: Path, content: bytes) -> None:
    for name in ("cifar10_jpeg_train_0.npz", "cifar10_jpeg_train_1.npz", "cifar10_jpeg_test.npz"):
        (folder / name).write_bytes(content if name.endswith("1.npz") else JPEG)


def one(folder: Path, name: str, content: bytes) -> Path:
    """A folder's only file."""
    path = folder / name
    path.write_bytes(content)
    return path


def linked(folder: Path, name: str, content: bytes, **how: Any) -> Any:
    """The network of a folder's only file."""
    return NETWORKS("edge-list-file", path=str(one(folder, name, content)), **how).build(m=4)


def cifar_member(content: bytes) -> bytes:
    return tarred({name: content if name == "data_batch_3" else pickled(BATCH) for name in NAMES})


KINDS: dict[str, tuple[bytes, Callable[[Path, bytes], Any]]] = {
    "libsvm": (LIBSVM, lambda at, content: read_libsvm(one(at, "d", content))),
    "libsvm, width": (LIBSVM, lambda at, content: read_libsvm(one(at, "d", content), n_features=4, binary=False)),
    "libsvm.bz2": (PACK[".bz2"](LIBSVM), lambda at, content: read_libsvm(one(at, "d.bz2", content))),
    "libsvm.xz": (PACK[".xz"](LIBSVM), lambda at, content: read_libsvm(one(at, "d.xz", content))),
    "qsar": (QSAR, lambda at, content: read_qsar(one(at, "q.csv", content))),
    "qsar.zip": (zipped({"q.csv": QSAR}), lambda at, content: read_qsar(one(at, "q.zip", content))),
    "idx": (idx(PICTURES), lambda at, content: read_idx(one(at, "i", content))),
    "idx, floats": (idx(PICTURES[0].astype(np.float64)), lambda at, content: read_idx(one(at, "i", content))),
    "mnist, images": (idx(PICTURES), lambda at, content: (idx_folder(at, "t10k-images", content), read_mnist(at))),
    "mnist, labels": (idx(LABELS), lambda at, content: (idx_folder(at, "train-labels", content), read_mnist(at))),
    "cifar, pickled": (
        pickled(BATCH),
        lambda at, content: (cifar_folder(at, "data_batch_3", content), read_cifar10(at)),
    ),
    "cifar, old": (
        old_pickled(BATCH),
        lambda at, content: (cifar_folder(at, "data_batch_3", content), read_cifar10(at)),
    ),
    "cifar, tar.gz": (
        PACK[".gz"](cifar_member(pickled(BATCH))),
        lambda at, content: read_cifar10(one(at, "c.tar.gz", content)),
    ),
    "cifar, jpeg": (JPEG, lambda at, content: (jpeg_folder(at, content), read_cifar10(at, verify=False))),
    "links.npz": (
        LINKS.getvalue(),
        lambda at, content: linked(at, "l.npz", content),
    ),
    "links": (
        b"0 1\n1 2  # c\n\n2,3\n3 0\n",
        lambda at, content: linked(at, "l", content),
    ),
}


CHECKED = ("libsvm.bz2", "libsvm.xz", "qsar.zip", "cifar, tar.gz", "cifar, jpeg")
CONCATENATED = ("libsvm.bz2", "libsvm.xz")  # lines, in formats whose files may follow one another


@pytest.mark.parametrize("kind", KINDS)
@sizes(40, 250)
def test_any_damage(kind, count, tmp_path):
    """What was packed with a checksum comes back as it was, or not at all; a packed file twice is its lines twice."""
    whole, read = KINDS[kind]
    good = arrays(read(tmp_path, whole))

    def check(content: bytes) -> None:
        found = tried(lambda: read(tmp_path, content), content)
        if kind in CHECKED and not isinstance(found, Exception):
            copies = len(content) // len(whole)
            twice = kind in CONCATENATED and copies > 1 and content == whole * copies
            for array, like in zip(arrays(found), good, strict=True):
                np.testing.assert_array_equal(array, np.concatenate([like] * copies) if twice else like)

    fuzz(count, damaged(whole), check)


def arrays(found: Any) -> list[np.ndarray]:
    """All that was read."""
    if isinstance(found, tuple):
        return [array for one in found if one is not None for array in arrays(one)]
    return [found.toarray() if hasattr(found, "toarray") else np.asarray(found)]


ROWS = st.tuples(*(st.sampled_from([*more, *ODD_NUMBERS]) for more in (["1", "-1"], ["1", "2"], [])))
LINES = st.lists(ROWS, max_size=4).map(lambda rows: "\n".join(f"{a} {b}:{c}" for a, b, c in rows))


@sizes(40, 400)
def test_odd_numbers_in_text(count, tmp_path):
    def check(text: str) -> None:
        tried(lambda: read_libsvm(one(tmp_path, "d", text.encode()), binary=False), text)
        links = text.replace(":", " ").encode()
        tried(lambda: linked(tmp_path, "l", links, connected=False), links)

    fuzz(count, LINES, check)
