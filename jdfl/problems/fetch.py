"""Downloads of published datasets into the data folder, compared with pinned checksums. Host only."""

import hashlib
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from jdfl.base import checks
from jdfl.problems import datasets

_LIBSVM = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary"
_MNIST = "https://ossci-datasets.s3.amazonaws.com/mnist"
_FASHION = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com"
_UCI = "CC BY 4.0, UCI Machine Learning Repository"
_NO_LICENCE = "no licence stated: for research, with citation"
_NOTE = "SOURCES.txt"


@dataclass(frozen=True)
class Source:
    """The place and the terms of publication of a dataset."""

    folder: str  # in the data folder
    base: str  # address
    files: Mapping[str, str]  # names, with the SHA-256 of each as it is published; "": none is known
    licence: str
    size: tuple[int, int] | None  # training examples and numbers of each, for the check; None: too large to read
    numbers: str = ""  # SHA-256 of features and labels as they are read, where none of the file is known


# The files of a9a, w8a and mushrooms: their content as in the studies of this package, with the labels and spaces of
# the published files. MNIST and the labels of Fashion-MNIST unpack to the content in checksums.txt. The others are as
# projects pin them that download from the same addresses: Keras for CIFAR-10, scikit-learn_bench for epsilon, rlaopt
# for real-sim. No SHA-256 is known of qsar's archive and of phishing's file: their numbers are compared.
SOURCES = {
    "qsar": Source(
        "qsar_oral_toxicity",
        "https://archive.ics.uci.edu/static/public/508",
        {"qsar+oral+toxicity.zip": ""},
        "CC BY 4.0, D. Ballabio et al., 2019",
        (8_992, 1_024),
        "4fb71ee8321ab485728beac10af36ec9f115b1fd938a5a904d0d54b1e35fd658",
    ),
    "a9a": Source(
        "libsvm",
        _LIBSVM,
        {
            "a9a": "f5d5ffd8d865ff41328e7ee043e4b020816914ff6843ff15b98905ddbedce906",
            "a9a.t": "1f448a153f0320399a7e40836eb207655b0bde0f21fc941cc472193daa9f5de9",
        },
        _UCI,
        (32_561, 123),
    ),
    "w8a": Source(
        "libsvm",
        _LIBSVM,
        {"w8a": "6a9fa8fd5f524303240a5db07d4b3d4a51e8b7b4b20a914105d8e3e8c81640f2"},
        _NO_LICENCE,
        (49_749, 300),
    ),
    "mushrooms": Source(
        "libsvm",
        _LIBSVM,
        {"mushrooms": "f39a4eb628dc61a7d43760815b061c9e497aa728ce1ad8bde57a09ef6043b538"},
        _UCI,
        (8_124, 112),
    ),
    "phishing": Source(
        "libsvm",
        _LIBSVM,
        {"phishing": ""},
        _UCI,
        (11_055, 68),
        "7dbb9c277b05b60df062e64eb33376f6223ba3fc9896c2b6f8d15e6cd24c8702",
    ),
    "real-sim": Source(
        "libsvm",
        _LIBSVM,
        {"real-sim.bz2": "7cd52374f55ce62e803ef33ca1c44689427c23d481eff64026f8ba9f53b8cc27"},
        _NO_LICENCE,
        (72_309, 20_958),
    ),
    "epsilon": Source(
        "libsvm",
        _LIBSVM,
        {
            "epsilon_normalized.bz2": "aff916d4f97f18d286558ca088d2a9f7e1fcee9376539a5aa6ef5b7ef9dfa978",
            "epsilon_normalized.t.bz2": "cb299295ad11e200696eaa3050f5d8cf700eaa9c65e6aa859bda959f8669458b",
        },
        f"{_NO_LICENCE}; 12 GB unpacked",
        None,
    ),
    "mnist": Source(
        "mnist",
        _MNIST,
        {
            "train-images-idx3-ubyte.gz": "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
            "train-labels-idx1-ubyte.gz": "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
            "t10k-images-idx3-ubyte.gz": "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
            "t10k-labels-idx1-ubyte.gz": "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
        },
        "CC BY-SA 3.0, Y. LeCun, C. Cortes, C. Burges",
        (60_000, 784),
    ),
    "fashion_mnist": Source(
        "fashion_mnist",
        _FASHION,
        {
            "train-images-idx3-ubyte.gz": "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
            "train-labels-idx1-ubyte.gz": "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
            "t10k-images-idx3-ubyte.gz": "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
            "t10k-labels-idx1-ubyte.gz": "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
        },
        "MIT, Zalando SE",
        (60_000, 784),
    ),
    "cifar10": Source(
        "cifar10",
        "https://www.cs.toronto.edu/~kriz",
        {"cifar-10-python.tar.gz": "6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce"},
        f"{_NO_LICENCE} (A. Krizhevsky, 2009)",
        (50_000, 3_072),
    ),
}


def fetch(name: str, to: Path | None = None, tell: Callable[[str], object] = print) -> Path:
    """Download a dataset into a data folder, check it, and return its folder.

    A download that was interrupted continues, if the file's SHA-256 is known. Existing files are kept. Every file is
    compared with its SHA-256 as it is published, or where none is known with that of its first download; all that was
    downloaded is read once to compare the numbers of examples and features. Files that do not match are kept aside, as
    NAME.refused. SOURCES.txt in the folder records the date, the SHA-256, the address and the licence of every file.

    Args:
        name: One of `SOURCES`.
        to: The data folder; None: that of `datasets.download_folder`.
        tell: A function that is given a line about the licence and about every file.

    Raises ValueError for an unknown name or a file with unexpected content, and OSError with a remedy if the address
    cannot be reached, a file cannot be written, or another process is downloading it. Warns of existing files that are
    not the published ones.
    """
    from jdfl.problems import download  # for those who do: it imports requests

    if name in datasets.NAMES and name not in SOURCES:
        why = "comes with scikit-learn" if datasets.bundled(name) else "is published nowhere in this form"
        why = "is generated" if name in datasets.GENERATED else why
        raise ValueError(f"Expected a dataset to download, got {name!r}, which {why}.")
    checks.one_of(tuple(SOURCES), name=name)
    source = SOURCES[name]
    root = datasets.download_folder() if to is None else Path(to)
    place = root / source.folder
    tell(f"{name}: {source.licence}. You are bound by these terms.")
    recorded, unknown = _recorded(root), False
    new: dict[Path, str] = {}
    for file, pin in source.files.items():
        path = place / file
        known = download.Known(pin, "as it is published") if pin else None
        if known is None and (first := recorded.get(f"{source.folder}/{file}")):
            known = download.Known(first, f"as {root / _NOTE} says of the first download")
        if not path.is_file():
            new[path] = download.download(f"{source.base}/{file}", path, known, tell)
            continue
        tell(f"there already: {path}")
        unknown = unknown or known is None
        if known is not None and (found := download.sha256(path)) != known.sha256:
            warnings.warn(
                f"{path} is another file than expected, and is kept: its SHA-256 is {found}, and {known.sha256} "
                f"{known.source}. Remove it to download that.",
                stacklevel=2,
            )
    if not new and not unknown:
        return place
    try:
        _check(name, source, root)
    except (ValueError, OSError) as error:
        aside = " ".join(download.set_aside(path, path) for path in new)
        raise ValueError(f"{checks.said(error)} {aside}") from error
    with (root / _NOTE).open("a", encoding="utf-8") as note:
        for path, digest in new.items():
            words = (f"{datetime.now(UTC):%Y-%m-%d}", digest, f"{path.relative_to(root)}")
            note.write("  ".join((*words, f"{source.base}/{path.name}", source.licence)) + "\n")
    return place


def _recorded(root: Path) -> dict[str, str]:
    """The SHA-256 of every file's first download, by its place in the data folder."""
    try:
        lines = (root / _NOTE).read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return {}
    rows = [line.split("  ") for line in lines]
    return {row[2]: row[1] for row in reversed(rows) if len(row) > 3}


def _check(name: str, source: Source, root: Path) -> None:
    """Refuse files that are not the dataset."""
    if source.size is None:
        return
    with datasets.looked_for_in(root):
        found = datasets.load(name)
    examples, numbers = found.features.shape or (0, 0)
    if (examples, numbers) != source.size:
        raise ValueError(
            f"Expected {source.size[0]:,} examples of {source.size[1]:,} numbers in {name}, got {examples:,} of "
            f"{numbers:,}: it is another release."
        )
    content = hashlib.sha256(np.ascontiguousarray(found.features, "<f4").data) if source.numbers else None
    if content is not None:
        content.update(np.ascontiguousarray(found.labels, "<i4").data)
        if (digest := content.hexdigest()) != source.numbers:
            raise ValueError(
                f"Expected numbers with SHA-256 {source.numbers} in {name}, got {digest}: it is damaged or another "
                "release."
            )
