"""Downloads of published datasets into the data folder, by pooch. Host only."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import zip_longest
from pathlib import Path
from typing import Any

from jdfl.base import checks
from jdfl.problems import datasets

_LIBSVM = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary"
_MNIST = "https://ossci-datasets.s3.amazonaws.com/mnist"
_FASHION = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com"
_UCI = "CC BY 4.0, UCI Machine Learning Repository"
_NO_LICENCE = "no licence stated: for research, with citation"
_TIMEOUT = 30  # seconds without an answer
_NOTE = "SOURCES.txt"


@dataclass(frozen=True)
class Source:
    """The place and the terms of publication of a dataset."""

    folder: str  # in the data folder
    base: str  # address
    files: tuple[str, ...]
    licence: str
    size: tuple[int, int] | None  # training examples and numbers of each, for the check; None: too large to read
    hashes: tuple[str, ...] = ()  # of the files, where they are known


_IDX = tuple(f"{part}-{kind}-ubyte.gz" for part in ("train", "t10k") for kind in ("images-idx3", "labels-idx1"))
_CIFAR, _MD5 = "https://www.cs.toronto.edu/~kriz", "md5:c58f30108f718f92721af3b95e74349a"
_EPSILON = ("epsilon_normalized.bz2", "epsilon_normalized.t.bz2")
_QSAR = "https://archive.ics.uci.edu/static/public/508"
SOURCES = {
    "qsar": Source(
        "qsar_oral_toxicity", _QSAR, ("qsar+oral+toxicity.zip",), "CC BY 4.0, D. Ballabio et al., 2019", (8_992, 1_024)
    ),
    "a9a": Source("libsvm", _LIBSVM, ("a9a", "a9a.t"), _UCI, (32_561, 123)),
    "w8a": Source("libsvm", _LIBSVM, ("w8a",), _NO_LICENCE, (49_749, 300)),
    "mushrooms": Source("libsvm", _LIBSVM, ("mushrooms",), _UCI, (8_124, 112)),
    "phishing": Source("libsvm", _LIBSVM, ("phishing",), _UCI, (11_055, 68)),
    "real-sim": Source("libsvm", _LIBSVM, ("real-sim.bz2",), _NO_LICENCE, (72_309, 20_958)),
    "epsilon": Source("libsvm", _LIBSVM, _EPSILON, f"{_NO_LICENCE}; 12 GB unpacked", None),
    "mnist": Source("mnist", _MNIST, _IDX, "CC BY-SA 3.0, Y. LeCun, C. Cortes, C. Burges", (60_000, 784)),
    "fashion_mnist": Source("fashion_mnist", _FASHION, _IDX, "MIT, Zalando SE", (60_000, 784)),
    "cifar10": Source(
        "cifar10", _CIFAR, ("cifar-10-python.tar.gz",), f"{_NO_LICENCE} (A. Krizhevsky, 2009)", (50_000, 3_072), (_MD5,)
    ),
}


def fetch(name: str, to: Path | None = None, tell: Callable[[str], object] = print) -> Path:
    """Download a dataset into a data folder, check it, and return its folder.

    Existing files are kept. Downloaded files are read once to compare the numbers of examples and features, and their
    checksums if these are known; files that do not match are removed. SOURCES.txt in the folder records the address of
    every file, the date, its SHA-256 and its licence.

    Args:
        name: One of `SOURCES`.
        to: The data folder; None: that of `datasets.download_folder`.
        tell: A function that is given a line about the licence and about every file.

    Raises ValueError for an unknown name or a file with unexpected content, and OSError with a remedy if the address
    cannot be reached or a file cannot be written.
    """
    if name in datasets.NAMES and name not in SOURCES:
        raise ValueError(f"Expected a dataset to download, got {name!r}, which {_why_not(name)}.")
    checks.one_of(tuple(SOURCES), name=name)
    source = SOURCES[name]
    root = datasets.download_folder() if to is None else Path(to)
    place = root / source.folder
    tell(f"{name}: {source.licence}. You are bound by these terms.")
    new: list[Path] = []
    for file, known in zip_longest(source.files, source.hashes):
        if (place / file).is_file():
            tell(f"there already: {place / file}")
            continue
        tell(f"downloading {source.base}/{file}")
        new.append(_download(f"{source.base}/{file}", known, place, file))
    try:
        _check(name, source, root)
    except (ValueError, OSError):
        for path in new:
            path.unlink(missing_ok=True)
        raise
    for path in new:
        with path.open("rb") as content:
            digest = hashlib.file_digest(content, "sha256").hexdigest()
        told = (f"{datetime.now(UTC):%Y-%m-%d}", digest, f"{path.relative_to(root)}", f"{source.base}/{path.name}")
        with (root / _NOTE).open("a", encoding="utf-8") as note:
            note.write("  ".join((*told, source.licence)) + "\n")
    return place


def _why_not(name: str) -> str:
    if name in datasets.GENERATED:
        return "is generated"
    return "comes with scikit-learn" if datasets.bundled(name) else "is published nowhere in this form"


def _download(address: str, known: str | None, place: Path, file: str) -> Path:
    import pooch  # for those who download

    how: Any = pooch.HTTPDownloader(timeout=_TIMEOUT, progressbar=False)
    try:
        return Path(str(pooch.retrieve(address, known, fname=file, path=place, downloader=how)))
    except OSError as error:  # requests' errors are
        raise OSError(
            f"Could not download {address}: {' '.join(str(error).split())[:200]}. Without a network, download it on "
            f"another machine and put it at {place / file}."
        ) from error


def _check(name: str, source: Source, root: Path) -> None:
    """ValueError if the downloaded files are not the dataset."""
    if source.size is None:
        return
    with datasets.looked_for_in(root):
        examples, numbers = datasets.load(name).features.shape or (0, 0)
    if (examples, numbers) != source.size:
        raise ValueError(
            f"Expected {source.size[0]:,} examples of {source.size[1]:,} numbers in {name}, got {examples:,} of "
            f"{numbers:,}. It is another release; nothing is kept of it."
        )
