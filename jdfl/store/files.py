"""Texts, tables, arrays and plain data as files, which are complete or absent; the suffix decides on the format."""

import io
import json
import os
import shutil
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pandas as pd

_JSON: Any = {"indent": 2, "allow_nan": False, "default": str}
_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # what formulas begin with
_PARTIAL = f".{'[0-9a-f]' * 12}.partial.*"  # names of files that are not complete


def read(file: Path) -> Any:
    """The content of a file, by its suffix: plain data (json), a table (csv, parquet), `params` [m, n] (npz), or text.

    Of a CSV table only complete rows are read, since the last one may just be written. Raises FileNotFoundError for a
    missing file and ValueError for a damaged one, both with its name.
    """
    if not file.is_file():
        raise FileNotFoundError(f"Expected {file.name} in the folder of a run, found none in {file.parent}.")
    try:
        match file.suffix:
            case ".parquet":
                return pd.read_parquet(file)
            case ".npz":
                with file.open("rb") as stream, np.load(stream, allow_pickle=False) as arrays:
                    return arrays["params"]
            case ".json":
                return dict(json.loads(file.read_text(encoding="utf-8")))
            case ".csv":
                text = file.read_text(encoding="utf-8")
                complete = text[: text.rfind("\n") + 1]
                names = dict.fromkeys(("name", "hears_name", "to_name"), str)  # of nodes
                found = pd.read_csv(io.StringIO(complete), index_col=False, dtype=names) if complete else pd.DataFrame()
                return found.astype({column: float for column in found if column not in names})
            case _:
                return file.read_text(encoding="utf-8")
    except Exception as error:  # every format has its own errors
        words = " ".join(str(error).split())[:200] or repr(error)
        raise ValueError(f"Expected a whole file at {file}, got a damaged one: {words}. Make the run again.") from error


def write(path: Path, content: Any) -> None:
    """Write a table, a text or plain data into a file, completely or not at all."""
    with placed(path) as place:
        if isinstance(content, pd.DataFrame) and path.suffix == ".parquet":
            content.to_parquet(place, index=False)
        elif isinstance(content, pd.DataFrame):
            content.map(_no_formula).rename(columns=_no_formula).to_csv(place, index=False)
        else:
            text = content if isinstance(content, str) else f"{json.dumps(content, **_JSON)}\n"
            place.write_text(text, encoding="utf-8")


def _no_formula(value: Any) -> Any:
    """A cell of a CSV table, which is a text and nothing else in a spreadsheet."""
    return f"'{value}" if isinstance(value, str) and value[:1] in _FORMULA else value


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray], plain: Any) -> None:
    """Write arrays of any types, and plain data for JSON, into one file (npz), completely or not at all.

    Bytes are written, since NumPy has no names for the types of JAX. Every part has a checksum of the format (CRC-32).
    """
    kinds = {name: [str(array.dtype), list(array.shape)] for name, array in arrays.items()}
    parts: dict[str, Any] = {"about": np.frombuffer(json.dumps({"arrays": kinds, "plain": plain}).encode(), np.uint8)}
    for i, array in enumerate(arrays.values()):
        parts[f"a{i}"] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    with placed(path) as place, place.open("wb") as file:
        np.savez(file, **parts)


def read_arrays(path: Path) -> tuple[dict[str, np.ndarray], Any]:
    """What `write_arrays` has written; a damaged file raises an exception of any kind."""
    with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
        about = json.loads(file["about"].tobytes())
        kinds = enumerate(about["arrays"].items())
        arrays = {name: file[f"a{i}"].view(np.dtype(kind)).reshape(shape) for i, (name, (kind, shape)) in kinds}
        return arrays, about["plain"]


def tidy(folder: Path) -> None:
    """Remove the files that `placed` leaves behind when its process is killed."""
    for partial in folder.glob(_PARTIAL):
        partial.unlink(missing_ok=True)


def sync_path(path: Path) -> None:
    """Make a file durable, or the names in a folder."""
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


@contextmanager
def placed(path: Path, mode: int = 0o666) -> Generator[Path]:
    """Gives a path to write to, of a file with this mode; it is renamed to `path` when it is on the disk."""
    partial = path.with_name(f".{uuid4().hex[:12]}.partial.{path.name}")
    try:
        os.close(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode))
        yield partial
        sync_path(partial)
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


@contextmanager
def placed_folder(folder: str | Path, *, overwrite: bool) -> Generator[Path]:
    """Gives a folder to write to, which is renamed to `folder` when it is complete.

    A folder that was replaced is put back if renaming fails.
    """
    folder = Path(folder)
    _refuse_occupied(folder, overwrite)
    folder.parent.mkdir(parents=True, exist_ok=True)
    partial = folder.parent / f".{folder.name}.{uuid4().hex[:12]}"
    aside = partial.with_name(f"{partial.name}.old")
    partial.mkdir()
    try:
        yield partial
        _refuse_occupied(folder, overwrite)
        if folder.exists():
            folder.rename(aside)
        try:
            partial.rename(folder)
        except BaseException:
            if aside.exists():
                aside.rename(folder)
            raise
    finally:
        shutil.rmtree(partial, ignore_errors=True)
        if folder.exists():
            shutil.rmtree(aside, ignore_errors=True)


def _refuse_occupied(folder: Path, overwrite: bool) -> None:
    if folder.is_dir():
        if not overwrite and any(folder.iterdir()):
            raise FileExistsError(
                f"Expected no folder or an empty one at {folder}, got one with content. "
                "Choose another name, or pass overwrite=True to replace it."
            )
    elif folder.exists():
        raise FileExistsError(f"Expected a folder at {folder}, got a file. Choose another name.")
