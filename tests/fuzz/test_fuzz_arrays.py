"""Arrays with masks, dates and the like are refused at every door, however they are packed."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import jdfl
from jdfl import network, problems
from tests.fuzz.calls import NEURAL, PARTS, USUAL, X, Y, squared
from tests.fuzz.judge import judged
from tests.refused import refused

pytestmark = pytest.mark.filterwarnings("ignore")  # of odd settings, at length
BAD_ARRAYS = {
    "mask": lambda array: np.ma.masked_array(array, np.arange(array.size).reshape(array.shape) == 1),
    "mask without an entry": np.ma.masked_array,
    "masks in a list": lambda array: [BAD_ARRAYS["mask"](row) for row in array] if array.ndim > 1 else masks(array),
    "masks in objects": lambda array: np.array(masks(array.ravel()), object).reshape(array.shape),
    "dates as objects": lambda array: np.full(array.shape, np.datetime64("2020-01-01"), object),
    "dates": lambda array: np.full(array.shape, "2020-01-01", "datetime64[D]"),
    "complex": lambda array: array.astype(complex) + 1j,
    "objects": lambda array: np.array([None] * array.size, object).reshape(array.shape),
    "nan": lambda array: np.where(np.arange(array.size).reshape(array.shape) == 1, np.nan, array),
    "words": lambda array: array.astype(str),
}


def masks(array: Any) -> list[Any]:
    """The entries of an array [N] in a list, in which one is masked."""
    return [np.ma.masked if i == 1 else one for i, one in enumerate(array.tolist())]


DOORS: dict[str, Callable[[Any, Any], Any]] = {
    "arrays": lambda x, y: jdfl.from_arrays(x, y, nodes=2),
    "arrays, their test set": lambda x, y: jdfl.from_arrays(X + 1, Y, nodes=2, test=(x, y)),
    "arrays by node": lambda x, y: jdfl.from_arrays([X, x], [Y, y], partition="given"),
    "a loss": lambda x, y: jdfl.from_loss(squared, np.zeros(3), (x, y), nodes=2, test=None),
    "a model": lambda x, y: jdfl.from_model(USUAL["model"](), x, y, nodes=2),
    "classification": lambda x, y: problems.classification(own(x, y), 2),
    "neural classification": lambda x, y: problems.neural_classification(own(x, y), 2, model=NEURAL()),
    "logistic regression": lambda x, y: problems.logistic_regression([(x, y), (X, Y)]),
    "linear regression": lambda x, y: problems.linear_regression([x, X], [y, Y]),
    "test set": lambda x, y: problems.logistic_regression(PARTS, test=(x, y)),
    "holdout": lambda x, y: problems.holdout(x, y, 0.2),
}
TAKEN = {("holdout", "nan")}  # of features: it only makes two parts
TAKEN |= {("arrays", "words"), ("a model", "words")}  # labels may be text


def own(x: Any, y: Any) -> problems.Dataset:
    return problems.Dataset("own", x, y, None, None, "made here", False)


@pytest.mark.parametrize("door", DOORS)
def test_arrays_that_are_no_plain_numbers_are_refused_at_every_door(door):
    def taken(x: Any, y: Any) -> None:
        made_of = DOORS[door](x, y)
        if isinstance(made_of, problems.Problem):
            problems.check_problem(made_of)
        assert x is X or (door, bad) in TAKEN

    DOORS[door](X, Y)
    for bad, spoil in BAD_ARRAYS.items():
        for made in ((spoil(X), Y), (X, spoil(Y))):
            judged(
                lambda made=made: taken(*made), {"features", "labels", "targets", "test", "data", "X", "y"}, (door, bad)
            )


def test_vectors_and_networks_too():
    square, links = np.full((4, 4), 0.25), np.array([[0, 1], [1, 2], [2, 3]])
    doors = (
        (problems.averaging, X),
        (network.from_matrix, square),
        (network.from_scipy, square),
        (network.from_edges, links),
    )
    for bad, spoil in BAD_ARRAYS.items():
        for door, array in doors if bad not in ("words", "nan") else ():
            with refused():
                door(spoil(array))
