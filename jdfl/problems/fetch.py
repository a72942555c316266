"""Downloads of published datasets into the data folder, compared with pinned checksums. Host only."""

import hashlib
import os
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import numpy as np

from jdfl.base import checks
from jdfl.problems import datasets, places
from jdfl.problems.readers import sha256

_TIMEOUT = 30  # seconds without an answer
_PIECE = 2**16  # bytes written at once


@dataclass(frozen=True)
class Source:
    """The place and the terms of publication of a dataset."""

    folder: str  # in the data folder
    base: str  # address
    files: Mapping[str, str]  # names, with the SHA-256 of each as it is published; "": none is known
    licence: str
    numbers: str = ""  # SHA-256 of features and labels as they are read, where none of the file is known


_TABLE = files(__name__.rpartition(".")[0]).joinpath("sources.toml").read_text(encoding="utf-8")
SOURCES = {name: Source(**row) for name, row in tomllib.loads(_TABLE).items()}


def fetch(name: str, to: Path | None = None, tell: Callable[[str], object] = print) -> Path:
    """Download a dataset into a data folder, check it, and return its folder.

    Existing files are kept. An interrupted download continues. Every file is compared with its SHA-256 as it is
    published or, where none is known, by the numbers in it. A download that does not match is kept as NAME.refused.

    Raises ValueError for an unknown name or a file with unexpected content, and OSError with a remedy if the address
    cannot be reached or a file cannot be written.
    """
    if name in places.NAMES and name not in SOURCES:
        raise ValueError(
            f"Expected a dataset to download, got {name!r}, which comes with scikit-learn, is generated or is "
            "published nowhere in this form."
        )
    if name in places.NATURAL:
        raise ValueError(f"Expected a dataset to download, got {name!r}: {places.status(name)}.")
    checks.one_of(tuple(SOURCES), name=name)
    source, root = SOURCES[name], places.download_folder() if to is None else Path(to)
    place = root / source.folder
    place.mkdir(parents=True, exist_ok=True)
    tell(f"{name}: {source.licence}. You are bound by these terms.")
    new: list[Path] = []
    for file, pin in source.files.items():
        path = place / file
        if not path.is_file():
            _download(f"{source.base}/{file}", path, pin, tell)
            new.append(path)
            continue
        tell(f"there already: {path}")
        if pin and (found := sha256(path)) != pin:
            raise ValueError(
                f"Expected {path} with SHA-256 {pin}, as it is published, got {found}. Remove it to download that."
            )
    if source.numbers:
        try:
            data = datasets.unscaled(name, root=root)
            digest = hashlib.sha256(np.ascontiguousarray(data.features, "<f4").data)
            digest.update(np.ascontiguousarray(data.labels, "<i4").data)
            if digest.hexdigest() != source.numbers:
                raise ValueError(f"Expected numbers with SHA-256 {source.numbers} in {name}, got {digest.hexdigest()}.")
        except ValueError as error:
            raise ValueError(f"{checks.message(error)} {' '.join(_set_aside(path, path) for path in new)}") from error
    return place


def _download(address: str, path: Path, pin: str, tell: Callable[[str], object]) -> None:
    """Download what is missing of a file; OSError with a remedy where that fails, ValueError for another SHA-256."""
    import requests
    import urllib3  # requests leaves errors of its bodies as they are

    partial = path.with_name(f"{path.name}.partial")
    try:
        with partial.open("ab") as file:
            had = file.tell()
            head = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={had}-"} if had else {})
            with requests.get(address, headers=head, stream=True, timeout=_TIMEOUT) as answer:
                tell(f"downloading {address}" + (f" after {had:,} bytes" if had else ""))
                if not had or answer.status_code != 416:  # nothing is missing
                    answer.raise_for_status()
                    if not answer.headers.get("Content-Range", "").startswith(f"bytes {had}-"):
                        file.truncate(0)
                    for piece in answer.raw.stream(_PIECE, decode_content=False):
                        file.write(piece)
    except (OSError, urllib3.exceptions.HTTPError) as error:
        raise OSError(
            f"Could not download {address}: {checks.message(error)}. The same command continues, and starts "
            f"again without {partial}. Without a network, download it on another machine and put it at {path}."
        ) from error
    found = sha256(partial)
    if pin and found != pin:
        raise ValueError(
            f"Expected {address} with SHA-256 {pin}, as it is published, got {found}: it is damaged or another "
            f"release. {_set_aside(partial, path)}"
        )
    os.replace(partial, path)


def _set_aside(path: Path, target: Path) -> str:
    """Rename a file that is not what it should be to TARGET.refused; returns what a person may do now."""
    refused = target.with_name(f"{target.name}.refused")
    os.replace(path, refused)
    return (
        f"What was downloaded is kept as {refused}. The same command downloads it again; if it is a release that "
        f"you trust, rename it to {target.name}."
    )
