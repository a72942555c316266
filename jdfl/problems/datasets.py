"""Datasets by name: the places of their files, their contents and their sources. Host only, NumPy arrays and CSR.

Files are read from the folder that the environment variable JDFL_DATA names, or else from where `jdfl data fetch` puts
them. Two sets come with scikit-learn, and two are generated.
"""

import os
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from jdfl.base import checks
from jdfl.base.arguments import checked
from jdfl.problems.cifar import SOURCE as _CIFAR
from jdfl.problems.cifar import find_cifar10, read_cifar10
from jdfl.problems.generated import epsilon_like, realsim_like
from jdfl.problems.readers import Dataset, find_part, pixels, read_libsvm, read_mnist, read_qsar

DataName = Literal[
    "qsar", "a9a", "w8a", "mushrooms", "phishing", "news20", "real-sim", "epsilon", "mnist", "fashion_mnist", "cifar10",
    "breast_cancer", "digits", "realsim_like", "epsilon_like",
]  # fmt: skip
NAMES: tuple[DataName, ...] = get_args(DataName)
GENERATED = {"realsim_like": realsim_like, "epsilon_like": epsilon_like}
_LIBSVM = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary.html"
_QSAR = "https://archive.ics.uci.edu/dataset/508/qsar+oral+toxicity"
_NEWS = "20 newsgroups, http://qwone.com/~jason/20Newsgroups, as binary tf-idf text"
_EPSILON = f"Pascal Large Scale Learning Challenge, 2008, no licence stated, {_LIBSVM}"
_QSAR_FILES = ("qsar_oral_toxicity", "qsar+oral+toxicity")  # the file's name, and the name UCI gives the archive
_BUNDLED = {
    "breast_cancer": "W. Wolberg et al., 1995, CC BY 4.0, https://archive.ics.uci.edu/dataset/17",
    "digits": "E. Alpaydin, C. Kaynak, 1998, CC BY 4.0, https://archive.ics.uci.edu/dataset/80",
}
_IMAGES = {  # folders that the files may be in, the source
    "mnist": (("mnist", "MNIST/raw"), "Y. LeCun, C. Cortes, C. Burges, CC BY-SA 3.0, http://yann.lecun.com/exdb/mnist"),
    "fashion_mnist": (
        ("fashion_mnist", "FashionMNIST/raw"),
        "H. Xiao, K. Rasul, R. Vollgraf, 2017, MIT licence, https://github.com/zalandoresearch/fashion-mnist",
    ),
    "cifar10": (("cifar10", ".", "cifar10_jpeg"), f"A. Krizhevsky, 2009, no licence stated, {_CIFAR}"),
}
_HERE: ContextVar[Path | None] = ContextVar("data folder", default=None)


@dataclass(frozen=True)
class _Libsvm:
    """A set of LIBSVM text."""

    names: dict[str, str]  # of the set, by that of its file without an ending; what comes first is preferred
    width: int  # features, also where a file misses the last
    source: str = _LIBSVM
    sparse: bool = False
    tested: bool = False  # by another file, NAME.t
    how: str = ""  # to get it; "": from LIBSVM's page

    def find(self) -> tuple[str, Path, Path | None]:
        """The name without an ending, the file and the test's."""
        path = _find("libsvm", tuple(self.names), _LIBSVM, self.how)
        stem = next(stem for stem in self.names if path.name.startswith(stem))
        return stem, path, _find("libsvm", (f"{stem}.t",), _LIBSVM) if self.tested else None

    def read(self, verify: bool) -> Dataset:
        """The dataset, dense except for text."""
        stem, *files = self.find()
        read = [read_libsvm(file, n_features=self.width, verify=verify) for file in files if file is not None]
        parts = [(features if self.sparse else features.toarray(), labels) for features, labels in read]
        (features, labels), test = parts[0], parts[1] if self.tested else (None, None)
        return Dataset(self.names[stem], features, labels, *test, source=self.source)


_TEXTS = {
    "a9a": _Libsvm({"a9a": "a9a"}, 123, tested=True),
    "w8a": _Libsvm({"w8a": "w8a"}, 300),
    "mushrooms": _Libsvm({"mushrooms": "mushrooms"}, 112),
    "phishing": _Libsvm({"phishing": "phishing"}, 68),
    "news20": _Libsvm(
        {"news20_binary_20958": "news20_binary_20958"},
        20_958,
        _NEWS,
        sparse=True,
        how=f"It is {_NEWS}, and comes with the studies of this package.",
    ),
    "real-sim": _Libsvm({"real-sim": "real-sim"}, 20_958, sparse=True),
    "epsilon": _Libsvm(
        {"epsilon_normalized": "epsilon", "epsilon_first100": "epsilon (first 100 rows)"}, 2_000, _EPSILON, tested=True
    ),
}


def download_folder() -> Path:
    """The folder that datasets are downloaded to: the one that JDFL_DATA names, or one in the user's home."""
    own = f"{os.environ.get('XDG_DATA_HOME') or '~/.local/share'}/jdfl"
    return Path(os.path.expanduser(os.environ.get("JDFL_DATA") or own))


def data_folder() -> Path:
    """The folder with the datasets: the one that JDFL_DATA names, or else one in the user's home.

    Without that environment variable it is the folder jdfl in XDG_DATA_HOME, or ~/.local/share/jdfl, where `jdfl data
    fetch` puts its files. Raises FileNotFoundError, with the remedy, if the folder is missing.
    """
    named, folder = os.environ.get("JDFL_DATA"), _HERE.get() or download_folder()
    if not folder.is_dir():
        wanted = f"JDFL_DATA to name a folder, got {named!r}" if named else "JDFL_DATA to name the data folder"
        raise FileNotFoundError(
            f"Expected the environment variable {wanted}. Download what can be with `jdfl data fetch NAME`, or put the "
            "files in a folder: `export JDFL_DATA=$HOME/data`"
        )
    return folder


@contextmanager
def looked_for_in(folder: Path) -> Generator[None]:
    """A context in which datasets are read from this folder."""
    token = _HERE.set(folder)
    try:
        yield
    finally:
        _HERE.reset(token)


def bundled(name: str) -> bool:
    """Whether a dataset comes with scikit-learn."""
    return name in _BUNDLED


def locate(name: str) -> Path | None:
    """The file of a dataset of `NAMES`, or None if it has none; FileNotFoundError if it is missing."""
    checks.one_of(NAMES, name=name)
    if name in _IMAGES:
        return _find_images(name)
    if name == "qsar":
        return _find("qsar_oral_toxicity", _QSAR_FILES, _QSAR)
    return _TEXTS[name].find()[1] if name in _TEXTS else None


@checked
def load(name: str, *, binary: bool = False, verify: bool = True) -> Dataset:
    """The dataset of that name. Text is CSR, the others are dense.

    qsar, a9a, w8a, mushrooms, phishing and real-sim are read from `data_folder()` as distributed, news20 (20 newsgroups
    in two classes, as wide as real-sim and a stand-in for it) as it comes with the studies of this package.
    epsilon (2,000 numbers, rows of length 1, with a test set) is read from epsilon_normalized and epsilon_normalized.t
    as distributed, which take 4 GB and several times that while they are read; where these are missing, from the pieces
    that come with the studies of this package, and then named "epsilon (first 100 rows)".
    breast_cancer (as measured, to be standardised) and digits (pixels in [0, 1], ten classes) come with scikit-learn.
    realsim_like and epsilon_like are generated, with their defaults.
    mnist, fashion_mnist (784 pixels in [0, 1], row after row) and cifar10 (3,072 numbers in [0, 1], pixel after pixel,
    the three colours of a pixel together) have ten classes and a test set. cifar10 is read from the original batches,
    or from JPEG files as they come with the studies of this package, and then named "CIFAR-10 (JPEG q75)".

    Args:
        name: One of `NAMES`.
        binary: Digits: odd (1) against even (0) instead of ten classes.
        verify: Compare files of known names with their checksums.

    Raises FileNotFoundError that says what to download; ValueError for an unknown name or a damaged file.
    """
    found = unscaled(name, binary=binary, verify=verify)
    if name not in _IMAGES:
        return found
    whole: tuple[Any, ...] = found.features, found.test_features
    return replace(found, features=pixels(whole[0]), test_features=pixels(whole[1]))


def unscaled(name: str, *, binary: bool = False, verify: bool = True) -> Dataset:
    """As `load`, but for images that come in bytes [N, rows, columns] (or [N, rows, columns, 3]): they stay so."""
    checks.one_of(NAMES, name=name)
    if name in _TEXTS:
        return _TEXTS[name].read(verify)
    if name in GENERATED:
        return GENERATED[name]()
    if name in _BUNDLED:
        return _bundled(name, binary)
    if name == "qsar":
        features, labels = read_qsar(_find("qsar_oral_toxicity", _QSAR_FILES, _QSAR), verify=verify)
        return Dataset(name, features, labels, source=f"D. Ballabio et al., 2019, CC BY 4.0, {_QSAR}")
    place = _find_images(name)
    if name == "cifar10":
        found = read_cifar10(place, verify=verify)
    else:
        found = read_mnist(place.parent, known=name if verify else "")
    return Dataset("CIFAR-10 (JPEG q75)" if found.lossy else name, *found[:4], source=_IMAGES[name][1])


def _find_images(name: str) -> Path:
    """The file or folder a set of images is read from."""
    root, find = data_folder(), find_cifar10 if name == "cifar10" else find_part
    errors: list[FileNotFoundError] = []
    for folder in _IMAGES[name][0]:
        try:
            return find(root / folder)
        except FileNotFoundError as error:
            errors.append(error)
    raise errors[0]


def _bundled(name: str, binary: bool) -> Dataset:
    from sklearn import datasets  # which takes long to import

    bunch: Any = datasets.load_digits() if name == "digits" else datasets.load_breast_cancer()
    features, labels, source = bunch.data, bunch.target.astype(np.int32), _BUNDLED[name]
    if name == "digits":
        features = features / 16  # grey values 0..16
        name, labels = ("digits_odd", labels % 2) if binary else (name, labels)
    return Dataset(name, features.astype(np.float32), labels, source=source, standardise=name == "breast_cancer")


def _find(folder: str, stems: tuple[str, ...], source: str, how: str = "") -> Path:
    """The first existing form of one of `stems` in JDFL_DATA/folder, or in JDFL_DATA itself."""
    endings = ("", ".bz2", ".gz", ".xz") if folder == "libsvm" else (".csv", ".zip", ".csv.gz", ".csv.bz2", ".csv.xz")
    place, names = data_folder() / folder, [stem + ending for stem in stems for ending in endings]
    for path in (at / name for at in (place, place.parent) for name in names):
        if path.is_file():
            return path
    forms = ", ".join(names)
    raise FileNotFoundError(f"Expected one of {forms} in {place}, found none. {how or f'Download it from {source}'}")
