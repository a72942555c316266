"""Checks of what a person passes in: each raises `ValueError` naming the argument, the value and the remedy.

They run on the host, on concrete values, before anything is compiled.
"""

from collections.abc import Iterable
from types import UnionType
from typing import Any, Literal, NoReturn, get_args, get_origin, get_type_hints

import numpy as np


def _refuse(expected: str, name: str, value: object, remedy: str) -> NoReturn:
    raise ValueError(f"Expected {expected}, got {name} = {value!r}." + (f" {remedy}" if remedy else ""))


def _numbers(name: str, value: Any, remedy: str) -> np.ndarray:
    """The value as an array of floats; text, None and the like are refused in words."""
    if value is None or isinstance(value, (str, bytes, bool)):
        _refuse(f"{name} to be a number", name, value, remedy)
    try:
        return np.asarray(value, dtype=float)
    except (TypeError, ValueError):
        return _refuse(f"{name} to be a number", name, value, remedy)


def is_a(value: object, kind: type | UnionType) -> bool:
    """`isinstance` for what a person passes in, which may be something else than its annotation says."""
    return isinstance(value, kind)


def able(methods: Iterable[str], expected: str, remedy: str = "", **named: object) -> None:
    """Every named value is an object (not a class) with all of `methods`; `expected` says what it should be."""
    wanted = list(methods)
    for name, value in named.items():
        if isinstance(value, type) or not all(hasattr(value, method) for method in wanted):
            _refuse(f"{name} to be {expected}", name, value, remedy)


def positive(remedy: str = "", **named: Any) -> None:
    """Every named number (or every entry of a named array) is finite and > 0."""
    for name, value in named.items():
        array = _numbers(name, value, remedy)
        if not (np.all(np.isfinite(array)) and np.all(array > 0)):
            _refuse(f"{name} > 0 and finite", name, value, remedy)


def not_negative(remedy: str = "", **named: Any) -> None:
    """Every named number (or every entry of a named array) is finite and >= 0."""
    for name, value in named.items():
        array = _numbers(name, value, remedy)
        if not (np.all(np.isfinite(array)) and np.all(array >= 0)):
            _refuse(f"{name} >= 0 and finite", name, value, remedy)


def whole(least: int = 1, most: int | None = None, remedy: str = "", **named: Any) -> None:
    """Every named value is an integer (not a bool) in [least, most]."""
    for name, value in named.items():
        integral = is_a(value, int | np.integer) and not isinstance(value, bool)
        if not integral or value < least or (most is not None and value > most):
            top = "" if most is None else f" and <= {most}"
            _refuse(f"a whole number {name} >= {least}{top}", name, value, remedy)


def fraction(remedy: str = "", **named: Any) -> None:
    """Every named number lies in (0, 1]."""
    for name, value in named.items():
        array = _numbers(name, value, remedy)
        if not (np.all(array > 0) and np.all(array <= 1)):
            _refuse(f"{name} in (0, 1]", name, value, remedy)


def one_of(choices: Iterable[object], remedy: str = "", **named: object) -> None:
    """Every named value is one of `choices`."""
    known = list(choices)
    for name, value in named.items():
        if value not in known:
            _refuse(f"{name} to be one of {', '.join(map(repr, known))}", name, value, remedy)


def literals(settings: object) -> None:
    """Every field of a dataclass that is annotated as a `Literal` holds one of its values."""
    for name, annotation in get_type_hints(type(settings)).items():
        if get_origin(annotation) is Literal:
            one_of(get_args(annotation), **{name: getattr(settings, name)})


def finite(remedy: str = "", **named: Any) -> None:
    """Every named array holds finite numbers only; the message gives the first bad position."""
    for name, value in named.items():
        array = np.asarray(value)
        bad = ~np.isfinite(array)
        if bad.any():
            where = tuple(int(i) for i in np.argwhere(bad)[0])
            message = f"Expected finite numbers in {name}, got {array[where]} at index {where}"
            raise ValueError(f"{message} ({int(bad.sum())} such entries). {remedy}".rstrip())


def shape(expected: tuple[int | None, ...], remedy: str = "", **named: Any) -> None:
    """Every named array has the given shape; None matches any length."""
    for name, value in named.items():
        found = np.shape(value)
        if len(found) != len(expected) or any(e is not None and e != f for e, f in zip(expected, found)):
            wanted = "(" + ", ".join("any" if e is None else str(e) for e in expected) + ")"
            raise ValueError(f"Expected {name} of shape {wanted}, got {found}. {remedy}".rstrip())


def said(error: Exception) -> str:
    """What an error says, at most 300 characters of it: those about damaged files may quote them."""
    text = str(error)
    return text if len(text) <= 300 else f"{text[:300]} ..."
