import re

import numpy as np
import pytest

from jdfl.base import checks
from tests.refused import refused

nan, inf = float("nan"), float("inf")
NO_NUMBERS = ["0.2", None, True, object(), [1.0, "x"]]
CHECKS = [
    (checks.positive, [1, 0.1, np.float32(2), np.array([1.0, 2.0])], [0, -1.0, nan, inf, np.array([1.0, 0.0])]),
    (checks.not_negative, [0, 0.0, np.array([0.0, 2.0])], [-1e-9, nan, inf, np.array([1.0, -1.0])]),
    (checks.integer, [1, 7, np.int32(3)], [0, -2, 1.0, True, "3", None, np.float64(2)]),
    (checks.fraction, [1, 0.5, 1e-9], [0, 0.0, -0.5, 1.0001, nan, inf]),
    (checks.finite, [0, np.zeros((2, 2))], [nan, np.array([0.0, inf])]),
]


@pytest.mark.parametrize(("check", "good", "bad"), CHECKS, ids=lambda one: getattr(one, "__name__", ""))
def test_values_are_accepted_or_refused_by_name(check, good, bad):
    for value in good:
        check(number=value)
    for value in [*bad, *(NO_NUMBERS if check not in (checks.integer, checks.finite) else [])]:
        with refused("number"):
            check(number=value)


def test_messages_say_what_was_expected_what_came_and_what_helps():
    data = np.zeros((3, 4))
    data[1, 2] = data[2, 0] = nan
    for check, given, said in (
        (checks.positive, {"sigma": -1.0}, "Expected sigma > 0 and finite, got sigma = -1.0."),
        (checks.finite, {"data": data}, "Expected finite numbers in data, got nan at index (1, 2) (2 such entries)."),
    ):
        with pytest.raises(ValueError, match=f"^{re.escape(said)} Help\\.$"):
            check("Help.", **given)
    odd = type("Odd", (), dict.fromkeys(("__repr__", "__eq__", "__ne__", "__getattr__"), lambda *_: 1 / 0))()
    said = checks.text(odd), checks.holds(odd, "some"), checks._equal(odd, 1), checks._missing(odd)
    assert said == ("an object of Odd", False, False, True)
    with refused("'a'", "'b'", mode="c"):
        checks.one_of(("a", "b"), "Help.", mode="c")


def test_bounds_are_inclusive_and_shapes_may_have_any_length():
    checks.integer(2, 5, low=2, high=5)
    for s in (1, 6):
        with refused(">= 2", "<= 5", s=s):
            checks.integer(2, 5, s=s)
    checks.shape((None, 3), A=np.zeros((5, 3)))
    checks.shape((), x=1.0)
    for found in (np.zeros((5, 4)), np.zeros(3)):
        with refused("A", "(any, 3)"):
            checks.shape((None, 3), A=found)
