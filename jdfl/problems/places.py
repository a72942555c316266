"""Names of datasets, and the places of their files in the folder that JDFL_DATA names.

Nothing is read here, and JAX is not imported, so that `jdfl list` answers soon.
"""

import os
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

DataName = Literal[
    "qsar", "a9a", "w8a", "mushrooms", "phishing", "news20", "real-sim", "epsilon", "mnist", "fashion_mnist", "cifar10",
    "breast_cancer", "digits", "realsim_like", "epsilon_like",
]  # fmt: skip
NAMES: tuple[DataName, ...] = get_args(DataName)
CIFAR_SOURCE = "https://www.cs.toronto.edu/~kriz/cifar.html"
CIFAR_TRAIN = tuple(f"data_batch_{k}" for k in range(1, 6))
CIFAR_JPEG = ("cifar10_jpeg_train_0.npz", "cifar10_jpeg_train_1.npz", "cifar10_jpeg_test.npz")
_CIFAR_FOLDERS = (".", "cifar-10-batches-py", "cifar-10-batches-bin")  # the latter inside the archives
_CIFAR_ARCHIVES = ("cifar-10-python.tar.gz", "cifar-10-binary.tar.gz")
MNIST_PARTS = ("train-images", "train-labels", "t10k-images", "t10k-labels")
QSAR_SOURCE = "https://archive.ics.uci.edu/dataset/508/qsar+oral+toxicity"
_QSAR_FILES = ("qsar_oral_toxicity", "qsar+oral+toxicity")  # the file's name, and the name UCI gives the archive
_LIBSVM = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary.html"
_NEWS = "20 newsgroups, http://qwone.com/~jason/20Newsgroups, as binary tf-idf text"
_EPSILON = f"Pascal Large Scale Learning Challenge, 2008, no licence stated, {_LIBSVM}"
GENERATED = ("realsim_like", "epsilon_like")
BUNDLED = {  # with scikit-learn
    "breast_cancer": "W. Wolberg et al., 1995, CC BY 4.0, https://archive.ics.uci.edu/dataset/17",
    "digits": "E. Alpaydin, C. Kaynak, 1998, CC BY 4.0, https://archive.ics.uci.edu/dataset/80",
}
IMAGES = {  # folders that the files may be in, the source
    "mnist": (("mnist", "MNIST/raw"), "Y. LeCun, C. Cortes, C. Burges, CC BY-SA 3.0, http://yann.lecun.com/exdb/mnist"),
    "fashion_mnist": (
        ("fashion_mnist", "FashionMNIST/raw"),
        "H. Xiao, K. Rasul, R. Vollgraf, 2017, MIT licence, https://github.com/zalandoresearch/fashion-mnist",
    ),
    "cifar10": (("cifar10", ".", "cifar10_jpeg"), f"A. Krizhevsky, 2009, no licence stated, {CIFAR_SOURCE}"),
}
_HERE: ContextVar[Path | None] = ContextVar("data folder", default=None)


@dataclass(frozen=True)
class LibsvmText:
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


TEXTS = {
    "a9a": LibsvmText({"a9a": "a9a"}, 123, tested=True),
    "w8a": LibsvmText({"w8a": "w8a"}, 300),
    "mushrooms": LibsvmText({"mushrooms": "mushrooms"}, 112),
    "phishing": LibsvmText({"phishing": "phishing"}, 68),
    "news20": LibsvmText(
        {"news20_binary_20958": "news20_binary_20958"},
        20_958,
        _NEWS,
        sparse=True,
        how=f"It is {_NEWS}, and comes with the studies of this package.",
    ),
    "real-sim": LibsvmText({"real-sim": "real-sim"}, 20_958, sparse=True),
    "epsilon": LibsvmText(
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


def find(name: str) -> Path | None:
    """The file of a dataset of `NAMES`, or None if it has none; FileNotFoundError if it is missing."""
    if name in IMAGES:
        return _find_images(name)
    if name == "qsar":
        return _find("qsar_oral_toxicity", _QSAR_FILES, QSAR_SOURCE)
    return TEXTS[name].find()[1] if name in TEXTS else None


def status(name: str) -> str:
    """Where a dataset comes from: its file, a generator, scikit-learn, or what is missing."""
    if name in GENERATED:
        return "generated"
    try:
        path = find(name)
    except FileNotFoundError as error:
        return "not found: " + str(error).split(". ")[0].removesuffix(" Download it from ")
    return "comes with scikit-learn" if path is None else f"found: {path}"


def find_part(folder: Path, part: str = MNIST_PARTS[0]) -> Path:
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


def find_cifar10(place: str | os.PathLike[str]) -> Path:
    """The source of CIFAR-10: an archive, a folder of batches, or the folder with the JPEG files.

    `place` is the source itself, or the folder that contains it. The original is preferred to JPEG. FileNotFoundError
    if there is none.
    """
    place = Path(place)
    if place.is_file():
        return place
    for folder in _CIFAR_FOLDERS:
        if any((place / folder / (CIFAR_TRAIN[0] + ending)).is_file() for ending in ("", ".bin")):
            return place / folder
    for name in _CIFAR_ARCHIVES:
        if (place / name).is_file():
            return place / name
    if (place / CIFAR_JPEG[-1]).is_file():
        return place
    raise FileNotFoundError(
        f"Expected {CIFAR_TRAIN[0]}, {CIFAR_TRAIN[0]}.bin, {', '.join(_CIFAR_ARCHIVES)} or {CIFAR_JPEG[-1]} in "
        f"{place}, found none. Download CIFAR-10 from {CIFAR_SOURCE}"
    )


def _find_images(name: str) -> Path:
    """The file or folder a set of images is read from."""
    root, find_one = data_folder(), find_cifar10 if name == "cifar10" else find_part
    errors: list[FileNotFoundError] = []
    for folder in IMAGES[name][0]:
        try:
            return find_one(root / folder)
        except FileNotFoundError as error:
            errors.append(error)
    raise errors[0]


def _find(folder: str, stems: tuple[str, ...], source: str, how: str = "") -> Path:
    """The first existing form of one of `stems` in JDFL_DATA/folder, or in JDFL_DATA itself."""
    endings = ("", ".bz2", ".gz", ".xz") if folder == "libsvm" else (".csv", ".zip", ".csv.gz", ".csv.bz2", ".csv.xz")
    place, names = data_folder() / folder, [stem + ending for stem in stems for ending in endings]
    for path in (at / name for at in (place, place.parent) for name in names):
        if path.is_file():
            return path
    forms = ", ".join(names)
    raise FileNotFoundError(f"Expected one of {forms} in {place}, found none. {how or f'Download it from {source}'}")
