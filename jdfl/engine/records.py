"""The folder of a run, and its history as a table of the journal in it."""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from uuid import uuid4

import numpy as np
import pandas as pd

from jdfl.base.keys import key_data
from jdfl.base.run_keys import RunKey, key_of_words
from jdfl.engine.provenance import PRIVATE, Provenance
from jdfl.store import manifest
from jdfl.store.journal import Journal, Position
from jdfl.store.manifest import check_signed

JOURNAL, SNAPSHOTS = "journal", "checkpoints"  # in the folder of a run
RECORDS = "records"  # the table of the journal with the history


def origin_of(key: str, provenance: Provenance | None) -> dict[str, str]:
    """What distinguishes the journal of a run from others: the digest of its key, and the hash of its settings.

    A run that was cut off before its first checkpoint begins again, with a new private key unless that is recorded.
    """
    settings = {} if provenance is None else provenance.settings
    return {"key": key, "settings": Provenance({}, {k: v for k, v in settings.items() if k != PRIVATE}).hash}


def check_settings(text: str, file: Path) -> None:
    """Raise ValueError where the text of config.yaml in the folder of a run is not as it was written."""
    book = file.parent / JOURNAL
    check_signed(text, file, required=book.is_file())


def rows_of(table: pd.DataFrame | Mapping[str, Sequence[float]]) -> np.ndarray:
    """Columns of whole numbers and floats, all [k], as rows [k] of a journal."""
    columns = {str(name): np.asarray(values) for name, values in table.items()}
    kinds = [(name, _kind(values.dtype)) for name, values in columns.items()]
    rows = np.empty(len(next(iter(columns.values()), ())), kinds)
    for name, values in columns.items():
        rows[name] = values
    return rows


def _kind(dtype: np.dtype) -> str:
    return "<f4" if dtype == np.float32 else "<f8" if dtype.kind == "f" else "<i8"


def history_of(rows: np.ndarray) -> pd.DataFrame:
    """The inverse of `rows_of`."""
    return pd.DataFrame({name: rows[name] for name in rows.dtype.names or ()})


def append(records: Journal, rows: np.ndarray) -> Position:
    """Append records [k] to a journal; returns the position before the last one.

    A checkpoint has that one itself: if the run goes on, a record is dropped that was only made because the run ended.
    """
    records.append(RECORDS, rows[:-1])
    place = records.position
    records.append(RECORDS, rows[-1:])
    return place


RECORD = manifest.PRIVATE  # in the folder of a run, next to its checkpoints


def write_record(folder: Path, key: RunKey) -> None:
    """Write the record of a run into its folder, whole or not at all."""
    own = key.source == "operating system"
    words = {name: key_data(getattr(key, name)) if own else None for name in ("public", "private")}
    partial = folder / f".{uuid4().hex[:12]}.partial.{RECORD}"
    try:
        with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            json.dump({"token": key.token, **words}, file)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(folder / RECORD)
    finally:
        partial.unlink(missing_ok=True)


def read_record(folder: Path) -> tuple[str, RunKey | None] | None:
    """The token of the run in a folder, and its keys unless they were given; None where there is no record.

    Raises ValueError for a damaged file.
    """
    path = folder / RECORD
    if not path.is_file():
        return None
    try:
        content = dict(json.loads(path.read_text(encoding="ascii")))
        token, words = str(content["token"]), (content["public"], content["private"])
        if words == (None, None):
            return token, None
        public, private = (key_of_words((int(one[0]), int(one[1]))) for one in words)
    except (ValueError, TypeError, KeyError, IndexError, OverflowError, RecursionError) as error:
        raise ValueError(
            f"Expected the record of a run's key in {path}, got a damaged file. Put it back: without it the run cannot "
            "be continued."
        ) from error
    return token, RunKey(public, private, "operating system", token)
