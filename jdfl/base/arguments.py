"""Checks of arguments against their annotations: an error names an argument of the wrong kind.

`checked` is for functions that run on the host, `settings` for the fields of settings. They check what an annotation
states: numbers and their interval (`jdfl.base.settings`), truth values, text, the words of a `Literal`, objects of
jdfl's classes and protocols, and lists and tuples of these. Constraints between several arguments are checked by the
function or class itself (`jdfl.base.checks`).
"""

import functools
import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import NoneType
from typing import Any, Literal, ParamSpec, TypeVar, get_args, get_origin, get_type_hints

import jax
import jax.numpy as jnp
import jax.typing
import numpy as np
from jax.core import Tracer
from numpy.typing import ArrayLike

from jdfl.base import checks, suggest
from jdfl.base.schedules import values
from jdfl.base.settings import Bound, documentation, marks, options_of
from jdfl.base.struct import StepSizeSchedule

P = ParamSpec("P")
R = TypeVar("R")
_REMEDIES = {
    "a codec": "For example Dense() or Sparse(). Your own must inherit from jdfl.codecs.Codec: see docs/own-codec.md.",
    "a distribution of times": "For example ExponentialTime(1.0). Your own must inherit from jdfl.network.Times.",
    "a network": "jdfl.network builds one; jdfl.network.Static(graph) makes one of a Graph.",
    "an algorithm": "For example jdfl.CEPS(). Your own must inherit from jdfl.Algorithm and have init(round) and "
    "step(state, round): see docs/own-algorithm.md.",
}
_ARRAY_LIKES = tuple(frozenset(options_of(one)) for one in (ArrayLike, jax.typing.ArrayLike))
_LISTS = (Sequence, list)
_LONG = 10_000  # entries beyond which a list is not checked one by one: functions make arrays of these
_WORDS = {
    "Algorithm": "an algorithm",
    "Any": "anything",
    "Callable": "a function",
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


def checked(function: Callable[P, R]) -> Callable[P, R]:
    """The function, which raises ValueError for arguments that do not fit their annotations.

    NumPy integers become Python integers, whose products do not overflow, and arrays without axes become floats. Where
    an annotation gives an interval, the message ends with the documentation of the argument.
    """

    @functools.cache
    def known() -> tuple[inspect.Signature, dict[str, Any]]:
        signature, hints = inspect.signature(function), dict[str, Any]()
        for name, one in signature.parameters.items():
            if isinstance(one.annotation, str) or one.kind is one.VAR_KEYWORD:
                continue  # a name that only type checkers resolve
            hints[name] = tuple[one.annotation, ...] if one.kind is one.VAR_POSITIONAL else one.annotation
        return signature, hints

    @functools.wraps(function)
    def call(*args: P.args, **named: P.kwargs) -> R:
        signature, hints = known()
        try:
            given = signature.bind(*args, **named)
        except TypeError:
            names = [name for name, one in signature.parameters.items() if one.kind is not one.VAR_POSITIONAL]
            if error := suggest.arguments(function.__name__, named, names):
                raise error from None
            raise
        for name, value in given.arguments.items():
            if name in hints:
                try:
                    given.arguments[name] = argument(name, value, hints[name])
                except ValueError as error:
                    bound = any(isinstance(mark, Bound) for mark in marks(hints[name]))
                    raise _documented(error, name, function if bound else None) from None
        return function(*given.args, **given.kwargs)

    return call


def _documented(error: ValueError, name: str, source: Callable[..., Any] | None) -> ValueError:
    """The error, with the source's documentation of a setting appended; its name may be dotted."""
    about = None if source is None else documentation(source).get(name.rpartition(".")[2])
    return ValueError(f"{error} {name}: {about}" if about else str(error))


def argument(name: str, value: Any, annotation: Any) -> Any:
    """The value, if it fits the annotation; otherwise ValueError that names it."""
    options = options_of(annotation)
    if not _fits(value, annotation):
        words = " or ".join(dict.fromkeys(_words(annotation)))
        remedy = next((_REMEDIES[one] for one in words.split(" or ") if one in _REMEDIES), "")
        if isinstance(value, type) and "a network" not in words:
            remedy = "Pass an object, not a class."
        named = [one for option in options if get_origin(option) is Literal for one in get_args(option)]
        checks.refuse(f"{name} to be {words}", name, value, remedy or suggest.hint(value, named))
    if Path in options and "\0" in str(value):
        checks.refuse(f"{name} to be a path, which has no NUL", name, value)
    if _is_array_like(options):
        return value
    _check_bounds(name, value, annotation)
    if int in options and checks.is_integer(value):
        return int(value)
    array = checks.is_a(value, np.ndarray | jax.Array | np.longdouble) and not checks.is_a(value, Tracer)
    return float(value) if array and float in options and _is_real(value) else value


def inherits(name: str, value: object, base: type, expected: str, remedy: str) -> None:
    """Raise ValueError for anything but a dataclass of a base class, or one that overrides methods incompatibly."""
    kind = type(value).__name__
    if not checks.is_a(value, base):
        checks.refuse(expected, name, value, remedy)
    if jax.tree_util.all_leaves([value]):
        raise ValueError(f"Expected {kind} to be a jdfl.base.struct.dataclass, got a plain class. {remedy}")
    for method, of_base in vars(base).items():
        if method.startswith("_") or not inspect.isfunction(of_base):
            continue
        _, *parameters = inspect.signature(of_base).parameters
        found = inspect.signature(getattr(value, method))
        try:
            found.bind(*parameters)
        except TypeError:
            wanted, got = ", ".join(parameters), ", ".join(found.parameters)
            raise ValueError(f"Expected {kind}.{method}({wanted}), got {method}({got}). {remedy}") from None


def _check_bounds(name: str, value: Any, annotation: Any) -> None:
    """Raise ValueError for a number, or numbers in a list, outside the interval of the annotation."""
    options = options_of(annotation)
    if isinstance(value, StepSizeSchedule):
        values(value, 1, name)
        return
    for option in options:
        if get_origin(option) is tuple and checks.is_a(value, tuple | list):
            for i, one in enumerate(value):
                _check_bounds(f"{name}[{i}]", one, get_args(option)[0 if get_args(option)[-1] is Ellipsis else i])
    for mark in marks(annotation):
        if isinstance(mark, Bound) and value is not None:
            checks.within(mark, "", integer=float not in options, **{name: value})


def settings(given: Any, where: str = "") -> None:
    """Raise ValueError for fields of a dataclass, or of dataclasses in it, that do not fit their annotations.

    Nested fields have dotted names. A number holds for all nodes, unless its field says `per_node`. The message ends
    with the documentation of the field. For classes outside jdfl, only fields with a bound and those annotated as truth
    values or as classes and protocols of jdfl are checked.
    """
    if checks.is_a(given, tuple | list):
        for i, one in enumerate(given):
            settings(one, f"{where.removesuffix('.')}[{i}].")
    if not is_dataclass(given) or isinstance(given, type):
        return
    hints = get_type_hints(type(given), include_extras=True)
    for field in fields(given):
        name, value, annotation = f"{where}{field.name}", getattr(given, field.name), hints.get(field.name)
        bound = any(isinstance(mark, Bound) for mark in marks(annotation))
        options = [option for option in options_of(annotation) if option is not NoneType]
        if _ours(type(given)) or bound or all(option is bool or _ours(option) for option in options):
            try:
                argument(name, value, annotation)
                if float in options and checks.is_integer(value) and abs(value) >= 2**31:
                    checks.refuse(f"{name} below 2^31, or a float", name, value)
                if hasattr(value, "iloc"):
                    checks.refuse(f"an array as {name}", name, value, "Give .to_numpy(), in the order of the nodes.")
                if bound and value is not None and not field.metadata.get("per_node"):
                    checks.shape((), "It is one number for all nodes.", **{name: value})
            except ValueError as error:
                raise _documented(error, name, type(given)) from None
        settings(value, f"{name}.")


def _is_real(value: Any) -> bool:
    """Whether it is one real number, including an array without axes."""
    if checks.is_a(value, np.ndarray | np.generic | jax.Array):
        masked = checks.is_a(value, np.ma.MaskedArray)
        number = jnp.issubdtype(value.dtype, np.number)  # also of JAX's own types, such as keys
        return value.ndim == 0 and number and value.dtype.kind not in "cm" and not masked
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_array_like(options: tuple[Any, ...]) -> bool:
    """Whether these options of an annotation are those of NumPy's or JAX's `ArrayLike`."""
    return any(kinds <= set(options) for kinds in _ARRAY_LIKES)


def _fits(value: Any, annotation: Any) -> bool:
    """Whether a value fits the types of an annotation, apart from its bound."""
    options = options_of(annotation)
    if _is_array_like(options):
        return _is_array(value) or _is_real(value) or (value is None and NoneType in options)
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
    if _ours(annotation):
        return not isinstance(value, type) and _has(value, annotation)
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
    return len(value) == len(wanted) and all(map(_fits, value, wanted))


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
    int: ("a whole number", checks.is_integer),
    float: ("a number", _is_real),
    bool: ("one of False, True", lambda value: isinstance(value, bool | np.bool_)),
    str: ("text", lambda value: isinstance(value, str)),
    NoneType: ("None", lambda value: value is None),
    Path: ("a path", lambda value: isinstance(value, os.PathLike)),
    np.ndarray: ("an array", _is_array),
    jax.Array: ("an array", _is_array),
}


def _words(annotation: Any) -> list[str]:
    """The names, in messages, of the values that the options of an annotation allow, in its order."""
    options, found = options_of(annotation), list[str]()
    if float in options and jax.Array in options:
        options = tuple(option for option in options if option is not jax.Array)
    if _is_array_like(options_of(annotation)):
        options = (np.ndarray, *(option for option in options if option is NoneType))
    for option in options:
        if option in _PLAIN:
            found.append(_PLAIN[option][0])
        elif get_origin(option) is Literal:
            found.append(f"one of {', '.join(map(repr, get_args(option)))}")
        elif get_origin(option) in (tuple, *_LISTS):
            wanted = [one for one in get_args(option) if one is not Ellipsis]
            inside = " or ".join(dict.fromkeys(word for one in wanted for word in _words(one)))
            size = f"{len(wanted)}, each " if Ellipsis not in get_args(option) and get_origin(option) is tuple else ""
            found.append(f"a list of {size}{inside}")
        else:
            name = str(getattr(option, "__name__", option))
            found.append(_WORDS.get(name, name))
    return found


def _ours(annotation: object) -> bool:
    """Whether an annotation is a jdfl class: a dataclass of settings, or a protocol."""
    return isinstance(annotation, type) and annotation.__module__.startswith("jdfl.")


def _has(value: object, kind: type) -> bool:
    """Whether a value is of a jdfl class, or has all methods and fields of a protocol."""
    if not getattr(kind, "_is_protocol", False):
        return isinstance(value, kind)
    if checks.has_all(value):
        return False
    wanted = [name for base in kind.__mro__ if _ours(base) for name in vars(base) if not name.startswith("_")]
    return all(hasattr(type(value), name) or checks.holds(value, name) for name in wanted)
