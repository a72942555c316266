"""Downloads of published datasets into the data folder, compared with pinned checksums. Host only."""

import hashlib
import tomllib
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path

import numpy as np

from jdfl.base import checks
from jdfl.problems import datasets, places

_NOTE = "SOURCES.txt"


@dataclass(frozen=True)
class Source:
    """The place and the terms of publication of a dataset."""

    folder: str  # in the data folder
    base: str  # address
    files: Mapping[str, str]  # names, with the SHA-256 of each as it is published; "": none is known
    licence: str
    size: Sequence[int] | None = None  # training examples and numbers of each, for the check; None: too large to read
    numbers: str = ""  # SHA-256 of features and labels as they are read, where none of the file is known


_TABLE = files(__name__.rpartition(".")[0]).joinpath("sources.toml").read_text(encoding="utf-8")
SOURCES = {name: Source(**row) for name, row in tomllib.loads(_TABLE).items()}


def fetch(name: str, to: Path | None = None, tell: Callable[[str], object] = print) -> Path:
    """Download a dataset into a data folder, check it, and return its folder.

    A download that was interrupted continues, if the file's SHA-256 is known. Existing files are kept. Every file is
    compared with its SHA-256 as it is published, or where none is known with that of its first download; all that was
    downloaded is read once to compare the numbers of examples and features. Files that do not match are kept aside, as
    NAME.refused. SOURCES.txt in the folder records the date, the SHA-256, the address and the licence of every file.

    Args:
        name: One of `SOURCES`.
        to: The data folder; None: that of `places.download_folder`.
        tell: A function that is given a line about the licence and about every file.

    Raises ValueError for an unknown name or a file with unexpected content, and OSError with a remedy if the address
    cannot be reached, a file cannot be written, or another process is downloading it. Warns of existing files that are
    not the published ones.
    """
    from jdfl.problems import download  # for those who do: it imports requests

    if name in places.NAMES and name not in SOURCES:
        why = "comes with scikit-learn" if name in places.BUNDLED else "is published nowhere in this form"
        why = "is generated" if name in places.GENERATED else why
        raise ValueError(f"Expected a dataset to download, got {name!r}, which {why}.")
    checks.one_of(tuple(SOURCES), name=name)
    source = SOURCES[name]
    root = places.download_folder() if to is None else Path(to)
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
    with places.looked_for_in(root):
        found = datasets.load(name)
    examples, numbers = found.features.shape or (0, 0)
    if [examples, numbers] != list(source.size):
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
