import numpy as np
import pytest

from jdfl.base import checks

nan, inf = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("check", "good", "bad"),
    [
        (checks.positive, [1, 0.1, np.float32(2), np.array([1.0, 2.0])], [0, -1.0, nan, inf, np.array([1.0, 0.0])]),
        (checks.not_negative, [0, 0.0, np.array([0.0, 2.0])], [-1e-9, nan, inf, np.array([1.0, -1.0])]),
        (checks.whole, [1, 7, np.int32(3)], [0, -2, 1.0, True, "3", None, np.float64(2)]),
        (checks.fraction, [1, 0.5, 1e-9], [0, 0.0, -0.5, 1.0001, nan, inf]),
        (checks.finite, [0, np.zeros((2, 2))], [nan, np.array([0.0, inf])]),
    ],
)
def test_values_are_accepted_or_refused_by_name(check, good, bad):
    for value in good:
        check(number=value)
    for value in bad:
        with pytest.raises(ValueError, match="number"):
            check(number=value)


def test_messages_say_what_was_expected_what_came_and_what_helps():
    with pytest.raises(ValueError, match=r"^Expected sigma > 0 and finite, got sigma = -1\.0\. Raise it\.$"):
        checks.positive("Raise it.", sigma=-1.0)
    with pytest.raises(ValueError, match=r"^Expected a whole number s >= 2 and <= 5, got s = 6\.$"):
        checks.whole(2, 5, s=6)
    with pytest.raises(ValueError, match=r"^Expected mode to be one of 'a', 'b', got mode = 'c'\. See --help\.$"):
        checks.one_of(("a", "b"), "See --help.", mode="c")


def test_the_first_bad_entry_is_found():
    data = np.zeros((3, 4))
    data[1, 2] = data[2, 0] = nan
    with pytest.raises(ValueError, match=r"got nan at index \(1, 2\) \(2 such entries\)\. Look at it\."):
        checks.finite("Look at it.", data=data)


def test_bounds_are_inclusive():
    checks.whole(2, 5, low=2, high=5)
    with pytest.raises(ValueError, match="low = 1"):
        checks.whole(2, 5, high=5, low=1)


def test_shapes():
    checks.shape((None, 3), A=np.zeros((5, 3)))
    checks.shape((), x=1.0)
    for found in (np.zeros((5, 4)), np.zeros(3), np.zeros((1, 5, 3))):
        with pytest.raises(ValueError, match=r"Expected A of shape \(any, 3\), got"):
            checks.shape((None, 3), A=found)


@pytest.mark.parametrize("check", [checks.positive, checks.not_negative, checks.fraction])
@pytest.mark.parametrize("value", ["0.2", None, True, object(), [1.0, "x"]])
def test_what_is_no_number_is_refused_in_words(check, value):
    with pytest.raises(ValueError, match="Expected rate to be a number"):
        check(rate=value)


def test_long_words_of_an_error_are_cut():
    assert checks.said(ValueError("short")) == "short"
    assert checks.said(ValueError("x" * 301)) == "x" * 300 + " ..."
