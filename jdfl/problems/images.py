"""Readers of image files on the host: IDX, and the MNIST family, which is distributed in that format.

Errors name the file, the place in it and the remedy, as in readers.py.
Axes: N images, M test images, h rows and w columns of pixels, p = h w (times 3 for colours) pixels of an image.
"""

import hashlib
import math
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np

from jdfl.base.arguments import checked
from jdfl.problems.files import AGAIN, PathLike, existing, need, opened
from jdfl.problems.readers import CHECKSUMS

_TYPES = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
_PIECE = 1 << 20  # bytes read at once: a header that promises more than the file has must not allocate memory
_PARTS = ("train-images", "train-labels", "t10k-images", "t10k-labels")


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


def pixels(images: np.ndarray) -> np.ndarray:
    """Images [N, ...] uint8 as rows [N, p] float32 in [0, 1], the last axis fastest, without a further copy."""
    rows = images.reshape(len(images), -1)
    return np.divide(rows, np.float32(255), out=np.empty(rows.shape, np.float32))


@checked
def read_idx(path: PathLike) -> np.ndarray:
    """Read an IDX file (plain, .gz, .bz2 or .xz): an array [...] of any type and number of dimensions, in native order.

    Format: two zero bytes, the type, the number of dimensions, each dimension as a big-endian 32-bit integer, the
    entries, big-endian, last axis fastest (http://yann.lecun.com/exdb/mnist).

    Args:
        path: The file.

    Raises ValueError for another magic number, an unknown type, and fewer or more entries than the header says.
    """
    return _read_idx(existing(path))[0]


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
    paths = [find_part(Path(folder), part) for part in _PARTS]
    for part, path in zip(_PARTS, paths):
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


def find_part(folder: Path, part: str = _PARTS[0]) -> Path:
    """The file of one part of an MNIST-like set, compressed or not."""
    kind = "idx3-ubyte" if part.endswith("images") else "idx1-ubyte"
    names = [f"{part}{joint}{kind}{ending}" for joint in "-." for ending in (".gz", "", ".bz2", ".xz")]
    for name in names:
        if (folder / name).is_file():
            return folder / name
    raise FileNotFoundError(
        f"Expected one of {', '.join(names)} in {folder}, found none. Download MNIST from "
        "http://yann.lecun.com/exdb/mnist or Fashion-MNIST from https://github.com/zalandoresearch/fashion-mnist"
    )


def check_labels(labels: np.ndarray, count: int, place: str) -> np.ndarray:
    """Labels [count] as int32; ValueError unless there is one of 0..9 for every image, and at least one."""
    fits = labels.shape == (count,) and count > 0 and np.issubdtype(labels.dtype, np.integer)
    need(fits, f"one label for each of {count} > 0 images", place, f"{labels.dtype} {labels.shape}")
    bad = np.flatnonzero((labels < 0) | (labels > 9))
    if bad.size:
        raise ValueError(f"Expected labels in 0..9 in {place}, got {labels[bad[0]]} for image {bad[0] + 1}. {AGAIN}")
    return labels.astype(np.int32)


def read_bytes(stream: IO[bytes], count: int, place: str) -> bytearray:
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
        head = read_bytes(stream, 4, f"the magic number of {path}")
        if bytes(head[:2]) != b"\0\0" or head[2] not in _TYPES:
            raise ValueError(
                f"Expected an IDX file at {path}, whose magic number is 00 00, one of "
                f"{', '.join(f'{code:02x}' for code in _TYPES)}, and the dimensions, got {head.hex(' ')}. {AGAIN}"
            )
        sizes = read_bytes(stream, 4 * head[3], f"the dimensions of {path}")
        shape, dtype = tuple(np.frombuffer(sizes, ">u4").tolist()), np.dtype(_TYPES[head[2]])
        content = read_bytes(stream, math.prod(shape) * dtype.itemsize, f"the entries {shape} of {path}")
        need(not stream.read(1), f"{len(content)} bytes of entries {shape}", path, "more")
    digest = hashlib.sha256(head + sizes)
    digest.update(content)
    try:
        entries = np.frombuffer(content, dtype).reshape(shape)
    except ValueError as error:  # too many dimensions, or too large ones next to a 0
        raise ValueError(f"Expected the dimensions of an array in {path}, got {shape}. {AGAIN}") from error
    return entries.astype(dtype.newbyteorder("="), copy=False), digest.hexdigest()
