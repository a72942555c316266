"""The types of jaxlib's extension module that jax's annotations name; its wheels hold none."""

from collections.abc import Iterable
from typing import Any

class Device:
    id: int
    process_index: int
    platform: str
    device_kind: str
    def memory_stats(self) -> dict[str, int] | None: ...

class JaxRuntimeError(RuntimeError): ...

class pytree:
    class PyTreeDef:
        num_leaves: int
        def unflatten(self, leaves: Iterable[Any], /) -> Any: ...

    def __getattr__(self, name: str) -> Any: ...

def __getattr__(name: str) -> Any: ...
