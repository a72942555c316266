"""Tables and labels as NumPy arrays, and what is wrong with them in words. Host only.

NumPy arrays, lists, pandas (nullable types too), SciPy sparse matrices, JAX arrays, torch tensors and everything else
that NumPy reads. No library is imported for a container that is not used.

Axes: N examples, p features.
"""

import sys
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jax.core import Tracer
from scipy.sparse import csr_array, issparse

from jdfl.base import checks
from jdfl.problems.about import named

_ENCODE = (
    "Encode text and categories as numbers, for example with pandas.get_dummies({name}, dtype=float), or drop them."
)
_DATES = "Turn dates and times into numbers, for example days since the first one, or drop them."
_PARTS = "Give real and imaginary parts as separate columns."
_MISSING = "Drop the examples with missing or infinite values, or fill them in."
_WHOLE = 2**53  # whole numbers up to here are exact in float64
_TORCH = ("detach", "cpu", "numpy")


def table(name: str, value: Any, rank: int | None = 2) -> tuple[Any, tuple[str, ...]]:
    """Features as an array [N, ...] of finite real numbers, or as CSR [N, p], and the names of their columns."""
    if _is_pandas(value) and hasattr(value, "columns"):
        array, names = _frame(name, value)
    elif issparse(value):
        if value.dtype.kind not in "biuf":
            raise ValueError(f"Expected real numbers in {name}, got dtype {value.dtype}. Use {name}.astype(float).")
        array, names = csr_array(value), ()
    else:
        array, names = _numbers(name, array_of(name, value, "Give an array [examples, features].")), ()
    _check_shape(name, array, rank)
    stored: Any = array.data if issparse(array) else array
    if stored.dtype.kind == "f" and not np.isfinite(stored).all():
        _refuse_values(name, array, names)
    return array, names


def column(name: str, value: Any, remedy: str = "Give one label or number for every example.") -> np.ndarray:
    """Labels or targets as an array [N] without missing values; one column of two axes [N, 1] is taken as well."""
    if issparse(value):
        checks.refuse(f"{name} to be a dense array", name, value, f"Use {name}.toarray().ravel().")
    array = _series(name, value) if _is_pandas(value) else array_of(name, value, remedy)
    listed = value if checks.is_a(value, list | tuple) and array.dtype.kind in "SU" else ()
    if not all(issubclass(kind, str | bytes) for kind in set(map(type, listed))):
        array = np.array(value, object)  # NumPy writes numbers and NaN among text as text
    checks.labels(remedy, **{name: array})
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        remedy = f"Choose one column, for example {name}[:, 0]." if array.ndim == 2 else remedy
        numbers = array.ndim == 2 and array.shape[1] > 1 and array.dtype.kind in "biuf"
        if numbers and np.isin(array, (0, 1)).all() and (array.sum(axis=1) == 1).all():
            remedy = f"One-hot rows become labels by {name}.argmax(axis=1)."
        raise ValueError(f"Expected {name} of shape [examples], got {name} of shape {array.shape}. {remedy}")
    if array.dtype.kind == "O":
        array = _alike(name, array)
    if array.dtype.kind == "V":
        array = _numbers(name, array)
    if array.dtype.kind == "f":
        checks.finite(_MISSING, **{name: array})
    return array


def array_of(name: str, value: Any, remedy: str) -> np.ndarray:
    """The value as a NumPy array of any type, without a mask."""
    wrong = checks.is_a(value, str | bytes | type | Mapping | set | frozenset | Tracer | None)
    if checks.is_a(value, Tracer):
        remedy = "Call the function outside of jax.jit, with arrays that have values."
    elif checks.is_a(value, str):
        remedy = f"{remedy} jdfl.problems.classification takes the name of a dataset."
    elif checks.is_a(value, Mapping):
        remedy = f"{remedy} pandas.DataFrame({name}) makes a table of a dict of columns."
    if wrong or checks.is_any(value):
        checks.refuse(f"{name} to be an array", name, value, remedy)
    checks.unmasked(remedy, **{name: value})
    try:
        if all(hasattr(value, method) for method in _TORCH):
            value = value.detach().cpu()
            value = (value.float() if "bfloat16" in str(value.dtype) else value).numpy()
        return np.asarray(value)
    except Exception as error:
        _refuse_ragged(name, value)
        checks.refuse(f"{name} to be an array", name, value, f"{remedy} NumPy says: {checks.said(error)}")


def _is_pandas(value: object) -> bool:
    """Whether a value is an object of pandas; pandas is not imported to find out."""
    return "pandas" in sys.modules and type(value).__module__.partition(".")[0] == "pandas"


def _frame(name: str, frame: Any) -> tuple[np.ndarray, tuple[str, ...]]:
    """A DataFrame as an array of floats, and the names of its columns."""
    from pandas.api import types

    names = tuple(str(one) for one in frame.columns)
    odd: dict[str, str] = {}  # columns that are no real numbers, with what to do about them
    large: list[str] = []
    for j, heading in enumerate(names):
        part = frame.iloc[:, j]
        kind, text = part.dtype, f"{heading} ({part.dtype})"
        if types.is_complex_dtype(kind):
            odd[text] = _PARTS
        elif types.is_datetime64_any_dtype(kind) or kind.kind in "mM" or "period" in str(kind):
            odd[text] = _DATES
        elif not types.is_numeric_dtype(kind) and not _counts(part):
            odd[text] = _ENCODE.format(name=name)
        elif kind.kind in "iu" and (part.abs() > _WHOLE).any():
            large.append(heading)
    if odd:
        remedies = " ".join(dict.fromkeys(odd.values()))
        raise ValueError(f"Expected columns of real numbers in {name}, got {named(tuple(odd))}. {remedies}")
    if large:
        warnings.warn(
            f"Whole numbers beyond 2^53 in {named(tuple(large))} of {name} are rounded in float64. Drop identifiers, "
            "or subtract the smallest number first.",
            stacklevel=6,
        )
    return frame.to_numpy(dtype=float, na_value=np.nan), names


def _counts(part: Any) -> bool:
    """Whether a column of Python objects has numbers alone, and missing values."""
    from pandas.api import types

    known = ("integer", "floating", "decimal", "mixed-integer-float", "boolean")
    return part.dtype == object and types.infer_dtype(part, skipna=True) in known


def _series(name: str, value: Any) -> np.ndarray:
    """A Series, an index or a DataFrame of one column as an array."""
    import pandas as pd

    if hasattr(value, "columns"):
        if value.shape[1] != 1:
            raise ValueError(
                f"Expected one column in {name}, got {name} with {value.shape[1]}: "
                f"{named(tuple(str(one) for one in value.columns))}. Choose one of them, for example {name}.iloc[:, 0]."
            )
        value = value.iloc[:, 0]
    series = pd.Series(value)
    missing = np.flatnonzero(series.isna().to_numpy())
    if missing.size:
        raise ValueError(
            f"Expected a label for every example in {name}, got {name}.iloc[{missing[0]}] missing ({missing.size} such "
            "entries). Drop these examples."
        )
    if series.dtype.kind in "mM" or "period" in str(series.dtype):
        raise ValueError(f"Expected numbers or labels in {name}, got dtype {series.dtype}. {_DATES}")
    array = series.to_numpy()
    return array if array.dtype.kind != "O" else _alike(name, array)


def _alike(name: str, array: np.ndarray) -> np.ndarray:
    """An array [N] of Python objects as one of text or of numbers."""
    text = [checks.is_a(one, str) for one in array]
    if all(text):
        return array.astype(str)
    if not any(text):
        try:
            found = np.asarray(array.tolist())
        except ValueError:  # lists of several lengths
            return _numbers(name, array)
        return found if found.dtype.kind in "biuf" else _numbers(name, array)
    i, j = text.index(True), text.index(False)
    raise ValueError(
        f"Expected labels of one kind in {name}, got {name}[{i}] = {array[i]!r} and {name}[{j}] = {array[j]!r}. Make "
        f"all of them text, for example with {name}.astype(str)."
    )


def _numbers(name: str, array: np.ndarray) -> np.ndarray:
    """The array with a type of real numbers."""
    kind, got = array.dtype.kind, f"dtype {array.dtype}"
    if kind in "biu" or array.dtype in (np.dtype(np.float32), np.dtype(np.float64)):
        return array
    if kind == "f":
        return array.astype(np.float64 if array.dtype.itemsize > 4 else np.float32)
    if kind == "O":
        return _objects(name, array)
    if kind in "SU":
        got = f"text such as {array.ravel()[0].item() if array.size else ''!r}"
    if kind == "V" and array.dtype.names is None:  # bfloat16 and the like
        try:
            return array.astype(np.float32)
        except (TypeError, ValueError):
            pass
    encode = _ENCODE.format(name=name)
    remedies = {"c": _PARTS, "S": encode, "U": encode, "m": _DATES, "M": _DATES}
    remedy = remedies.get(kind, "Give an array of one type of numbers.")
    raise ValueError(f"Expected real numbers in {name}, got {got}. {remedy}")


def _objects(name: str, array: np.ndarray) -> np.ndarray:
    """An array of Python's numbers as floats."""
    found = np.empty(array.shape)
    for place, one in np.ndenumerate(array):
        number = hasattr(type(one), "__float__") and not checks.is_a(one, str | bytes)
        try:
            found[place] = float(one if number else "")
        except (TypeError, ValueError, OverflowError):
            where = f"{name}[{', '.join(map(str, place))}]" if place else name
            remedy = _MISSING if number or one is None else _ENCODE.format(name=name)
            raise ValueError(f"Expected numbers in {name}, got {where} = {checks.shown(one)}. {remedy}") from None
    return found


def _check_shape(name: str, array: Any, rank: int | None) -> None:
    """Refuse another number of axes, and no examples or no features."""
    shape = tuple(int(size) for size in array.shape)
    if len(shape) < 2 or (rank is not None and len(shape) != rank):
        wanted = "[examples, features]" if rank is not None else "[examples, ...] with at least two axes"
        remedy = f"Use {name}.reshape(len({name}), -1) for rows of features; jdfl.from_model takes images as they are."
        if len(shape) == 1:
            remedy = f"Use {name}.reshape(-1, 1) for a single feature, {name}.reshape(1, -1) for a single example."
        if len(shape) == 0:
            remedy = "Give one row of numbers for every example."
        raise ValueError(f"Expected {name} of shape {wanted}, got {name} of shape {shape}. {remedy}")
    if 0 in shape:
        raise ValueError(
            f"Expected {name} with examples and features, got {name} of shape {shape}. Give at least one of each."
        )


def _refuse_values(name: str, array: Any, names: tuple[str, ...]) -> None:
    """ValueError that names the first entry that is not finite."""
    if issparse(array):
        rows, columns = array.nonzero()
        bad = np.flatnonzero(~np.isfinite(array.data))
        where, count, value = (int(rows[bad[0]]), int(columns[bad[0]])), bad.size, array.data[bad[0]]
    else:
        bad = ~np.isfinite(array)
        where, count = tuple(int(k) for k in np.argwhere(bad)[0]), int(bad.sum())
        value = array[where]
    place = f"in column {names[where[1]]!r}, row {where[0]}" if names else f"at {name}[{', '.join(map(str, where))}]"
    raise ValueError(f"Expected finite numbers in {name}, got {value} {place} ({count} such entries). {_MISSING}")


def _refuse_ragged(name: str, value: Any) -> None:
    """ValueError that names two rows of a list that have different lengths, if there are any."""
    if not checks.is_a(value, Sequence):
        return
    lengths = [len(row) if hasattr(row, "__len__") else -1 for row in value]
    for i, length in enumerate(lengths):
        if length != lengths[0]:
            found = ["a single number" if one < 0 else f"{one} entries" for one in (lengths[0], length)]
            raise ValueError(
                f"Expected rows of the same length in {name}, got {name}[0] with {found[0]} and {name}[{i}] with "
                f'{found[1]}. Give every example the same features. For one array per node use partition="given".'
            ) from None
