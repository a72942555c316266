"""Data sets by name: where their files are, what they are, and where they come from. Host only, NumPy arrays and CSR.

Files are looked for in the folder that the environment variable JDFL_DATA names, or else where `jdfl data fetch` puts
them; two sets come with scikit-learn, and two are generated.
"""

import os
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

import numpy as np

from jdfl import checks
from jdfl.arguments import checked
from jdfl.problems.cifar import SOURCE as _CIFAR
from jdfl.problems.cifar import find_cifar10, read_cifar10
from jdfl.problems.dataset import Dataset
from jdfl.problems.generated import epsilon_like, realsim_like
from jdfl.problems.images import find_part, pixels, read_mnist
from jdfl.problems.readers import read_libsvm, read_qsar

_LIBSVM = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary.html"
_QSAR = "https://archive.ics.uci.edu/dataset/508/qsar+oral+toxicity"
_WIDTH = {"a9a": 123, "w8a": 300, "mushrooms": 112, "phishing": 68}  # features, also where a file misses the last
_TEXT = {"news20": "news20_binary_20958", "real-sim": "real-sim"}  # file names of what stays sparse
_WORDS = 20_958  # features of both
_NEWS = "20 newsgroups, http://qwone.com/~jason/20Newsgroups, as binary tf-idf text"
_QSAR_STEMS = ("qsar_oral_toxicity", "qsar+oral+toxicity")  # the file's name, and the name UCI gives the archive
_MNIST = "Y. LeCun, C. Cortes, C. Burges, CC BY-SA 3.0, http://yann.lecun.com/exdb/mnist"
_FASHION = "H. Xiao, K. Rasul, R. Vollgraf, 2017, MIT licence, https://github.com/zalandoresearch/fashion-mnist"
_IMAGES = {  # folders that the files may be in, the source
    "mnist": (("mnist", "MNIST/raw"), _MNIST),
    "fashion_mnist": (("fashion_mnist", "FashionMNIST/raw"), _FASHION),
    "cifar10": (("cifar10", ".", "cifar10_jpeg"), f"A. Krizhevsky, 2009, no licence stated, {_CIFAR}"),
}
_EPSILON = {"epsilon_normalized": "epsilon", "epsilon_first100": "epsilon (first 100 rows)"}  # file names, the set's
_BUNDLED = ("breast_cancer", "digits")

GENERATED = {"realsim_like": realsim_like, "epsilon_like": epsilon_like}
_HERE: ContextVar[Path | None] = ContextVar("data folder", default=None)
NAMES = ("qsar", *_WIDTH, *_TEXT, "epsilon", *_IMAGES, *_BUNDLED, *GENERATED)


def download_folder() -> Path:
    """Where data sets are downloaded to: the folder that JDFL_DATA names, or one of the user's own."""
    named = os.environ.get("JDFL_DATA", "")
    if named:
        return Path(os.path.expanduser(named))
    return Path(os.path.expanduser(os.environ.get("XDG_DATA_HOME") or "~/.local/share")) / "jdfl"


def data_folder() -> Path:
    """The folder with the data: that which JDFL_DATA names, or else `download_folder`.

    FileNotFoundError, with the remedy, where neither is there.
    """
    given = _HERE.get()
    if given is not None:
        return given
    named, folder = os.environ.get("JDFL_DATA", ""), download_folder()
    remedy = (
        "Download what can be with `jdfl data fetch NAME`, or put the files in a folder: export JDFL_DATA=$HOME/data"
    )
    if not named and not folder.is_dir():
        raise FileNotFoundError(f"Expected the environment variable JDFL_DATA to name the data folder. {remedy}")
    if not folder.is_dir():
        raise FileNotFoundError(f"Expected JDFL_DATA to name a folder, got {named!r}. {remedy}")
    return folder


@contextmanager
def looked_for_in(folder: Path) -> Generator[None]:
    """Within it, data is looked for in this folder."""
    token = _HERE.set(folder)
    try:
        yield
    finally:
        _HERE.reset(token)


def bundled(name: str) -> bool:
    """Whether a data set comes with scikit-learn."""
    return name in _BUNDLED


def locate(name: str) -> Path | None:
    """The file of a data set of `NAMES`, None if it needs none; FileNotFoundError if it is missing."""
    checks.one_of(NAMES, name=name)
    if name in (*_BUNDLED, *GENERATED):
        return None
    if name in _TEXT:
        return _text_file(name)
    if name in _IMAGES:
        return _images_at(name)
    if name == "epsilon":
        return _epsilon_files()[0]
    if name == "qsar":
        return _find("qsar_oral_toxicity", _QSAR_STEMS, _QSAR)
    if name == "a9a":
        _find("libsvm", ("a9a.t",), _LIBSVM)
    return _find("libsvm", (name,), _LIBSVM)


@checked
def load(name: str, *, binary: bool = False, verify: bool = True) -> Dataset:
    """The data set of that name: one of `NAMES`. Text is CSR, the others are dense.

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
    `binary` turns digits into even (0) against odd (1). `verify` compares files of known names with their checksums.
    FileNotFoundError says what to download; ValueError for an unknown name or a damaged file.
    """
    checks.one_of(NAMES, name=name)
    if name == "qsar":
        features, labels = read_qsar(_find("qsar_oral_toxicity", _QSAR_STEMS, _QSAR), verify=verify)
        return Dataset(name, features, labels, source=f"D. Ballabio et al., 2019, CC BY 4.0, {_QSAR}")
    if name in _BUNDLED:
        return _bundled(name, binary)
    if name in GENERATED:
        return GENERATED[name]()
    if name in _TEXT:
        features, labels = read_libsvm(_text_file(name), n_features=_WORDS, verify=verify)
        return Dataset(_TEXT[name], features, labels, source=_LIBSVM if name == "real-sim" else _NEWS)
    if name == "epsilon":
        return _epsilon(verify)
    if name in _IMAGES:
        return _images(name, verify)
    features, labels = _libsvm(name, name, verify)
    test_features, test_labels = _libsvm(name, "a9a.t", verify) if name == "a9a" else (None, None)
    return Dataset(name, features, labels, test_features, test_labels, source=_LIBSVM)


def _libsvm(name: str, file: str, verify: bool) -> tuple[np.ndarray, np.ndarray]:
    features, labels = read_libsvm(_find("libsvm", (file,), _LIBSVM), n_features=_WIDTH[name], verify=verify)
    return features.toarray(), labels


def _epsilon_files() -> tuple[Path, Path]:
    """The training and the test file of epsilon, whole or the first rows of both."""
    path = _find("libsvm", tuple(_EPSILON), _LIBSVM)
    stem = next(stem for stem in _EPSILON if path.name.startswith(stem))
    return path, _find("libsvm", (f"{stem}.t",), _LIBSVM)


def _epsilon(verify: bool) -> Dataset:
    files = _epsilon_files()
    (features, labels), test = (read_libsvm(file, n_features=2_000, verify=verify) for file in files)
    name = next(name for stem, name in _EPSILON.items() if files[0].name.startswith(stem))
    source = f"Pascal Large Scale Learning Challenge, 2008, no licence stated, {_LIBSVM}"
    return Dataset(name, features.toarray(), labels, test[0].toarray(), test[1], source)


def _text_file(name: str) -> Path:
    how = f"It is {_NEWS}, and comes with the studies of this package" if name == "news20" else ""
    return _find("libsvm", (_TEXT[name],), _LIBSVM, how)


def _images_at(name: str) -> Path:
    """The file or folder a set of images is read from, as JDFL_DATA has it."""
    root, folders = data_folder(), _IMAGES[name][0]
    find = find_cifar10 if name == "cifar10" else find_part
    errors: list[FileNotFoundError] = []
    for folder in folders:
        try:
            return find(root / folder)
        except FileNotFoundError as error:
            errors.append(error)
    raise errors[0]


def _images(name: str, verify: bool) -> Dataset:
    place, source = _images_at(name), _IMAGES[name][1]
    if name == "cifar10":
        found = read_cifar10(place, verify=verify)
    else:
        found = read_mnist(place.parent, known=name if verify else "")
    name = "CIFAR-10 (JPEG q75)" if found.lossy else name
    return Dataset(name, pixels(found.images), found.labels, pixels(found.test_images), found.test_labels, source)


def _bundled(name: str, binary: bool) -> Dataset:
    from sklearn.datasets import load_breast_cancer, load_digits  # which takes long to import

    if name == "digits":
        bunch = load_digits()
        features, labels = bunch.data / 16, bunch.target  # grey values 0..16
        name, labels = ("digits_odd", labels % 2) if binary else (name, labels)
        source = "E. Alpaydin, C. Kaynak, 1998, CC BY 4.0, https://archive.ics.uci.edu/dataset/80"
    else:
        bunch = load_breast_cancer()
        features, labels = bunch.data, bunch.target
        source = "W. Wolberg et al., 1995, CC BY 4.0, https://archive.ics.uci.edu/dataset/17"
    standardise = name == "breast_cancer"
    return Dataset(name, features.astype(np.float32), labels.astype(np.int32), source=source, standardise=standardise)


def _find(folder: str, stems: tuple[str, ...], source: str, how: str = "") -> Path:
    """The first existing form of one of `stems` in JDFL_DATA/folder, or in JDFL_DATA itself."""
    endings = ("", ".bz2", ".gz", ".xz") if folder == "libsvm" else (".csv", ".zip", ".csv.gz", ".csv.bz2", ".csv.xz")
    place, names = data_folder() / folder, [stem + ending for stem in stems for ending in endings]
    for path in (at / name for at in (place, place.parent) for name in names):
        if path.is_file():
            return path
    forms = ", ".join(names)
    raise FileNotFoundError(f"Expected one of {forms} in {place}, found none. {how or f'Download it from {source}'}")
