"""Data sets by name: where their files are, what they are, and where they come from. Host only, NumPy arrays.

Files are looked for in the folder that the environment variable JDFL_DATA names; two sets come with scikit-learn.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits

from jdfl import checks
from jdfl.problems.readers import read_libsvm, read_qsar

_LIBSVM = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary.html"
_QSAR = "https://archive.ics.uci.edu/dataset/508/qsar+oral+toxicity"
_WIDTH = {"a9a": 123, "w8a": 300, "mushrooms": 112, "phishing": 68}  # features, also where a file misses the last
_QSAR_STEMS = ("qsar_oral_toxicity", "qsar+oral+toxicity")  # the file's name, and the name UCI gives the archive
_BUNDLED = ("breast_cancer", "digits")

NAMES = ("qsar", *_WIDTH, *_BUNDLED)


@dataclass(frozen=True)
class Dataset:
    """Examples for classification. Axes: N examples, M test examples, p features."""

    name: str
    features: np.ndarray  # [N, p] float32
    labels: np.ndarray  # [N] int32, 0..classes-1
    test_features: np.ndarray | None = None  # [M, p] float32, where the source has a test set
    test_labels: np.ndarray | None = None  # [M] int32
    source: str = ""  # who made it and where it can be had
    standardise: bool = False  # columns of very different scales: use mean 0, variance 1 of the training examples

    @property
    def classes(self) -> int:
        """The number of classes."""
        return int(self.labels.max()) + 1


def data_folder() -> Path:
    """The folder that JDFL_DATA names; FileNotFoundError, with the remedy, where it names none."""
    named = os.environ.get("JDFL_DATA", "")
    remedy = "Put the files in a folder and set it, for example: export JDFL_DATA=$HOME/data"
    if not named:
        raise FileNotFoundError(f"Expected the environment variable JDFL_DATA to name the data folder. {remedy}")
    folder = Path(named).expanduser()
    if not folder.is_dir():
        raise FileNotFoundError(f"Expected JDFL_DATA to name a folder, got {named!r}. {remedy}")
    return folder


def locate(name: str) -> Path | None:
    """The file of a data set of `NAMES`, None if scikit-learn brings it; FileNotFoundError if it is missing."""
    checks.one_of(NAMES, name=name)
    if name in _BUNDLED:
        return None
    if name == "qsar":
        return _find("qsar_oral_toxicity", _QSAR_STEMS, _QSAR)
    if name == "a9a":
        _find("libsvm", ("a9a.t",), _LIBSVM)
    return _find("libsvm", (name,), _LIBSVM)


def load(name: str, *, binary: bool = False, verify: bool = True) -> Dataset:
    """The data set of that name, dense: one of `NAMES`.

    qsar, a9a, w8a, mushrooms and phishing are read from `data_folder()` as distributed. breast_cancer (as
    measured, to be standardised) and digits (pixels in [0, 1], ten classes) come with scikit-learn.
    `binary` turns digits into even (0) against odd (1). `verify` compares files of known names with their checksums.
    FileNotFoundError says what to download; ValueError for an unknown name or a damaged file.
    """
    checks.one_of(NAMES, name=name)
    if name == "qsar":
        features, labels = read_qsar(_find("qsar_oral_toxicity", _QSAR_STEMS, _QSAR), verify=verify)
        return Dataset(name, features, labels, source=f"D. Ballabio et al., 2019, CC BY 4.0, {_QSAR}")
    if name in _BUNDLED:
        return _bundled(name, binary)
    features, labels = _libsvm(name, name, verify)
    test_features, test_labels = _libsvm(name, "a9a.t", verify) if name == "a9a" else (None, None)
    return Dataset(name, features, labels, test_features, test_labels, source=_LIBSVM)


def _libsvm(name: str, file: str, verify: bool) -> tuple[np.ndarray, np.ndarray]:
    features, labels = read_libsvm(_find("libsvm", (file,), _LIBSVM), n_features=_WIDTH[name], verify=verify)
    return features.toarray(), labels


def _bundled(name: str, binary: bool) -> Dataset:
    if name == "digits":
        bunch = cast(Any, load_digits())
        features, labels = bunch.data / 16, bunch.target  # grey values 0..16
        name, labels = ("digits_odd", labels % 2) if binary else (name, labels)
        source = "E. Alpaydin, C. Kaynak, 1998, CC BY 4.0, https://archive.ics.uci.edu/dataset/80"
    else:
        bunch = cast(Any, load_breast_cancer())
        features, labels = bunch.data, bunch.target
        source = "W. Wolberg et al., 1995, CC BY 4.0, https://archive.ics.uci.edu/dataset/17"
    standardise = name == "breast_cancer"
    return Dataset(name, features.astype(np.float32), labels.astype(np.int32), source=source, standardise=standardise)


def _find(folder: str, stems: tuple[str, ...], source: str) -> Path:
    """The first existing form of one of `stems` in JDFL_DATA/folder, or in JDFL_DATA itself."""
    endings = ("", ".bz2", ".gz", ".xz") if folder == "libsvm" else (".csv", ".zip", ".csv.gz", ".csv.bz2", ".csv.xz")
    place, names = data_folder() / folder, [stem + ending for stem in stems for ending in endings]
    for path in (at / name for at in (place, place.parent) for name in names):
        if path.is_file():
            return path
    forms = ", ".join(names)
    raise FileNotFoundError(f"Expected one of {forms} in {place}, found none. Download it from {source}")
