"""Defaults of the library's functions, so that the configuration never repeats them."""

import dataclasses
import inspect
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any


def defaults(function: Callable[..., Any]) -> SimpleNamespace:
    """The default of every parameter of `function`, by name."""
    return SimpleNamespace(**{name: p.default for name, p in inspect.signature(function).parameters.items()})


def fields(config: Any) -> dict[str, Any]:
    """The fields of a dataclass as they are, for passing on as arguments."""
    return {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}
