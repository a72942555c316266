"""The foundation of all packages: settings and their checks, structures, keys and streams, and files."""

from typing import TYPE_CHECKING

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        from jdfl import _moved

        if name in _moved.OF_BASE:
            raise _moved.refusal(f"jdfl.base.{name}", _moved.OF_BASE[name])
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
