"""pandas has no types of its own: what is in its tables is anything."""

from typing import Any

def __getattr__(name: str) -> Any: ...
