"""Datasets by name: the places of their files, their contents and their sources. Host only, NumPy arrays and CSR.

Files are read from the folder that the environment variable JDFL_DATA names, or else from where `jdfl data fetch` puts
them. Two sets come with scikit-learn, and two are generated.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from jdfl.base import checks
from jdfl.base.arguments import checked
from jdfl.problems.generated import epsilon_like, realsim_like
from jdfl.problems.places import BUNDLED, IMAGES, NAMES, QSAR_SOURCE, TEXTS, data_folder, find, find_text
from jdfl.problems.readers import Dataset, read_cifar10, read_libsvm, read_mnist, read_qsar

_GENERATE = {"realsim_like": realsim_like, "epsilon_like": epsilon_like}
_TESTED = ("a9a", "epsilon")  # by another file, NAME.t
_TITLES = {"epsilon_normalized": "epsilon", "epsilon_first100": "epsilon (first 100 rows)"}


def locate(name: str) -> Path | None:
    """The file of a dataset of `NAMES`, or None if it has none; FileNotFoundError if it is missing."""
    checks.one_of(NAMES, name=name)
    return find(name)


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
    if name not in IMAGES:
        return found

    def pixels(images: Any) -> np.ndarray:
        rows = images.reshape(len(images), -1)
        return np.divide(rows, np.float32(255), out=np.empty(rows.shape, np.float32))  # without a further copy

    return replace(found, features=pixels(found.features), test_features=pixels(found.test_features))


def unscaled(name: str, *, binary: bool = False, verify: bool = True, root: Path | None = None) -> Dataset:
    """As `load`, but images stay bytes [N, rows, columns] (or [N, rows, columns, 3]); `root` is the data folder."""
    checks.one_of(NAMES, name=name)
    place: Any = find(name, root)
    if name in _GENERATE:
        return _GENERATE[name]()
    if name in BUNDLED:
        return _bundled(name, binary)
    if name == "qsar":
        return Dataset(name, *read_qsar(place, verify=verify), source=QSAR_SOURCE)
    if name in TEXTS:
        stems, width, source = TEXTS[name]
        stem = next(one for one in stems if place.name.startswith(one))
        files = [place]
        if name in _TESTED:
            files.append(find_text(data_folder() if root is None else root, (f"{stem}.t",), source))
        read = [read_libsvm(file, n_features=width, verify=verify) for file in files]
        if name not in ("news20", "real-sim"):
            read = [(features.toarray(), labels) for features, labels in read]
        return Dataset(_TITLES.get(stem, stem), *(part for pair in read for part in pair), source=source)
    if name == "cifar10":
        found = read_cifar10(place, verify=verify)
    else:
        found = read_mnist(place.parent, known=name if verify else "")
    return Dataset("CIFAR-10 (JPEG q75)" if found.lossy else name, *found[:4], source=IMAGES[name][1])


def _bundled(name: str, binary: bool) -> Dataset:
    from sklearn import datasets  # which takes long to import

    bunch: Any = datasets.load_digits() if name == "digits" else datasets.load_breast_cancer()
    features, labels, source = bunch.data, bunch.target.astype(np.int32), BUNDLED[name]
    if name == "digits":
        features = features / 16  # grey values 0..16
        name, labels = ("digits_odd", labels % 2) if binary else (name, labels)
    return Dataset(name, features.astype(np.float32), labels, source=source, standardise=name == "breast_cancer")
