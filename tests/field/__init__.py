"""The rows of the methods whose loops stand next to them, one module per file of `jdfl.algorithms`."""

from importlib import import_module
from pkgutil import iter_modules

from tests.field.row import Field

_NOT = {"row", "test_field"}
_MODULES = [import_module(f"{__name__}.{one.name}") for one in iter_modules(__path__) if one.name not in _NOT]
ROWS: tuple[Field, ...] = tuple(row for module in _MODULES for row in module.ROWS)
