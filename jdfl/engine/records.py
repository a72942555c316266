"""The folder of a run, and its history as a table of the journal in it."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from jdfl.engine.provenance import PRIVATE, Provenance
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
