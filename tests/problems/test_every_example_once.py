"""Every partition uses every example exactly once, whatever the labels are; missing labels and labels of several kinds
are refused."""

import decimal
from typing import Any

import ml_dtypes
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jdfl.problems import partition
from tests.fuzz.judge import tried, unclean

WAYS = {
    "iid": lambda y, m, seed: partition.drawn("iid", y, m, seed=seed),
    "shards": lambda y, m, seed: partition.shards(y, m, shards_per_node=2, seed=seed),
    "dirichlet": lambda y, m, seed: partition.dirichlet(y, m, alpha=0.3, seed=seed),
    "dirichlet, by name": lambda y, m, seed: partition.drawn("dirichlet", y, m, alpha=5.0, seed=seed),
    "clients": lambda y, m, seed: partition.by_client(y),
    "clients, by name": lambda y, m, seed: partition.drawn("clients", np.zeros(len(y)), m, clients=y),
}
KINDS = [
    st.integers(-(2**63), 2**63 - 1),
    st.integers(0, 3),
    st.floats(width=32),
    st.sampled_from([0.0, -0.0, 1.5]),
    st.booleans(),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=3),
    st.sampled_from(["a", "nan", ""]),
    st.binary(max_size=2),
    st.sampled_from([None, "a", 1, float("nan"), np.nan, pd.NA, pd.NaT, decimal.Decimal("nan"), (1, 2), b"a"]),
    st.dates(),
]
DTYPES = [None, object, np.float16, ml_dtypes.bfloat16, np.int8, str, "datetime64[D]", "timedelta64[s]"]


@st.composite
def labels(draw: st.DrawFn) -> Any:
    """Labels of one kind or of several, in a list, an array or a table of pandas."""
    kind = draw(st.sampled_from(KINDS) | st.just(st.one_of(*KINDS)))
    some = draw(st.lists(kind, min_size=4, max_size=20))
    how = draw(st.sampled_from(["list", "series", *DTYPES]))
    try:
        return some if how == "list" else pd.Series(some) if how == "series" else np.array(some, how)
    except (TypeError, ValueError, OverflowError):
        return some


def used_once(parts: list[np.ndarray], count: int) -> None:
    """Every one of `count` examples is in one part, in order."""
    assert all(part.dtype == np.int64 and np.all(np.diff(part) > 0) for part in parts)
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.arange(count))


@pytest.mark.filterwarnings("ignore")
@given(st.sampled_from(list(WAYS)), labels(), st.integers(1, 2), st.integers(0, 2**32))
def test_every_example_is_used_once_or_the_labels_are_refused(way, y, m, seed):
    parts = tried(lambda: WAYS[way](y, m, seed), (way, y))
    if isinstance(parts, ValueError):
        return
    used_once(parts, len(y))
    assert way == "clients" or len(parts) == m
    for one, other in zip(parts, WAYS[way](y, m, seed)):
        np.testing.assert_array_equal(one, other)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=9), st.integers(0, 2**32))
def test_every_example_is_used_once_by_given_sizes(sizes, seed):
    parts = partition.by_size(sizes, sum(sizes), seed=seed)
    used_once(parts, sum(sizes))
    assert [len(part) for part in parts] == sizes
    for part in partition.iid(sum(sizes), len(sizes), seed=seed):
        assert abs(len(part) - sum(sizes) / len(sizes)) < 1


MISSING = {
    "NaN": lambda y: np.where(np.arange(100) < 90, y, np.nan),
    "half": lambda y: np.where(np.arange(100) < 90, y, np.nan).astype(np.float16),
    "bfloat16": lambda y: np.where(np.arange(100) < 90, y, np.nan).astype(ml_dtypes.bfloat16),
    "objects": lambda y: np.array([None if i < 10 else one for i, one in enumerate(y)], object),
    "NA": lambda y: np.array([pd.NA if i < 10 else one for i, one in enumerate(y)], object),
    "text and NaN": lambda y: ["a"] * 90 + [float("nan")] * 10,
    "masked": lambda y: np.ma.masked_array(y, np.arange(100) < 10),
    "masked ones in a list": lambda y: [np.ma.masked if i < 10 else one for i, one in enumerate(y.tolist())],
    "dates": lambda y: np.array(["2020-01-01", "NaT"] * 50, "datetime64[D]"),
    "dates as objects": lambda y: np.array(["2020-01-01", "2021-01-01"] * 50, "datetime64[D]").astype(object),
    "records": lambda y: np.array([(np.nan, 1)] * 100, [("a", float), ("b", int)]),
    "several kinds": lambda y: ["a", 1] * 50,
}


@pytest.mark.parametrize("kind", MISSING)
@pytest.mark.parametrize("way", WAYS)
def test_missing_labels_are_refused(way, kind):
    y = MISSING[kind](np.arange(100) % 2)
    with pytest.raises(ValueError, match=r"labels|clients") as error:
        WAYS[way](y, 2, 0)
    assert not unclean(error.value)


@pytest.mark.parametrize("wrong", [[0, 0, 1], [0, 2, 3], [0, 1]])
def test_a_partition_that_loses_an_example_or_uses_one_twice_is_not_given_out(wrong):
    with pytest.raises(RuntimeError, match=r"of 3 examples that uses each once, got example \d \d times"):
        partition._each_once([wrong[:1], wrong[1:]], 3)
