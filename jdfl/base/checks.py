"""Checks of user input: each raises `ValueError` naming the argument, the value and the remedy.

They run on the host, on concrete values, before anything is compiled.
"""

from collections.abc import Iterable
from dataclasses import is_dataclass
from types import UnionType
from typing import Any, NoReturn, cast

import numpy as np

from jdfl.base import suggest
from jdfl.base.settings import Bound

_LISTED = 8  # names of a list that is shown in addition to a suggestion
_SHOWN = 300  # characters of a value in a message


class HintWarning(UserWarning):
    """A step size may not work; silent for values that tuning has measured."""


def refuse(expected: str, name: str, value: object, remedy: str = "") -> NoReturn:
    """Raise ValueError with what was expected and what was given, at most 300 characters of it."""
    raise ValueError(f"Expected {expected}, got {name} = {text(value)}." + (f" {remedy}" if remedy else ""))


def text(value: object) -> str:
    """A value in a message: its repr in one line of at most 300 characters, or its class where repr fails.

    Dataclasses whose repr has several lines, such as networks, are shown by the first line, other large ones by name.
    """
    try:
        text = repr(value)
        text = " ".join((text.partition("\n")[0] if is_dataclass(value) else text).split())
    except Exception:
        text = f"an object of {type(value).__name__}"
    if len(text) > _SHOWN and is_dataclass(value):
        return f"{type(value).__name__}(...)"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]} ..."


def _numbers(name: str, value: Any, remedy: str) -> np.ndarray:
    """The value as an array of floats; ValueError for text, None and the like."""
    if value is None or is_a(value, str | bytes | bool | np.ma.MaskedArray):
        refuse(f"{name} to be a number", name, value, remedy)
    try:
        found: np.ndarray = np.asarray(value)
        if found.dtype.kind not in "biufO":
            refuse(f"{name} to be a number", name, value, remedy)
        return found.astype(float)
    except (TypeError, ValueError, OverflowError):
        return refuse(f"{name} to be a number", name, value, remedy)


def is_a(value: object, kind: type | UnionType) -> bool:
    """`isinstance` for user input, which may contradict its annotation."""
    return isinstance(value, kind)


def able(methods: Iterable[str], expected: str, remedy: str = "", **named: object) -> None:
    """Every named value is an object (not a class) with all of `methods`; `expected` says what it should be."""
    wanted = list(methods)
    for name, value in named.items():
        if isinstance(value, type) or has_all(value) or not all(holds(value, method) for method in wanted):
            refuse(f"{name} to be {expected}", name, value, remedy)


def holds(value: object, name: str) -> bool:
    """Whether an object has an attribute; not so where looking it up fails."""
    try:
        return hasattr(value, name)
    except Exception:  # a property that cannot be computed
        return False


def has_all(value: object) -> bool:
    """Whether an object has an attribute of any name, as mocks have, so that its attributes say nothing about it."""
    return holds(value, "an_attribute_that_no_class_has")


def positive(remedy: str = "", **named: Any) -> None:
    """Every named number (or every entry of a named array) is finite and > 0."""
    within(Bound("(0, inf)"), remedy, **named)


def not_negative(remedy: str = "", **named: Any) -> None:
    """Every named number (or every entry of a named array) is finite and >= 0."""
    within(Bound("[0, inf)"), remedy, **named)


def is_integer(value: object) -> bool:
    """Whether it is an integer; bools and durations are not."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool | np.timedelta64)


def integer(least: int = 1, most: int | None = None, remedy: str = "", **named: Any) -> None:
    """Every named value is an integer (not a bool) in [least, most]."""
    for name, value in named.items():
        if not is_integer(value) or value < least or (most is not None and value > most):
            top = "" if most is None else f" and <= {most}"
            refuse(f"a whole number {name} >= {least}{top}", name, value, remedy)


def fraction(remedy: str = "", **named: Any) -> None:
    """Every named number lies in (0, 1]."""
    within(Bound("(0, 1]"), remedy, **named)


def within(bound: Bound, remedy: str = "", /, *, integer: bool = False, **named: Any) -> None:
    """Every named number (or every entry of a named array) lies in an interval, and is an integer if asked."""
    for name, value in named.items():
        numbers = _numbers(name, value, remedy)
        if not bound.holds(numbers):
            refuse(bound.words(name, integer, numbers), name, value, remedy)


def one_of(choices: Iterable[object], remedy: str = "", **named: object) -> None:
    """Every named value is one of `choices`; the message suggests the closest name, or else lists all of them."""
    known = list(choices)
    for name, value in named.items():
        if not any(_equal(value, one) for one in known):
            meant = suggest.hint(value, known)
            listed = f"{len(known)} names" if meant and len(known) > _LISTED else ", ".join(map(repr, known))
            refuse(f"{name} to be one of {listed}", name, value, f"{meant} {remedy}".strip())


def _equal(value: object, one: object) -> bool:
    """Whether a value equals this one; arrays and incomparable values do not."""
    try:
        return getattr(value, "shape", ()) == () and bool(value == one)
    except Exception:
        return False


def finite(remedy: str = "", **named: Any) -> None:
    """Every named array holds finite numbers only; the message gives the first invalid position."""
    for name, value in named.items():
        array = np.asarray(value) if getattr(value, "dtype", None) is not None else _numbers(name, value, remedy)
        array = array if array.dtype.kind in "biufc" else _numbers(name, value, remedy)
        bad = ~np.isfinite(array)
        if bad.any():
            where = tuple(int(i) for i in np.argwhere(bad)[0])
            message = f"Expected finite numbers in {name}, got {array[where]} at index {where}"
            raise ValueError(f"{message} ({int(bad.sum())} such entries). {remedy}".rstrip())


def plain_array(remedy: str = "", **named: Any) -> None:
    """Every named value is an array of numbers or text without dates, in which nothing is masked."""
    unmasked(remedy, **named)
    for name, value in named.items():
        try:
            dtype = getattr(value, "dtype", None) or np.asarray(value).dtype
        except (TypeError, ValueError):
            refuse(f"{name} to be an array", name, value, remedy)
        if is_any(value):
            refuse(f"{name} to be an array", name, value, remedy)
        if getattr(dtype, "kind", "") in ("m", "M"):
            raise ValueError(
                f"Expected numbers in {name}, got dtype {dtype}. Turn dates and times into numbers. {remedy}".rstrip()
            )


def is_any(value: object) -> bool:
    """Whether a value answers to every name, as mocks do, or is no array for another reason that its type shows."""
    return not is_a(getattr(getattr(value, "dtype", None), "kind", ""), str)


def unmasked(remedy: str = "", **named: Any) -> None:
    """No named value is a masked array, or has one in it, whose mask NumPy would drop."""
    for name, value in named.items():
        if (count := _masked(value)) is not None:
            raise ValueError(
                f"Expected an array without a mask for {name}, got a masked array with {count} masked entries. "
                f"Drop those, or fill them in. {remedy}".rstrip()
            )


def _masked(value: Any) -> int | None:
    """The number of masked entries of an array, or of those in a list or an array of objects; None without a mask."""
    if isinstance(value, np.ma.MaskedArray):
        return int(np.sum(np.ma.getmaskarray(cast(Any, value))))
    rows: Any = value.ravel() if is_a(value, np.ndarray) and value.dtype == object else value
    nested = is_a(rows, list | tuple) or (is_a(rows, np.ndarray) and rows.dtype == object)
    if not nested or not any(issubclass(kind, np.ma.MaskedArray | list | tuple) for kind in set(map(type, rows))):
        return None
    counts = [count for count in map(_masked, rows) if count is not None]
    return sum(counts) if counts else None


def real(remedy: str = "", **named: Any) -> None:
    """Every named array (dense or SciPy sparse) is a plain one of real numbers, of a number type."""
    for name, value in named.items():
        plain_array(remedy, **{name: value})
        dtype = getattr(value, "dtype", None) or np.asarray(value).dtype
        kind = getattr(dtype, "kind", "")
        if kind == "c":
            raise ValueError(
                f"Expected real numbers in {name}, got dtype {dtype}. Pass real and imaginary parts apart. {remedy}"
            )
        if kind in "OSU":
            raise ValueError(f"Expected numbers in {name}, got dtype {dtype}. {remedy}".rstrip())


def labels(remedy: str = "", **named: Any) -> None:
    """Every named array of labels is a plain array of numbers or text, without complex numbers and missing ones."""
    for name, value in named.items():
        plain_array(remedy, **{name: value})
        array = np.asarray(value)
        if array.dtype.kind in "cV" and not _short(array):
            raise ValueError(
                f"Expected labels in {name} that have an order, got dtype {array.dtype}. {remedy}".rstrip()
            )
        if array.dtype.kind in "fV":
            bad = np.isnan(array.astype(np.float64))
        elif array.dtype.kind == "O":
            bad = np.array([_missing(one) for one in array.ravel()], bool).reshape(array.shape)
        else:
            continue
        if bad.any():
            where = tuple(int(i) for i in np.argwhere(bad)[0])
            raise ValueError(
                f"Expected a label for every example, got {name}{list(where)} = {array[where]!r} "
                f"({int(bad.sum())} such entries). Drop these examples. {remedy}".rstrip()
            )


def _short(array: np.ndarray) -> bool:
    """Whether an array has floats of few bits, such as bfloat16, which NumPy knows as records without fields."""
    return array.dtype.kind == "V" and array.dtype.names is None and np.can_cast(array.dtype, np.float64)


def _missing(one: Any) -> bool:
    """Whether a label is none: None, NaN, or pandas' NA, which is not even different from itself."""
    try:
        return one is None or bool(one != one)
    except Exception:  # the truth value of NA, and comparisons of any object
        return True


def class_numbers(remedy: str = "", **named: Any) -> None:
    """Every named array of labels passes `labels` and holds numbers."""
    for name, value in named.items():
        labels(remedy, **{name: value})
        if (dtype := np.asarray(value).dtype).kind not in "biuf":
            raise ValueError(
                f"Expected labels in {name} that are numbers of classes, from 0, got dtype {dtype}. Number them, for "
                f"example with numpy.unique(labels, return_inverse=True)[1]. {remedy}".rstrip()
            )


def shape(expected: tuple[int | None, ...], remedy: str = "", **named: Any) -> None:
    """Every named array has the given shape, where None matches any length, and no labels of pandas at its rows."""
    for name, value in named.items():
        if hasattr(value, "iloc") and type(value.index).__name__ != "RangeIndex":
            refuse(
                f"an array without labels as {name}", name, value, f"Use {name}.to_numpy(), in the order that is meant."
            )
        try:
            found = tuple(np.shape(value))
        except (TypeError, ValueError):
            refuse(f"{name} to be an array", name, value, remedy)
        if len(found) != len(expected) or any(e is not None and e != f for e, f in zip(expected, found)):
            wanted = "(" + ", ".join("any" if e is None else str(e) for e in expected) + ")"
            raise ValueError(f"Expected {name} of shape {wanted}, got {found}. {remedy}".rstrip())


def message(error: Exception) -> str:
    """The text of an error, at most 300 characters of it: errors about damaged files may quote their content."""
    text = str(error)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]} ..."
