"""Wrong input at the front door: every kind is refused in words, by its argument, before anything is compiled."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import flax.linen as linen
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from flax import nnx
from scipy.sparse import csr_array

from jdfl import testing
from jdfl.problems import from_arrays, from_loss, from_model
from tests.fuzz.judge import unclean

RANDOM = np.random.default_rng(0)
N, P = 60, 4
X = RANDOM.standard_normal((N, P)).astype(np.float32)
Y = np.arange(N) % 3
B = Y == 0
FRAME = pd.DataFrame(X, columns=["age", "height", "weight", "pulse"])
START = {"w": np.zeros(P, np.float32), "b": np.zeros((), np.float32)}
BATCH = (X.reshape(5, 12, P), Y.reshape(5, 12))


class Net(nnx.Module):
    """A linear network that may fail in several ways."""

    def __init__(self, inputs=P, outputs=3, *, rngs, dropout=False, shape=None, dtype=jnp.float32):
        self.linear = nnx.Linear(inputs, outputs, param_dtype=dtype, rngs=rngs)
        self.shape = shape
        self.dropout = nnx.Dropout(0.5, rngs=rngs) if dropout else None

    def __call__(self, x):
        found = self.linear(x)
        return found if self.shape is None else found.reshape(self.shape)


class Mute(nnx.Module):
    def __init__(self, rngs):
        self.linear = nnx.Linear(P, 3, rngs=rngs)


class Idle(nnx.Module):
    def __call__(self, x):
        return x


class Outside(linen.Module):
    pass


class Torch:
    """As much of a torch tensor as is asked for."""

    def __init__(self, array, device="cpu"):
        self.array, self.device, self.dtype = array, device, array.dtype

    def detach(self):
        return self

    def cpu(self):
        return self

    def numpy(self):
        if self.device != "cpu":
            raise TypeError("can't convert a tensor on the meta device")
        return self.array

    def __repr__(self):
        return "tensor(...)"


def loss(params, example):
    x, y = example
    return (x @ params["w"] + params["b"] - y) ** 2


def scores(params, features):
    return jnp.stack([features @ params["w"], params["b"], -params["b"]])


def with_nan(x):
    x = np.array(x, float)
    x[7, 2] = np.nan
    return x


def column(name, values):
    return FRAME.assign(**{name: values})


arrays, arrays_x = partial(from_arrays, X), partial(from_arrays, y=Y, nodes=5)
losses, models = partial(from_loss, loss, START), partial(from_model, y=Y, nodes=5)
spoilt = partial(from_loss, params=START, data=BATCH)


@dataclass(frozen=True)
class Kind:
    """A kind of wrong input."""

    name: str
    call: Callable[[], Any]
    says: tuple[str, ...]  # the argument, the value and more that the message has to have

    def __str__(self) -> str:
        return self.name


KINDS = [
    Kind(name, call, tuple(says))
    for name, call, *says in [
        # features
        ("X is None", lambda: arrays_x(None), "X", "None"),
        ("X is a name", lambda: arrays_x("digits"), "X", "'digits'", "classification"),
        ("X is a number", lambda: arrays_x(3), "X", "()"),
        ("X is a dict", lambda: arrays_x({"age": [1, 2]}), "X", "DataFrame"),
        ("X is a function", lambda: arrays_x(len), "X"),
        ("X has one axis", lambda: arrays_x(X[:, 0]), "X", "(60,)", "reshape(-1, 1)"),
        ("X has three axes", lambda: arrays_x(X.reshape(N, 2, 2)), "X", "(60, 2, 2)", "reshape"),
        ("X has no rows", lambda: from_arrays(X[:0], Y[:0]), "X", "(0, 4)"),
        ("X has no columns", lambda: arrays_x(X[:, :0]), "X", "(60, 0)"),
        ("X has text", lambda: arrays_x(X.astype(str)), "X", "text", "get_dummies"),
        ("X has dates", lambda: arrays_x(np.full((N, 2), "2020-01-01", "datetime64[D]")), "X", "datetime64", "dates"),
        ("X is complex", lambda: arrays_x(X + 1j), "X", "complex", "real"),
        ("X has objects", lambda: arrays_x(np.full((N, 2), object())), "X[0, 0]"),
        ("X has None", lambda: arrays_x([[1.0, None]] * N), "X[0, 1]", "None"),
        ("X is ragged", lambda: arrays_x([[1.0, 2.0]] * (N - 1) + [[1.0]]), "X[59]", "1 entries"),
        ("X is masked", lambda: arrays_x(np.ma.masked_array(X, X > 1)), "X", "mask"),
        ("X has NaN", lambda: arrays_x(with_nan(X)), "X[7, 2]", "nan"),
        ("X has inf", lambda: arrays_x(np.where(X > 2, np.inf, X)), "X", "inf"),
        ("X has NaN in a column", lambda: arrays_x(pd.DataFrame(with_nan(X), columns=FRAME.columns)), "X", "'weight'"),
        (
            "X has NA in a nullable column",
            lambda: arrays_x(column("n", pd.array([None] + [1] * 59, "Int64"))),
            "X",
            "'n'",
        ),
        ("X has a column of text", lambda: arrays_x(column("city", ["a"] * N)), "X", "city", "get_dummies"),
        ("X has a column of categories", lambda: arrays_x(column("k", pd.Categorical(["a"] * N))), "X", "k (category)"),
        ("X has a column of dates", lambda: arrays_x(column("day", pd.date_range("2020", periods=N))), "X", "day"),
        ("X has a column of objects", lambda: arrays_x(column("o", [[1]] * N)), "X", "o (object)"),
        ("X is too large for its type", lambda: arrays_x(X.astype(float) * 1e200), "X", "float32", "Scale"),
        ("X is sparse with three classes", lambda: arrays_x(csr_array(X)), "X", "3 classes", "sparse=False"),
        (
            "X is sparse and standardised",
            lambda: from_arrays(csr_array(X), B, 5, standardise=True),
            "standardise",
            "sparse",
        ),
        ("X is sparse for regression", lambda: from_arrays(csr_array(X), X[:, 0], 5), "X", "regression"),
        ("X is sparse with NaN", lambda: from_arrays(csr_array(with_nan(X)), B, 5), "X[7, 2]"),
        ("X is a tensor that is elsewhere", lambda: arrays_x(Torch(X, "meta")), "X", "tensor", "meta"),
        # labels and targets
        ("y is None", lambda: arrays(None), "y", "None"),
        ("y is shorter", lambda: arrays(Y[:50], 5), "X", "y", "60", "50"),
        ("X is transposed", lambda: from_arrays(X.T, Y, 2), "X.T", "4", "60"),
        ("y has several columns", lambda: arrays(np.stack([Y, Y], 1), 5), "y", "(60, 2)", "y[:, 0]"),
        ("y is one-hot", lambda: arrays(np.eye(3)[Y], 5), "y", "(60, 3)", "argmax"),
        ("y is a table", lambda: arrays(FRAME, 5), "y", "age", "y['age']"),
        ("y is a number", lambda: arrays(1.0, 5), "y", "()"),
        ("y has NaN", lambda: arrays(np.where(Y == 1, np.nan, Y), 5), "y[1]", "nan", "Drop"),
        ("y has inf", lambda: arrays(np.where(Y == 1, np.inf, X[:, 0]), 5), "y", "inf"),
        ("y has None", lambda: arrays(["a", None, "b"] * 20, 5), "y[1]", "None"),
        ("y has NA", lambda: arrays(pd.Series([None] + ["a", "b"] * 29 + ["a"]), 5), "y.iloc[0]"),
        ("y is mixed", lambda: arrays(np.array(["a", 1] * 30, object), 5), "y[0]", "'a'", "astype(str)"),
        ("y is complex", lambda: arrays(Y * 1j, 5), "y", "complex"),
        ("y has dates", lambda: arrays(np.full(N, "2020-01-01", "datetime64[D]"), 5), "y", "datetime64"),
        ("y is masked", lambda: arrays(np.ma.masked_array(Y, Y > 1), 5), "y", "mask"),
        ("y is sparse", lambda: arrays(csr_array(Y[:, None]), 5), "y", "toarray"),
        ("y in another order", lambda: from_arrays(FRAME, pd.Series(Y).iloc[::-1], 5), "y", "X", "reset_index"),
        ("one class", lambda: arrays(["a"] * N, 5), "y", "'a'", "two classes"),
        ("one target", lambda: arrays(np.full(N, 1.5), 5, task="regression"), "y", "1.5"),
        ("two values with fractions", lambda: arrays(np.where(B, 0.3, 1.7), 5), "task", "0.3, 1.7"),
        ("many whole numbers", lambda: arrays(np.arange(N), 5), "task", "60 different whole numbers"),
        ("a class for every example", lambda: arrays(X[:, 0], 5, task="classification"), "y", "60", "regression"),
        ("regression on text", lambda: arrays(["a", "b"] * 30, 5, task="regression"), "y", "'a'", "classification"),
        ("a typo in task", lambda: arrays(Y, 5, task="clasification"), "task", "'clasification'", "'classification'"),
        # nodes and partitions
        ("no nodes", lambda: arrays(Y, 0), "nodes = 0", "nodes=20"),
        ("a fraction of nodes", lambda: arrays(Y, 2.5), "nodes = 2.5"),
        ("nodes as text", lambda: arrays(Y, "20"), "nodes = '20'"),
        ("more nodes than examples", lambda: arrays(Y, 100), "nodes = 100", "48"),
        ("more shards than examples", lambda: arrays(Y, 30, partition="shards"), "nodes = 30", "24"),
        ("a typo in partition", lambda: arrays(Y, 5, partition="dirichelt"), "partition", "'dirichelt'", "'dirichlet'"),
        ("alpha is zero", lambda: arrays(Y, 5, partition="dirichlet", alpha=0), "alpha = 0"),
        ("alpha is negative", lambda: arrays(Y, 5, partition="dirichlet", alpha=-1.0), "alpha = -1"),
        ("no shards", lambda: arrays(Y, 5, partition="shards", shards_per_node=0), "shards_per_node = 0"),
        (
            "Dirichlet for numbers",
            lambda: arrays(X[:, 0], 5, partition="dirichlet"),
            "partition",
            "regression",
            "shards",
        ),
        ("no clients", lambda: arrays(Y, partition="clients"), "clients", "none"),
        ("clients for some", lambda: arrays(Y, clients=["a"] * 59), "clients", "(59,)"),
        ("clients with a gap", lambda: arrays(Y, clients=np.where(B, np.nan, 1.0)), "clients[0]"),
        ("clients and a partition", lambda: arrays(Y, clients=Y, partition="shards"), "clients", "'shards'"),
        ("clients and other nodes", lambda: arrays(Y, 7, clients=Y), "nodes = 7", "3"),
        ("a negative seed", lambda: arrays(Y, 5, seed=-1), "seed = -1"),
        ("a seed with a fraction", lambda: arrays(Y, 5, seed=0.5), "seed = 0.5"),
        ("all is for testing", lambda: arrays(Y, 5, test_fraction=1.0), "test_fraction = 1"),
        ("a share of less than nothing", lambda: arrays(Y, 5, test_fraction=-0.1), "test_fraction = -0.1"),
        ("a share as text", lambda: arrays(Y, 5, test_fraction="a fifth"), "test_fraction = 'a fifth'"),
        (
            "too few to hold out",
            lambda: from_arrays(X[:4], [0, 0, 1, 1], 2, test_fraction=0.1),
            "test_fraction",
            "of 4",
        ),
        ("a split that is no list", lambda: arrays(Y, partition="given"), "X", "list"),
        ("a split without nodes", lambda: from_arrays([], [], partition="given"), "X", "[]"),
        ("labels of fewer nodes", lambda: from_arrays([X, X], [Y], partition="given"), "y", "2", "1"),
        ("an empty node", lambda: from_arrays([X, X[:0]], [Y, Y[:0]], partition="given"), "X[1]", "Leave node 1 out"),
        ("a node of other width", lambda: from_arrays([X, X[:, :2]], [Y, Y], partition="given"), "X[1]", "(2,)"),
        ("a node with fewer labels", lambda: from_arrays([X, X], [Y, Y[:9]], partition="given"), "y[1]", "9"),
        ("a node with NaN", lambda: from_arrays([X, with_nan(X)], [Y, Y], partition="given"), "X[1]", "nan"),
        (
            "two nodes of one name",
            lambda: from_arrays([X, X], [Y, Y], partition="given", clients=["a", "a"]),
            "clients",
            "'a'",
        ),
        ("another number of nodes", lambda: from_arrays([X, X], [Y, Y], 3, partition="given"), "nodes = 3"),
        # settings and test sets
        ("a penalty below zero", lambda: arrays(Y, 5, penalty=-1), "penalty = -1"),
        ("a penalty of regression", lambda: arrays(X[:, 0], 5, penalty=0.1), "penalty = 0.1", "from_loss"),
        ("whole numbers as dtype", lambda: arrays(Y, 5, dtype="int32"), "dtype", "int32"),
        ("an unknown dtype", lambda: arrays(Y, 5, dtype="float33"), "dtype", "float33"),
        ("a name that is no text", lambda: arrays(Y, 5, name=3), "name = 3"),
        ("standardise as text", lambda: arrays(Y, 5, standardise="yes"), "standardise = 'yes'"),
        ("sparse as text", lambda: arrays(Y, 5, sparse="yes"), "sparse = 'yes'"),
        ("an unknown public value", lambda: arrays(Y, 5, public=("partitions",)), "public", "'partition'"),
        ("a test set without labels", lambda: arrays(Y, 5, test=X), "test", "test=(X_test, y_test)"),
        ("a test set of other width", lambda: arrays(Y, 5, test=(X[:, :2], Y)), "test[0]", "(2,)", "(4,)"),
        ("a shorter test set", lambda: arrays(Y, 5, test=(X, Y[:9])), "test[1]", "9"),
        ("unseen labels in the test set", lambda: arrays(Y, 5, test=(X, Y + 1)), "test[1]", "3"),
        ("other labels in the test set", lambda: arrays(Y, 5, test=(X, Y.astype(str))), "test[1]", "'0'"),
        ("text for targets in the test set", lambda: arrays(X[:, 0], 5, test=(X, ["a"] * N)), "test[1]", "'a'"),
        (
            "columns of other names",
            lambda: from_arrays(FRAME, Y, 5, test=(FRAME.rename(columns={"pulse": "pulses"}), Y)),
            "test[0]",
            "'pulse'",
        ),
        # models
        ("a class as a model", lambda: models(Net, X), "model", "Net", "instance"),
        ("no module", lambda: models(3, X), "model = 3", "instance"),
        ("a function that makes none", lambda: models(lambda rngs: 3, X), "model(rngs) = 3"),
        ("a function that fails", lambda: models(lambda: 3, X), "model", "TypeError"),
        ("a linen module", lambda: models(Outside(), X), "model", "from_loss"),
        ("a typo in a model's name", lambda: models("restnet18", X), "model", "'resnet18'"),
        ("a module that cannot be called", lambda: models(lambda rngs: Mute(rngs), X), "model", "__call__"),
        ("a module without parameters", lambda: models(Idle(), X), "model", "parameters"),
        ("dropout", lambda net={"dropout": True}: models(net, X), "model", "dropout"),
        ("parameters in half precision", lambda net={"dtype": jnp.bfloat16}: models(net, X), "model", "bfloat16"),
        ("a model of another width", lambda net={"inputs": 7}: models(net, X), "model", "(4,)", "(7, 3)"),
        ("too few outputs", lambda net={"outputs": 2}: models(net, X), "model", "3 outputs", "2 outputs"),
        ("too many outputs", lambda net={"outputs": 5}: models(net, X), "model", "3 outputs", "5 outputs"),
        (
            "several outputs for regression",
            lambda net={}: from_model(net, X, X[:, 0], 5),
            "model",
            "one output",
            "3 outputs",
        ),
        ("outputs of a matrix", lambda net={"shape": (-1, 3, 1)}: models(net, X), "model", "(3, 3, 1)"),
        ("outputs without a batch", lambda net={"shape": (-1,)}: models(net, X), "model", "(9,)"),
        (
            "a sparse matrix for a model",
            lambda net={"outputs": 2}: from_model(net, csr_array(X), B, 5),
            "X",
            "toarray",
        ),
        ("unknown names to share", lambda net={}: models(net, X, shared=("encoder.*",)), "shared", "linear.kernel"),
        ("shared as a number", lambda net={}: models(net, X, shared=3), "shared = 3"),
        (
            "a loss of outputs that fails",
            lambda net={}: models(net, X, loss=lambda z, y: z @ z.T @ y),
            "loss",
            "(3,)",
        ),
        ("a loss of outputs that is no function", lambda net={}: models(net, X, loss="mse"), "loss = 'mse'"),
        ("a loss of outputs with one argument", lambda net={}: models(net, X, loss=jnp.sum), "loss"),
        ("a loss of outputs that is a vector", lambda net={}: models(net, X, loss=lambda z, y: z), "loss", "(3,)"),
        # losses
        ("no loss", lambda: from_loss(None, START, BATCH), "loss = None"),
        ("a loss of one argument", lambda: spoilt(lambda params: 0.0), "loss", "params", "2 arguments"),
        ("a loss of three arguments", lambda: spoilt(lambda params, x, y: 0.0), "loss", "x, y"),
        ("a loss that is a vector", lambda: spoilt(lambda p, e: p["w"] * e[0]), "loss", "(4,)", "mean"),
        ("a loss that is a whole number", lambda: spoilt(lambda p, e: jnp.argmax(p["w"])), "loss", "int32"),
        ("a loss that is nothing", lambda: spoilt(lambda p, e: None), "loss", "None"),
        ("a loss with more beside", lambda: spoilt(lambda p, e: (loss(p, e), p)), "loss", "auxiliary"),
        ("a loss that raises", lambda: spoilt(lambda p, e: p["v"]), "loss", "KeyError", "'v'"),
        ("a loss that branches", lambda: spoilt(lambda p, e: loss(p, e) if p["b"] > 0 else 0.0), "loss", "Tracer"),
        ("a loss of a batch", lambda: spoilt(lambda p, e: e[0][:, 0] @ p["w"]), "loss", "one example"),
        ("a loss without the parameters", lambda: spoilt(lambda p, e: jnp.sum(e[0])), "loss", "params"),
        # parameters
        ("no parameters", lambda: from_loss(loss, {}, BATCH), "params", "{}"),
        ("parameters of functions", lambda: from_loss(loss, {"f": jnp.tanh}, BATCH), "params"),
        ("whole numbers as parameters", lambda: from_loss(loss, {"w": np.arange(4)}, BATCH), "params", "int64 at w"),
        ("a whole number as a parameter", lambda: from_loss(loss, {"w": 0}, BATCH), "params", "at w"),
        ("complex parameters", lambda: from_loss(loss, {"w": np.ones(2) * 1j}, BATCH), "params", "complex128 at w"),
        ("parameters of nothing", lambda: from_loss(loss, {"w": np.zeros((0, 3))}, BATCH), "params", "(0, 3)"),
        ("parameters with NaN", lambda: from_loss(loss, {"w": np.array([np.nan])}, BATCH), "params", "nan at w"),
        (
            "a key among the parameters",
            lambda: from_loss(loss, {"k": jax.random.key(0)}, BATCH),
            "params",
            "random key",
        ),
        ("objects as parameters", lambda: from_loss(loss, {"w": np.array([None])}, BATCH), "params", "object"),
        # examples in trees
        ("no data", lambda: losses(None), "data", "None"),
        ("an empty list of nodes", lambda: losses([]), "data", "[]"),
        ("one axis alone", lambda: losses((X[:, 0], Y)), "data[0]", "(60,)", "nodes=..."),
        ("leaves of other lengths", lambda: losses((BATCH[0], BATCH[1][:4])), "data[1]", "(4, 12)"),
        ("leaves of a node of other lengths", lambda: losses([(X, Y[:9])]), "data[0][1]", "9"),
        ("nodes of other shapes", lambda: losses([(X, Y), (X[:, :2], Y)]), "data[1]", "float32[2]"),
        ("a list of arrays of all nodes", lambda: losses(list(BATCH)), "data[1]", "tuple"),
        ("a node without examples", lambda: losses([(X, Y), (X[:0], Y[:0])]), "data[1]", "Leave"),
        ("text in data", lambda: losses((BATCH[0].astype(str), BATCH[1])), "data[0]", "text"),
        ("complex data", lambda: losses((BATCH[0] * 1j, BATCH[1])), "data[0]", "complex"),
        ("NaN in data", lambda: losses((with_nan(X).reshape(5, 12, P), BATCH[1])), "data[0]", "nan"),
        ("numbers beyond 32 bits", lambda: losses((BATCH[0], BATCH[1] + 2**40)), "data[1]", "32 bits"),
        ("more nodes than examples of a tree", lambda: losses((X, Y), nodes=100), "nodes = 100", "60"),
        ("weights of another shape", lambda: losses(BATCH, weight=np.ones(5)), "weight", "(5,)"),
        ("negative weights", lambda: losses(BATCH, weight=-np.ones((5, 12))), "weight", "-1"),
        (
            "a node of weight zero",
            lambda: losses(BATCH, weight=np.eye(5, 12)[::-1] * [[1], [1], [0], [1], [1]]),
            "weight",
        ),
        ("test examples of another structure", lambda: losses(BATCH, test=X), "test", "structure"),
        ("test examples of another width", lambda: losses(BATCH, test=(X[:, :2], Y)), "test[0]", "(2,)"),
        ("predict without labels", lambda: losses(BATCH[0], predict=scores), "data", "pair"),
        ("predict that gives a class", lambda: losses(BATCH, predict=lambda p, x: jnp.argmax(x)), "predict", "int32"),
        ("predict that raises", lambda: losses(BATCH, predict=lambda p, x: p["v"]), "predict", "KeyError"),
        ("labels beyond predict", lambda: losses((BATCH[0], BATCH[1] + 1), predict=scores), "data[1]", "0 to 2"),
        ("a tree's nodes as text", lambda: losses((X, Y), nodes="5"), "nodes = '5'"),
        ("a negative penalty of a loss", lambda: losses(BATCH, penalty=-1.0), "penalty = -1"),
        ("patterns that fit nothing", lambda: losses(BATCH, shared=("encoder",)), "shared", "'encoder'", "b, w"),
    ]
]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_wrong_input_is_refused_in_words_before_anything_is_compiled(kind, compilations):
    given = [Net(**options, rngs=nnx.Rngs(0)) for options in kind.call.__defaults__ or ()]
    before = compilations()
    with pytest.raises(ValueError) as caught:
        kind.call(*given)
    assert compilations() == before
    assert unclean(caught.value) == ""
    text = str(caught.value)
    assert all(said in text for said in kind.says), text
    _expected, _, got = text.partition("got ")
    assert got, text
    assert re.search(r"[.:)\]'] +[A-Z\"].*\.?$", got), f"no remedy: {text}"


def test_kinds_differ():
    names = [kind.name for kind in KINDS]
    assert len(set(names)) == len(names) >= 40


def test_a_loss_that_is_not_finite_at_the_start_is_refused():
    with pytest.raises(ValueError, match=r"finite losses .* loss .* nan for example 0 of node 0\. Look for"):
        spoilt(lambda p, e: loss(p, e) + jnp.log(p["b"] - 1))
    with pytest.raises(ValueError, match=r"finite gradients .* Look for"):
        spoilt(lambda p, e: jnp.sqrt(jnp.abs(p["b"])))


def test_a_gradient_that_is_zero_at_the_start_makes_a_warning():
    with pytest.warns(UserWarning, match=r"gradient of the loss is zero at params .* Start from other params"):
        spoilt(lambda p, e: p["b"] * jnp.sum(p["w"]))


def test_compilations_are_counted_here():
    before = testing.compilations()
    arrays(Y, 5)
    jax.jit(lambda x: x * 3.25 + before)(1.0)
    assert testing.compilations() > before
