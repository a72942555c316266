"""Files of examples into arrays, on the host: LIBSVM text and the QSAR oral toxicity table, compressed or not.

Whatever is wrong with a file is an error that names the file, the place in it and the remedy: FileNotFoundError for a
missing one, ValueError for one that is damaged, cut short, in another format, or holds NaN or infinite numbers.
"""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
from scipy.sparse import csr_matrix

from jdfl.arguments import checked
from jdfl.problems.files import AGAIN, PathLike, existing, opened

# SHA-256 of the files as they are distributed with the studies of this package, by name, compression included;
# those of the MNIST family, which share file names and come compressed in several ways, by set and part, decompressed.
CHECKSUMS = {
    "a9a.bz2": "492b39d646a679f2863b6c7afd6cdde55b13817e8cdbfc3195cbd7e212326271",
    "a9a.t.bz2": "50c35f1d7edeb870cc8619f6f672d6b83448842ea91fe615f12ead1347837d08",
    "epsilon_first100.bz2": "471a39d2776f83626e524edee67d055812e429e7d9a528f07afe6a7ec2453bbd",
    "epsilon_first100.t.bz2": "c192c500ae2b3a19acd4b489ffd4da982da95a5e51567792c37a96efb0706782",
    "mushrooms.bz2": "0fa7decbc4c5ae45aeb2b1bf369b442346d12d42d928bc50efd41009be93317c",
    "news20_binary_20958.bz2": "bb838b6c0e7d1a21167809726c857dbd877a7c86690156f1711a2001af020df6",
    "phishing.bz2": "fbd3fe0041593182665e92f8249b8f332eec31fdbf07ce44c6e8686621648e2f",
    "w8a.bz2": "c4e690b953cb3b3d94a96a31869dad5301de9d60945a66012db6f80ea285029e",
    "qsar_oral_toxicity.zip": "f8c31d6ac9a886dd5a6712a6cffcf8ef8498304f9f19cb8d624077a88417dca6",
    "mnist/train-images": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "mnist/train-labels": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "mnist/t10k-images": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "mnist/t10k-labels": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    "fashion_mnist/train-images": "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
    "fashion_mnist/train-labels": "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
    "fashion_mnist/t10k-images": "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
    "fashion_mnist/t10k-labels": "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
    "cifar10_jpeg_train_0.npz": "9e0c42b8077c8f5cb9fec1a173eadf14902740462b4f2a7f0b75f076bf21dcc0",
    "cifar10_jpeg_train_1.npz": "438ed0caa4b023ed913706c87dfd9e816c44bc59eab44e73b7176dc07d958527",
    "cifar10_jpeg_test.npz": "029bd89d389754a0939cec9114564797711063d5e0e959daf057a459c496b049",
}


def verify_checksum(path: PathLike) -> None:
    """ValueError if `path` bears the name of a file in `CHECKSUMS` but other content; unknown names pass."""
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
    found, or with `binary=False` the float64 values of the file. `n_features` defaults to the largest index; give it
    for a test file, which may not mention the last features. `verify` is as for `read_qsar`.
    """
    from sklearn.datasets import load_svmlight_file  # which takes longer to import than all of jdfl

    path = existing(path)
    if verify:
        verify_checksum(path)
    with opened(path) as stream:
        lines = _Lines(stream)
        try:
            parse = cast(Any, load_svmlight_file)
            X, y = parse(lines, n_features=n_features, dtype=np.float32, zero_based=False)
        except (ValueError, IndexError, OverflowError) as error:
            told = str(error)[:200]  # it may hold the whole line
            if n_features is not None and "n_features" in told:
                raise ValueError(f"Expected at most {n_features} features in {path}: {told}.") from error
            raise ValueError(f"Expected LIBSVM text in {path}, line {lines.count}: {told}. {AGAIN}") from error
    if X.shape[0] == 0:
        raise ValueError(f"Expected examples in {path}, got an empty file. {AGAIN}")
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
    """Read the UCI QSAR oral toxicity table: the csv (plain, .gz, .bz2, .xz) or the zip that holds it.

    Every line has 1,024 bits and `positive` or `negative`, separated by `;`. Returns the bits as float32 [N, 1024] and
    int32 labels [N], 1 = positive. With `verify` a file with the published name and other content is refused:
    ValueError.
    """
    path = existing(path)
    if verify:
        verify_checksum(path)
    bits: list[np.ndarray] = []
    labels: list[bool] = []
    with opened(path) as stream:
        for number, line in enumerate(stream, start=1):
            if line.strip():
                row, label = _qsar_line(line.strip(), f"{path}, line {number}")
                bits.append(row)
                labels.append(label)
    if not bits:
        raise ValueError(f"Expected examples in {path}, got an empty file. {AGAIN}")
    return np.stack(bits).astype(np.float32), np.array(labels, dtype=np.int32)


def _qsar_line(line: bytes, place: str, n: int = 1024) -> tuple[np.ndarray, bool]:
    body, _, word = line.rpartition(b";")
    characters = np.frombuffer(body, np.uint8)
    bits = characters[::2] - np.uint8(ord("0"))  # below "0" wraps round to a large number
    if len(characters) != 2 * n - 1 or (bits > 1).any() or (characters[1::2] != ord(";")).any():
        columns = line.split(b";")
        if len(columns) != n + 1:
            raise ValueError(f"Expected {n + 1} columns in {place}, got {len(columns)}. {AGAIN}")
        column = next(k for k, text in enumerate(columns) if text not in (b"0", b"1"))
        raise ValueError(f"Expected 0 or 1 in {place}, column {column + 1}, got {columns[column].decode('latin-1')!r}.")
    if word not in (b"positive", b"negative"):
        got = word.decode("latin-1")
        raise ValueError(f"Expected positive or negative in {place}, column {n + 1}, got {got!r}.")
    return bits, word == b"positive"


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
