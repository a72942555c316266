"""The sparse problem is the dense one on the same rows, whatever their lengths."""

import re
import tracemalloc
from dataclasses import replace
from functools import cache

import jax
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from jdfl import problems
from jdfl.problems import Dataset, check_problem, classification, logistic_regression
from jdfl.problems import sparse as module
from jdfl.problems.sparse import canonical, longest_first, sparse_rows, to_csr
from tests.refused import all_refused, refused

N, PENALTY = 90, 0.25
CASES = {  # nonzeros of every node's rows
    "skewed": ((30, 5, 0, 1, 2, 2, 9), (3, 3, 1), (40, 1, 1, 1, 1, 0, 0)),
    "a short node": ((1, 1, 2), (60, 80, 0, 3)),
    "nothing at all": ((0, 0), (0,)),
}


@pytest.fixture
def several_blocks(monkeypatch):
    """Blocks as narrow for a few rows as the library makes them for thousands."""
    monkeypatch.setattr(module, "_BLOCK", 20)
    monkeypatch.setattr(module, "_SHARE", 0.0)


narrow = pytest.mark.usefixtures("several_blocks")


def table(lengths, seed=0, n=N, dtype=np.float64):
    """A random CSR matrix whose rows have the given numbers of nonzeros."""
    rng = np.random.default_rng(seed)
    columns = [np.sort(rng.choice(n, k, replace=False)) for k in lengths]
    values = rng.normal(size=sum(lengths)).astype(dtype)
    return sp.csr_matrix((values, np.concatenate(columns), np.cumsum([0, *lengths])), shape=(len(lengths), n))


def parts_of(lengths, seed=0):
    """One part per node; rows come in any order."""
    rng = np.random.default_rng(seed)
    return [(table(own, seed + i), rng.integers(0, 2, len(own))) for i, own in enumerate(lengths)]


def ordered(part):
    """A part in the sparse problem's order, dense."""
    order = longest_first(part[0])
    return part[0].toarray()[order], part[1][order]


@cache
def both(lengths, dtype="float64", intercept=False):
    """The sparse and the dense problem of the same examples in the same order."""
    parts = parts_of(lengths)
    options = {"penalty": PENALTY, "intercept": intercept, "dtype": dtype}
    sparse = problems.sparse_logistic_regression(parts, test=parts[0], **options)
    return sparse, logistic_regression([ordered(part) for part in parts], test=ordered(parts[0]), **options)


def weights_for(problem, seed=1):
    w = np.random.default_rng(seed).normal(size=(problem.m, problem.n))
    return w.astype(problem.dtype)


GRADIENTS = jax.jit(lambda problem, w: problem.gradients(w))


@jax.jit
def everything(problem, w):
    """All that a problem computes, for stacked parameters [m, n]."""

    def one(key, w, data, weight):
        batch, drawn = problem.minibatch(key, data, weight, 5)
        again, _ = problem.minibatch(key, batch, drawn, 3)  # a draw from a draw
        return {
            "gradient": problem.gradient(w, data, weight),
            "by differentiation": jax.grad(problem.value)(w, data, weight),
            "examples": problem.example_gradients(w, data),
            "batch": problem.gradient(w, batch, drawn),
            "batch examples": problem.example_gradients(w, batch),
            "batch value": problem.value(w, batch, drawn),
            "batch losses": jax.vmap(problem.loss, (None, 0))(w, batch),
            "again": problem.gradient(w, again, drawn[:3]),
        }

    keys = jax.random.split(jax.random.key(0), problem.m)
    return {
        "values": problem.values(w),
        "values_at": problem.values_at(w[0]),
        "gradients": problem.gradients(w),
        "scores": problem.scores(w[0], problem.test[0]),
        "curvature": problem.curvature,
        **jax.vmap(one)(keys, w, problem.data, problem.weight),
    }


@narrow
@pytest.mark.rotated(3)
@pytest.mark.parametrize(("lengths", "intercept"), list(zip(CASES.values(), (True, False, True))), ids=CASES)
def test_everything_is_as_in_the_dense_problem(lengths, intercept):
    with jax.enable_x64(True):
        sparse, dense = both(lengths, intercept=intercept)
        check_problem(sparse)
        assert (sparse.m, sparse.n, sparse.dtype) == (dense.m, dense.n, dense.dtype)
        w = weights_for(sparse)
        found, expected = everything(sparse, w), everything(dense, w)
        for name, value in expected.items():
            np.testing.assert_allclose(found[name], value, rtol=1e-9, atol=1e-9, err_msg=name)
        np.testing.assert_array_equal(sparse.data[1], dense.data[1])
        np.testing.assert_array_equal(sparse.weight, dense.weight)


@narrow
@settings(max_examples=2, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.lists(st.integers(0, 40), min_size=1, max_size=6), min_size=1, max_size=3), st.integers(1, 60))
@example([[0, 40, 3, 3], [1], [12, 12]], 50)
@example([[3, 0]], 3)
def test_products_for_any_lengths(lengths, n):
    lengths = [[min(k, n) for k in own] for own in lengths]
    tables = [canonical(table(own, i, n)) for i, own in enumerate(lengths)]
    tables = [one[longest_first(one)] for one in tables]
    q = max(map(len, lengths)) + 1
    with jax.enable_x64(True):
        rows = sparse_rows(tables, q, n, np.dtype(float), columns=True)
        x, y = np.random.default_rng(n).normal(size=n), np.random.default_rng(q).normal(size=q)
        times, transposed = products(rows, x, y)
    assert rows.blocks[0][0].shape[1] == q
    for i, one in enumerate(tables):
        lines = one.shape[0]
        np.testing.assert_array_equal(to_csr(rows, i, n).toarray()[:lines], one.toarray())
        np.testing.assert_allclose(times[i, :lines], one @ x, rtol=1e-9, atol=1e-12)
        np.testing.assert_array_equal(times[i, lines:], 0.0)
        np.testing.assert_allclose(transposed[i], one.T @ y[:lines], rtol=1e-9, atol=1e-12)


@jax.jit
def products(rows, x, y):
    return jax.vmap(lambda own: (own.times(x), own.transposed_times(y, len(x))))(rows)


def test_long_rows_are_cut_so_that_little_is_padding(monkeypatch):
    monkeypatch.setattr(module, "_BLOCK", 100)
    monkeypatch.setattr(module, "_SHARE", 0.0)
    rng = np.random.default_rng(0)
    lengths = np.maximum(1, np.exp(3 + rng.normal(size=400))).astype(int)
    one = canonical(table(lengths, n=900))
    rows = sparse_rows([one[longest_first(one)]], 400, 900, np.dtype(np.float32), columns=True)
    assert lengths.max() * 400 > 8 * one.nnz  # what a table of one width would have
    for blocks in (rows.blocks, rows.columns.blocks):
        assert sum(value.size for _, value in blocks) < 1.3 * one.nnz
        assert len(blocks) < 40


@narrow
def test_yardsticks_and_nodes_by_number_are_those_of_the_dense_problem():
    sparse, dense = both(((30, 20, 25, 8), (12, 60, 1), (5, 0, 7, 9, 30)), "float32")
    best, known = problems.optimum(sparse), problems.optimum(dense)
    assert best.value == pytest.approx(known.value, abs=1e-9)
    np.testing.assert_allclose(best.w, known.w, atol=1e-5)
    assert problems.sparse_optimum(sparse, 5).value == pytest.approx(problems.sparse_optimum(dense, 5).value, abs=1e-7)
    assert problems.base_rate(sparse) == pytest.approx(problems.base_rate(dense), abs=1e-12)
    assert problems.value_at(sparse, best.w) == pytest.approx(problems.value_at(dense, best.w), abs=1e-7)
    w, rows = weights_for(sparse), np.array([1, 7])  # numbers beyond the last are the last's
    some = jax.jit(lambda problem, w: jax.vmap(problem.gradient)(w, *problem.local(rows)))(sparse, w[[1, 2]])
    np.testing.assert_allclose(some, GRADIENTS(dense, w)[1:], rtol=1e-5, atol=1e-6)


def test_nothing_dense_on_the_device_or_the_host():
    rows, n = 1200, 20_000
    rng = np.random.default_rng(0)
    features = sp.random_array((rows, n), density=2e-4, format="csr", rng=rng, dtype=np.float32)
    dataset = Dataset("wide", sp.csr_matrix(features), rng.integers(0, 2, rows))
    for _ in range(2):  # what is compiled the first time is counted, too
        tracemalloc.start()
        problem = classification(dataset, 3, seed=1)
        check_problem(problem)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < rows * n * 4 / 10
    assert sum(leaf.nbytes for leaf in jax.tree.leaves((problem.data, problem.test))) < rows * n * 4 / 100
    w = np.ones((3, n), np.float32)
    for function in (problem.gradients, jax.grad(lambda w: problem.values(w).mean())):
        shapes = re.findall(r":\w+\[([\d,]+)\]", str(jax.make_jaxpr(function)(w)))  # of all that is computed
        assert 3 * n <= max(np.prod([int(size) for size in shape.split(",")]) for shape in shapes) < 10 * 3 * n


def test_bad_input_is_refused():
    X, y, Z = table((3, 1, 0)), np.zeros(3), table((3, 1, 2))
    build = problems.sparse_logistic_regression
    all_refused(
        (lambda: build([(X.toarray(), y)]), "node 0", "ndarray"),
        (lambda: build([(X, y), (X[:, :4], y)]), "(3, 4)", "node 1"),
        (lambda: build([(X, y[:2])]), "labels", "(2,)", "node 0"),
        (lambda: build([(X, y - 1)]), "labels", "-1"),
        (lambda: build([(Z, y)], test=(Z[:, :4], y)), "(3, 4)", "test set"),
        (lambda: logistic_regression([(Z, y)]), "sparse_logistic_regression"),
        (lambda: classification(Dataset("x", Z, y, standardise=True), 3), "standardise = True"),
        (lambda: classification(Dataset("three", Z, np.arange(3)), 3, test_fraction=0), "three", "3 classes"),
    )


@narrow
def test_check_problem_names_what_is_wrong():
    problem, _ = both(CASES["skewed"], "float32")
    rows, labels = problem.data
    (index, value), *others = rows.blocks
    nan, light = np.array(value), np.array(problem.weight)
    nan[2, 0, 1], light[1] = np.nan, 0
    for named, change in {
        "data[0].blocks[0][1], got nan at node 2": (index, nan),
        "got tuple": {"data": (labels, labels)},
        "data[0]": (index[:, :-1], value[:, :-1]),
        "data[1]": {"data": (rows, labels[:, :-1])},
        "node 1": {"weight": light},
        "test[0]": {"test": (problem.test[0], problem.test[1][:-1])},
    }.items():
        changed = change if isinstance(change, dict) else {"data": (rows.replace(blocks=(change, *others)), labels)}
        with refused(named):
            check_problem(problem.replace(**changed))


def test_classification_takes_rows_as_they_are():
    rng = np.random.default_rng(0)
    dense = (rng.random((60, 8)) * (rng.random((60, 8)) < 0.3)).astype(np.float32)
    stored = Dataset("text", sp.csr_matrix(dense), rng.integers(0, 2, 60), dense[:5], np.arange(5) % 2)
    zeros = sp.csr_matrix((dense.ravel(), np.tile(np.arange(8), 60), np.arange(0, 481, 8)), (60, 8))  # stored, too
    options = {"seed": 4, "intercept": True, "partition": "dirichlet"}
    kept, unpacked = (classification(replace(stored, features=one), 4, **options) for one in (stored.features, dense))
    made = classification(replace(stored, features=zeros), 4, **options)
    for one, other in zip(jax.tree.leaves(kept), jax.tree.leaves(made)):
        np.testing.assert_array_equal(one, other)
    assert isinstance(kept, problems.SparseLogisticRegression)
    assert not isinstance(unpacked, problems.SparseLogisticRegression)
    assert kept.n == unpacked.n == 9
    assert kept.test[0].blocks[0][0].shape[0] == 5
    w = weights_for(kept)
    np.testing.assert_allclose(GRADIENTS(kept, w), GRADIENTS(unpacked, w), rtol=1e-5, atol=1e-6)
