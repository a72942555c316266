"""Readers of files of examples on the host: LIBSVM text and the QSAR oral toxicity table, compressed or not.

Errors name the file, the place in it and the remedy: FileNotFoundError for a missing file, ValueError for a file that
is damaged, truncated, in another format, or contains NaN or infinite numbers.
"""

import hashlib
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
from scipy.sparse import csr_matrix

from jdfl.base.arguments import checked
from jdfl.problems.files import AGAIN, PathLike, existing, opened

# SHA-256 of the files as distributed with the studies of this package, by name, including compression. Files of the
# MNIST family share names and come in several compressions: theirs are by set and part, of the decompressed content.
_LINES = files(__name__.rpartition(".")[0]).joinpath("checksums.txt").read_text(encoding="utf-8").splitlines()
CHECKSUMS = {name: checksum for checksum, name in map(str.split, _LINES)}


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

    path = existing(path)
    if verify:
        verify_checksum(path)
    remedy = AGAIN if path.name in CHECKSUMS else "A line is `label index:value ...`, with ascending indices from 1."
    with opened(path) as stream:
        lines = _Lines(stream)
        try:
            parse = cast(Any, load_svmlight_file)
            X, y = parse(lines, n_features=n_features, dtype=np.float32, zero_based=False)
        except (ValueError, IndexError, OverflowError) as error:
            told = str(error)[:200]  # it may hold the whole line
            if n_features is not None and "n_features" in told:
                raise ValueError(f"Expected at most {n_features} features in {path}: {told}.") from error
            raise ValueError(f"Expected LIBSVM text in {path}, line {lines.count}: {told}. {remedy}") from error
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
    path = existing(path)
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


def _to_binary(values: np.ndarray, path: Path) -> np.ndarray:
    found = np.unique(values)
    if len(found) != 2:
        shown = ", ".join(f"{value:g}" for value in found[:5]) + (", ..." if len(found) > 5 else "")
        raise ValueError(f"Expected two classes in {path}, got {len(found)}: {shown}. Pass binary=False to keep them.")
    return (values == found[1]).astype(np.int32)


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
