"""Readers of files of examples on the host: LIBSVM text, the QSAR oral toxicity table, IDX and the MNIST family.

Errors name the file, the place in it and the remedy: FileNotFoundError for a missing file, ValueError for a file that
is damaged, truncated, in another format, or contains NaN or infinite numbers. Files are read as decompressed streams of
bytes, which are complete, of the kind that their names say, and of a bounded size.

Axes: N examples, M test examples, h rows and w columns of pixels, p = h w (times 3 for colours) pixels of an image.
"""

import bz2
import gzip
import hashlib
import io
import lzma
import math
import os
import zipfile
import zlib
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

import numpy as np
from scipy.sparse import csr_matrix

from jdfl.base import checks
from jdfl.base.arguments import checked
from jdfl.base.names import aligned, labels_of, unlabelled
from jdfl.problems.places import MNIST_PARTS, find_part

Features = np.ndarray | csr_matrix
PathLike = str | os.PathLike[str]

# SHA-256 of the files as distributed with the studies of this package, by name, including compression. Files of the
# MNIST family share names and come in several compressions: theirs are by set and part, of the decompressed content.
_LINES = files(__name__.rpartition(".")[0]).joinpath("checksums.txt").read_text(encoding="utf-8").splitlines()
CHECKSUMS = {name: checksum for checksum, name in map(str.split, _LINES)}
AGAIN = "Download it again."
DAMAGE = (EOFError, OSError, zlib.error, lzma.LZMAError, zipfile.BadZipFile, RuntimeError)  # or a zip with a password
_MAGIC = {".gz": b"\x1f\x8b", ".bz2": b"BZh", ".xz": b"\xfd7zXZ\x00", ".zip": b"PK"}
_DECOMPRESSOR = {".bz2": bz2.BZ2Decompressor, ".xz": lzma.LZMADecompressor}
_PIECE = 2**17  # bytes read at once: a header that promises more than the file has must not allocate memory
_UNPACKED, _TIMES = 2**26, 100  # bytes that every file may unpack to; larger files may unpack to 100 times their size
_TYPES = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}


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
        """The number of classes, which is the largest training label plus one.

        Labels start at 0; a class without training examples below the largest label counts as well. Labels of the test
        set are ignored.
        """
        return int(self.labels.max()) + 1

    @property
    def test(self) -> tuple[Any, np.ndarray] | None:
        """The features [M, p] and labels [M] of the test set; None if either is missing.

        Without a test set all examples are training examples here, and `classification` holds out a share of every
        class for testing (see `jdfl.problems.holdout`).
        """
        if self.test_features is None or self.test_labels is None:
            return None
        return self.test_features, self.test_labels


class Images(NamedTuple):
    """Images with their classes, and a test set, as stored in files: bytes from 0 to 255.

    `read_mnist` and `read_cifar10` return them. `jdfl.problems.load` converts them to rows of numbers in [0, 1], and
    `neural_classification` keeps the bytes until a batch is used.
    """

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

    path = _existing(path)
    if verify:
        verify_checksum(path)
    remedy = AGAIN if path.name in CHECKSUMS else "A line is `label index:value ...`, with ascending indices from 1."
    with opened(path) as stream:
        lines = _Lines(stream)
        try:
            parse = cast(Any, load_svmlight_file)
            X, y = parse(lines, n_features=n_features, dtype=np.float32, zero_based=False)
        except (ValueError, IndexError, OverflowError) as error:
            text = str(error)[:200]  # it may hold the whole line
            if n_features is not None and "n_features" in text:
                raise ValueError(f"Expected at most {n_features} features in {path}: {text}.") from error
            raise ValueError(f"Expected LIBSVM text in {path}, line {lines.count}: {text}. {remedy}") from error
    if X.shape[0] == 0:
        raise ValueError(f"Expected examples in {path}, got an empty file. {remedy}")
    bad = np.flatnonzero(~np.isfinite(X.data))
    if bad.size:
        row = int(X.indptr.searchsorted(bad[0], side="right")) - 1
        column = int(X.indices[bad[0]]) + 1
        raise ValueError(f"Expected finite numbers in {path}, got {X.data[bad[0]]} in row {row + 1}, column {column}.")
    if not np.isfinite(y).all():
        row = int(np.flatnonzero(~np.isfinite(y))[0])
        raise ValueError(f"Expected finite labels in {path}, got {y[row]} in row {row + 1}.")
    return X, _to_binary(y, path) if binary else y


class _Lines:
    """The lines of a stream, counted, so that an error can name the line."""

    def __init__(self, stream: IO[bytes]) -> None:
        self.count = 0
        self._stream = stream

    def read(self, size: int = -1) -> bytes:
        return self._stream.read(size)

    def __iter__(self) -> Iterator[bytes]:
        for line in self._stream:
            self.count += 1
            yield line


def _to_binary(values: np.ndarray, path: Path) -> np.ndarray:
    found = np.unique(values)
    if len(found) != 2:
        shown = ", ".join(f"{value:g}" for value in found[:5]) + (", ..." if len(found) > 5 else "")
        raise ValueError(f"Expected two classes in {path}, got {len(found)}: {shown}. Pass binary=False to keep them.")
    return (values == found[1]).astype(np.int32)


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
    path = _existing(path)
    if verify:
        verify_checksum(path)
    bits: list[np.ndarray] = []
    labels: list[bool] = []
    with opened(path) as stream:
        for number, line in enumerate(stream, start=1):
            if line.strip():
                row, label = _qsar_line(line.strip().split(b";"), f"{path}, line {number}")
                bits.append(row)
                labels.append(label)
    if not bits:
        raise ValueError(f"Expected examples in {path}, got an empty file. {AGAIN}")
    return np.stack(bits).astype(np.float32), np.array(labels, dtype=np.int32)


def _qsar_line(columns: list[bytes], place: str, n: int = 1024) -> tuple[np.ndarray, bool]:
    """The bits [n] of a line, and whether it is positive."""
    if len(columns) != n + 1:
        raise ValueError(f"Expected {n + 1} columns in {place}, got {len(columns)}. {AGAIN}")
    for wanted, some, first in (((b"0", b"1"), columns[:n], 1), ((b"positive", b"negative"), columns[n:], n + 1)):
        if not set(some) <= set(wanted):
            column = next(k for k, word in enumerate(some) if word not in wanted)
            got, words = some[column].decode("latin-1"), " or ".join(map(bytes.decode, wanted))
            raise ValueError(f"Expected {words} in {place}, column {column + first}, got {got!r}.")
    return np.frombuffer(b"".join(columns[:n]), np.uint8) - ord("0"), columns[n] == b"positive"


@checked
def read_idx(path: PathLike) -> np.ndarray:
    """Read an IDX file (plain, .gz, .bz2 or .xz): an array [...] of any type and number of dimensions, in native order.

    Format: two zero bytes, the type, the number of dimensions, each dimension as a big-endian 32-bit integer, the
    entries, big-endian, last axis fastest (http://yann.lecun.com/exdb/mnist).

    Args:
        path: The file.

    Raises ValueError for another magic number, an unknown type, and fewer or more entries than the header says.
    """
    return _read_idx(_existing(path))[0]


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
        expected = CHECKSUMS.get(f"{known}/{part}", digest)
        if digest != expected:
            raise ValueError(
                f"Expected {path} to hold the {part} of {known}, SHA-256 {expected} after decompression, got {digest}: "
                f"it is another dataset, another release or damaged. {AGAIN.rstrip('.')}, or pass verify=False."
            )
        arrays.append(array)
    for k in (0, 2):
        shown = f"{arrays[k].ndim} dimensions of {arrays[k].dtype}"
        need(arrays[k].ndim == 3 and arrays[k].dtype == np.uint8, "images as 3 dimensions of uint8", paths[k], shown)
        arrays[k + 1] = check_labels(arrays[k + 1], len(arrays[k]), str(paths[k + 1]))
    size, test_size = arrays[0].shape[1:], arrays[2].shape[1:]
    need(size == test_size, f"images of {size} pixels", paths[2], test_size)
    return Images(*arrays, lossy=False)


def pixels(images: np.ndarray) -> np.ndarray:
    """Images [N, ...] uint8 as rows [N, p] float32 in [0, 1], the last axis fastest, without a further copy."""
    rows = images.reshape(len(images), -1)
    return np.divide(rows, np.float32(255), out=np.empty(rows.shape, np.float32))


def check_labels(labels: np.ndarray, count: int, place: str) -> np.ndarray:
    """Labels [count] as int32; ValueError unless there is one of 0..9 for every image, and at least one."""
    fits = labels.shape == (count,) and count > 0 and np.issubdtype(labels.dtype, np.integer)
    need(fits, f"one label for each of {count} > 0 images", place, f"{labels.dtype} {labels.shape}")
    bad = np.flatnonzero((labels < 0) | (labels > 9))
    if bad.size:
        raise ValueError(f"Expected labels in 0..9 in {place}, got {labels[bad[0]]} for image {bad[0] + 1}. {AGAIN}")
    return labels.astype(np.int32)


def _read_bytes(stream: IO[bytes], count: int, place: str) -> bytearray:
    """The next `count` bytes, in pieces; ValueError if there are fewer, before more memory is allocated."""
    content = bytearray()
    while len(content) < count:
        piece = stream.read(min(_PIECE, count - len(content)))
        if not piece:
            raise ValueError(f"Expected {count} bytes of {place}, got {len(content)}: the file is cut short. {AGAIN}")
        content += piece
    return content


def _read_idx(path: Path) -> tuple[np.ndarray, str]:
    """The array, and the SHA-256 of the decompressed file."""
    with opened(path) as stream:
        head = _read_bytes(stream, 4, f"the magic number of {path}")
        if bytes(head[:2]) != b"\0\0" or head[2] not in _TYPES:
            raise ValueError(
                f"Expected an IDX file at {path}, whose magic number is 00 00, one of "
                f"{', '.join(f'{code:02x}' for code in _TYPES)}, and the dimensions, got {head.hex(' ')}. {AGAIN}"
            )
        sizes = _read_bytes(stream, 4 * head[3], f"the dimensions of {path}")
        shape, dtype = tuple(np.frombuffer(sizes, ">u4").tolist()), np.dtype(_TYPES[head[2]])
        content = _read_bytes(stream, math.prod(shape) * dtype.itemsize, f"the entries {shape} of {path}")
        need(not stream.read(1), f"{len(content)} bytes of entries {shape}", path, "more")
    digest = hashlib.sha256(head + sizes)
    digest.update(content)
    try:
        entries = np.frombuffer(content, dtype).reshape(shape)
    except ValueError as error:  # too many dimensions, or too large ones next to a 0
        raise ValueError(f"Expected the dimensions of an array in {path}, got {shape}. {AGAIN}") from error
    return entries.astype(dtype.newbyteorder("="), copy=False), digest.hexdigest()


def _existing(path: PathLike) -> Path:
    """The path of an existing file; FileNotFoundError otherwise."""
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"Expected a file at {path}, found none. Check the path, or download the data there.")
    return path


def need(holds: bool, expected: str, place: object, got: object, remedy: str = AGAIN) -> None:
    """Refuse a file without the expected content at a place in it: ValueError."""
    if not holds:
        raise ValueError(f"Expected {expected} in {place}, got {got}. {remedy}")


def verify_checksum(path: PathLike) -> None:
    """ValueError if `path` has the name of a file in `CHECKSUMS` but other content; unknown names pass."""
    path = Path(path)
    expected = CHECKSUMS.get(path.name)
    if expected is None:
        return
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != expected:
        raise ValueError(
            f"Expected {path} with SHA-256 {expected}, got {found}: the file is damaged or another release of the "
            f"data. {AGAIN.rstrip('.')}, or pass verify=False to read it as it is."
        )


@contextmanager
def opened(path: Path) -> Generator[IO[bytes]]:
    """The decompressed content of `path` as a stream of bytes.

    ValueError for a file of another kind than its name says, and for content beyond `most_unpacked(path)` bytes.
    """
    with path.open("rb") as file:
        head = file.read(6)
    kind = next((suffix for suffix, magic in _MAGIC.items() if head.startswith(magic)), "")
    named = path.suffix if path.suffix in _MAGIC else ""
    if kind != named:
        said = f"{named} data" if named else "plain text"
        got = f"{kind} data" if kind else "something else"
        raise ValueError(f"Expected {said} in {path}, as its name says, got {got}. Rename it, or download it again.")
    try:
        with ExitStack() as stack:
            begin: Any = gzip.open if kind == ".gz" else open
            file: Any = stack.enter_context(begin(path, "rb"))
            if kind == ".zip":
                archive = stack.enter_context(zip_file(path))
                file = stack.enter_context(archive.open(_only_table(archive, path)))
            pieces = _unpacked(file, kind) if kind in _DECOMPRESSOR else iter(lambda: file.read(_PIECE), b"")
            yield io.BufferedReader(_Pieces(pieces, most_unpacked(path)), _PIECE) if kind else file
    except DAMAGE as error:
        raise ValueError(
            f"Expected a whole {kind or 'text'} file at {path}: {checks.said(error)}. It is damaged. {AGAIN}"
        ) from error


def most_unpacked(path: Path) -> int:
    """The maximum number of bytes that a compressed file may unpack to; larger ones are built to fill the memory."""
    return max(_UNPACKED, _TIMES * path.stat().st_size)


def zip_file(path: Path) -> zipfile.ZipFile:
    """An archive with its directory; OSError for one that cannot be read, whatever the cause."""
    try:
        return zipfile.ZipFile(path)
    except Exception as error:  # names, dates and offsets that make no sense each fail in ways of their own
        raise OSError(str(error) or repr(error)) from error


def _unpacked(file: IO[bytes], kind: str) -> Iterator[bytes]:
    """The content of consecutive .bz2 or .xz streams; an error of `DAMAGE` for anything else in the file.

    `bz2.open` and `lzma.open` mistake a stream that is damaged at its beginning for the end of the file. Zeros may
    separate two streams of .xz.
    """
    packed = file.read(_PIECE)
    while packed:
        one = _DECOMPRESSOR[kind]()
        while not one.eof:
            if one.needs_input and not (packed := packed or file.read(_PIECE)):
                raise EOFError("it ends within its data")
            yield one.decompress(packed, _PIECE)
            packed = b""
        packed = one.unused_data or file.read(_PIECE)
        while kind == ".xz" and packed and not (packed := packed.lstrip(b"\0")):
            packed = file.read(_PIECE)


class _Pieces(io.RawIOBase):
    """The stream of consecutive pieces with at most `most` bytes in total; OSError beyond them."""

    def __init__(self, pieces: Iterator[bytes], most: int) -> None:
        self._pieces, self._most, self._left, self._held = pieces, most, most, b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        if not self._held:
            self._held = next(filter(None, self._pieces), b"")
            self._left -= len(self._held)
        if self._left < 0:
            raise OSError(f"it unpacks to more than {self._most} bytes")
        data, self._held = self._held[: len(buffer)], self._held[len(buffer) :]
        buffer[: len(data)] = data
        return len(data)


def _only_table(archive: zipfile.ZipFile, path: Path) -> str:
    tables = [name for name in archive.namelist() if name.endswith(".csv")]
    if len(tables) != 1:
        raise ValueError(f"Expected one .csv in {path}, got {len(tables)}. Leave the table alone in it.")
    return tables[0]
