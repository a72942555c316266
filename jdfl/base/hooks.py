"""Functions of rooms above, by name: a result is drawn and written by the lab, which imports the engine."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

_places: dict[str, tuple[str, str]] = {}


def register(**places: tuple[str, str]) -> None:
    """Say in which module every function is, and its name there; nothing is imported."""
    _places.update(places)


def find(name: str) -> Callable[..., Any]:
    """The function that was registered under a name, imported now."""
    module, function = _places[name]
    return getattr(import_module(module), function)
