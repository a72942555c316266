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

LISTED = (  # what their `__all__` has
    "jdfl",
    "jdfl.algorithms",
    "jdfl.auditing",
    "jdfl.codecs",
    "jdfl.events",
    "jdfl.models",
    "jdfl.network",
    "jdfl.privacy",
    "jdfl.problems",
)
WHOLE = (  # what they define
    "jdfl.engine.accountant",
    "jdfl.algorithms.activation",
    "jdfl.algorithms.algorithm",
    "jdfl.algorithms.book",
    "jdfl.algorithms.ceps_privacy",
    "jdfl.algorithms.codes",
    "jdfl.algorithms.descent",
    "jdfl.algorithms.doadp_privacy",
    "jdfl.algorithms.dpps",
    "jdfl.algorithms.gradient_settings",
    "jdfl.algorithms.gradients",
    "jdfl.algorithms.messages",
    "jdfl.algorithms.noisy_messages",
    "jdfl.algorithms.program",
    "jdfl.algorithms.push_descent",
    "jdfl.algorithms.requests",
    "jdfl.algorithms.round",
    "jdfl.algorithms.sending",
    "jdfl.algorithms.step_sizes",
    "jdfl.algorithms.updates",
    "jdfl.algorithms.moment",
    "jdfl.engine.batch",
    "jdfl.engine.callbacks",
    "jdfl.engine.checkpoint",
    "jdfl.engine.checkpoints",
    "jdfl.engine.progress",
    "jdfl.base.keys",
    "jdfl.lab.charts",
    "jdfl.lab.drawing",
    "jdfl.lab.overview",
    "jdfl.lab.page",
    "jdfl.lab.results",
    "jdfl.lab.study",
    "jdfl.lab.summary",
    "jdfl.lab.trackers",
    "jdfl.engine.metrics",
    "jdfl.devices.nodes",
    "jdfl.arrays.ops",
    "jdfl.arrays.projection",
    "jdfl.engine.result",
    "jdfl.engine.runner",
    "jdfl.engine.stopping",
    "jdfl.base.struct",
    "jdfl.problems.rows",
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
    for module in map(importlib.import_module, LISTED + WHOLE):
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
