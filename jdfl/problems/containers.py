"""Tables and labels as NumPy arrays, or refusals that name the argument. Host only.

NumPy arrays, lists, pandas (nullable types too), SciPy sparse matrices, JAX arrays, torch tensors and everything else
that NumPy reads. No library is imported for a container that is not used.

Axes: N examples, p features.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from jax.core import Tracer
from scipy.sparse import csr_array, issparse

from jdfl.base import checks
from jdfl.base.names import labelled

_NUMBERS = (
    "Encode text and categories as numbers, for example with pandas.get_dummies({name}, dtype=float); give dates as "
    "days since the first one, and real and imaginary parts as separate columns; or drop them."
)
_EXACT = 2**53  # whole numbers up to here are exact in float64
_MISSING = "Drop the examples with missing or infinite values, or fill them in."
_TORCH = ("detach", "cpu", "numpy")


def table(name: str, value: Any, rank: int | None = 2) -> tuple[Any, tuple[str, ...]]:
    """Features as an array [N, ...] of finite real numbers, or as CSR [N, p], and the names of their columns."""
    columns: tuple[str, ...] = ()
    if issparse(value):
        array = csr_array(value)
        checks.real(f"Use {name}.astype(float).", **{name: array})
    elif hasattr(value, "iloc") and hasattr(value, "columns"):
        columns = tuple(map(str, value.columns))
        value = value.infer_objects()
        odd: list[str] = []
        for j, (one, kind) in enumerate(zip(columns, value.dtypes)):
            if kind.kind not in "biuf" or (kind.kind in "iu" and (value.iloc[:, j].abs() > _EXACT).any()):
                odd.append(f"{one} ({kind})")
        if odd:
            raise ValueError(
                f"Expected columns of real numbers in {name}, whole ones up to 2^53, got {', '.join(odd)[:300]}. "
                f"{_NUMBERS.format(name=name)}"
            )
        array = value.to_numpy(dtype=float, na_value=np.nan)
    else:
        array = _numbers(name, array_of(name, value, "Give an array [examples, features]."))
    shape = tuple(map(int, array.shape))
    if len(shape) < 2 or len(shape) != (rank or len(shape)):
        wanted = "[examples, features]" if rank else "[examples, ...] with at least two axes"
        raise ValueError(
            f"Expected {name} of shape {wanted}, got {name} of shape {shape}. Use {name}.reshape(-1, 1) for a single "
            f"feature, and {name}.reshape(len({name}), -1) for rows of features; jdfl.from_model takes images as they "
            "are."
        )
    if 0 in shape:
        raise ValueError(
            f"Expected {name} with examples and features, got {name} of shape {shape}. Give at least one of each."
        )
    if array.dtype.kind == "f":
        _check_finite(name, array, columns)
    return array, columns


def by_columns(X: Any, **given: Any) -> list[Any]:
    """X of pandas or Hugging Face, and what is `given`, where names of columns of X stand for these columns."""
    names = {key: one for key, one in given.items() if checks.is_a(one, str)}
    of_hub = hasattr(X, "column_names") and hasattr(X, "with_format")
    if of_hub and (checks.is_a(X, Mapping) or not hasattr(X, "select_columns") or not hasattr(X, "__len__")):
        checks.refuse("X to be one datasets.Dataset", "X", X, "Choose a split, as in X['train'], that is not streamed.")
    X = X if of_hub else labelled(X)
    if not of_hub and not (names and hasattr(X, "iloc") and hasattr(X, "columns")):
        return [X, *given.values()]
    known = list(X.column_names if of_hub else X.columns)
    for key, one in names.items():
        checks.one_of(known, "It is the name of a column of X, or an array.", **{key: one})
    rest = [one for one in known if one not in names.values()]
    if not of_hub:
        return [X[rest], *(X[one] if key in names else one for key, one in given.items())]
    taken = {key: _of_hub(key, X, [one]) for key, one in names.items()}
    return [_of_hub("X", X, rest), *(taken.get(key, one) for key, one in given.items())]


def _of_hub(name: str, data: Any, columns: list[str]) -> Any:
    """Columns of a dataset of Hugging Face: a table of pandas, or one array, such as of images."""
    kinds = {column: data.features[column] for column in columns}
    if all(type(kind).__name__ in ("Value", "ClassLabel") for kind in kinds.values()):
        found = data.select_columns(columns).to_pandas()
        if name == "X":
            return found
        own, classes = found[columns[0]].to_numpy(), getattr(kinds[columns[0]], "names", None)
        if classes is None:
            return own
        if not np.isin(own, range(len(classes))).all():
            raise ValueError(
                f"Expected a class in every row of {name}, got {columns[0]} with rows that have none (-1). Leave these "
                "rows out, with filter()."
            )
        return np.array(classes)[own.astype(int)]
    if len(columns) != 1:
        raise ValueError(
            f"Expected columns of numbers in {name}, or a single one of arrays, got {', '.join(columns)[:200]}. Choose "
            f"columns, as in {name}.select_columns(['image', 'label'])."
        )
    wide = {"dtype": np.float64} if "float64" in repr(kinds[columns[0]]) else {}
    return data.with_format("numpy", **wide)[:][columns[0]]


def _check_finite(name: str, array: Any, columns: tuple[str, ...]) -> None:
    """Refuse missing and infinite features; the first one is named by its row, and by its column if that has a name."""
    bad = ~np.isfinite(array.data if issparse(array) else array)
    if not bad.any():
        return
    where = tuple(int(k) for k in np.argwhere(bad)[0])
    value = array.data[where] if issparse(array) else array[where]
    if issparse(array):
        entries = array.tocoo()
        where = int(entries.row[where]), int(entries.col[where])
    place = (
        f"in column {columns[where[1]]!r}, row {where[0]}" if columns else f"at {name}[{', '.join(map(str, where))}]"
    )
    raise ValueError(f"Expected finite numbers in {name}, got {value} {place} ({bad.sum()} such entries). {_MISSING}")


def column(name: str, value: Any, remedy: str = "Give one label or number for every example.") -> np.ndarray:
    """Labels or targets as an array [N] without missing values; one column of two axes [N, 1] is taken as well."""
    if issparse(value):
        checks.refuse(f"{name} to be a dense array", name, value, f"Use {name}.toarray().ravel().")
    array = array_of(name, value.to_numpy() if hasattr(value, "iloc") else value, remedy)
    if array.dtype.kind in "SU" and checks.is_a(value, list | tuple):
        array = np.array(value, object)  # NumPy writes numbers and NaN among text as text
    checks.labels(remedy, **{name: array})
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        raise ValueError(
            f"Expected {name} of shape [examples], got {name} of shape {array.shape}. {remedy} Choose one of several "
            f"columns; one-hot rows become labels by {name}.argmax(axis=1)."
        )
    if array.dtype.kind == "O":
        kinds = [next((kind for kind in (str, bytes) if checks.is_a(one, kind)), float) for one in array] or [float]
        if other := next((i for i, kind in enumerate(kinds) if kind is not kinds[0]), 0):
            raise ValueError(
                f"Expected labels of one kind in {name}, got {name}[0] = {array[0]!r} and {name}[{other}] = "
                f"{array[other]!r}. Make all of them text, for example with {name}.astype(str)."
            )
        array = _plain(name, array) if kinds[0] is float else array.astype(kinds[0])
    if array.dtype.kind == "V":
        array = _numbers(name, array)
    if array.dtype.kind == "f":
        checks.finite(_MISSING, **{name: array})
    return array


def array_of(name: str, value: Any, remedy: str) -> np.ndarray:
    """The value as a NumPy array of any type, without a mask."""
    if checks.is_a(value, Tracer):
        remedy = "Call the function outside of jax.jit, with arrays that have values."
    if checks.is_a(value, str | bytes | type | Mapping | set | frozenset | Tracer | None) or checks.is_any(value):
        checks.refuse(f"{name} to be an array", name, value, remedy)
    checks.unmasked(remedy, **{name: value})
    try:
        if all(hasattr(value, method) for method in _TORCH):
            value = value.detach().cpu()
            value = (value.float() if "bfloat16" in str(value.dtype) else value).numpy()
        return np.asarray(value)
    except Exception as error:
        checks.refuse(f"{name} to be an array", name, value, f"{remedy} NumPy says: {checks.message(error)}")


def _plain(name: str, array: np.ndarray) -> np.ndarray:
    """An array [N] of Python's numbers as NumPy types them."""
    try:
        found = np.asarray(array.tolist())
    except ValueError:  # lists of several lengths
        found = array
    return found if found.dtype.kind in "biuf" else _numbers(name, array)


def _numbers(name: str, array: np.ndarray) -> np.ndarray:
    """The array with a type of real numbers."""
    kind = array.dtype.kind
    if kind in "biu" or array.dtype in (np.dtype(np.float32), np.dtype(np.float64)):
        return array
    try:
        if kind == "f":
            return array.astype(np.float64 if array.dtype.itemsize > 4 else np.float32)
        if kind == "V" and array.dtype.names is None:  # bfloat16 and the like
            return array.astype(np.float32)
        if kind == "O" and not any(checks.is_a(one, str | bytes) for one in array.flat):
            return array.astype(np.float64)
        got = f"dtype {array.dtype}, such as {array.ravel()[:1].tolist()}"
    except (TypeError, ValueError, OverflowError) as error:
        got = f"dtype {array.dtype}: {checks.message(error).rstrip('.')}"
    raise ValueError(f"Expected real numbers in {name}, got {got}. {_NUMBERS.format(name=name)}")
