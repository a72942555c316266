"""The numbers that a setting may hold: an interval in its annotation, against which `jdfl.base.arguments` checks
values.

A setting is declared once, in its class or function: its name and default are the command-line flag and the YAML key,
the text below it (or its line in `Args:`) is their documentation, and the annotation states what they accept.

    lr: Positive = 0.1
    "Step size."
"""

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass, is_dataclass
from functools import cache
from types import SimpleNamespace, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, Union, get_args, get_origin, get_type_hints

import numpy as np
from jax import Array
from typing_extensions import Doc, TypeAliasType

MOST = 2**31 - 1  # of all counts, which are int32
_Read = Literal["paper read", "authors' code read", "other code read", "abstract only", "described by others"]
Provenance: TypeAlias = tuple[Literal[_Read, "from memory", "no paper"], ...]  # what a method was written from


@dataclass(frozen=True)
class Bound:
    """An interval such as "(0, 1]" that must contain a finite number, or every entry of an array.

    Args:
        interval: Two numbers between brackets; round brackets exclude an end, which may be inf.
    """

    interval: str

    def holds(self, value: np.ndarray) -> bool:
        """Whether all entries of an array of any shape lie in the interval."""
        low, high = self.ends
        above = value > low if self.interval[0] == "(" else value >= low
        below = value < high if self.interval[-1] == ")" else value <= high
        return bool(np.all(above & below & np.isfinite(value)))

    @property
    def ends(self) -> tuple[float, float]:
        """The ends of the interval, infinite where there is none."""
        low, high = self.interval[1:-1].split(",")
        return float(low), float(high)

    def words(self, name: str, whole: bool, value: np.ndarray) -> str:
        """The expected values for this name, in words; names the int32 limit where it is exceeded."""
        named = f"a whole number {name}" if whole else name
        low, high = (end.strip() for end in self.interval[1:-1].split(","))
        if whole:
            far = high == "inf" or (high == str(MOST) and not np.any(value > MOST))
            return f"{named} >= {low}" + ("" if far else f" and <= {high}")
        if high == "inf":
            return f"{name} {'>' if self.interval[0] == '(' else '>='} {low} and finite"
        return f"{name} in {self.interval}"


@dataclass(frozen=True)
class As:
    """How a setting is written on the command line and in YAML, where its own type or default do not serve.

    Args:
        type: The type of the written value: numbers, truth values and text; None: the setting's own.
        make: Makes the setting from the written value.
        default: The value of a setting that is not written; without it, the setting's own default.
        about: The documentation of the written value; empty: the setting's own.
    """

    type: Any = None
    make: Callable[[Any], Any] | None = None
    default: Any = ...
    about: str = ""


@dataclass(frozen=True)
class Only:
    """The fields of a compound setting that an algorithm uses; the others become no flags."""

    names: tuple[str, ...]


Positive: TypeAlias = Annotated[float | Array, Bound("(0, inf)")]
NotNegative: TypeAlias = Annotated[float | Array, Bound("[0, inf)")]
Fraction: TypeAlias = Annotated[float | Array, Bound("(0, 1]")]
Momentum: TypeAlias = Annotated[float | Array, Bound("[0, 1)")]
Number: TypeAlias = Annotated[float | Array, Bound("(-inf, inf)")]
Count: TypeAlias = Annotated[int, Bound(f"[1, {MOST}]")]
Natural: TypeAlias = Annotated[int, Bound(f"[0, {MOST}]")]
Nodes: TypeAlias = Annotated[int, Bound(f"[1, {MOST}]"), Doc("The number of nodes.")]
Tries: TypeAlias = Annotated[int, Bound("[1, inf)"), Doc("Maximum number of draws until one is connected, from 1.")]
Seed: TypeAlias = Annotated[int, Bound("[0, inf)"), Doc("Seed of what is drawn, from 0.")]
if TYPE_CHECKING:
    _OfRound: TypeAlias = Any  # a step sees its value
else:
    _OfRound = Callable[[Any], Any]
StepSize: TypeAlias = Annotated[float | Array | _OfRound, Bound("(0, inf)"), Doc("Step size.")]


def defaults(function: Callable[..., Any]) -> SimpleNamespace:
    """The default of every argument of a function, by name."""
    return SimpleNamespace(**{name: one.default for name, one in inspect.signature(function).parameters.items()})


def options_of(annotation: Any) -> tuple[Any, ...]:
    """The types that an annotation allows, without their marks; all words are one type."""
    if isinstance(annotation, TypeAliasType):  # NumPy's aliases from 2.5 on
        return options_of(annotation.__value__)
    if get_origin(annotation) is Annotated:
        return options_of(annotation.__origin__)
    if get_origin(annotation) in (Union, UnionType):
        found = tuple(option for one in get_args(annotation) for option in options_of(one))
        words = [option for option in found if get_origin(option) is Literal]
        return found if len(words) < 2 else (Literal[tuple(words)], *(one for one in found if one not in words))
    return (annotation,)


def marks(annotation: Any) -> tuple[Any, ...]:
    """The marks of an annotation besides its types, such as a `Bound`."""
    if get_origin(annotation) is Annotated:
        return (*annotation.__metadata__, *marks(annotation.__origin__))
    if get_origin(annotation) in (Union, UnionType):
        return tuple(mark for one in get_args(annotation) for mark in marks(one))
    return ()


@cache
def documentation(source: Callable[..., Any]) -> dict[str, str]:
    """The documentation of every field of a class, or of every argument of a function, by name.

    For a class it is the text below the field, in the class itself or in a base class; for a function the argument's
    line in the section `Args:` of its docstring. What has neither is documented by its annotation: by a `Doc` there,
    or by the first sentence of the settings class that a field holds. Undocumented names are missing.
    """
    from docstring_parser import parse_from_object  # takes 50 ms, and is needed for help and errors only

    found: dict[str, str] = {}
    for one in reversed(getattr(source, "__mro__", (source,))):
        if one.__module__ == "builtins":
            continue
        try:
            params = {param.arg_name: param.description or "" for param in parse_from_object(one).params}
        except (OSError, TypeError):  # a class without a file, for example one typed at a prompt
            continue
        found |= {name: re.sub(r"\s+", " ", text) for name, text in params.items() if text}
    if inspect.isfunction(source):
        hints = {name: one.annotation for name, one in inspect.signature(source).parameters.items()}
        found |= {name: said[0] for name, one in hints.items() if name not in found and (said := _said(one))}
    if is_dataclass(source):
        hints = get_type_hints(source, include_extras=True)
        found |= {name: text for name, one in hints.items() if name not in found and (text := _documented_by(one))}
    return found


def _said(annotation: Any) -> list[str]:
    """The texts of the `Doc` marks of an annotation."""
    return [mark.documentation for mark in marks(annotation) if isinstance(mark, Doc)]


def _documented_by(annotation: Any) -> str:
    """The documentation in an annotation; empty if there is none."""
    for said in _said(annotation):
        return said
    kinds = [one for one in options_of(annotation) if getattr(one, "__module__", "").startswith("jdfl.")]
    return (inspect.getdoc(kinds[0]) or "").partition("\n\n")[0] if kinds else ""
