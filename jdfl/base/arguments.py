"""Checks of arguments against their annotations: an error names an argument of the wrong kind.

`checked` is for functions that run on the host, `settings` for the fields of settings. They check what an annotation
states: numbers and their interval (`jdfl.base.settings`), truth values, text, the words of a `Literal`, objects of
jdfl's classes and protocols, and lists and tuples of these. Constraints between several arguments are checked by the
function or class itself (`jdfl.base.checks`).
"""

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import NoneType
from typing import Any, Literal, ParamSpec, TypeVar, get_args, get_origin, get_type_hints

import jax
import numpy as np
from jax.core import Tracer

from jdfl.base import checks, suggest
from jdfl.base.fitting import fits, is_array_like, is_class, is_real, is_whole, ours, words_of
from jdfl.base.settings import Bound, documentation, marks, options_of

P = ParamSpec("P")
R = TypeVar("R")
_REMEDIES = {
    "a codec": "For example Dense() or Sparse(). Your own must inherit from jdfl.codecs.Codec: see docs/own-codec.md.",
    "a distribution of times": "For example ExponentialTime(1.0). Your own must inherit from jdfl.network.Times.",
    "a network": "jdfl.network builds one; jdfl.network.Static(graph) makes one of a Graph.",
    "an algorithm": "For example jdfl.CEPS(). Your own must inherit from jdfl.Algorithm and have init(round) and "
    "step(state, round): see docs/own-algorithm.md.",
}
_Known = tuple[inspect.Signature, dict[str, Any]]


def checked(function: Callable[P, R]) -> Callable[P, R]:
    """The function, which raises ValueError for arguments that do not fit their annotations.

    NumPy integers become Python integers, whose products do not overflow, and arrays without axes become floats. Where
    an annotation gives an interval, the message ends with the documentation of the argument.
    """

    @functools.cache
    def known() -> _Known:
        signature, told = inspect.signature(function), dict[str, Any]()
        for name, one in signature.parameters.items():
            if isinstance(one.annotation, str) or one.kind is one.VAR_KEYWORD:
                continue  # a name that only type checkers resolve
            told[name] = tuple[one.annotation, ...] if one.kind is one.VAR_POSITIONAL else one.annotation
        return signature, told

    @functools.wraps(function)
    def call(*args: P.args, **named: P.kwargs) -> R:
        signature, hints = known()
        try:
            given = signature.bind(*args, **named)
        except TypeError:
            if error := _unknown(function, named, signature):
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


def _unknown(function: Callable[..., Any], named: Mapping[str, Any], signature: inspect.Signature) -> TypeError | None:
    """The error for an argument whose name the function does not have; None where it has all."""
    names = [name for name, one in signature.parameters.items() if one.kind is not one.VAR_POSITIONAL]
    return suggest.arguments(function.__name__, named, names)


def _documented(error: ValueError, name: str, source: Callable[..., Any] | None) -> ValueError:
    """The error, with the source's documentation of a setting appended; its name may be dotted."""
    about = None if source is None else documentation(source).get(name.rpartition(".")[2])
    return ValueError(f"{error} {name}: {about}" if about else str(error))


def argument(name: str, value: Any, annotation: Any) -> Any:
    """The value, if it fits the annotation; otherwise ValueError that names it."""
    if not fits(value, annotation):
        words = " or ".join(dict.fromkeys(words_of(annotation)))
        remedy = next((_REMEDIES[one] for one in words.split(" or ") if one in _REMEDIES), "")
        if is_class(value) and "a network" not in words:
            remedy = "Pass an object, not a class."
        named = [one for option in options_of(annotation) if get_origin(option) is Literal for one in get_args(option)]
        checks.refuse(f"{name} to be {words}", name, value, remedy or suggest.hint(value, named))
    options = options_of(annotation)
    if Path in options and "\0" in str(value):
        checks.refuse(f"{name} to be a path, which has no NUL", name, value)
    if is_array_like(options):
        return value
    _check_bounds(name, value, annotation)
    if int in options and is_whole(value):
        return int(value)
    if (
        float in options
        and is_real(value)
        and checks.is_a(value, np.ndarray | jax.Array | np.longdouble)
        and not checks.is_a(value, Tracer)
    ):
        return float(value)
    return value


def inherits(name: str, value: object, base: type, expected: str, remedy: str) -> None:
    """Raise ValueError for anything but a dataclass of a base class, or one that overrides methods incompatibly."""
    kind = type(value).__name__
    if not checks.is_a(value, base):
        checks.refuse(expected, name, value, remedy)
    if jax.tree_util.all_leaves([value]):
        raise ValueError(f"Expected {kind} to be a jdfl.base.struct.dataclass, got a plain class. {remedy}")
    for method, wanted in vars(base).items():
        if method.startswith("_") or not inspect.isfunction(wanted):
            continue
        _, *parameters = inspect.signature(wanted).parameters
        found = inspect.signature(getattr(value, method))
        try:
            found.bind(*parameters)
        except TypeError:
            told, got = ", ".join(parameters), ", ".join(found.parameters)
            raise ValueError(f"Expected {kind}.{method}({told}), got {method}({got}). {remedy}") from None


def _check_bounds(name: str, value: Any, annotation: Any) -> None:
    """Raise ValueError for a number, or numbers in a list, outside the interval of the annotation."""
    options = options_of(annotation)
    for option in options:
        if get_origin(option) is tuple and checks.is_a(value, tuple | list):
            for i, one in enumerate(value):
                _check_bounds(f"{name}[{i}]", one, get_args(option)[0 if get_args(option)[-1] is Ellipsis else i])
    for mark in marks(annotation):
        if isinstance(mark, Bound) and value is not None:
            checks.within(mark, "", whole=float not in options, **{name: value})


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
        told = marks(annotation)
        bound = any(isinstance(mark, Bound) for mark in told)
        options = [option for option in options_of(annotation) if option is not NoneType]
        if ours(type(given)) or bound or all(option is bool or ours(option) for option in options):
            try:
                argument(name, value, annotation)
                if float in options and is_whole(value) and abs(value) >= 2**31:
                    checks.refuse(f"{name} below 2^31, or a float", name, value)
                if hasattr(value, "iloc"):
                    checks.refuse(f"an array as {name}", name, value, "Give .to_numpy(), in the order of the nodes.")
                if bound and value is not None and not field.metadata.get("per_node"):
                    checks.shape((), "It is one number for all nodes.", **{name: value})
            except ValueError as error:
                raise _documented(error, name, type(given)) from None
        settings(value, f"{name}.")
