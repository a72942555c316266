"""The backend that programs are made for, which decides between forms of the same computation.

It is JAX's default backend, unless a program is only compiled: `target` names another one then, of a device that need
not be there.
"""

from collections.abc import Generator
from contextlib import contextmanager

import jax

_targets: list[str] = []


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
