"""Tables with labels are aligned by label or refused at every door, and odd labels and numbers are warned of."""

import importlib
import inspect
import re
import warnings

import jax
import jax.numpy as jnp
import networkx as nx
import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_array

import jdfl
from jdfl import network as nw
from jdfl import problems as pr
from tests.later import Later
from tests.refused import refused

rng = np.random.default_rng(0)
N = 60
X = pd.DataFrame(rng.normal(size=(N, 3)), [f"r{i}" for i in range(N)], ["age", "dose", "weight"])
y = pd.Series(np.where(X["age"] - X["dose"] + 0.3 * rng.normal(size=N) > 0, "ill", "well"), X.index)
t = (y == "ill").astype(int)
clients = pd.Series(rng.permutation(np.repeat(list("abcd"), N // 4)), X.index)
T, u = X.iloc[40:], y.iloc[40:]
NODES = list("abcd")
W = pd.DataFrame(nx.to_numpy_array(nx.cycle_graph(4)) / 4 + np.eye(4) / 2, NODES, NODES)
BASE = Later(nw.from_matrix, W)


def rows(table):
    return table.sample(frac=1, random_state=3)


def columns(table):
    return table[table.columns[[2, 0, 1]]]


def squared(params, example):
    features, target = example
    return (features @ params["w"] - target) ** 2


def arrays(**how):
    return jdfl.from_arrays(**({"X": X, "y": y, "nodes": 4} | how))


def model(**how):
    return jdfl.from_model("mlp", **({"X": X, "y": y, "nodes": 4} | how))


def loss(data, **how):
    return jdfl.from_loss(squared, {"w": jnp.zeros(3)}, data, **how)


def regression(features, targets, test, truth, names):
    return pr.linear_regression(features, targets, test=test, truth=pd.Series(truth, names))


def classified(**how):
    return pr.classification(pr.Dataset("mine", **how), 4)


def halves(make):
    """A door for pairs of a node, with labels in order and in another one."""
    mixed = [(X[:30], rows(t[:30])), (columns(X[30:]), rows(t[30:]))]
    return (
        lambda: make([(X[:30], t[:30]), (X[30:], t[30:])], test=(X, t)),
        lambda: make(mixed, test=(columns(X), rows(t))),
    )


# By door and arguments: what is made of labels in order, and of the same labels in another one.
DOORS = {
    "from_arrays y test": (
        lambda: arrays(test=(T, u)),
        lambda: arrays(y=rows(y), test=(columns(T), rows(u))),
    ),
    "from_arrays X clients": (
        lambda: arrays(nodes=None, clients=clients),
        lambda: arrays(y=rows(y.to_frame()), nodes=None, clients=rows(clients)),
    ),
    "from_arrays given": (
        lambda: arrays(X=[X[:30], X[30:]], y=[y[:30], y[30:]], nodes=None, partition="given"),
        lambda: arrays(X=[X[:30], columns(X[30:])], y=[rows(y[:30]), rows(y[30:])], nodes=None, partition="given"),
    ),
    "from_model X y test": (lambda: model(test=(T, u)), lambda: model(y=rows(y), test=(columns(T), rows(u)))),
    "from_model clients": (
        lambda: model(nodes=None, clients=clients),
        lambda: model(nodes=None, clients=rows(clients)),
    ),
    "from_loss weight test": (
        lambda: loss((X, t), nodes=4, test=(X, t), weight=X["age"].abs()),
        lambda: loss((X, rows(t)), nodes=4, test=(columns(X), rows(t)), weight=rows(X["age"].abs())),
    ),
    "from_loss data": (
        lambda: loss([(X[:30], t[:30]), (X[30:], t[30:])]),
        lambda: loss([(X[:30], rows(t[:30])), (columns(X[30:]), rows(t[30:]))]),
    ),
    "classification data": (
        lambda: classified(features=X, labels=t, test_features=T, test_labels=t[40:]),
        lambda: classified(features=X, labels=rows(t), test_features=columns(T), test_labels=rows(t[40:])),
    ),
    "holdout features labels": (lambda: pr.holdout(X.to_numpy(), t, 0.3), lambda: pr.holdout(X, rows(t), 0.3)),
    "linear_regression features targets truth test": (
        lambda: regression([X[:30], X[30:]], [t[:30], t[30:]], (X, t), [1.0, 2.0, 3.0], X.columns),
        lambda: regression(
            [X[:30], columns(X[30:])],
            [rows(t[:30]), rows(t[30:])],
            (columns(X), rows(t)),
            [3.0, 2.0, 1.0],
            X.columns[::-1],
        ),
    ),
    "logistic_regression parts test": halves(pr.logistic_regression),
    "softmax_regression parts test": halves(pr.softmax_regression),
    "certified_radius features labels": (
        lambda: pr.certified_radius([1.0, 2.0, 3.0], X, t),
        lambda: pr.certified_radius(pd.Series([3.0, 2.0, 1.0], X.columns[::-1]), X, rows(t)),
    ),
    "from_scipy adjacency": (
        lambda: nw.from_scipy((W > 0).astype(float)),
        lambda: nw.from_scipy((W > 0).astype(float).loc[NODES, NODES[::-1]]),
    ),
    "from_matrix W": (lambda: nw.from_matrix(W), lambda: nw.from_matrix(W.loc[NODES, NODES[::-1]])),
    "membership joins leaves": (
        lambda: nw.membership(BASE(), joins=[4, 3, 2, 1], leaves=[5, 6, 7, 8]),
        lambda: nw.membership(
            BASE(), joins={"d": 1, "c": 2, "b": 3, "a": 4}, leaves=pd.Series([8, 7, 6, 5], NODES[::-1])
        ),
    ),
    "timed slowness": (
        lambda: nw.timed(BASE(), slowness=[1.0, 2, 3, 4]),
        lambda: nw.timed(BASE(), slowness=pd.Series([4.0, 3, 2, 1], NODES[::-1])),
    ),
    "time_trace seconds": (
        lambda: nw.timed(BASE(), nw.time_trace([[1.0], [2], [3], [4]])),
        lambda: nw.timed(BASE(), nw.time_trace(pd.DataFrame([[4.0], [3], [2], [1]], NODES[::-1]))),
    ),
}
PAIR = pd.Series([3, 4], ["a", "b"])
NOISY = jdfl.DPSGD(gradients=jdfl.Gradients(batch=1, clip=1.0, mechanism=jdfl.Gaussian(1.0)))
CANARY = (pd.Series([1.0, 2, 3], X.columns), 1.0), (np.zeros(3), 0.0)
REFUSED = {  # where labels cannot be aligned
    "drawn_regression sizes": lambda: pr.drawn_regression(lambda key: (jnp.ones(2), 1.0), PAIR),
    "drawn_regression truth": lambda: pr.drawn_regression(lambda key: (jnp.ones(2), 1.0), [3], truth=PAIR / 2),
    "sparse_optimum start": lambda: pr.sparse_optimum(
        pr.linear_regression([X], [t]), 1, start=pd.Series(np.zeros(3), X.columns)
    ),
    "random_choice probability": lambda: nw.random_choice([BASE(), BASE()], PAIR / 7),
    "relabel order": lambda: nw.relabel(BASE().graph, pd.Series(range(4), NODES)),
    "audit canary": lambda: jdfl.audit(
        NOISY, pr.linear_regression([X, X], [t, t]), nw.ring(2), steps=1, runs=100, canary=CANARY
    ),
}
ARGUMENTS = {
    "X", "y", "clients", "test", "weight", "features", "targets", "labels", "parts", "edges", "W", "adjacency",
    "slowness", "seconds", "joins", "leaves", "counts", "vectors", "data", "canary", "sizes", "truth", "start",
    "probability", "order",
}  # fmt: skip
ALONE = {  # doors with a single labelled object, whose index gives names of nodes, and numbers that only share a name
    "from_edges edges", "d_cliques counts", "stl_fw counts", "averaging vectors", "attacked start", "gather_sum weight",
    "classification clients", "neural_classification data", "neural_classification clients",
    "sparse_logistic_regression parts", "sparse_logistic_regression test",
}  # fmt: skip


def test_every_door_for_arrays_is_tried():
    found = {
        f"{name} {argument}"
        for module in ("jdfl", "jdfl.network", "jdfl.problems")
        for name in importlib.import_module(module).__all__
        if inspect.isfunction(one := getattr(importlib.import_module(module), name))
        for argument in inspect.signature(one).parameters
        if argument in ARGUMENTS
    }
    tried = [(door, one) for door, *some in map(str.split, [*DOORS, *REFUSED]) for one in some]
    assert found <= {" ".join(pair) for pair in tried} | ALONE


@pytest.mark.parametrize("door", DOORS)
def test_labels_in_another_order_are_aligned(door):
    pairs = zip(*(jax.tree.leaves(made()) for made in DOORS[door]), strict=True)
    assert all(np.array_equal(one, other) for one, other in pairs)


def run(problem, method=None):
    return jdfl.run(method or jdfl.DPSGD(), problem, nw.ring(4), steps=1)


def test_labels_that_cannot_be_aligned_or_do_not_fit_are_refused():
    counted = {"X": X.reset_index(drop=True), "y": rows(y.reset_index(drop=True))}
    counts = nx.Graph([("a", "b", {"weight": 12}), ("b", "c", {"weight": 36})])
    slow = pd.Series([1.0, 2, 3, 4], NODES)
    for door in REFUSED.values():
        with refused("to_numpy()"):
            door()
    for said, door in (
        (("y", "another order"), lambda: arrays(**counted)),
        (("'z' in y", "'r3' missing"), lambda: arrays(y=y.rename({"r3": "z"}))),
        (("'Age' in test[0]", "'age' missing"), lambda: arrays(test=(T.rename(columns={"age": "Age"}), u))),
        (("'r0'",), lambda: arrays(X=X.rename({"r1": "r0"}), y=rows(y))),
        (("'z' in clients",), lambda: arrays(nodes=None, clients=clients.rename({"r3": "z"}))),
        (("'x' in W", "'a' missing"), lambda: nw.from_matrix(W.rename(columns={"a": "x"}))),
        (("0, 1, 2, 3 missing",), lambda: nw.timed(nw.ring(4), slowness=slow)),
        (("table of pandas",), lambda: run(arrays(intercept=False).replace(test=(X, t)))),
        (("lr",), lambda: run(arrays(), jdfl.DPSGD(lr=pd.Series([0.1])))),
        (("48", "'b'", "metropolis"), lambda: nw.from_networkx(counts)),
        (("batch",), lambda: run(arrays(), jdfl.DPSGD(gradients=jdfl.Gradients(batch=50, sampling="uniform")))),
        (("60 times",), lambda: arrays(X=np.ones((N, 2)), y=y.to_numpy())),
    ):
        with refused(*said):
            door()


def test_labels_that_pandas_has_counted_are_no_labels():
    plain = arrays(X=X.to_numpy(), y=y.to_numpy())
    mixed = arrays(X=X.reset_index(drop=True), y=y)
    assert all(np.array_equal(a, b) for a, b in zip(jax.tree.leaves(plain), jax.tree.leaves(mixed), strict=True))


def test_tables_of_other_libraries_are_those_of_pandas():
    class Table:
        """A table that NumPy and pandas can read, as those of polars and xarray."""

        def __init__(self, frame):
            self.frame, self.shape = frame, frame.shape

        def to_pandas(self):
            return self.frame

        def __array__(self, dtype=None, copy=None):
            return self.frame.to_numpy(dtype)

    made = arrays(X=Table(X), test=(Table(columns(T)), u)), arrays(test=(T, u))
    assert all(np.array_equal(a, b) for a, b in zip(*map(jax.tree.leaves, made), strict=True))


def said(call):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        call()
    assert all(one.filename == __file__ for one in found)
    return " ".join(str(one.message) for one in found)


def changed(table, place, value):
    table = table.copy()
    table.iloc[place] = value
    return table


def test_rare_labels_are_warned_of_with_their_counts():
    mistyped, ill = changed(y.replace("ill", "sitting"), 3, "siting"), u == "ill"
    for words, call in (
        (r"'siting' \(1\).*'sitting'", lambda: arrays(y=mistyped)),
        (r"'well' \(\d+\)", lambda: arrays(test=(T[ill], u[ill]))),
        (r"'iII' \(1\)", lambda: model(y=changed(y, 3, "iII"), task="classification")),
    ):
        assert re.search(words, said(call))


def test_usual_labels_and_numbers_are_not_warned_of():
    assert said(lambda: arrays(X=X * 1e6 + 1e6)) == ""
    assert said(lambda: arrays(X=X.round(2).astype(np.float32))) == ""
    assert said(lambda: arrays(X=pd.DataFrame({"id": rng.integers(0, 2**40, N)}, X.index), standardise=True)) == ""


def test_numbers_that_lose_their_meaning_are_named():
    seconds = pd.DataFrame({"age": X["age"], "at": 1.7e9 + np.arange(N)}, X.index)
    stacked = np.stack([np.arange(N), 2**60 + np.arange(N)], axis=1)
    for words, call in (
        (r"48 numbers in column 'dose'.*become 0", lambda: arrays(X=X.assign(dose=X["dose"] * 1e-46))),
        (r"144 numbers.*become 0", lambda: arrays(X=csr_array(X.to_numpy() * 1e-46), y=y.to_numpy())),
        (r"column 'at', which deviate by 17\.?\d*, are rounded by up to", lambda: arrays(X=seconds)),
        (r"beyond 2\^53 in at of X", lambda: arrays(X=seconds.assign(at=2**60 + np.arange(N)))),
        ("column 1, which deviate by 17", lambda: arrays(X=stacked, y=y.to_numpy())),
        ("Numbers in y", lambda: arrays(y=1e9 + X["age"], task="regression")),
        ("column 'at'", lambda: model(X=seconds)),
        ("Numbers in data", lambda: loss((seconds.assign(a=1.0), t), nodes=4)),
    ):
        assert re.search(words, said(call))


def test_ones_own_libsvm_file_is_not_to_be_downloaded(tmp_path):
    (tmp_path / "mine.txt").write_text("1 3:1 2:1\n")
    with refused("indices") as caught:
        pr.read_libsvm(tmp_path / "mine.txt")
    assert "Download" not in str(caught.value)


class Headed:
    """A table of a library that only has names of columns, as polars without pandas."""

    def __init__(self, table):
        self.columns, self.values, self.shape = list(table.columns), table.to_numpy(), table.shape

    def __array__(self, dtype=None, copy=None):
        return np.asarray(self.values, dtype)

    def __len__(self):
        return len(self.values)


def test_names_of_columns_count_in_tables_of_any_library():
    first, last, numbers = Headed(X[:30]), Headed(columns(X)[30:]), t.to_numpy()
    halves = [first, last], [numbers[:30], numbers[30:]]
    swapped = Headed(columns(X))
    dataset = {"features": Headed(X), "labels": numbers, "test_features": swapped, "test_labels": numbers}
    for made in (
        arrays(X=Headed(X), y=numbers, test=(swapped, numbers)),
        arrays(X=halves[0], y=halves[1], nodes=None, partition="given", test=(swapped, numbers)),
        model(X=Headed(X), y=numbers, test=(swapped, numbers)),
        loss((Headed(X), numbers), nodes=4, test=(swapped, numbers)),
        classified(**dataset),
        pr.logistic_regression(list(zip(*halves)), test=(swapped, numbers)),
        pr.linear_regression(*halves, test=(swapped, numbers)),
    ):
        np.testing.assert_allclose(np.asarray(made.test[0])[:, :3], X, rtol=1e-5, err_msg=type(made).__name__)
