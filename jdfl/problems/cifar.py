"""Readers of CIFAR-10 on the host: the original batches (pickled or binary, archived or not), and JPEG.

A. Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", 2009. Errors as in readers.py.
Axes: N images of 32 x 32 pixels in 3 colours.
"""

import io
import pickle
import pickletools
import tarfile
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import IO, Any

import numpy as np
from PIL import Image

from jdfl.base import checks
from jdfl.base.arguments import checked
from jdfl.problems.places import CIFAR_JPEG, CIFAR_SOURCE, CIFAR_TRAIN, find_cifar10
from jdfl.problems.readers import (
    AGAIN,
    DAMAGE,
    Images,
    PathLike,
    check_labels,
    most_unpacked,
    need,
    opened,
    verify_checksum,
    zip_file,
)

_BATCHES = (*CIFAR_TRAIN, "test_batch")
_SIDE, _PIXELS = 32, 32 * 32 * 3
_LARGEST, _MEMBERS = 2**26, 1000  # bytes of a batch, twice those of the original ones, and files in an archive
_WORDS = 2**20  # of a pickle, and places in its memory; the original ones have some 60,000
Batch = tuple[np.ndarray, np.ndarray]  # images [N, 32, 32, 3] uint8, labels [N] int32


@checked
def read_cifar10(place: PathLike, *, verify: bool = True) -> Images:
    """Read CIFAR-10, images [N, 32, 32, 3] with the colours last, in any of its forms.

    Accepted are the pickled batches (data_batch_1, ...), from which only numbers are unpickled; the binary batches
    (data_batch_1.bin, ...); a .tar.gz of either; and three .npz files of JPEG images (arrays `jpeg`, the concatenated
    bytes of the images, `offsets` [N + 1] and `y` [N]), which are `lossy`.

    Args:
        place: An archive, the folder of the batches or of the JPEG files, or the folder that contains one of these.
        verify: Compare files with known names with their checksums.

    Raises FileNotFoundError for a missing batch, ValueError for a damaged one.
    """
    source = find_cifar10(place)
    lossy = source.is_dir() and (source / CIFAR_JPEG[-1]).is_file() and not list(source.glob(CIFAR_TRAIN[0] + "*"))
    if lossy:
        parts = [_read_jpeg(source / name, verify) for name in CIFAR_JPEG]
    else:
        batches = dict(_folder(source) if source.is_dir() else _archive(source))
        missing = [name for name in _BATCHES if name not in batches]
        if missing:
            raise FileNotFoundError(
                f"Expected {', '.join(missing)} in {source}, found none. Download it from {CIFAR_SOURCE}"
            )
        parts = [batches[name] for name in _BATCHES]
    images, labels = (np.concatenate(arrays) for arrays in zip(*parts[:-1]))
    return Images(images, labels, *parts[-1], lossy=lossy)


def _folder(folder: Path) -> Iterator[tuple[str, Batch]]:
    for name in _BATCHES:
        for path in (folder / name, folder / f"{name}.bin"):
            if path.is_file():
                with opened(path) as stream:
                    yield name, _batch(stream, path.stat().st_size, path.name, str(path))
                break


def _archive(path: Path) -> Iterator[tuple[str, Batch]]:
    try:
        with opened(path) as content, tarfile.open(fileobj=content, mode="r|") as archive:  # from front to end
            for number, member in enumerate(archive):
                if number >= _MEMBERS:
                    raise tarfile.TarError(f"it holds more than {_MEMBERS} files")
                name = Path(member.name).name
                if member.isfile() and name.removesuffix(".bin") in _BATCHES:
                    stream = archive.extractfile(member)
                    if stream is not None:
                        yield name.removesuffix(".bin"), _batch(stream, member.size, name, f"{path}, {member.name}")
    except (tarfile.TarError, *DAMAGE) as error:
        raise ValueError(f"Expected a whole .tar.gz at {path}: {checks.said(error)}. It is damaged. {AGAIN}") from error


def _batch(stream: IO[bytes], size: int, name: str, place: str) -> Batch:
    need(size <= _LARGEST, f"at most {_LARGEST} bytes", place, size)
    planes, labels = (_binary if name.endswith(".bin") else _pickled)(stream.read(), place)
    images = planes.reshape(-1, 3, _SIDE, _SIDE).transpose(0, 2, 3, 1)
    return images, check_labels(labels, len(images), place)


def _binary(content: bytes, place: str) -> Batch:
    """Records of a label and the red, green and blue plane: planes [N, 3072], labels [N]."""
    count, rest = divmod(len(content), _PIXELS + 1)
    got = f"{len(content)} bytes: {rest} after record {count}"
    need(count > 0 and rest == 0, f"records of {_PIXELS + 1} bytes", place, got)
    records = np.frombuffer(content, np.uint8).reshape(count, _PIXELS + 1)
    return records[:, 1:], records[:, 0]


def _pickled(content: bytes, place: str) -> Batch:
    """A pickled dict of `data` [N, 3072] and `labels`: planes [N, 3072], labels [N]."""
    try:
        for number, (word, at, _) in enumerate(pickletools.genops(content)):
            if number >= _WORDS or (word.name.endswith("PUT") and isinstance(at, int) and at >= _WORDS):
                raise pickle.UnpicklingError(f"it has more than {_WORDS} words or places")  # for memory or time
        found: Any = _Numbers(io.BytesIO(content), encoding="bytes").load()
    except pickle.UnpicklingError as error:
        raise ValueError(f"Expected a pickled batch of numbers in {place}: {checks.said(error)}. {AGAIN}") from error
    except Exception as error:  # damaged opcodes raise anything
        raise ValueError(f"Expected a whole pickled batch in {place}: {error!r}. It is damaged. {AGAIN}") from error
    whole = checks.is_a(found, Mapping) and {b"data", b"labels"} <= found.keys()
    need(whole, "a dict with data and labels", place, type(found).__name__)
    planes, labels = found[b"data"], found[b"labels"]
    array = checks.is_a(planes, np.ndarray)
    shown = f"{planes.dtype} {planes.shape}" if array else type(planes).__name__
    fits = array and planes.dtype == np.uint8 and planes.shape[1:] == (_PIXELS,)
    need(fits, f"data as uint8 [N, {_PIXELS}]", place, shown)
    numbers = checks.is_a(labels, list) and all(isinstance(one, int) and abs(one) < 256 for one in labels)
    need(numbers, "labels as a list of numbers 0..9", place, type(labels).__name__)
    return planes, np.array(labels, np.int64)


def _dtype(kind: str | bytes, align: object = False, copy: object = False) -> np.dtype:
    """The type that old pickles request as dtype("u1", 0, 1)."""
    name = kind.decode("latin-1") if isinstance(kind, bytes) else kind
    if name not in ("u1", "i4", "i8"):
        raise pickle.UnpicklingError(f"dtype {name!r} is not one of u1, i4, i8")
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
            raise pickle.UnpicklingError(f"it asks for {name}, which is not loaded")
        return _KNOWN[name]


def _read_jpeg(path: Path, verify: bool) -> Batch:
    if not path.is_file():
        raise FileNotFoundError(f"Expected {path}, found none. Put it next to {CIFAR_JPEG[-1]}, or read the original.")
    if verify:
        verify_checksum(path)
    try:
        content, offsets, labels = (_array(path, name) for name in ("jpeg", "offsets", "y"))
    except Exception as error:  # damaged directories and heads raise anything
        raise ValueError(
            f"Expected a whole .npz with jpeg, offsets and y at {path}: {checks.said(error)}. {AGAIN}"
        ) from error
    labels = check_labels(labels, labels.size, f"{path}, y")
    need(content.dtype == np.uint8 and content.ndim == 1, "jpeg as bytes", path, f"{content.dtype} {content.shape}")
    fits = offsets.shape == (len(labels) + 1,) and np.issubdtype(offsets.dtype, np.integer)
    wanted = f"{len(labels) + 1} whole offsets for {len(labels)} labels"
    need(fits, wanted, path, f"{offsets.dtype} {offsets.shape}")
    ends, images = offsets.tolist(), np.empty((len(labels), _SIDE, _SIDE, 3), np.uint8)
    for k, (low, high) in enumerate(pairwise(ends), 1):
        wanted = f"ascending offsets up to {len(content)}"
        need(0 <= low < high <= len(content), wanted, path, f"{low}, {high} for image {k}")
        images[k - 1] = _decode(content[low:high].tobytes(), f"{path}, image {k}")
    return images, labels


def _array(path: Path, name: str) -> np.ndarray:
    """One array of an .npz file; the file may unpack to a bounded size only."""
    with zip_file(path) as archive:
        entry = archive.getinfo(f"{name}.npy")
        if entry.file_size > most_unpacked(path):
            raise OSError(f"{name} unpacks to {entry.file_size} bytes")
        with archive.open(entry) as stream:
            return np.lib.format.read_array(stream, allow_pickle=False)


def _decode(content: bytes, place: str) -> np.ndarray:
    try:
        with Image.open(io.BytesIO(content), formats=("JPEG",)) as image:
            if (image.size, image.mode) != ((_SIDE, _SIDE), "RGB"):
                raise ValueError(f"it is {image.size[0]} x {image.size[1]}, {image.mode}")
            return np.asarray(image)
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise ValueError(
            f"Expected a whole {_SIDE} x {_SIDE} RGB JPEG in {place}: {checks.said(error)}. {AGAIN}"
        ) from error
