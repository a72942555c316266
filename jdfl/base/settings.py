"""Which numbers a setting may hold: an interval in its annotation, which `jdfl.base.arguments` holds values against.

A setting is written once, in its class or function: its name and default are the flag and the key of YAML, the text
below it (or its line in `Args:`) their documentation, and the annotation what they take.

    lr: Positive = 0.1
    "Length of the steps."
"""

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass, is_dataclass
from functools import cache
from types import SimpleNamespace, UnionType
from typing import Annotated, Any, TypeAlias, Union, get_args, get_origin, get_type_hints

import numpy as np
from jax import Array
from typing_extensions import Doc, TypeAliasType

MOST = 2**31 - 1  # of anything that is counted, since it is numbered in int32


@dataclass(frozen=True)
class Bound:
    """An interval such as "(0, 1]", in which a finite number, or every entry of an array, has to lie.

    Args:
        interval: Two numbers between brackets; round ones leave the end out. inf is no number.
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
        """What is expected of a value of this name, in words; the end of int32 is named where it is exceeded."""
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
    """How a setting is written on the command line and in YAML, where its own type or default do not do.

    Args:
        type: The type of what is written, of numbers, truth values and text; None: the setting's own.
        make: Makes the setting of what is written.
        default: What stands for a setting that is not written; without it, the setting's own default.
        about: The documentation of what is written; empty: the setting's own.
    """

    type: Any = None
    make: Callable[[Any], Any] | None = None
    default: Any = ...
    about: str = ""


@dataclass(frozen=True)
class Only:
    """The names of those fields of a setting of several that an algorithm has a use for; others are no flags."""

    names: tuple[str, ...]


Positive: TypeAlias = Annotated[float | Array, Bound("(0, inf)")]
NotNegative: TypeAlias = Annotated[float | Array, Bound("[0, inf)")]
Fraction: TypeAlias = Annotated[float | Array, Bound("(0, 1]")]
Momentum: TypeAlias = Annotated[float | Array, Bound("[0, 1)")]
Number: TypeAlias = Annotated[float | Array, Bound("(-inf, inf)")]
Count: TypeAlias = Annotated[int, Bound(f"[1, {MOST}]")]
Natural: TypeAlias = Annotated[int, Bound(f"[0, {MOST}]")]
Tries: TypeAlias = Annotated[int, Bound("[1, inf)")]  # counted on the host
Seed: TypeAlias = Annotated[int, Bound("[0, inf)")]
StepLength: TypeAlias = Annotated[Positive, Doc("Length of the steps.")]


def defaults(function: Callable[..., Any]) -> SimpleNamespace:
    """The default of every argument of a function, by name, for settings that stand for them."""
    return SimpleNamespace(**{name: one.default for name, one in inspect.signature(function).parameters.items()})


def options_of(annotation: Any) -> tuple[Any, ...]:
    """The types that an annotation allows, without what is said about them."""
    if isinstance(annotation, TypeAliasType):  # as NumPy's are from 2.5
        return options_of(annotation.__value__)
    if get_origin(annotation) is Annotated:
        return options_of(annotation.__origin__)
    if get_origin(annotation) in (Union, UnionType):
        return tuple(option for one in get_args(annotation) for option in options_of(one))
    return (annotation,)


def marks(annotation: Any) -> tuple[Any, ...]:
    """What an annotation says about the types that it allows: a `Bound`, say."""
    if get_origin(annotation) is Annotated:
        return (*annotation.__metadata__, *marks(annotation.__origin__))
    if get_origin(annotation) in (Union, UnionType):
        return tuple(mark for one in get_args(annotation) for mark in marks(one))
    return ()


@cache
def documentation(source: Callable[..., Any]) -> dict[str, str]:
    """What is documented of every field of a class, or of every argument of a function, by name.

    For a class it is the text below the field, in the class itself or in one that it inherits from; for a function the
    argument's line in the section `Args:` of its docstring. A field without either is documented by its annotation: by
    a `Doc` there, or by the first sentence of the class of settings that it holds. Other names are missing.
    """
    from docstring_parser import parse_from_object  # takes 50 ms, for help and refusals alone

    found: dict[str, str] = {}
    for one in reversed(getattr(source, "__mro__", (source,))):
        if one.__module__ == "builtins":
            continue
        try:
            told = {param.arg_name: param.description or "" for param in parse_from_object(one).params}
        except (OSError, TypeError):  # of a class without a file, such as one that was typed at a prompt
            continue
        found |= {name: re.sub(r"\s+", " ", text) for name, text in told.items() if text}
    if is_dataclass(source):
        hints = get_type_hints(source, include_extras=True)
        found |= {name: text for name, one in hints.items() if name not in found and (text := _told(one))}
    return found


def _told(annotation: Any) -> str:
    """What an annotation says of a setting; empty for nothing."""
    for mark in marks(annotation):
        if isinstance(mark, Doc):
            return mark.documentation
    kinds = [one for one in options_of(annotation) if getattr(one, "__module__", "").startswith("jdfl.")]
    return (inspect.getdoc(kinds[0]) or "").partition("\n\n")[0] if kinds else ""
