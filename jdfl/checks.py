"""Checks of what a person passes in: each raises `ValueError` naming the argument, the value and the remedy.

They run on the host, on concrete values, before anything is compiled.
"""

from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, Literal, NoReturn, Union, cast, get_args, get_origin, get_type_hints

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


def parts(settings: object, skip: Iterable[str] = ()) -> None:
    """Every field of a dataclass that is annotated as a class or protocol of jdfl holds an object with its methods.

    That a class is given instead of an object, or something else, is refused by name; so are things other than True and
    False in fields annotated as bool. Fields of such objects are looked at too, under dotted names.
    """
    _parts(settings, "", frozenset(skip))


def _parts(settings: object, where: str, skip: frozenset[str]) -> None:
    if not is_dataclass(settings) or isinstance(settings, type):
        return
    hints = get_type_hints(type(settings))
    for field in fields(settings):
        name, annotation = f"{where}{field.name}", hints.get(field.name)
        value: Any = getattr(settings, field.name)
        if field.name in skip:
            continue
        options: tuple[Any, ...] = (
            get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)
        )
        if value is None and NoneType in options:
            continue
        wanted = [option for option in options if option is not NoneType]
        if wanted == [bool] and not is_a(value, bool | np.bool_):
            _refuse(f"{name} to be one of False, True", name, value, "")
        known: list[Any] = [option for option in wanted if _ours(option)]
        if not known or len(known) < len(wanted):
            continue
        a_class = is_a(value, type)
        if a_class or not any(_has(value, option) for option in known):
            names = [str(option.__name__) for option in known]
            nothing = ["None"] if len(options) > len(wanted) else []
            words = " or ".join([_WORDS.get(one, one) for one in names] + nothing)
            _refuse(f"{name} to be {words}", name, value, "Pass an object, not a class." if a_class else "")
        _parts(value, f"{name}.", skip)


_WORDS = {"Codec": "a codec", "Mechanism": "a noise mechanism"}


def _ours(annotation: object) -> bool:
    """Whether an annotation is a class of jdfl: a dataclass of settings, or a protocol."""
    return isinstance(annotation, type) and annotation.__module__.startswith("jdfl.")


def _has(value: object, kind: type) -> bool:
    """Whether a value has all methods of a class (of jdfl), or is of it."""
    if isinstance(value, kind) if not getattr(kind, "_is_protocol", False) else False:
        return True
    wanted = [n for base in kind.__mro__ if _ours(base) for n in vars(base) if not n.startswith("_")]
    wanted = [name for name in wanted if name != "replace"]
    return bool(wanted) and all(hasattr(value, name) for name in wanted)


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


def plain_array(remedy: str = "", **named: Any) -> None:
    """Every named value is an array of numbers or words whose entries all count: not masked, not of dates."""
    for name, value in named.items():
        if isinstance(value, np.ma.MaskedArray):
            raise ValueError(
                f"Expected an array without a mask for {name}, got a masked array with "
                f"{int(np.sum(np.ma.getmaskarray(cast(Any, value))))} masked entries. "
                f"Drop those, or fill them in. {remedy}".rstrip()
            )
        try:
            dtype = getattr(value, "dtype", None) or np.asarray(value).dtype
        except (TypeError, ValueError):
            _refuse(f"{name} to be an array", name, value, remedy)
        if getattr(dtype, "kind", "") in "mM":
            raise ValueError(
                f"Expected numbers in {name}, got dtype {dtype}. Turn dates and times into numbers. {remedy}".rstrip()
            )


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
    """Every named array of labels is a plain one, complex numbers and NaN not among them."""
    for name, value in named.items():
        plain_array(remedy, **{name: value})
        array = np.asarray(value)
        if array.dtype.kind == "c":
            raise ValueError(
                f"Expected labels in {name} that have an order, got dtype {array.dtype}. {remedy}".rstrip()
            )
        if array.dtype.kind == "f":
            bad = np.isnan(array)
        elif array.dtype.kind == "O":
            bad = np.array([one is None or one != one for one in array.ravel()], bool).reshape(array.shape)
        else:
            continue
        if bad.any():
            where = tuple(int(i) for i in np.argwhere(bad)[0])
            raise ValueError(
                f"Expected a label for every example, got {name}{list(where)} = {array[where]!r} "
                f"({int(bad.sum())} such entries). Drop these examples. {remedy}".rstrip()
            )


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
