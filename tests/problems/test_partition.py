"""Every example goes to exactly one node, whatever the split and the labels; missing labels are refused."""

import decimal
from itertools import product
from typing import Any

import ml_dtypes
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jdfl.problems import partition
from tests.fuzz.judge import tried, unclean
from tests.refused import all_refused

WAYS = {
    "iid": lambda y, m, seed: partition.sample("iid", y, m, seed=seed),
    "shards": lambda y, m, seed: partition.shards(y, m, shards_per_node=2, seed=seed),
    "dirichlet": lambda y, m, seed: partition.dirichlet(y, m, alpha=0.3, seed=seed),
    "clients": lambda y, m, seed: partition.by_client(y),
}
KINDS = [
    *(st.integers(-(2**63), 2**63 - 1), st.integers(0, 3), st.floats(width=32), st.sampled_from([0.0, -0.0, 1.5])),
    *(st.booleans(), st.text(st.characters(exclude_categories=["Cs"]), max_size=3), st.sampled_from(["a", "nan", ""])),
    st.sampled_from([None, "a", 1, float("nan"), np.nan, pd.NA, pd.NaT, decimal.Decimal("nan"), (1, 2), b"a"]),
]
DTYPES = [None, object, np.float16, ml_dtypes.bfloat16, np.int8, str, "datetime64[D]"]


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


def test_other_seeds_split_otherwise_and_names_take_their_functions_settings():
    y, clients = np.arange(40) % 4, np.arange(40) // 8
    for way in ("iid", "shards", "dirichlet"):
        assert [list(part) for part in WAYS[way](y, 5, 1)] != [list(part) for part in WAYS[way](y, 5, 2)]
    for name, direct in {
        "iid": partition.iid(40, 5, seed=3),
        "dirichlet": partition.dirichlet(y, 5, alpha=0.1, seed=3),
        "shards": partition.shards(y, 5, shards_per_node=3, seed=3),
    }.items():
        found = partition.sample(name, y, 5, alpha=0.1, shards_per_node=3, seed=3)
        assert all(np.array_equal(one, other) for one, other in zip(found, direct, strict=True))
    assert len(partition.sample("clients", y, 5, clients=clients)) == 5


MISSING = {
    "NaN": lambda y: np.where(np.arange(100) < 90, y, np.nan),
    "objects": lambda y: np.array([None if i < 10 else one for i, one in enumerate(y)], object),
    "masked": lambda y: np.ma.masked_array(y, np.arange(100) < 10),
    "dates": lambda y: np.array(["2020-01-01", "NaT"] * 50, "datetime64[D]"),
    "several kinds": lambda y: ["a", 1] * 50,
}


def test_missing_labels_are_refused():
    for way, make in product(WAYS, MISSING.values()):
        with pytest.raises(ValueError, match=r"labels|clients") as error:
            WAYS[way](make(np.arange(100) % 2), 2, 0)
        assert not unclean(error.value)


SEED = st.integers(0, 2**31)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=9), SEED)
def test_sizes_are_as_given_or_as_equal_as_can_be(sizes, seed):
    parts = partition.by_size(sizes, sum(sizes), seed=seed)
    used_once(parts, sum(sizes))
    assert [len(part) for part in parts] == sizes
    equal = partition.iid(sum(sizes), len(sizes), seed=seed)
    used_once(equal, sum(sizes))
    assert all(abs(len(part) - sum(sizes) / len(sizes)) < 1 for part in equal)


@given(st.integers(1, 8), st.sampled_from([1e-6, 0.05, 0.5, 100.0]), st.integers(0, 3), SEED)
def test_dirichlet(m, alpha, least, seed):
    labels = np.random.default_rng(seed).integers(0, 4, 60)
    parts = partition.dirichlet(labels, m, alpha=alpha, least=least, seed=seed)
    used_once(parts, 60)
    assert len(parts) == m
    assert min(len(part) for part in parts) >= least


@given(st.lists(st.sampled_from("cab"), min_size=1, max_size=40))
def test_by_client(clients):
    parts = partition.by_client(clients)
    used_once(parts, len(clients))
    assert [{clients[t] for t in part} for part in parts] == [{name} for name in sorted(set(clients))]


def test_clients_are_sorted_as_numbers_are():
    assert [part.tolist() for part in partition.by_client(np.array([10, 9, 10, 2]))] == [[3], [1], [0, 2]]


def test_one_shard_per_node_is_one_class_per_node():
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(5), 8))
    parts = partition.sample("shards", labels, 10, shards_per_node=1)
    assert all(len(np.unique(labels[part])) == 1 for part in parts)


def test_alpha_controls_how_unequal_the_nodes_are():
    labels = np.repeat(np.arange(5), 200)

    def distance(parts):
        shares = [np.bincount(labels[part], minlength=5) / len(part) for part in parts]
        return np.mean([np.abs(share - 0.2).sum() for share in shares])

    found = [distance(partition.dirichlet(labels, 8, alpha=alpha, seed=3)) for alpha in (0.05, 1.0, 1000.0)]
    assert found[0] > found[1] > found[2]
    assert found[2] < 0.2


def test_bad_input_is_refused():
    all_refused(
        (lambda: partition.iid(3, 4), "4"),
        (lambda: partition.iid(3, 2, seed=-1), "seed = -1"),
        (lambda: partition.dirichlet([0, 1], 3, alpha=1.0), "3"),
        (lambda: partition.dirichlet([0, 1, 1], 1, alpha=0.0), "alpha"),
        (lambda: partition.shards([0, 1, 1], 2), "2 nodes x 2"),
        (lambda: partition.by_size([2, 2], 5), "n_examples = 5"),
        (lambda: partition.sample("clients", [0, 1], 2), "none", "'clients'"),
        (lambda: partition.sample("iid", [0, 1], 2, clients=[0, 1]), "'iid'"),
        (lambda: partition.sample("clients", [0, 1, 1], 2, clients=[0, 1]), "clients", "(3)"),
        (lambda: partition.sample("clients", [0, 1, 1], 3, clients=[0, 1, 1]), "m = 3"),
    )
