"""Laws: named properties that every member of a family has, and the error that names the one that a class breaks."""

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import numpy as np

from jdfl.base import checks

Case = TypeVar("Case")
Laws = Mapping[str, Callable[[Case], None]]
_LINES = 12  # of what an assertion says


class LawBrokenError(AssertionError):
    """Raised where a class breaks a law; the message names class and law, and has the numbers."""


def laws_in(module: Mapping[str, Any]) -> dict[str, Callable[[Any], None]]:
    """The laws of a module by their names in words: its functions of a `case` alone."""
    found = {name: one for name, one in module.items() if inspect.isfunction(one)}
    laws = {name: one for name, one in found.items() if list(inspect.signature(one).parameters) == ["case"]}
    return {name.replace("_", " ").strip(): law for name, law in laws.items()}


def hold(laws: Laws[Case], case: Case, subject: object, law: str | None) -> None:
    """Try one law, or all of them one after another.

    Args:
        laws: The laws by their names.
        case: What they are tried on.
        subject: The object whose class messages name.
        law: The name of the only law to try; None: all.

    Raises:
        LawBrokenError: For the first law that does not hold, or under which the object raises an error.
        ValueError: For the name of no law.
    """
    if law is not None:
        checks.one_of(laws, law=law)
    for name in laws if law is None else (law,):
        try:
            laws[name](case)
        except Exception as error:
            about = " ".join((laws[name].__doc__ or "").split())
            lines = [line for line in str(error).strip().splitlines() if line.strip()] or ["no message"]
            text = "\n  ".join(lines[:_LINES])
            kind = "" if isinstance(error, AssertionError) else f"{type(error).__name__}: "
            head = f"{type(subject).__name__} breaks the law {name!r}: {about}"
            raise LawBrokenError(f"{head}\n  {kind}{text}") from error


def require(condition: Any, message: str) -> None:
    """Raise AssertionError with the message unless the condition is true."""
    if not bool(condition):
        raise AssertionError(message)


def same(what: str, found: Any, expected: Any) -> None:
    """Raise AssertionError, with both values, unless they are equal."""
    require(found == expected, f"{what}: expected {expected}, got {found}")


def close(what: str, found: Any, expected: Any, *, rtol: float = 0.0, atol: float = 0.0) -> None:
    """Raise AssertionError unless two arrays have one shape and agree within the tolerances; NaN equals NaN.

    The message has the shapes, or the largest difference and where it is.
    """
    found, expected = np.asarray(found), np.asarray(expected)
    same(f"{what}, shape", found.shape, expected.shape)
    found, expected = found.astype(np.float64), expected.astype(np.float64)
    off = ~np.isclose(found, expected, rtol=rtol, atol=atol, equal_nan=True)
    if off.any():
        gap = np.where(off, np.nan_to_num(np.abs(found - expected), nan=np.inf), -1.0)
        at = np.unravel_index(int(np.argmax(gap)), gap.shape)
        place = f" at {tuple(int(i) for i in at)}" if gap.ndim else ""
        raise AssertionError(
            f"{what}: expected {expected[at]:.6g}, got {found[at]:.6g}{place} ({int(off.sum())} of {off.size} entries "
            f"differ by more than {atol:g} + {rtol:g} times the expected value)"
        )


def leaves_equal(what: str, found: Iterable[Any], expected: Iterable[Any]) -> None:
    """Raise AssertionError unless two lists of arrays are equal, bit for bit (NaN equals NaN)."""
    found, expected = list(found), list(expected)
    same(f"{what}, number of arrays", len(found), len(expected))
    for i, (one, other) in enumerate(zip(found, expected)):
        close(f"{what}, array {i}", one, other)
