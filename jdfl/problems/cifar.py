"""CIFAR-10 in each of its forms, on the host: the original batches (pickled or binary, in their archive or not), JPEG.

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

from jdfl import checks
from jdfl.arguments import checked
from jdfl.problems.files import DAMAGE, PathLike, most_unpacked, opened, zip_file
from jdfl.problems.images import Images, check_labels
from jdfl.problems.readers import verify_checksum

SOURCE = "https://www.cs.toronto.edu/~kriz/cifar.html"
_TRAIN = tuple(f"data_batch_{k}" for k in range(1, 6))
_BATCHES = (*_TRAIN, "test_batch")
_PICKLED, _BINARY = "cifar-10-batches-py", "cifar-10-batches-bin"  # folders inside the archives
_ARCHIVES = ("cifar-10-python.tar.gz", "cifar-10-binary.tar.gz")
_JPEG_TRAIN, _JPEG_TEST = ("cifar10_jpeg_train_0.npz", "cifar10_jpeg_train_1.npz"), "cifar10_jpeg_test.npz"
_SIDE, _PIXELS = 32, 32 * 32 * 3
_LARGEST, _MEMBERS = 2**26, 1000  # bytes of a batch, twice those of the original ones, and files in an archive
_WORDS = 2**20  # of a pickle, and places in its memory; the original ones have some 60,000
_AGAIN = "Download it again."


def find_cifar10(place: PathLike) -> Path:
    """What CIFAR-10 is read from: an archive, a folder of batches, or the folder with the JPEG files.

    `place` is that itself, or the folder it is in. The original comes before JPEG. FileNotFoundError if there is none.
    """
    place = Path(place)
    if place.is_file():
        return place
    for folder in (place, place / _PICKLED, place / _BINARY):
        if any((folder / (_TRAIN[0] + ending)).is_file() for ending in ("", ".bin")):
            return folder
    for name in _ARCHIVES:
        if (place / name).is_file():
            return place / name
    if (place / _JPEG_TEST).is_file():
        return place
    raise FileNotFoundError(
        f"Expected {_TRAIN[0]}, {_TRAIN[0]}.bin, {', '.join(_ARCHIVES)} or {_JPEG_TEST} in {place}, found none. "
        f"Download CIFAR-10 from {SOURCE}"
    )


@checked
def read_cifar10(place: PathLike, *, verify: bool = True) -> Images:
    """Read CIFAR-10, images [N, 32, 32, 3] with the colours last, from where `find_cifar10(place)` finds it.

    Taken: the pickled batches (data_batch_1, ...), of which nothing is unpickled but numbers; the binary batches
    (data_batch_1.bin, ...); a .tar.gz of either; and three .npz files of JPEG images (arrays `jpeg`, the images' bytes
    one after another, `offsets` [N + 1] and `y` [N]), which are `lossy`. `verify` compares files of known names with
    their checksums. FileNotFoundError for a missing batch, ValueError for a damaged one.
    """
    source = find_cifar10(place)
    if source.is_dir() and (source / _JPEG_TEST).is_file() and not list(source.glob(_TRAIN[0] + "*")):
        parts = [_read_jpeg(source / name, verify) for name in (*_JPEG_TRAIN, _JPEG_TEST)]
    else:
        batches = dict(_folder(source) if source.is_dir() else _archive(source))
        missing = [name for name in _BATCHES if name not in batches]
        if missing:
            raise FileNotFoundError(f"Expected {', '.join(missing)} in {source}, found none. Download it from {SOURCE}")
        parts = [batches[name] for name in _BATCHES]
    *train, test = parts
    images, labels = (np.concatenate(arrays) for arrays in zip(*train))
    return Images(images, labels, *test, lossy=len(parts) < len(_BATCHES))


Batch = tuple[np.ndarray, np.ndarray]  # images [N, 32, 32, 3] uint8, labels [N] int32


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
        raise ValueError(
            f"Expected a whole .tar.gz at {path}: {checks.said(error)}. It is damaged. {_AGAIN}"
        ) from error


def _batch(stream: IO[bytes], size: int, name: str, place: str) -> Batch:
    if size > _LARGEST:
        raise ValueError(f"Expected at most {_LARGEST} bytes in {place}, got {size}. {_AGAIN}")
    content = stream.read()
    planes, labels = _binary(content, place) if name.endswith(".bin") else _pickled(content, place)
    images = planes.reshape(-1, 3, _SIDE, _SIDE).transpose(0, 2, 3, 1)
    return images, check_labels(labels, len(images), place)


def _binary(content: bytes, place: str) -> Batch:
    """Records of a label and the red, green and blue plane: planes [N, 3072], labels [N]."""
    count, rest = divmod(len(content), _PIXELS + 1)
    if rest or not count:
        raise ValueError(
            f"Expected records of {_PIXELS + 1} bytes in {place}, got {len(content)} bytes: {rest} after record "
            f"{count}. {_AGAIN}"
        )
    records = np.frombuffer(content, np.uint8).reshape(count, _PIXELS + 1)
    return records[:, 1:], records[:, 0]


def _pickled(content: bytes, place: str) -> Batch:
    """A pickled dict of `data` [N, 3072] and `labels`: planes [N, 3072], labels [N]."""
    try:
        _check_words(content)
        found = _Numbers(io.BytesIO(content), encoding="bytes").load()
    except pickle.UnpicklingError as error:
        raise ValueError(f"Expected a pickled batch of numbers in {place}: {checks.said(error)}. {_AGAIN}") from error
    except Exception as error:  # damaged opcodes raise anything
        raise ValueError(f"Expected a whole pickled batch in {place}: {error!r}. It is damaged. {_AGAIN}") from error
    if not checks.is_a(found, Mapping) or not {b"data", b"labels"} <= found.keys():
        raise ValueError(f"Expected a dict with data and labels in {place}, got {type(found).__name__}. {_AGAIN}")
    planes: Any = found[b"data"]
    labels: Any = found[b"labels"]
    if not checks.is_a(planes, np.ndarray) or planes.dtype != np.uint8 or planes.shape[1:] != (_PIXELS,):
        shown = f"{planes.dtype} {planes.shape}" if checks.is_a(planes, np.ndarray) else type(planes).__name__
        raise ValueError(f"Expected data as uint8 [N, {_PIXELS}] in {place}, got {shown}. {_AGAIN}")
    bad = [one for one in labels if not _is_label(one)] if checks.is_a(labels, list) else [labels]
    if bad:
        shown = type(bad[0]).__name__
        raise ValueError(f"Expected labels as a list of numbers 0..9 in {place}, got {shown}. {_AGAIN}")
    return planes, np.array(labels, np.int64)


def _is_label(value: Any) -> bool:
    """Whether it may be one: an integer that NumPy can hold."""
    return isinstance(value, int) and abs(value) < 256


def _check_words(content: bytes) -> None:
    """Refuse a pickle that takes memory or time out of proportion: UnpicklingError; ValueError for a damaged one."""
    for number, (word, place, _) in enumerate(pickletools.genops(content)):
        if number >= _WORDS or (word.name.endswith("PUT") and isinstance(place, int) and place >= _WORDS):
            raise pickle.UnpicklingError(f"it has more than {_WORDS} words or places")


def _dtype(kind: str | bytes, align: object = False, copy: object = False) -> np.dtype:
    """What old pickles ask for as dtype("u1", 0, 1)."""
    name = kind.decode("latin-1") if isinstance(kind, bytes) else kind
    if name not in ("u1", "i4", "i8"):
        raise pickle.UnpicklingError(f"dtype {name!r} is not one of u1, i4, i8")
    return np.dtype(name, copy=True)  # a pickle goes on to set its state: never that of the type all arrays share


_EMPTY_ARRAY: Any = np.empty(0, np.uint8).__reduce__()[0]


class _Numbers(pickle.Unpickler):
    """Builds arrays of integers, and refuses every other class and function a pickle may name."""

    def find_class(self, module_name: str, global_name: str, /) -> Any:
        if global_name == "_reconstruct" and module_name in ("numpy.core.multiarray", "numpy._core.multiarray"):
            return _EMPTY_ARRAY
        if module_name == "numpy" and global_name in ("ndarray", "dtype"):
            return np.ndarray if global_name == "ndarray" else _dtype
        raise pickle.UnpicklingError(f"it asks for {module_name}.{global_name}, which is not loaded")


def _read_jpeg(path: Path, verify: bool) -> Batch:
    if not path.is_file():
        raise FileNotFoundError(f"Expected {path}, found none. Put it beside {_JPEG_TEST}, or read the original.")
    if verify:
        verify_checksum(path)
    try:
        content, offsets, labels = (_array(path, name) for name in ("jpeg", "offsets", "y"))
    except Exception as error:  # damaged directories and heads raise anything
        raise ValueError(
            f"Expected a whole .npz with jpeg, offsets and y at {path}: {checks.said(error)}. {_AGAIN}"
        ) from error
    labels = check_labels(labels, labels.size, f"{path}, y")
    if content.dtype != np.uint8 or content.ndim != 1:
        raise ValueError(f"Expected jpeg as bytes in {path}, got {content.dtype} {content.shape}. {_AGAIN}")
    if offsets.shape != (len(labels) + 1,) or not np.issubdtype(offsets.dtype, np.integer):
        shown = f"{offsets.dtype} {offsets.shape}"
        raise ValueError(f"Expected {len(labels) + 1} whole offsets for {len(labels)} labels in {path}, got {shown}.")
    ends = offsets.tolist()
    for k, (low, high) in enumerate(pairwise(ends)):
        if not 0 <= low < high <= len(content):
            got = f"{low}, {high} for image {k + 1}"
            raise ValueError(f"Expected ascending offsets up to {len(content)} in {path}, got {got}. {_AGAIN}")
    images = np.empty((len(labels), _SIDE, _SIDE, 3), np.uint8)
    for k, (low, high) in enumerate(pairwise(ends)):
        images[k] = _decode(content[low:high].tobytes(), f"{path}, image {k + 1}")
    return images, labels


def _array(path: Path, name: str) -> np.ndarray:
    """One array of an .npz file; no more is read than the file may unpack to."""
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
            f"Expected a whole {_SIDE} x {_SIDE} RGB JPEG in {place}: {checks.said(error)}. {_AGAIN}"
        ) from error
