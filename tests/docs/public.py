"""What is public: names in `__all__`, or what a module defines without an underscore, and their public methods."""

import ast
import importlib
import inspect
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Any

LISTED = (
    *("jdfl", "jdfl.algorithms", "jdfl.auditing", "jdfl.codecs", "jdfl.events", "jdfl.models", "jdfl.network"),
    *("jdfl.privacy", "jdfl.problems"),
)
WHOLE = (
    *("engine.accountant", "algorithms.activation", "algorithms.algorithm", "algorithms.book"),
    *("algorithms.ceps_privacy", "algorithms.codes", "algorithms.descent", "algorithms.doadp_privacy"),
    *("algorithms.dpps", "algorithms.gradient_settings", "algorithms.gradients", "algorithms.messages"),
    *("algorithms.noisy_messages", "algorithms.program", "algorithms.push_descent", "algorithms.requests"),
    *("algorithms.round", "algorithms.sending", "algorithms.step_sizes", "algorithms.updates"),
    *("algorithms.moment", "engine.batch", "engine.callbacks", "engine.checkpoint", "engine.checkpoints"),
    *("engine.progress", "base.keys", "lab.charts", "lab.drawing", "lab.overview", "lab.page", "lab.results"),
    *("lab.study", "lab.summary", "lab.trackers", "engine.metrics", "devices.nodes", "arrays.ops"),
    *("arrays.projection", "engine.result", "engine.runner", "engine.stopping", "base.struct", "problems.rows"),
)


@dataclass(frozen=True)
class Name:
    """A public function, class or method."""

    path: str
    value: Any  # the function or class, unwrapped
    owner: type | None  # of a method

    def __str__(self) -> str:
        """Its dotted path."""
        return self.path

    @property
    def module(self) -> ModuleType:
        """Where it is defined."""
        return importlib.import_module(self.value.__module__)

    @property
    def doc(self) -> str:
        """Its own docstring."""
        return inspect.cleandoc(self.value.__doc__ or "")

    @property
    def around(self) -> str:
        """The docstrings of its class and module."""
        return "\n".join(inspect.cleandoc(one.__doc__ or "") for one in (self.owner, self.module) if one is not None)


@cache
def names() -> tuple[Name, ...]:
    """All of them, each once, by path."""
    found: dict[str, Name] = {}
    for module in [importlib.import_module(name) for name in [*LISTED, *(f"jdfl.{one}" for one in WHOLE)]]:
        for name in getattr(module, "__all__", None) or _defined(module):
            for one in _with_methods(getattr(module, name)):
                found.setdefault(one.path, one)
    return tuple(found[path] for path in sorted(found))


def _defined(module: ModuleType) -> list[str]:
    mine = [name for name, value in vars(module).items() if getattr(value, "__module__", None) == module.__name__]
    return [name for name in mine if not name.startswith("_")]


def _with_methods(value: Any) -> Iterator[Name]:
    """A function or class, and the methods that the class itself defines; other values have no docstrings."""
    value = inspect.unwrap(value) if callable(value) else value
    if not (inspect.isfunction(value) or inspect.isclass(value)) or not value.__module__.startswith("jdfl"):
        return
    path = f"{value.__module__}.{value.__qualname__}"
    yield Name(path, value, None)
    if inspect.isclass(value):
        for name, held in vars(value).items():
            method = next((getattr(held, part) for part in ("__func__", "fget", "func") if hasattr(held, part)), held)
            own = inspect.isfunction(method) and method.__qualname__ == f"{value.__qualname__}.{name}"
            if own and (not name.startswith("_") or name == "__call__"):
                yield Name(f"{path}.{name}", method, value)


@cache
def source(value: Any) -> str:
    """The text of a definition."""
    return textwrap.dedent(inspect.getsource(value))


@cache
def tree(name: Name) -> Any:
    """The syntax tree of its definition."""
    return ast.parse(source(name.value)).body[0]
