"""Every example goes to exactly one node, whatever the split."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jdfl.problems import partition


def assert_exact_cover(parts, n_examples, m):
    assert len(parts) == m
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.arange(n_examples))


SEED = st.integers(0, 2**31)


@given(st.integers(1, 12), st.integers(0, 80), SEED)
def test_iid(m, extra, seed):
    parts = partition.iid(m + extra, m, seed=seed)
    assert_exact_cover(parts, m + extra, m)
    sizes = [len(part) for part in parts]
    assert max(sizes) - min(sizes) <= 1


@given(st.lists(st.integers(1, 9), min_size=1, max_size=10), SEED)
def test_by_size(sizes, seed):
    parts = partition.by_size(sizes, sum(sizes), seed=seed)
    assert_exact_cover(parts, sum(sizes), len(sizes))
    assert [len(part) for part in parts] == sizes


@given(st.integers(1, 8), st.sampled_from([1e-6, 0.05, 0.5, 100.0]), st.integers(0, 3), SEED)
def test_dirichlet(m, alpha, least, seed):
    labels = np.random.default_rng(seed).integers(0, 4, 60)
    parts = partition.dirichlet(labels, m, alpha=alpha, least=least, seed=seed)
    assert_exact_cover(parts, 60, m)
    assert min(len(part) for part in parts) >= least


@given(st.integers(1, 8), st.integers(1, 3), SEED)
def test_shards(m, shards_per_node, seed):
    labels = np.random.default_rng(seed).integers(0, 4, 50)
    parts = partition.shards(labels, m, shards_per_node=shards_per_node, seed=seed)
    assert_exact_cover(parts, 50, m)


def test_shards_give_few_classes_per_node():
    labels = np.repeat(np.arange(10), 20)
    parts = partition.shards(labels, 10, shards_per_node=2)
    assert max(len(np.unique(labels[part])) for part in parts) <= 2
    assert max(len(np.unique(labels[part])) for part in partition.iid(200, 10)) > 4


@given(st.lists(st.sampled_from("cab"), min_size=1, max_size=40))
def test_by_client(clients):
    parts = partition.by_client(clients)
    names = sorted(set(clients))
    assert_exact_cover(parts, len(clients), len(names))
    for name, part in zip(names, parts):
        assert {clients[t] for t in part} == {name}
        np.testing.assert_array_equal(part, np.sort(part))


def test_clients_are_sorted_as_numbers_are():
    found = partition.by_client(np.array([10, 9, 10, 2]))
    assert [part.tolist() for part in found] == [[3], [1], [0, 2]]


def test_one_shard_per_node_is_one_class_per_node():
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(5), 8))
    parts = partition.drawn("shards", labels, 10, shards_per_node=1)
    assert all(len(np.unique(labels[part])) == 1 for part in parts)


def test_partitions_by_name_are_those_of_the_functions():
    labels, clients = np.arange(40) % 4, np.arange(40) // 8
    for name, direct in {
        "iid": partition.iid(40, 5, seed=3),
        "dirichlet": partition.dirichlet(labels, 5, alpha=0.1, seed=3),
        "shards": partition.shards(labels, 5, shards_per_node=3, seed=3),
        "clients": partition.by_client(clients),
    }.items():
        given = clients if name == "clients" else None
        found = partition.drawn(name, labels, 5, alpha=0.1, shards_per_node=3, clients=given, seed=3)
        assert all(np.array_equal(one, other) for one, other in zip(found, direct, strict=True))


def test_alpha_controls_how_unequal_the_nodes_are():
    labels = np.repeat(np.arange(5), 200)

    def distance(parts):
        shares = [np.bincount(labels[part], minlength=5) / len(part) for part in parts]
        return np.mean([np.abs(share - 0.2).sum() for share in shares])

    found = [distance(partition.dirichlet(labels, 8, alpha=alpha, seed=3)) for alpha in (0.05, 1.0, 1000.0)]
    assert found[0] > found[1] > found[2]
    assert found[2] < 0.2


def test_same_seed_same_split():
    labels = np.arange(40) % 4
    for draw in (
        lambda seed: partition.iid(40, 5, seed=seed),
        lambda seed: partition.dirichlet(labels, 5, alpha=0.5, seed=seed),
        lambda seed: partition.shards(labels, 5, seed=seed),
        lambda seed: partition.by_size([8] * 5, 40, seed=seed),
    ):
        first, again, other = draw(1), draw(1), draw(2)
        assert all(np.array_equal(a, b) for a, b in zip(first, again))
        assert not all(np.array_equal(a, b) for a, b in zip(first, other))


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda: partition.iid(3, 4), "at least 4 examples"),
        (lambda: partition.iid(3, 0), "m >= 1"),
        (lambda: partition.iid(3, 2, seed=-1), "seed >= 0, got seed = -1"),
        (lambda: partition.dirichlet([0, 1], 3, alpha=1.0), "at least 3 examples"),
        (lambda: partition.dirichlet([0, 1, 1], 1, alpha=0.0), "alpha > 0"),
        (lambda: partition.dirichlet([0, 1, 1], 1, alpha=-1.0), "alpha > 0"),
        (lambda: partition.dirichlet([[0], [1]], 1, alpha=1.0), "labels of shape"),
        (lambda: partition.shards([0, 1, 1], 2), "2 nodes x 2"),
        (lambda: partition.shards([0, 1, 1], 2, shards_per_node=0), "shards_per_node"),
        (lambda: partition.by_size([2, 2], 5), "add up to n_examples = 5, got 4"),
        (lambda: partition.by_size([5, 0], 5), "See node 1"),
        (lambda: partition.by_client([[1], [2]]), "clients of shape"),
        (lambda: partition.drawn("clients", [0, 1], 2), "got none with 'clients'"),
        (lambda: partition.drawn("iid", [0, 1], 2, clients=[0, 1]), "got some with 'iid'"),
        (lambda: partition.drawn("clients", [0, 1, 1], 2, clients=[0, 1]), r"clients of shape \(3\)"),
        (
            lambda: partition.drawn("clients", [0, 1, 1], 3, clients=[0, 1, 1]),
            "m = 2, the number of clients, got m = 3",
        ),
        (lambda: partition.drawn("even", [0, 1], 2), "one of 'iid'.*'even'"),
    ],
)
def test_bad_input_is_refused(draw, message):
    with pytest.raises(ValueError, match=message):
        draw()
