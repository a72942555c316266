"""How many inputs are tried."""

import math
from types import ModuleType

from tests.fuzz import (
    test_fuzz_arguments,
    test_fuzz_cli,
    test_fuzz_config,
    test_fuzz_files,
    test_fuzz_runs,
    test_wrong_objects,
)


def planned(module: ModuleType, slow: bool) -> int:
    """Inputs of a module's tests that take a `count`, for every value of their other arguments."""
    total = 0
    for name, test in vars(module).items():
        marks = {mark.args[0]: mark.args[1] for mark in getattr(test, "pytestmark", []) if mark.name == "parametrize"}
        if name.startswith("test_") and "count" in marks:
            total += marks.pop("count")[slow].values[0] * math.prod(map(len, marks.values()))
    return total


def test_thousands_of_inputs_are_tried():
    modules = (
        test_fuzz_arguments,
        test_fuzz_cli,
        test_fuzz_config,
        test_fuzz_files,
        test_fuzz_runs,
        test_wrong_objects,
    )
    quick, slow = (sum(planned(module, slow) for module in modules) for slow in (False, True))
    assert quick > 2_000
    assert slow > 15_000
