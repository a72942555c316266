"""The backend that programs are made for, which decides between forms of the same computation.

It is JAX's default backend, unless a program is only compiled: `target` names another one then, of a device that need
not be there. Kernels of our own (`jdfl.kernels`) are used in code that is traced `with_kernels`; the cache of compiled
programs distinguishes it.
"""

from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager
from typing import Literal

import jax

Form = Literal["compiled", "interpreted"]

_targets: list[str] = []
_interpreting: list[bool] = []
_kernels = jax.make_user_context(None)


def backend() -> str:
    """The name of the backend: "cpu", "gpu" or "tpu"."""
    return _targets[-1] if _targets else jax.default_backend()


@contextmanager
def target(name: str) -> Generator[None]:
    """Trace programs for the backend `name` within this context.

    What was traced before is forgotten at both ends, as JAX does not know that it depends on this.
    """
    jax.clear_caches()
    _targets.append(name)
    try:
        yield
    finally:
        _targets.pop()
        jax.clear_caches()


def offered() -> Form | None:
    """How kernels of our own are executed here, if a run asks for them; None: this backend has none."""
    if _interpreting:
        return "interpreted"
    return "compiled" if backend() == "gpu" else None


@contextmanager
def interpreted() -> Generator[None]:
    """Within this context any backend has our own kernels, in JAX's interpreter of them: slow, for tests."""
    _interpreting.append(True)
    try:
        yield
    finally:
        _interpreting.pop()


def with_kernels(form: Form | None) -> AbstractContextManager[None]:
    """A context in which code is traced with kernels of our own, executed in this form; None: without any."""
    return _kernels(form)


def kernels() -> Form | None:
    """How kernels of our own are executed in the code that is traced; None: it has none."""
    return _kernels.value
