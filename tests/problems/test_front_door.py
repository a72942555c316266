"""Wrong input at the front door: every kind is refused in words, by its argument, before anything is compiled."""

import re
from functools import partial

import flax.linen as linen
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from flax import nnx
from scipy.sparse import csr_array

from jdfl.models import mlp
from jdfl.problems import from_arrays, from_loss, from_model
from tests.fuzz.judge import unclean
from tests.refused import refused

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


class Torch:
    """As much of a torch tensor as is asked for."""

    def __init__(self, array):
        self.array, self.device, self.dtype = array, "cpu", array.dtype
        self.detach = self.cpu = lambda: self
        self.numpy = lambda: array


def loss(params, example):
    x, y = example
    return (x @ params["w"] + params["b"] - y) ** 2


def scores(params, features):
    return jnp.stack([features @ params["w"], params["b"], -params["b"]])


def with_nan(x):
    x = np.array(x, float)
    x[7, 2] = np.nan
    return x


def column(values):
    return FRAME.assign(new=values)


def net(**options):
    return lambda rngs: Net(**options, rngs=rngs)


arrays, given = partial(from_arrays, X, nodes=5), partial(from_arrays, [X, X], partition="given")
models, losses = partial(from_model, X=X, y=Y, nodes=5), partial(from_loss, loss, START)
spoilt, started = partial(from_loss, params=START, data=BATCH), partial(from_loss, loss, data=BATCH)
NUMBERS, BYTES = X[:, 0], np.zeros((N, 4, 4, 1), np.uint8)
HOLE = np.eye(5, 12)[::-1] * [[1], [1], [0], [1], [1]]
FEATURES = [
    *(None, "digits", 3, {"age": [1, 2]}, len, X[:, 0], X.reshape(N, 2, 2), X[:0], X[:, :0], X.astype(float) * 1e200),
    *([[1.0, None]] * N, [[1.0, 2.0]] * (N - 1) + [[1.0]], np.where(X > 2, np.inf, X), csr_array(X), X.T),
    *(column(pd.array([None] + [1] * 59, "Int64")), column(["a"] * N), column(pd.date_range("2020", periods=N))),
    *(column(X[:, 0] * 1j), csr_array(X * 1j), np.zeros((N, 2), "V4"), [[1.0, 10**400]] * N, [[1.0, [2.0]]] * N),
]
LABELS = [
    *(None, Y[:50], np.stack([Y, Y], 1), np.eye(3)[Y], FRAME, 1.0, np.where(Y == 1, np.inf, X[:, 0]), ["a"] * N),
    *(["a", None, "b"] * 20, pd.Series([None] + ["a", "b"] * 29 + ["a"]), np.array(["a", 1] * 30, object)),
    *(csr_array(Y[:, None]), pd.Series(pd.date_range("2020", periods=N)), pd.Series([[1], [1, 2]] * 30)),
]
TESTS = [X, (X[:, :2], Y), (X, Y[:9]), (X, Y + 1), (X, Y.astype(str))]
MODELS = [
    *(Net, 3, lambda rngs: 3, lambda: 3, linen.Module(), "restnet18", lambda rngs: Mute(rngs), Idle()),
    *(net(dropout=True), net(dtype=jnp.bfloat16), net(inputs=7), net(outputs=2), net(outputs=5), net(shape=(-1, 3, 1))),
    *(net(shape=(-1,)), mlp(shape=(7,), classes=3)),
    *(type("Net", (), {"__module__": one})() for one in ("torch.nn", "equinox.nn")),
]
LOSSES = [
    *(None, lambda params: 0.0, lambda params, x, y: 0.0, lambda p, e: p["w"] * e[0], lambda p, e: jnp.sum(e[0])),
    *(lambda p, e: jnp.argmax(p["w"]), lambda p, e: None, lambda p, e: (loss(p, e), p), lambda p, e: p["v"]),
    *(max, lambda p, e: loss(p, e) if p["b"] > 0 else 0.0, lambda p, e: e[0][:, 0] @ p["w"]),
]
STARTS = [
    *({}, {"f": jnp.tanh}, {"w": np.arange(4)}, {"w": 0}, {"w": np.ones(2) * 1j}, {"w": np.zeros((0, 3))}),
    *({"w": np.array([np.nan])}, {"w": np.array([None])}, {1: NUMBERS, "b": NUMBERS}),
]
TREES = [
    *(None, [], (X[:, 0], Y), (BATCH[0], BATCH[1][:4]), [(X, Y[:9])], [(X, Y), (X[:, :2], Y)], list(BATCH)),
    *([(X, Y), (X[:0], Y[:0])], (with_nan(X).reshape(5, 12, P), BATCH[1]), (BATCH[0], BATCH[1] + 2**40)),
    (BATCH[0][:0], BATCH[1][:0]),
]
SETTINGS = {"task": ["clasification"], "seed": [-1, 0.5], "penalty": [-1], "name": [3], "test_fraction": [1.0, "a"]}
SETTINGS |= {"standardise": ["yes"], "public": [("partitions",)], "dtype": ["int32", "float33"]}
SETTINGS |= {"partition": ["dirichelt"], "test": TESTS}
DOORS = [  # doors, and wrong values of their arguments
    (partial(from_arrays, y=Y, nodes=5), {"X": FEATURES}),
    (partial(from_arrays, y=B, nodes=5), {"X": [csr_array(with_nan(X))]}),
    (partial(from_arrays, y=NUMBERS, nodes=5), {"X": [csr_array(X)]}),
    (arrays, {"y": LABELS}),
    (partial(from_arrays, FRAME, nodes=5), {"y": [pd.Series(Y).iloc[::-1]]}),
    (partial(arrays, task="regression"), {"y": [np.full(N, 1.5), ["a", "b"] * 30]}),
    (partial(arrays, task="classification"), {"y": [NUMBERS]}),
    (partial(arrays, np.arange(N)), {"task": [None]}),
    (partial(from_arrays, X, Y), {"nodes": [0, 2.5, "20", 100], "partition": ["given", "clients"]}),
    (partial(arrays, Y, partition="dirichlet"), {"alpha": [0, -1.0]}),
    (partial(arrays, NUMBERS), {"partition": ["dirichlet"], "penalty": [0.1], "test": [(X, ["a"] * N)]}),
    (partial(from_arrays, X, Y), {"clients": [["a"] * 59, np.where(B, np.nan, 1.0)]}),
    (partial(from_arrays, X, Y, clients=Y), {"partition": ["shards"], "nodes": [7]}),
    (partial(arrays, Y), SETTINGS),
    (partial(from_arrays, FRAME, Y, 5), {"test": [(FRAME.rename(columns={"pulse": "pulses"}), Y)]}),
    (partial(from_arrays, X[:4], [0, 0, 1, 1], 2), {"test_fraction": [0.1]}),
    (partial(from_arrays, csr_array(X), B, 5), {"standardise": [True]}),
    (partial(from_arrays, y=[Y, Y], partition="given"), {"X": [[], [X, X[:0]], [X, X[:, :2]], [X, with_nan(X)]]}),
    (partial(from_arrays, y=[Y, Y], partition="given"), {"X": [[X, csr_array(X)]]}),
    (given, {"y": [[Y], [Y, Y[:9]]]}),
    (partial(given, [Y, Y]), {"clients": [["a", "a"]], "nodes": [3]}),
    (models, {"model": MODELS}),
    (partial(from_model, X=X, y=NUMBERS, nodes=5), {"model": [net()]}),
    (partial(from_model, net(outputs=2), y=B, nodes=5), {"X": [csr_array(X)]}),
    (partial(from_model, "mlp", BYTES, Y, 5), {"test": [(BYTES / 255, Y)]}),
    (partial(models, net()), {"loss": [lambda z, y: z @ z.T @ y, "mse", jnp.sum, lambda z, y: z]}),
    (partial(models, net()), {"shared": [("encoder.*",), 3], "nodes_at_once": [0], "name": [3]}),
    (spoilt, {"loss": LOSSES}),
    (started, {"params": STARTS}),
    (losses, {"data": TREES}),
    (partial(losses, predict=scores), {"data": [BATCH[0], (BATCH[0], BATCH[1] + 1), (BATCH[0], BATCH[1] + 0.5)]}),
    (partial(losses, (X, Y)), {"nodes": [100, "5"]}),
    (partial(losses, BATCH), {"weight": [np.ones(5), -np.ones((5, 12)), HOLE], "test": [X, (X[:, :2], Y)]}),
    (partial(losses, BATCH), {"penalty": [-1.0], "predict": [lambda p, x: jnp.argmax(x), lambda p, x: p["v"]]}),
    (partial(losses, BATCH), {"shared": [("encoder",), 3, ()], "name": [3]}),
    (partial(losses, [(X, Y)]), {"weight": [np.ones(N)]}),
]


@pytest.mark.parametrize(("door", "wrong"), DOORS)
def test_wrong_input_is_refused_in_words_before_anything_is_compiled(door, wrong, compilations):
    for name, value in ((name, value) for name, values in wrong.items() for value in values):
        before = compilations()
        with pytest.raises(ValueError) as caught:
            door(**{name: value})
        assert compilations() == before
        assert unclean(caught.value) == ""
        text = str(caught.value)
        assert re.search(rf"\b{name}\b", text), text
        assert name in ("X", "y", "partition") or not isinstance(value, int | float | str) or repr(value) in text
        _expected, _, got = text.partition("got ")
        assert re.search(r"[.:)\]'] +[A-Z\"].*\.?$", got), f"no remedy: {text}"


def test_a_missing_number_is_named_and_a_start_that_is_none_is_refused():
    named = pd.DataFrame(with_nan(X), columns=FRAME.columns)
    for data, place in (
        (named, "in column 'weight', row 7"),
        (with_nan(X), "X[7, 2]"),
        (csr_array(with_nan(X)), "X[7, 2]"),
    ):
        with refused("nan", place):
            from_arrays(data, B, 5)
    with refused("loss", "nan", "example 0 of node 0"):
        from_loss(lambda p, e: loss(p, e) + jnp.log(p["b"] - 1), START, BATCH)
    with refused("params", "random key"):
        from_loss(loss, {"k": jax.random.key(0)}, BATCH)
    with refused("finite gradients"):
        from_loss(lambda p, e: jnp.sqrt(jnp.abs(p["b"])), START, BATCH)
    with pytest.warns(UserWarning, match="gradient of the loss is zero"):
        from_loss(lambda p, e: p["b"] * jnp.sum(p["w"]), START, BATCH)
