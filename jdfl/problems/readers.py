"""Readers of files of examples on the host: LIBSVM text, the QSAR oral toxicity table, the MNIST family and CIFAR-10.

A file that is damaged, in another format or too large when unpacked raises ValueError with its name and what is wrong.

Axes: N examples, M test examples, h rows and w columns of pixels, p features.
"""

import bz2
import gzip
import hashlib
import io
import lzma
import os
import pickle
import pickletools
import tarfile
import zipfile
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

import numpy as np
from PIL import Image
from scipy.sparse import csr_matrix

from jdfl.base import checks
from jdfl.base.arguments import checked
from jdfl.base.names import aligned, labels_of, unlabelled
from jdfl.problems.places import CIFAR_BATCHES, CIFAR_JPEG, MNIST_PARTS, find_cifar10, find_part

Features = np.ndarray | csr_matrix
PathLike = str | os.PathLike[str]
Batch = tuple[np.ndarray, np.ndarray]  # images [N, 32, 32, 3] uint8, labels [N] int32

# SHA-256 of the files as distributed with the studies of this package, by name, including compression. Files of the
# MNIST family share names and come in several compressions: theirs are by set and part, of the decompressed content.
_LINES = files(__name__.rpartition(".")[0]).joinpath("checksums.txt").read_text(encoding="utf-8").splitlines()
CHECKSUMS = {name: checksum for checksum, name in map(str.split, _LINES)}
_DECOMPRESSORS: dict[str, Callable[[], Any]] = {".bz2": bz2.BZ2Decompressor, ".xz": lzma.LZMADecompressor}
_UNPACKED, _TIMES = 2**26, 100  # bytes that every file may unpack to; larger files may unpack to 100 times their size
_PIECE = 2**17  # bytes read at once
_IDX_TYPES = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
_WORDS = 2**20  # of a pickle, and places in its memory; the original ones have some 60,000


@dataclass(frozen=True)
class Dataset:
    """Examples for classification, with a test set if the source has one.

    Readers, generators and `jdfl.problems.load` return it; `classification` splits it over the nodes. Everything is on
    the host: NumPy arrays, or CSR matrices of SciPy for text. Axes: N examples, M test examples, p features.
    """

    name: str
    features: Features  # [N, p] float32; CSR for text
    labels: np.ndarray  # [N] int32, 0..classes-1
    test_features: Features | None = None  # [M, p] float32, if the source has a test set
    test_labels: np.ndarray | None = None  # [M] int32
    source: str = ""  # who published it, and where
    standardise: bool = False  # columns of very different scales: use mean 0, variance 1 of the training examples

    def __post_init__(self) -> None:
        """Labels and columns in the order of the features, as arrays without labels of their own."""
        headings = labels_of(self.features, axis=1)
        rows = aligned("test_features", self.test_features, headings, "features", axis=1)
        parts = {
            "labels": aligned("labels", self.labels, labels_of(self.features), "features"),
            "test_labels": aligned("test_labels", self.test_labels, labels_of(rows), "test_features"),
            "features": self.features,
            "test_features": rows,
        }
        for name, value in parts.items():
            object.__setattr__(self, name, unlabelled(value))

    @property
    def classes(self) -> int:
        """The number of classes, which is the largest training label plus one."""
        return int(self.labels.max()) + 1

    @property
    def test(self) -> tuple[Any, np.ndarray] | None:
        """The features [M, p] and labels [M] of the test set; None if either is missing."""
        if self.test_features is None or self.test_labels is None:
            return None
        return self.test_features, self.test_labels


class Images(NamedTuple):
    """Images with their classes, and a test set, as stored in files: bytes from 0 to 255."""

    images: np.ndarray  # [N, h, w] or [N, h, w, 3] uint8
    labels: np.ndarray  # [N] int32, 0..9
    test_images: np.ndarray  # [M, h, w] or [M, h, w, 3] uint8
    test_labels: np.ndarray  # [M] int32
    lossy: bool = False  # decoded from JPEG: not the pixels of the original


@checked
def read_libsvm(
    path: PathLike, *, n_features: int | None = None, binary: bool = True, verify: bool = True
) -> tuple[csr_matrix, np.ndarray]:
    """Read LIBSVM text (`label index:value ...`, indices from 1), plain, .gz, .bz2 or .xz.

    Returns features [N, n_features] as float32 CSR and labels [N]: int32 in {0, 1} in the order of the two values
    found, or float64.

    Args:
        path: The file.
        n_features: Number of features; None: the largest index. Give it for a test file, which may lack the last
            features.
        binary: Number the two classes 0 and 1 instead of returning the values of the file.
        verify: Compare a file with a known name with its checksum.

    Raises ValueError for a file that is damaged, in another format or not of two classes.
    """
    from sklearn.datasets import load_svmlight_file  # which takes longer to import than all of jdfl

    with _opened(path, "LIBSVM text (`label index:value ...`, ascending indices from 1)", verify) as pieces:
        lines = _Lines(pieces)
        try:
            parse = cast(Any, load_svmlight_file)
            X, y = parse(lines, n_features=n_features, dtype=np.float32, zero_based=False)
        except (ValueError, IndexError, OverflowError) as error:
            width = "" if n_features is None else f" with n_features = {n_features}"
            raise ValueError(f"{str(error)[:200]} in line {lines.count}{width}") from error
        if X.shape[0] == 0:
            raise ValueError("an empty file")
        finite = np.isfinite(y + np.asarray(X.sum(axis=1, dtype=np.float64)).ravel())
        if not finite.all():
            raise ValueError(f"numbers that are not finite in row {int(np.argmin(finite)) + 1}")
        found = np.unique(y)
        if binary and len(found) != 2:
            raise ValueError(f"{len(found)} classes, {found[:5]}, instead of two (binary=False takes all)")
    return X, (y == found[1]).astype(np.int32) if binary else y


@checked
def read_qsar(path: PathLike, *, verify: bool = True) -> tuple[np.ndarray, np.ndarray]:
    """Read the UCI QSAR oral toxicity table: the csv (plain, .gz, .bz2, .xz) or the zip that contains it.

    Every line has 1,024 bits and `positive` or `negative`, separated by `;`. Returns the bits as float32 [N, 1024] and
    int32 labels [N], 1 = positive.

    Args:
        path: The file.
        verify: Refuse a file with the published name but other content.

    Raises ValueError for a file that is damaged or in another format.
    """
    n = 1024
    with _opened(path, "lines of 1,024 bits and `positive` or `negative`, separated by `;`,", verify) as pieces:
        if Path(path).suffix == ".zip":
            with zipfile.ZipFile(path) as archive:
                (name,) = (one for one in archive.namelist() if one.endswith(".csv"))
                content = _member(archive, name, Path(path))
        else:
            content = b"".join(pieces)
        rows: list[list[bytes]] = []
        for number, line in enumerate(content.splitlines(), start=1):
            row = line.strip().split(b";")
            if row == [b""]:
                continue
            if len(row) != n + 1:
                raise ValueError(f"{len(row)} columns in line {number}")
            odd = {*row[:n]} - {b"0", b"1"} or {row[n]} - {b"positive", b"negative"}
            if odd:
                raise ValueError(f"{min(odd).decode('latin-1')!r} in line {number}")
            rows.append(row)
        if not rows:
            raise ValueError("an empty file")
    table = np.array(rows)
    return (table[:, :n] == b"1").astype(np.float32), (table[:, n] == b"positive").astype(np.int32)


@checked
def read_idx(path: PathLike) -> np.ndarray:
    """Read an IDX file (plain, .gz, .bz2 or .xz): an array [...] of any type and number of dimensions, in native order.

    Format: two zero bytes, the type, the number of dimensions, each dimension as a big-endian 32-bit integer, the
    entries, big-endian, last axis fastest (http://yann.lecun.com/exdb/mnist).

    Args:
        path: The file.

    Raises ValueError for another magic number, an unknown type, and fewer or more entries than the header says.
    """
    return _read_idx(path)[0]


def _read_idx(path: PathLike) -> tuple[np.ndarray, str]:
    """The array, and the SHA-256 of the decompressed file."""
    what = "an IDX file (00 00, a type, the number of dimensions, the dimensions, the entries)"
    with _opened(path, what) as pieces:
        content = b"".join(pieces)
        if len(content) < 4 or content[:2] != b"\0\0" or content[2] not in _IDX_TYPES:
            raise ValueError(f"the magic number {content[:4].hex(' ')}")
        begin = 4 + 4 * content[3]
        shape = tuple(np.frombuffer(content[4:begin], ">u4").tolist())
        kind = np.dtype(_IDX_TYPES[content[2]])
        array = np.frombuffer(content, kind, offset=begin).reshape(shape)
    return array.astype(kind.newbyteorder("=")), hashlib.sha256(content).hexdigest()


@checked
def read_mnist(folder: PathLike, *, known: str = "") -> Images:
    """Read the four IDX files of MNIST, Fashion-MNIST or another set in the same format.

    File names as distributed: train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-..., also with a dot before idx,
    plain or compressed.

    Args:
        folder: The folder with the files.
        known: "mnist" or "fashion_mnist" compares the decompressed content with checksums: the two share file names.

    Raises FileNotFoundError for a missing file, ValueError for images and labels that do not belong together and for
    labels outside 0..9.
    """
    arrays: list[np.ndarray] = []
    paths = [find_part(Path(folder), part) for part in MNIST_PARTS]
    for part, path in zip(MNIST_PARTS, paths):
        array, digest = _read_idx(path)
        _check_digest(f"{path}, the {part} of {known}, after decompression,", f"{known}/{part}", digest)
        arrays.append(array)
    for k in (0, 2):
        images, place = arrays[k], paths[k]
        if images.ndim != 3 or images.dtype != np.uint8 or images.shape[1:] != arrays[0].shape[1:]:
            raise ValueError(
                f"Expected images of uint8 in {place}, as large as the training images, got {len(images)} images of "
                f"{images.dtype} {images.shape[1:]}. Download it again."
            )
        try:
            arrays[k + 1] = _class_labels(arrays[k + 1], len(images))
        except ValueError as error:
            raise ValueError(
                f"Expected labels of the {len(images)} images in {paths[k + 1]}, got {error}. Download it again."
            ) from None
    return Images(*arrays, lossy=False)


@checked
def read_cifar10(place: PathLike, *, verify: bool = True) -> Images:
    """Read CIFAR-10, images [N, 32, 32, 3] with the colours last, from the original batches or from JPEG files.

    Accepted are the pickled batches (data_batch_1, ...), from which only numbers are unpickled, a .tar.gz of them, and
    three .npz files of JPEG images (arrays `jpeg`, the concatenated bytes of the images, `offsets` [N + 1] and `y`
    [N]), which are `lossy`.

    Args:
        place: An archive, the folder of the batches or of the JPEG files, or the folder that contains one of these.
        verify: Compare files with known names with their checksums.

    Raises FileNotFoundError for a missing batch, ValueError for a damaged one.
    """
    source = find_cifar10(place)
    lossy = source.is_dir() and not (source / CIFAR_BATCHES[0]).is_file()
    parts: list[Batch] = []
    if lossy:
        parts += [_read_jpeg(source / name, verify) for name in CIFAR_JPEG]
    elif source.is_dir():
        for path in (source / name for name in CIFAR_BATCHES):
            with _opened(path, "a pickled batch of CIFAR-10") as pieces:
                parts.append(_batch(b"".join(pieces)))
    else:
        with (
            _opened(source, f"a .tar.gz with {', '.join(CIFAR_BATCHES)}") as pieces,
            tarfile.open(fileobj=io.BytesIO(b"".join(pieces)), mode="r:") as archive,
        ):
            members = {Path(one.name).name: one for one in archive if one.isreg()}
            for name in CIFAR_BATCHES:
                member = cast(IO[bytes], archive.extractfile(members[name]))
                parts.append(_batch(b"".join(_pieces(member, source))))
    images, labels = (np.concatenate(arrays) for arrays in zip(*parts[:-1]))
    return Images(images, labels, *parts[-1], lossy=lossy)


def _batch(content: bytes) -> Batch:
    """A pickled dict of `data` [N, 3072], the colours' planes, and `labels`, a list."""
    for number, (word, at, _) in enumerate(pickletools.genops(content)):
        if number >= _WORDS or (word.name.endswith("PUT") and isinstance(at, int) and at >= _WORDS):
            raise pickle.UnpicklingError(f"more than {_WORDS} words or places")  # for memory or time
    found: Any = _Numbers(io.BytesIO(content), encoding="bytes").load()
    planes, labels = found[b"data"], found[b"labels"]
    if not isinstance(planes, np.ndarray) or planes.dtype != np.uint8 or planes.shape[1:] != (3072,):
        raise ValueError(f"data of {getattr(planes, 'dtype', type(planes))} {np.shape(planes)}, not uint8 [N, 3072]")
    if not isinstance(labels, list) or not all(type(one) is int and 0 <= one <= 9 for one in labels):
        raise ValueError("labels that are no list of numbers 0..9")
    images = planes.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return images, _class_labels(np.array(labels, np.int64), len(images))


def _dtype(kind: str | bytes, align: object = False, copy: object = False) -> np.dtype:
    """The type that old pickles request as dtype("u1", 0, 1)."""
    name = kind.decode("latin-1") if isinstance(kind, bytes) else kind
    if name not in ("u1", "i4", "i8"):
        raise pickle.UnpicklingError(f"dtype {name!r}, not one of u1, i4, i8")
    # A pickle sets the state of this type next, which must not be that of the type shared by all arrays.
    return np.dtype(name, copy=True)


_empty: Any = np.empty(0).__reduce__()[0]
_KNOWN: dict[str, Any] = {
    "numpy.ndarray": np.ndarray,
    "numpy.dtype": _dtype,
    "numpy.core.multiarray._reconstruct": _empty,
    "numpy._core.multiarray._reconstruct": _empty,
}


class _Numbers(pickle.Unpickler):
    """Builds arrays of integers and refuses every other class or function that a pickle names."""

    def find_class(self, module_name: str, global_name: str, /) -> Any:
        name = f"{module_name}.{global_name}"
        if name not in _KNOWN:
            raise pickle.UnpicklingError(f"{name}, which is not loaded")
        return _KNOWN[name]


def _read_jpeg(path: Path, verify: bool) -> Batch:
    with _opened(path, "a .npz with JPEG images of 32 x 32 pixels in jpeg, offsets and y", verify):
        with zipfile.ZipFile(path) as archive:
            content = [io.BytesIO(_member(archive, f"{name}.npy", path)) for name in ("jpeg", "offsets", "y")]
        jpeg, offsets, labels = (np.lib.format.read_array(one, allow_pickle=False) for one in content)
        labels = _class_labels(labels, labels.size)
        if jpeg.dtype != np.uint8 or jpeg.ndim != 1 or offsets.shape != (len(labels) + 1,):
            raise ValueError(f"jpeg of {jpeg.dtype} and offsets {offsets.shape} for {len(labels)} labels")
        images = np.empty((len(labels), 32, 32, 3), np.uint8)
        for k, (low, high) in enumerate(pairwise(offsets.tolist()), start=1):
            if not 0 <= low < high <= len(jpeg):
                raise ValueError(f"the offsets {low} and {high} of image {k}")
            try:
                with Image.open(io.BytesIO(jpeg[low:high].tobytes()), formats=("JPEG",)) as image:
                    if (image.size, image.mode) != ((32, 32), "RGB"):
                        raise ValueError(f"{image.size} pixels, {image.mode}")
                    images[k - 1] = np.asarray(image)
            except Exception as error:  # damaged images raise errors of all kinds
                raise ValueError(f"image {k}: {checks.message(error)}") from error
    return images, labels


def _member(archive: zipfile.ZipFile, name: str, path: Path) -> bytes:
    """One file of a .zip or .npz file."""
    with archive.open(name) as member:
        return b"".join(_pieces(member, path))


def _class_labels(labels: np.ndarray, count: int) -> np.ndarray:
    """Labels [count] as int32; ValueError unless there is one of 0..9 for every image, and at least one."""
    if labels.shape != (count,) or count == 0 or labels.dtype.kind not in "iu":
        raise ValueError(f"labels of {labels.dtype} {labels.shape} for {count} images")
    bad = np.flatnonzero((labels < 0) | (labels > 9))
    if bad.size:
        raise ValueError(f"the label {labels[bad[0]]} for image {bad[0] + 1}")
    return labels.astype(np.int32)


@contextmanager
def _opened(path: PathLike, what: str, verify: bool = False) -> Generator[Iterator[bytes]]:
    """The decompressed pieces of a file; whatever goes wrong with it is a ValueError that names it."""
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"Expected a file at {path}, found none. Check the path, or download the data there.")
    if verify and path.name in CHECKSUMS:
        _check_digest(str(path), path.name, sha256(path))
    try:
        with (gzip.open if path.suffix == ".gz" else open)(path, "rb") as file:
            yield _pieces(cast(IO[bytes], file), path, _DECOMPRESSORS.get(path.suffix))
    except Exception as error:  # damaged archives and pickles raise errors of all kinds
        text = checks.message(error) if isinstance(error, ValueError | OSError) else repr(error)[:200]
        raise ValueError(
            f"Expected {what} in {path}, got {text.rstrip('.')}. Correct it, or download it again."
        ) from error


def _pieces(file: IO[bytes], path: Path, decompressor: Callable[[], Any] | None = None) -> Iterator[bytes]:
    """The content of a stream that belongs to a file; ValueError for more than a file of that size may hold."""
    most = left = max(_UNPACKED, _TIMES * path.stat().st_size)
    for piece in iter(lambda: file.read(_PIECE), b"") if decompressor is None else _streams(file, decompressor):
        left -= len(piece)
        if left < 0:  # it is built to fill the memory
            raise ValueError(f"a file that unpacks to more than {most} bytes")
        yield piece


def _streams(file: IO[bytes], decompressor: Callable[[], Any]) -> Iterator[bytes]:
    """Consecutive .bz2 or .xz streams; `bz2.open` and `lzma.open` take damage at the beginning of one for the end."""
    packed = b""
    while packed := packed or file.read(_PIECE):
        if packed := packed.lstrip(b"\0"):  # zeros may separate streams
            one = decompressor()
            while not one.eof:
                if one.needs_input and not (packed := packed or file.read(_PIECE)):
                    raise EOFError("it ends within its data")
                yield one.decompress(packed, _PIECE)
                packed = b""
            packed = one.unused_data


def sha256(path: Path) -> str:
    """The SHA-256 of a file."""
    with path.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _check_digest(place: str, name: str, found: str) -> None:
    """ValueError unless a file of a known name has the SHA-256 that is known."""
    if (expected := CHECKSUMS.get(name, found)) != found:
        raise ValueError(
            f"Expected {place} with SHA-256 {expected}, got {found}: the file is damaged or another release of the "
            "data. Download it again, or pass verify=False to read it as it is."
        )


class _Lines:
    """The lines of a file, counted, so that an error can name one."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self.count = 0
        self.read = pieces.__next__  # scikit-learn takes what can be read for an open file
        self._pieces = pieces

    def __iter__(self) -> Iterator[bytes]:
        rest = b""
        for piece in self._pieces:
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                self.count += 1
                yield line
        self.count += 1
        yield rest
