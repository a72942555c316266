"""Tables with labels are aligned by label or refused at every door, and odd labels and numbers are warned of."""

import re
import warnings

import jax
import jax.numpy as jnp
import networkx as nx
import numpy as np
import pandas as pd
import pytest

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
T, u = X.iloc[40:] + 0.01, y.iloc[40:]
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


def regression(parts, test):
    names = X.columns[::-1] if test[1].index[0] != "r0" else X.columns
    truth = pd.Series({"age": 1.0, "dose": 2.0, "weight": 3.0})[names]
    return pr.linear_regression([x for x, _ in parts], [z for _, z in parts], test=test, truth=truth)


def classified(**how):
    return pr.classification(pr.Dataset("mine", **how), 4)


def halves(make):
    """A door for pairs of a node, with labels in order and in another one."""
    mixed = [(X[:30], rows(t[:30])), (columns(X[30:]), rows(t[30:]))]
    return (
        lambda: make([(X[:30], t[:30]), (X[30:], t[30:])], test=(X + 1, t)),
        lambda: make(mixed, test=(columns(X + 1), rows(t))),
    )


# By door and arguments: what is made of labels in order, and of the same labels in another one.
DOORS = {
    "from_arrays": (
        lambda: arrays(nodes=None, clients=clients, test=(T, u)),
        lambda: arrays(y=rows(y.to_frame()), nodes=None, clients=rows(clients), test=(columns(T), rows(u))),
    ),
    "from_arrays given": (
        lambda: arrays(X=[X[:30], X[30:]], y=[y[:30], y[30:]], nodes=None, partition="given"),
        lambda: arrays(X=[X[:30], columns(X[30:])], y=[rows(y[:30]), rows(y[30:])], nodes=None, partition="given"),
    ),
    "from_model": (
        lambda: model(nodes=None, clients=clients, test=(T, u)),
        lambda: model(y=rows(y), nodes=None, clients=rows(clients), test=(columns(T), rows(u))),
    ),
    "from_loss weight": (
        lambda: loss((X, t), nodes=4, weight=X["age"].abs()),
        lambda: loss((X, rows(t)), nodes=4, weight=rows(X["age"].abs())),
    ),
    "from_loss data": halves(loss),
    "classification data": (
        lambda: classified(features=X, labels=t, test_features=T, test_labels=t[40:]),
        lambda: classified(features=X, labels=rows(t), test_features=columns(T), test_labels=rows(t[40:])),
    ),
    "holdout features labels": (lambda: pr.holdout(X.to_numpy(), t, 0.3), lambda: pr.holdout(X, rows(t), 0.3)),
    "linear_regression": halves(regression),
    "logistic_regression": halves(pr.logistic_regression),
    "from_matrix": (lambda: nw.from_matrix(W), lambda: nw.from_matrix(W.loc[NODES, NODES[::-1]])),
}
PAIR = pd.Series([3, 4], ["a", "b"])
NOISY = jdfl.DPSGD(gradients=jdfl.Gradients(batch=1, clip=1.0, mechanism=jdfl.Gaussian(1.0)))
CANARY = (pd.Series([1.0, 2, 3], X.columns), 1.0), (np.zeros(3), 0.0)
REFUSED = (  # where labels cannot be aligned
    lambda: pr.sample_regression(lambda key: (jnp.ones(2), 1.0), PAIR),
    lambda: pr.sample_regression(lambda key: (jnp.ones(2), 1.0), [3], truth=PAIR / 2),
    lambda: pr.sparse_optimum(pr.linear_regression([X], [t]), 1, start=pd.Series(np.zeros(3), X.columns)),
    lambda: nw.random_choice([BASE(), BASE()], PAIR / 7),
    lambda: nw.relabel(BASE().graph, pd.Series(range(4), NODES)),
    lambda: jdfl.audit(NOISY, pr.linear_regression([X, X], [t, t]), nw.ring(2), steps=1, runs=100, canary=CANARY),
)


def same(one, other):
    return all(np.array_equal(a, b) for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True))


@pytest.mark.parametrize("door", DOORS)
def test_labels_in_another_order_are_aligned(door):
    one, other = DOORS[door]
    assert same(one(), other())


class Headed:
    """A table of a library that only has names of columns, as polars without pandas."""

    def __init__(self, table):
        self.columns, self.values, self.shape = list(table.columns), table.to_numpy(), table.shape

    def __array__(self, dtype=None, copy=None):
        return np.asarray(self.values, dtype)

    def __len__(self):
        return len(self.values)


def readable(table):
    """One that pandas can read, too."""
    made = Headed(table)
    made.to_pandas = lambda: table
    return made


def test_tables_of_other_libraries_are_those_of_pandas_and_labels_that_it_has_counted_are_none():
    assert same(arrays(X=readable(X), test=(readable(columns(T)), u)), arrays(test=(T, u)))
    assert same(arrays(X=X.reset_index(drop=True)), arrays(X=X.to_numpy(), y=y.to_numpy()))
    numbers, swapped = t.to_numpy(), Headed(columns(X + 1))
    given = [Headed(X[:30]), Headed(columns(X)[30:])], [numbers[:30], numbers[30:]]
    for made in (
        arrays(X=given[0], y=given[1], nodes=None, partition="given", test=(swapped, numbers)),
        model(X=Headed(X), y=numbers, test=(swapped, numbers)),
        loss((Headed(X), numbers), nodes=4, test=(swapped, numbers)),
        classified(features=Headed(X), labels=numbers, test_features=swapped, test_labels=numbers),
        pr.linear_regression(*given, test=(swapped, numbers)),
    ):
        np.testing.assert_allclose(np.asarray(made.test[0])[:, :3], X + 1, rtol=1e-5, err_msg=type(made).__name__)


def test_labels_that_cannot_be_aligned_or_do_not_fit_are_refused():
    counted = {"X": X.reset_index(drop=True), "y": rows(y.reset_index(drop=True))}
    counts = nx.Graph([("a", "b", {"weight": 12}), ("b", "c", {"weight": 36})])
    slow = pd.Series([1.0, 2, 3, 4], NODES)
    for door in REFUSED:
        with refused("to_numpy()"):
            door()
    for said, door in (
        (("y", "another order"), lambda: arrays(**counted)),
        (("'z' in y", "'r3' missing"), lambda: arrays(y=y.rename({"r3": "z"}))),
        (("'Age' in test[0]", "'age' missing"), lambda: arrays(test=(T.rename(columns={"age": "Age"}), u))),
        (("'r0'",), lambda: arrays(X=X.rename({"r1": "r0"}), y=rows(y))),
        (("'x' in W", "'a' missing"), lambda: nw.from_matrix(W.rename(columns={"a": "x"}))),
        (("0, 1, 2, 3 missing",), lambda: nw.timed(nw.ring(4), slowness=slow)),
        (
            ("table of pandas",),
            lambda: jdfl.run(jdfl.DPSGD(), arrays(intercept=False).replace(test=(X, t)), nw.ring(4), steps=1),
        ),
        (("X", "2^53", "at (int64)"), lambda: arrays(X=X.assign(at=2**60 + np.arange(N)))),
        (("lr",), lambda: jdfl.run(jdfl.DPSGD(lr=pd.Series([0.1])), arrays(), nw.ring(4), steps=1)),
        (("48", "'b'", "metropolis"), lambda: nw.from_networkx(counts)),
    ):
        with refused(*said):
            door()


def said(call):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        call()
    assert all(one.filename == __file__ for one in found)
    return " ".join(str(one.message) for one in found)


def test_rare_labels_and_numbers_that_lose_their_meaning_are_named_and_usual_ones_not():
    mistyped, ill = y.replace("ill", "sitting"), u == "ill"
    mistyped.iloc[3] = "siting"
    seconds = pd.DataFrame({"age": X["age"], "at": 1.7e9 + np.arange(N)}, X.index)
    for words, call in (
        ("^$", lambda: arrays(X=X * 1e6 + 1e6)),
        ("^$", lambda: arrays(X=pd.DataFrame({"id": rng.integers(0, 2**40, N)}, X.index), standardise=True)),
        (r"'siting' \(1\).*'sitting'", lambda: arrays(y=mistyped)),
        (r"'well' \(\d+\)", lambda: arrays(test=(T[ill], u[ill]))),
        (r"48 numbers in column 'dose'.*become 0", lambda: arrays(X=X.assign(dose=X["dose"] * 1e-46))),
        (r"column 'at', which deviate by 17\.?\d*, are rounded by up to", lambda: arrays(X=seconds)),
        ("Numbers in y", lambda: arrays(y=1e9 + X["age"], task="regression")),
        ("Numbers in data", lambda: loss((seconds.assign(a=1.0), t), nodes=4)),
    ):
        assert re.search(words, said(call))
