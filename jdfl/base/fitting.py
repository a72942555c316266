"""Whether a value fits an annotation, and how messages name such values."""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import NoneType
from typing import Any, Literal, get_args, get_origin

import jax
import jax.numpy as jnp
import jax.typing
import numpy as np
from numpy.typing import ArrayLike

from jdfl.base import checks
from jdfl.base.settings import options_of

_ARRAY_LIKES = tuple(frozenset(options_of(one)) for one in (ArrayLike, jax.typing.ArrayLike))
_LISTS = (Sequence, list)
_LONG = 10_000  # entries beyond which a list is not checked one by one: functions make arrays of these
_WORDS = {
    "Algorithm": "an algorithm",
    "Any": "anything",
    "Checkpoint": "a checkpoint",
    "Codec": "a codec",
    "Graph": "a Graph",
    "Mapping": "a mapping",
    "Mechanism": "a noise mechanism, such as Gaussian(multiplier),",
    "Network": "a network",
    "PathLike": "a path",
    "Problem": "a problem",
    "Result": "the result of a run",
    "Static": "a fixed network",
    "StopRule": "a stop rule",
    "Times": "a distribution of times",
    "Tuning": "a Tuning",
}


def is_whole(value: object) -> bool:
    """Whether it is a whole number; bools and durations are not."""
    return checks.is_a(value, int | np.integer) and not isinstance(value, bool | np.bool_ | np.timedelta64)


def is_real(value: Any) -> bool:
    """Whether it is one real number, including an array without axes."""
    if checks.is_a(value, np.ndarray | np.generic | jax.Array):
        masked = checks.is_a(value, np.ma.MaskedArray)
        number = jnp.issubdtype(value.dtype, np.number)  # also of JAX's own types, such as keys
        return value.ndim == 0 and number and value.dtype.kind not in "cm" and not masked
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_class(value: object) -> bool:
    """Whether a class is given where an object was probably meant."""
    return checks.is_a(value, type)


def is_array_like(options: tuple[Any, ...]) -> bool:
    """Whether these options of an annotation are those of NumPy's or JAX's `ArrayLike`."""
    return any(kinds <= set(options) for kinds in _ARRAY_LIKES)


def fits(value: Any, annotation: Any) -> bool:
    """Whether a value fits the types of an annotation, apart from its bound."""
    options = options_of(annotation)
    if is_array_like(options):
        return _is_array(value) or is_real(value) or (value is None and NoneType in options)
    return any(_fits_one(value, option) for option in options)


def _fits_one(value: Any, annotation: Any) -> bool:
    origin = get_origin(annotation)
    if annotation in _PLAIN:
        return _PLAIN[annotation][1](value)
    if origin is Literal:
        return isinstance(value, str | bool | int) and value in get_args(annotation)
    if origin is tuple:
        return isinstance(value, tuple | list) and _fits_items(value, get_args(annotation))
    if origin in _LISTS:
        return _is_list(value) and (len(value) > _LONG or _fits_items(list(value), (*get_args(annotation), Ellipsis)))
    if origin is Mapping:
        return isinstance(value, Mapping)
    if origin is Callable:
        return callable(value)
    if origin is os.PathLike:
        return isinstance(value, os.PathLike)
    if ours(annotation):
        return not is_class(value) and _has(value, annotation)
    return True


def _is_list(value: Any) -> bool:
    try:
        len(value)
    except Exception:  # it has none, or one that is ambiguous, as of sparse arrays
        return False
    sized = hasattr(type(value), "__getitem__") and getattr(value, "shape", None) != ()
    return sized and not isinstance(value, str | bytes | Mapping)


def _fits_items(value: Any, wanted: tuple[Any, ...]) -> bool:
    if wanted[-1:] == (Ellipsis,):
        wanted = (wanted[0],) * len(value)
    return len(value) == len(wanted) and all(map(fits, value, wanted))


def _is_array(value: Any) -> bool:
    """Whether NumPy converts it to an unmasked array of numbers or text."""
    if checks.is_a(value, np.ndarray | jax.Array):
        return True
    if isinstance(value, str | bytes | type):  # the `ndim` of a NumPy type is a descriptor
        return False
    try:
        return bool(np.ndim(value) > 0)
    except Exception:  # attributes of any object may raise any error
        return False


_PLAIN: dict[Any, tuple[str, Callable[[Any], bool]]] = {
    int: ("a whole number", is_whole),
    float: ("a number", is_real),
    bool: ("one of False, True", lambda value: isinstance(value, bool | np.bool_)),
    str: ("text", lambda value: isinstance(value, str)),
    NoneType: ("None", lambda value: value is None),
    Path: ("a path", lambda value: isinstance(value, os.PathLike)),
    np.ndarray: ("an array", _is_array),
    jax.Array: ("an array", _is_array),
}


def words_of(annotation: Any) -> list[str]:
    """The names, in messages, of the values that the options of an annotation allow, in its order."""
    options, found = options_of(annotation), list[str]()
    if float in options and jax.Array in options:
        options = tuple(option for option in options if option is not jax.Array)
    if is_array_like(options_of(annotation)):
        options = (np.ndarray, *(option for option in options if option is NoneType))
    for option in options:
        if option in _PLAIN:
            found.append(_PLAIN[option][0])
        elif get_origin(option) is Literal:
            found.append(f"one of {', '.join(map(repr, get_args(option)))}")
        elif get_origin(option) in (tuple, *_LISTS):
            wanted = [one for one in get_args(option) if one is not Ellipsis]
            inside = " or ".join(dict.fromkeys(word for one in wanted for word in words_of(one)))
            size = f"{len(wanted)}, each " if Ellipsis not in get_args(option) and get_origin(option) is tuple else ""
            found.append(f"a list of {size}{inside}")
        else:
            name = str(getattr(option, "__name__", option))
            found.append(_WORDS.get(name, name))
    return found


def ours(annotation: object) -> bool:
    """Whether an annotation is a jdfl class: a dataclass of settings, or a protocol."""
    return isinstance(annotation, type) and annotation.__module__.startswith("jdfl.")


def _has(value: object, kind: type) -> bool:
    """Whether a value is of a jdfl class, or has all methods and fields of a protocol."""
    if not getattr(kind, "_is_protocol", False):
        return isinstance(value, kind)
    if checks.has_all(value):
        return False
    wanted = [name for base in kind.__mro__ if ours(base) for name in vars(base) if not name.startswith("_")]
    return all(hasattr(type(value), name) or checks.holds(value, name) for name in wanted)
