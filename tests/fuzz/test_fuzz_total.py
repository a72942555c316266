"""How many inputs are tried."""

import math
from importlib import import_module
from types import ModuleType

NAMES = ("arguments", "cli", "config", "files", "runs")
MODULES = [
    import_module(f"tests.fuzz.{name}") for name in (*(f"test_fuzz_{one}" for one in NAMES), "test_wrong_objects")
]


def planned(module: ModuleType, slow: bool) -> int:
    """Inputs of a module's tests that take a `count`, for every value of their other arguments."""
    total = 0
    for name, test in vars(module).items():
        marks = {mark.args[0]: mark.args[1] for mark in getattr(test, "pytestmark", []) if mark.name == "parametrize"}
        if name.startswith("test_") and "count" in marks:
            total += marks.pop("count")[slow].values[0] * math.prod(map(len, marks.values()))
    return total


def test_thousands_of_inputs_are_tried():
    quick, slow = (sum(planned(module, slow) for module in MODULES) for slow in (False, True))
    assert quick > 2_000
    assert slow > 15_000
