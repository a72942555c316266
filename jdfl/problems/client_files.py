"""Files whose clients exist: those of LEAF, and folders with a table for every client. NumPy and pandas on the host.

Axes: q examples of a client, M test examples.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from jdfl.base import checks
from jdfl.base.arguments import checked

Client = tuple[str, Any, np.ndarray]  # its name, X [q, ...] and y [q]


@dataclass(frozen=True, repr=False)
class ClientData:
    """The examples of clients by name, for `from_arrays(data.X, data.y, partition="given", test=data.test)`."""

    X: Mapping[str, Any]
    """By client, features [q, ...]: an array, or a DataFrame of a CSV file."""
    y: Mapping[str, np.ndarray]
    """By client, labels or targets [q]."""
    tests: Mapping[str, tuple[Any, np.ndarray]] = field(default_factory=dict[str, tuple[Any, np.ndarray]])
    """By client, features and labels of its test set; empty where there are none."""
    source: str = ""
    """The folder."""

    @property
    def test(self) -> tuple[Any, np.ndarray] | None:
        """The test examples of all clients together, [M, ...] and [M]; None where there are none."""
        if not self.tests:
            return None
        features, labels = zip(*self.tests.values())
        joined = pd.concat(features, ignore_index=True) if hasattr(features[0], "iloc") else np.concatenate(features)
        return joined, np.concatenate(labels)

    @property
    def test_clients(self) -> list[str]:
        """The client of every example of `test` [M], for `problem.with_own_test(data.test_clients)`."""
        return [name for name, (_, labels) in self.tests.items() for _ in range(len(labels))]

    def __repr__(self) -> str:
        """One line."""
        sizes, tests = [len(one) for one in self.y.values()], [len(one) for _, one in self.tests.values()]
        return (
            f"ClientData({len(sizes):,} clients of {min(sizes)} to {max(sizes)} examples, {sum(sizes):,} in all; "
            f"{sum(tests):,} test examples of {len(tests):,} clients; {self.source})"
        )


@checked
def read_leaf(folder: str | PathLike[str]) -> ClientData:
    """Read the JSON files of a LEAF dataset (S. Caldas et al., "LEAF: a benchmark for federated settings", 2018).

        data = jdfl.problems.read_leaf("leaf/data/femnist/data")
        problem = jdfl.from_arrays(data.X, data.y, partition="given", test=data.test)

    Clients are in the order of their names, and text stays text. With train/ and test/, users have test sets of their
    own; users in test/ alone, as after LEAF's split by users, are in the test sets alone.

    Args:
        folder: A folder with train/ and test/, which are read if both have *.json, or with all_data/ or *.json, or with
            a folder data/ that has these.

    Raises:
        FileNotFoundError: For a folder without such files.
        ValueError: For files that are cut off or of another form, users in two files, and users with no example, with
            another number than num_samples, or with features of another shape; it names the file and the user.
    """
    return _read(Path(folder), ("all_data", ""), "*.json", _of_leaf)


@checked
def read_clients(folder: str | PathLike[str], target: str, *, pattern: str = "*.csv") -> ClientData:
    """Read a folder with one CSV file for every client, whose name is that of the file without its ending.

        data = jdfl.problems.read_clients("hospitals", target="outcome")
        problem = jdfl.from_arrays(data.X, data.y, partition="given", test=data.test)

    Args:
        folder: A folder with the files, or with train/ and test/, which are read if both have some.
        target: The column of labels or targets; all others are features, which have to be numbers.
        pattern: The files that are read, such as "site-*.csv.gz".

    Raises:
        FileNotFoundError: For a folder without such files.
        ValueError: For files that are no tables, without rows or with other columns than the first one, and for missing
            values and text among the features; it names the file and the column.
    """
    first: list[Any] = []

    def client(path: Path) -> Iterator[Client]:
        try:
            table = pd.read_csv(path)
        except (ValueError, EOFError, OSError) as error:
            raise ValueError(f"Expected a CSV table in {path}: {checks.message(error)}. Write it again.") from error
        checks.one_of(list(table), f"It is a column of {path}.", target=target)
        first[:] = first or list(table)
        if odd := {*map(str, table)} ^ {*map(str, first)}:
            raise ValueError(f"Expected one set of columns in all files, got {sorted(odd)} in some, as in {path}.")
        for column in first if len(table) else ():
            gaps = int(table[column].isna().sum())
            if gaps or (column != target and not pd.api.types.is_numeric_dtype(table[column])):
                found = f"{gaps} rows without" if gaps else checks.text(table[column].iloc[0])
                raise ValueError(
                    f"Expected a number in every row of {column!r} in {path} ({len(table)} rows), got {found}. Drop "
                    "rows without a value; encode text in all files together, as pandas.get_dummies does."
                )
        yield path.name.partition(".")[0], table[[one for one in first if one != target]], table[target].to_numpy()

    return _read(Path(folder), ("",), pattern, client)


def _read(folder: Path, plain: tuple[str, ...], pattern: str, read: Callable[[Path], Iterator[Client]]) -> ClientData:
    """The clients in train/ and test/ of a folder, or in the first of the `plain` subfolders that has files."""
    places = [
        [root / one for one in some] for root in (folder, folder / "data") for some in (("train", "test"), *zip(plain))
    ]
    for place in places:
        files = [sorted(one.glob(pattern)) for one in place]
        if all(files):
            break
    else:
        raise FileNotFoundError(
            f"Expected {pattern} in {folder} or its train/ and test/, found none. Write them first."
        )
    sides, shape = (dict[str, Any](), dict[str, Any]()), None
    for side, path in ((side, path) for side, paths in zip(sides, files) for path in paths):
        for name, X, y in read(path):
            if name in side:
                raise ValueError(f"Expected each client in one file of {path.parent}, got {name!r} in {path}, too.")
            if not len(y):
                raise ValueError(f"Expected an example of {name!r} in {path}, got none. Leave this client out.")
            shape = X.shape[1:] if shape is None else shape
            if X.shape[1:] != shape:
                raise ValueError(f"Expected features of shape {shape}, got {X.shape[1:]} of {name!r} in {path}.")
            side[name] = X, y
    own, tests = ({name: side[name] for name in sorted(side)} for side in sides)
    X, y = ({name: pair[k] for name, pair in own.items()} for k in (0, 1))
    return ClientData(X, y, tests, str(folder))


def _of_leaf(path: Path) -> Iterator[Client]:
    again = "Write it again with LEAF's preprocess.sh."
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        users, counts, data = (content[key] for key in ("users", "num_samples", "user_data"))
        every = [(user, count, data[user]["x"], data[user]["y"]) for user, count in zip(users, counts, strict=True)]
        if len(data) != len(users):
            raise ValueError(f"{len(users)} users, and {len(data)} in user_data")
    except (ValueError, KeyError, TypeError) as error:
        found = f"{type(error).__name__}: {checks.message(error)}"
        raise ValueError(f"Expected a whole JSON file of LEAF, got {path} ({found}). {again}") from error
    for user, count, x, y in every:
        if not len(x) == len(y) == count:
            raise ValueError(
                f"Expected num_samples = {count} of user {user!r} in {path}, got {len(x)} in x and {len(y)} in y. "
                f"{again}"
            )
        try:
            X, labels = np.asarray(x), np.asarray(y)
        except ValueError as error:
            raise ValueError(
                f"Expected x and y of one shape of user {user!r} in {path}, got several. {again}"
            ) from error
        if not all(
            one.dtype.kind in "biuU" or (one.dtype.kind == "f" and np.isfinite(one).all()) for one in (X, labels)
        ):
            raise ValueError(f"Expected finite numbers or text of user {user!r} in {path}, got other values. {again}")
        yield str(user), X, labels
