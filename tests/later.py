"""What tests are about is built when a test first asks for it, not while tests are collected."""

import functools
from collections import UserDict
from collections.abc import Callable
from typing import Any

import jax


class Later:
    """`build(*given, **named)`, once, when it is first called; a test with it as a parameter gets what was built."""

    def __init__(self, build: Callable[..., Any], *given: Any, **named: Any) -> None:
        self._build = functools.cache(functools.partial(build, *given, **named))

    def __call__(self) -> Any:
        with jax.ensure_compile_time_eval():  # where something is being traced, too
            return self._build()


class Named(UserDict[str, Any]):
    """Values by name; a function's value is what it returns, called when its name is first looked up.

    `data` has the functions, as `Later`.
    """

    def __getitem__(self, name: str) -> Any:
        found = super().__getitem__(name)
        return found() if isinstance(found, Later) else found

    def __setitem__(self, name: str, value: Any) -> None:
        super().__setitem__(name, Later(value) if callable(value) and not isinstance(value, Later) else value)
