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

import jdfl
from jdfl.problems import partition
from tests.fuzz.judge import tried, unclean
from tests.refused import all_refused

WAYS = {
    "iid": lambda y, m, seed: partition.sample("iid", y, m, seed=seed),
    "shards": lambda y, m, seed: partition.shards(y, m, shards_per_node=2, seed=seed),
    "dirichlet": lambda y, m, seed: partition.dirichlet(y, m, alpha=0.3, seed=seed),
    "clients": lambda y, m, seed: partition.by_client(y),
    **{
        name: lambda y, m, seed, name=name: partition.sample(name, y, m, seed=seed)
        for name in ("dirichlet-balanced", "classes", "log-normal", "power-law")
    },
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
    for way in set(WAYS) - {"clients"}:
        assert [list(part) for part in WAYS[way](y, 5, 1)] != [list(part) for part in WAYS[way](y, 5, 2)]
    for name, make, first, how in (
        ("iid", partition.iid, 40, {}),
        ("dirichlet", partition.dirichlet, y, {"alpha": 0.1, "least": 3}),
        ("dirichlet-balanced", partition.dirichlet_balanced, y, {"alpha": 0.1}),
        ("shards", partition.shards, y, {"shards_per_node": 3}),
        ("classes", partition.classes, y, {"classes_per_node": 3, "least": 2}),
        ("log-normal", partition.log_normal, 40, {"sigma": 2.0, "least": 2}),
        ("power-law", partition.power_law, 40, {"exponent": 2.0, "least": 2}),
    ):
        found, direct = partition.sample(name, y, 5, seed=3, **how), make(first, 5, seed=3, **how)
        assert all(np.array_equal(one, other) for one, other in zip(found, direct, strict=True))
        for setting in {"alpha", "shards_per_node", "classes_per_node", "sigma", "exponent", "least"} - set(how):
            with pytest.raises(ValueError, match=setting):
                partition.sample(name, y, 5, **{setting: 3})
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
    balanced = partition.dirichlet_balanced(labels, m, alpha=alpha, seed=seed)
    used_once(balanced, 60)
    assert np.ptp([len(part) for part in balanced]) <= 1


@given(st.integers(1, 9), st.integers(1, 5), SEED)
def test_every_node_has_k_classes_which_are_divided_equally(m, k, seed):
    labels = np.random.default_rng(seed).permutation(np.repeat(np.arange(5), [11, 12, 30, 9, 40]))
    if m * k < 5:
        all_refused((lambda: partition.classes(labels, m, classes_per_node=k), f"classes_per_node >= {-(-5 // m)}"))
        return
    parts = partition.classes(labels, m, classes_per_node=k, seed=seed, least=k)
    used_once(parts, 102)
    counts = np.stack([np.bincount(labels[part], minlength=5) for part in parts])
    assert np.all(np.sum(counts > 0, axis=1) == k)
    assert all(np.ptp(column[column > 0]) <= 1 for column in counts.T)
    many = int(counts.sum(axis=1).min()) + 1
    all_refused((lambda: partition.classes(labels, m, classes_per_node=k, seed=seed, least=many), f"{many}"))


@pytest.mark.parametrize("alpha", [0.3, 1.0, 10.0])
def test_balanced_nodes_have_the_proportions_of_their_draws(alpha):
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(5), 8000))
    parts = partition.dirichlet_balanced(labels, 200, alpha=alpha, seed=1)
    squares = [np.sum((np.bincount(labels[part], minlength=5) / len(part)) ** 2) for part in parts]
    wanted = (alpha + 1) / (5 * alpha + 1)  # E sum_c p_c^2, and of 200 examples a bit more
    for some in (squares, squares[-20:]):  # the last nodes as well
        assert abs(np.mean(some) - wanted - (1 - wanted) / 200) < 0.3 * (wanted - 0.2)


@given(st.integers(1, 9), st.sampled_from([0.0, 0.5, 2.0, 400.0]), st.integers(0, 7), SEED)
def test_sizes_by_a_formula_add_up_and_none_is_below_the_least(m, skew, least, seed):
    for parts in (
        partition.log_normal(65, m, sigma=skew, least=least, seed=seed),
        partition.power_law(65, m, exponent=skew, least=least, seed=seed),
    ):
        used_once(parts, 65)
        assert min(len(part) for part in parts) >= least
    exact = least + (65 - m * least) * np.arange(1, m + 1) ** -skew / np.sum(np.arange(1, m + 1) ** -skew)
    assert np.all(np.abs(np.sort([len(part) for part in parts])[::-1] - exact) < 1 + 1e-9)


@pytest.mark.parametrize("sigma", [0.3, 1.0, 2.0])
def test_log_normal_sizes_have_the_deviation_that_is_asked_for(sigma):
    sizes = [len(part) for part in partition.log_normal(10**6, 500, sigma=sigma, least=0, seed=2)]
    found = np.log(np.maximum(sizes, 1))
    assert abs(found.std() / sigma - 1) < 0.1


@given(st.integers(1, 5), st.integers(1, 5), SEED)
def test_features_of_nodes_have_growing_noise_and_fixed_rotations(m, rotations, seed):
    X, images = np.random.default_rng(seed).normal(size=(2000, 3)), np.arange(2000 * 4).reshape(2000, 2, 2)
    index = partition.iid(2000, m, seed=seed)
    found = partition.noisy(X, index, noise=0.5, seed=seed) - X
    for i, rows in enumerate(index):
        assert abs(found[rows].std() - 0.5 * i / max(1, m - 1)) < 0.04
    if rotations > m:
        all_refused((lambda: partition.rotated(X, index, rotations=rotations), f"rotations = {rotations}"))
        return
    found = partition.rotated(X, index, rotations=rotations, seed=seed)
    turned = [np.linalg.lstsq(X[rows], found[rows])[0] for rows in index]
    for i, Q in enumerate(turned):
        np.testing.assert_allclose(X[index[i]] @ Q, found[index[i]], atol=1e-8)
        np.testing.assert_allclose(Q @ Q.T, np.eye(3), atol=1e-8)
        assert all(np.allclose(Q, other) == ((i - j) % rotations == 0) for j, other in enumerate(turned))
    np.testing.assert_allclose(turned[0], np.eye(3), atol=1e-8)
    if rotations in (1, 2, 4):
        found = partition.rotated(images, index, rotations=rotations, seed=seed)
        for i, rows in enumerate(index):
            np.testing.assert_array_equal(found[rows], np.rot90(images[rows], 4 // rotations * (i % rotations), (1, 2)))


def test_problems_have_the_examples_of_the_partition_and_the_features_of_their_nodes():
    X = np.random.default_rng(0).normal(size=(300, 3)).astype(np.float32)
    y = np.arange(300) % 3
    how = {"test_fraction": 0.0, "seed": 4, "noise": 0.3, "rotations": 2}
    names = ("dirichlet", "dirichlet-balanced", "shards", "classes", "log-normal", "power-law", "iid")
    for name in names:
        index = partition.sample(name, y, 6, seed=4)
        wanted = partition.noisy(partition.rotated(X, index, rotations=2, seed=4), index, noise=0.3, seed=4)
        own = {"partition": name, **how}
        made = [jdfl.from_arrays(X, y, 6, intercept=False, **own)]
        if name == "classes":
            loss = jdfl.from_loss(lambda w, one: (one[0] @ w - one[1]) ** 2, np.zeros(3, np.float32), (X, y), 6, **own)
            made += [loss, jdfl.from_model("mlp", X, y, 6, **own)]
        for problem in made:
            assert problem.derived == (("partition",) if name in names[:4] else ())
            for i, rows in enumerate(index):
                (features, labels), weight = problem.local(i)
                order = np.asarray(weight) > 0
                np.testing.assert_allclose(np.asarray(features)[order], wanted[rows], rtol=1e-6)
                np.testing.assert_array_equal(np.asarray(labels)[order], y[rows])


def test_test_examples_of_a_node_are_rotated_as_its_training_examples_are():
    X, y = np.random.default_rng(0).normal(size=(300, 3)), np.arange(300) % 2
    made = [jdfl.from_arrays(X, y, 5, intercept=False, test_split="last", rotations=r) for r in (1, 5)]
    for i in range(5):
        (plain, turned), (test, own) = (
            [one.nodes(i).data[0] for one in some] for some in (made, [p.own_test for p in made])
        )
        np.testing.assert_allclose(test @ np.linalg.lstsq(plain, turned)[0], own, atol=1e-5)
        assert (i == 0) == np.allclose(test, own)


def test_the_picture_has_every_example():
    rng = np.random.default_rng(0)
    y = rng.choice(list("abc"), 400)
    problem = jdfl.from_arrays(rng.normal(size=(400, 2)), y, 9, partition="log-normal", test_fraction=0.0)
    bars, dots = problem.plot().ax
    assert [bar.get_height() for bar in bars.patches] == problem.sizes.tolist()
    (cloud,) = dots.collections
    area = np.zeros((3, 9))
    area[tuple(cloud.get_offsets().T.astype(int)[::-1])] = cloud.get_sizes()
    wanted = np.stack([[np.sum(y[part] == c) for part in partition.sample("log-normal", y, 9)] for c in "abc"])
    np.testing.assert_allclose(area / area.max(), wanted / wanted.max())
    many = jdfl.from_arrays(rng.normal(size=(800, 2)), rng.normal(size=800), 90, partition="power-law").plot()
    assert len(many.ax[0].patches) == 60
    assert "60 of 90" in many.ax[1].get_xlabel()


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
    X3 = np.eye(3)
    all_refused(
        (lambda: partition.iid(3, 4), "4"),
        (lambda: partition.iid(3, 2, seed=-1), "seed = -1"),
        (lambda: partition.dirichlet([0, 1], 3, alpha=1.0), "3"),
        (lambda: partition.dirichlet([0, 1, 1], 1, alpha=0.0), "alpha"),
        (lambda: partition.shards([0, 1, 1], 2), "2 nodes x 2"),
        (lambda: partition.by_size([2, 2], 5), "n_examples = 5"),
        (lambda: partition.classes([0] * 9 + [1], 5), "class 1", "5"),
        (lambda: partition.log_normal(9, 5, least=2), "5 nodes x 2"),
        (lambda: partition.noisy(np.ones((2, 2, 2), int), [[0], [1]], noise=1.0), "noise", "X / 255"),
        (lambda: jdfl.from_arrays(X3, [0.5, 1, 2], 2, partition="classes", test_fraction=0), "regression", "classes"),
        (lambda: partition.sample("clients", [0, 1], 2), "none", "'clients'"),
        (lambda: partition.sample("iid", [0, 1], 2, clients=[0, 1]), "'iid'"),
        (lambda: partition.sample("clients", [0, 1, 1], 2, clients=[0, 1]), "clients", "(3)"),
        (lambda: partition.sample("clients", [0, 1, 1], 3, clients=[0, 1, 1]), "m = 3"),
    )
