"""Laws of from_arrays, from_loss and from_model: what they build is what the other constructors build."""

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from flax import linen, nnx
from jax.flatten_util import ravel_pytree
from scipy.sparse import coo_array, csr_array

import jdfl
from jdfl import testing
from jdfl.engine import metrics
from jdfl.problems import check_problem, from_arrays, from_loss, from_model
from tests.problems.test_front_door import Torch
from tests.refused import all_refused

RANDOM = np.random.default_rng(1)
N, P = 60, 4
X = RANDOM.integers(-50, 50, (N, P)).astype(np.float64) / 4  # exact in every type
Y = np.arange(N) % 3
TARGETS = X @ np.arange(1, 5) / 8 + 0.5
NAMES = np.array(["ash", "birch", "cedar"])[Y]
FRAME = pd.DataFrame(X, columns=list("abcd"))


def containers():
    """The same numbers in everything that holds rows."""
    yield from (X.tolist(), np.asfortranarray(X), X.astype(object), FRAME.astype({"a": "float32", "b": object}))
    yield from (FRAME.astype("Float64"), FRAME.astype("double[pyarrow]"), jnp.asarray(X, jnp.float32), Torch(X))
    yield X.astype(np.longdouble)


def label_containers():
    """The same labels in everything that holds some."""
    yield from (Y.tolist(), Y[:, None], Y.astype(float), Y.astype(object), jnp.asarray(Y), Torch(Y), pd.Index(Y))
    yield from (pd.Series(Y), pd.Series(Y, dtype="Int8"), pd.DataFrame({"y": Y}), pd.Series(pd.Categorical(Y)))


VALUES = jax.jit(lambda problem, w: problem.values(w))


def same(one, other):
    leaves, others = jax.tree.leaves(one), jax.tree.leaves(other)
    assert len(leaves) == len(others)
    for a, b in zip(leaves, others):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)


def labelled(problem):
    """All examples, of training and testing, without padding, with the names of their classes, sorted."""
    real = np.asarray(problem.weight) > 0
    held = [(x, k) for x, k in zip(np.asarray(problem.data[0])[real], np.asarray(problem.data[1])[real])]
    held += [] if problem.test is None else [(np.asarray(x), k) for x, k in zip(*problem.test)]
    return sorted((bytes(x), problem.class_names[int(k)]) for x, k in held)


def test_every_container_of_the_same_numbers_makes_the_same_problem():
    how = {"nodes": 5, "partition": "shards"}
    expected = from_arrays(X, NAMES, **how, standardise=True)
    for features in containers():
        same(from_arrays(features, NAMES, **how, standardise=True), expected)
    same(from_arrays(coo_array(X), Y > 0, **how), from_arrays(csr_array(X), Y > 0, **how))
    expected = from_arrays(X, Y, 5, partition="dirichlet")
    for labels in label_containers():
        found = from_arrays(X, labels, 5, partition="dirichlet")
        same(found, expected)
        assert found.class_names == (0, 1, 2)


def test_the_task_follows_from_the_labels_and_sparse_rows_stay_sparse():
    kinds = jdfl.problems.LinearRegression, jdfl.problems.LogisticRegression, jdfl.problems.SoftmaxRegression
    for kind, y in ((0, TARGETS), (1, Y == 0), (1, np.where(Y == 0, -1, 1)), (2, NAMES)):
        assert type(from_arrays(X, y, 5)) is kinds[kind]
    assert isinstance(from_arrays(X, np.arange(N), 5, task="regression"), kinds[0])
    assert from_arrays(X, NAMES, 5).class_names == ("ash", "birch", "cedar")
    sparse, dense = from_arrays(csr_array(X), Y > 0, 5), from_arrays(X, Y > 0, 5)
    assert isinstance(sparse, jdfl.problems.SparseLogisticRegression)
    w = RANDOM.standard_normal((5, P + 1)).astype(np.float32)
    np.testing.assert_allclose(VALUES(sparse, w), VALUES(dense, w), rtol=1e-5)
    assert sparse.class_names == dense.class_names == (False, True)


@pytest.mark.parametrize(
    ("partition", "fraction"), [("iid", 0.25), ("dirichlet", 0), ("clients", 0.25), ("given", 0.25)]
)
def test_every_example_is_at_one_node_or_in_the_test_set(partition, fraction):
    how = {"partition": partition, "test_fraction": fraction, "intercept": False, "dtype": "float32"}
    if partition == "given":
        parts = [slice(0, 7), slice(7, 40), slice(40, N)]
        found = from_arrays([X[one] for one in parts], [NAMES[one] for one in parts], **how)
        assert found.m == 3
    else:
        found = from_arrays(X, NAMES, **how, **({"clients": NAMES} if partition == "clients" else {"nodes": 5}))
    assert labelled(found) == sorted((bytes(x), name) for x, name in zip(X.astype(np.float32), NAMES))
    derived = {"holdout": fraction > 0, "partition": partition == "dirichlet"}
    assert set(found.derived) == {name for name, is_so in derived.items() if is_so}


def test_given_parts_keep_order_and_names_clients_an_example_and_a_test_set_the_classes_numbers():
    parts, how = [slice(40, N), slice(0, 40)], {"partition": "given", "test_fraction": 0, "intercept": False}
    given = [X[one] for one in parts], [NAMES[one] for one in parts]
    found = from_arrays(*given, clients=["north", "south"], **how)
    np.testing.assert_array_equal(found.sizes, [20, 40])
    np.testing.assert_array_equal(found.data[0][0, :20], X[40:].astype(np.float32))
    assert "north, south" in repr(found)
    assert ">2: north, south</td>" in found._repr_html_()
    found = from_arrays(X, NAMES, clients=[f"client {i // 2}" for i in range(N)], test_fraction=0.5)
    assert found.m == 30
    assert ", ..." in repr(found)
    assert (np.asarray(found.sizes) >= 1).all()  # of every client
    with pytest.warns(UserWarning, match="'ash'"):
        found = from_arrays(X, NAMES, 5, test=(X[:3], ["cedar", "cedar", "birch"]))
    np.testing.assert_array_equal(found.test[1], [2, 2, 1])
    assert found.derived == ()


def test_all_doors_take_the_same_arguments_and_make_the_same_split():
    """Text labels, clients, partitions, test sets and standardised features, from the same rows."""
    names, fresh, weight = [f"client {i % 7}" for i in range(N)], (X[:9] + 1, NAMES[:9]), 1 + np.arange(N)
    start, table = {"w": np.zeros((P, 3))}, (X, NAMES)

    def loss(p, example):
        z = example[0] @ p["w"]
        return jax.nn.logsumexp(z) - z[example[1]]

    for nodes, how in (
        (5, {"test_fraction": 0.2}),
        (5, {"partition": "dirichlet", "alpha": 1.0, "test": fresh, "seed": 3}),
        (5, {"partition": "shards", "shards_per_node": 3, "standardise": True, "test_fraction": 0.3}),
        (None, {"clients": names, "test_fraction": 0.2, "standardise": True}),
        (None, {"partition": "shards", "test_fraction": 0.0, "public": ("partition",)}),
    ):
        known = from_arrays(X, NAMES, nodes, intercept=False, **how)
        for own in (from_loss(loss, start, table, nodes, **how), from_model("mlp", X, NAMES, nodes, **how)):
            assert (own.derived, own.public, own.class_names) == (known.derived, known.public, known.class_names)
            assert (own.node_names, own.about.partition) == (known.node_names, known.about.partition)
            same(own.weight, known.weight)
            real = np.asarray(known.weight) > 0
            for leaf, other in zip(own.data, known.data):
                np.testing.assert_allclose(np.asarray(leaf)[real], np.asarray(other)[real], rtol=1e-6)
            for leaf, other in zip(jax.tree.leaves(own.test), jax.tree.leaves(known.test)):
                np.testing.assert_allclose(leaf, other, rtol=1e-6)
    own = from_loss(loss, start, (np.hstack([X[:, 1:], weight[:, None]]), NAMES), 5, weight=weight, test_fraction=0.2)
    same(own.weight[own.weight > 0], own.data[0][own.weight > 0][:, -1])  # weights stay with their examples
    signs = from_loss(loss, start, (X, np.where(Y > 0, 1, -1)), 5, partition="dirichlet").data[1]
    assert set(np.unique(signs)) == {-1, 1}  # numbers are the loss's own
    all_refused(
        (lambda: from_arrays(X, NAMES, 5, test=(X[:9], NAMES[:9])), "test", "training data"),
        (lambda: from_model("mlp", X, NAMES, 5, test=(X[:9], NAMES[:9])), "test", "training data"),
        (lambda: from_loss(loss, start, table, 5, test=(X[:9], NAMES[:9])), "test", "training data"),
        (lambda: from_loss(loss, start, (X, Y), 5, test=(X[:9], Y[:9])), "test", "training data"),
        (lambda: from_loss(loss, start, {"x": X, "y": Y}, 5, clients=names), "(X, y)", "clients"),
        (lambda: from_loss(loss, start, (X, [*NAMES[:-1], None]), 5), "y[59] = None"),
        (lambda: from_loss(loss, start, (X, TARGETS), 5, partition="dirichlet"), "partition"),
    )
    with pytest.warns(UserWarning, match="training"):  # categories may be equal by chance
        from_arrays(np.sign(X[:, :1]), NAMES, 5, test=(np.sign(X[:9, :1]), NAMES[:9]))


def test_regression_fits_an_intercept_and_reports_the_test_loss():
    found = from_arrays(X, TARGETS, 3, standardise=True)
    given = from_arrays(X, TARGETS, 3, test=(csr_array(X + 1), TARGETS), intercept=False).test
    same(given, ((X + 1).astype(np.float32), TARGETS.astype(np.float32)))
    best = jdfl.problems.optimum(found)
    assert best.value < 1e-9
    test_loss = jax.jit(metrics.REGISTRY["test_loss"])
    w = np.broadcast_to(np.asarray(best.w, np.float32), (3, P + 1))
    assert float(test_loss(w, found)) < 1e-9
    np.testing.assert_allclose(test_loss(0 * w, found), 0.5 * np.mean(np.square(found.test[1])), rtol=1e-6)


PARTS = [(X[:7], Y[:7] > 0), (X[7:40], Y[7:40] > 0), (X[40:], Y[40:] > 0)]


def logistic(params, example):
    x, y = example
    z = x @ params["w"]
    return jax.nn.softplus(z) - y * z


@jax.jit
def looked_at(problem, w):
    """Values [m], gradients [m, n] and the gradients of all examples [m, q, n] where they count."""
    each = jax.vmap(problem.example_gradients)(w, problem.data)
    return problem.values(w), problem.gradients(w), jnp.where(problem.weight[..., None] > 0, each, 0.0)


@jax.jit
def told_of(problem, w):
    """The loss on the test set and, of a classification, the predicted classes."""
    return problem.test_loss(w, None), *([problem.predict(w, None)] if metrics.classifies(problem) else [])


def alike(own, known, w, rtol=1e-5):
    for one, other in zip(looked_at(own, w), looked_at(known, w)):
        np.testing.assert_allclose(one, other, rtol=rtol, atol=rtol / 10)


def test_the_logistic_loss_is_logistic_regression():
    parts = [(features, labels.astype(int)) for features, labels in PARTS]
    known = jdfl.problems.logistic_regression(parts, penalty=0.01, test=(parts[0][0] + 1, parts[0][1]))
    data = [(features, labels.astype(float)) for features, labels in parts]
    own = from_loss(logistic, {"w": np.zeros(P)}, data, penalty=0.01, test=(data[0][0] + 1, data[0][1]))
    w = RANDOM.standard_normal((3, P)).astype(np.float32)
    alike(own, known, w)
    np.testing.assert_allclose(told_of(own, w[0])[0], told_of(known, w[0])[0], rtol=1e-5)
    stacked, weight = [RANDOM.standard_normal((3, 33, P)), RANDOM.standard_normal((3, 33))], np.zeros((3, 33))
    for i, one in enumerate(data):  # or stacked, with weights and any padding
        weight[i, : len(one[1])] = 1
        for whole, values in zip(stacked, one):
            whole[i, : len(values)] = values
    padded = from_loss(logistic, {"w": np.zeros(P)}, tuple(stacked), weight=weight, penalty=0.01)
    alike(padded, known, w)
    split = from_loss(logistic, {"w": np.ones(P, np.float32)}, (X, Y > 0), nodes=7)
    real = np.asarray(split.weight) > 0
    assert sorted(map(bytes, np.asarray(split.data[0])[real])) == sorted(map(bytes, X.astype(np.float32)))


class Linear(nnx.Module):
    def __init__(self, rngs, outputs=3, bias=False):
        self.last = nnx.Linear(P, outputs, use_bias=bias, rngs=rngs)

    def __call__(self, x):
        return self.last(x)


def test_a_linear_network_is_softmax_linear_or_logistic_regression():
    model = Linear(nnx.Rngs(0))
    how = {"penalty": 0.01, "partition": "dirichlet", "alpha": 0.3}
    own, known = from_model(model, X, NAMES, 5, **how), from_arrays(X, NAMES, 5, intercept=False, **how)
    check_problem(own)
    same(own.data, known.data)
    np.testing.assert_array_equal(own.start, model.last.kernel[...].ravel())
    w = (0.1 * RANDOM.standard_normal((5, known.n))).astype(np.float32)
    for one in (own, from_model(model, X, NAMES, 5, loss=lambda z, y: jax.nn.logsumexp(z) - z[y], **how)):
        alike(one, known, w, 1e-4)
    for a, b in zip(told_of(own, w[0]), told_of(known, w[0])):
        np.testing.assert_allclose(a, b, rtol=1e-5)
    assert own.class_names == known.class_names
    for y, loss in ((TARGETS, None), (TARGETS, lambda z, y: 0.5 * (z[0] - y) ** 2), (Y > 0, None)):
        own = from_model(Linear(nnx.Rngs(0), 1), X, y, 5, loss=loss)
        known = from_arrays(X, y, 5, intercept=False, penalty=0)
        alike(own, known, w[:, :P], 1e-4)
        assert metrics.classifies(own) == metrics.classifies(known) == (own.classes > 0) == (y is not TARGETS)
    np.testing.assert_array_equal(told_of(own, w[0, :P])[1], told_of(known, w[0, :P])[1])
    np.testing.assert_allclose(own.scores(w[0, :P], X)[:, 0], X @ w[0, :P], rtol=1e-4, atol=1e-4)


def test_a_model_may_be_an_instance_a_function_a_name_or_a_model_with_a_loss_and_a_split():
    def make(rngs):
        return Linear(rngs, bias=True)

    one, other = from_model(make, X, NAMES, 5, init_seed=3), from_model(make(nnx.Rngs(3)), X, NAMES, 5)
    assert one.n == other.n == 15
    assert from_model("mlp", X, NAMES, 5, shared="partpsp-1").personal
    assert from_model("mlp", RANDOM.integers(0, 255, (N, 4, 4, 1)).astype(np.uint8), Y, 3).data[0].dtype == jnp.uint8
    mlp = jdfl.models.mlp(shape=(P,), classes=3, hidden=5)
    np.testing.assert_array_equal(from_model(mlp, X, NAMES, 5, init_seed=2).start, mlp.init(2))
    split = from_model(make(nnx.Rngs(3)), X, NAMES, 5, shared=("*.kernel",))
    assert (split.n_shared, split.n) == (12, 15)
    np.testing.assert_array_equal(split.start[:12], make(nnx.Rngs(3)).last.kernel[...].ravel())
    w = RANDOM.standard_normal(15).astype(np.float32)
    np.testing.assert_array_equal(jnp.argmax(one.module(w)(one.test[0]), axis=1), told_of(one, w)[1])


def test_parameters_are_the_vector_that_jax_makes_of_them_and_come_back():
    params = {"a": np.ones((2, 3), np.float32), "b": [np.float32(0), np.arange(4, dtype=np.float32)]}

    def loss(params, example):
        return jnp.sum(params["a"]) * example + jnp.sum(params["b"][1]) + params["b"][0]

    found = from_loss(loss, params, np.ones((3, 5), np.float32))
    np.testing.assert_array_equal(found.start, ravel_pytree(params)[0])
    same(found.unflatten(found.start), params)
    assert found.unflatten(found.initial_params())["b"][1].shape == (3, 4)
    split = from_loss(loss, params, np.ones((3, 5), np.float32), shared=("b.*",))
    assert (split.n_shared, split.n) == (5, 11)
    same(split.unflatten(split.start), params)
    w = RANDOM.standard_normal((3, 11)).astype(np.float32)
    back = np.concatenate([w[:, 5:], w[:, :5]], axis=1)
    np.testing.assert_allclose(VALUES(split, w), VALUES(found, back), rtol=1e-5)


def test_all_kinds_of_trees_of_parameters_are_taken():
    data, module = (X.astype(np.float32), Y), Linear(nnx.Rngs(0))
    kernel = np.asarray(module.last.kernel[...])
    known = jdfl.problems.softmax_regression([data], penalty=0)
    w = 0.1 * RANDOM.standard_normal((1, known.n)).astype(np.float32)
    for params, apply in (
        (module, lambda p, x: p(x)),
        ({"params": {"kernel": kernel}}, linen.Dense(3, use_bias=False).apply),
        ({"kernel": kernel, "last": jax.nn.identity}, lambda p, x: p["last"](x @ p["kernel"])),
    ):

        def loss(p, example, apply=apply):
            z = apply(p, example[0])
            return jax.nn.logsumexp(z) - z[example[1]]

        own = from_loss(loss, params, [data], predict=apply, test=(data[0] + 1, data[1]))
        np.testing.assert_allclose(VALUES(own, w), VALUES(known, w), rtol=1e-5)
        np.testing.assert_array_equal(own.start, kernel.ravel())
        np.testing.assert_array_equal(told_of(own, w[0])[1], np.argmax((data[0] + 1) @ w.reshape(P, 3), axis=1))
        assert own.classes == 3


@pytest.mark.rotated(4)
@pytest.mark.parametrize(
    "how", [{}, {"norm": "entries"}, {"per": "batch"}, {"sampling": "poisson", "batch": 3}], ids=str
)
def test_every_way_to_clip_is_that_of_linear_regression(how):
    known = testing.small_problem()
    own = from_loss(lambda w, one: 0.5 * (one[0] @ w - one[1]) ** 2, np.zeros(known.n, np.float32), known.data)
    case = testing.Case(jdfl.DPSGD(lr=0.05, gradients=jdfl.Gradients(clip=0.3, **how)), known)
    played = case.play(own.replace(shared=known.shared, curvature=known.curvature))
    np.testing.assert_allclose(played[1], case.play()[1], rtol=1e-6, atol=1e-9)


def test_problems_of_other_draws_share_one_program_and_have_a_short_text():
    model, how = Linear(nnx.Rngs(0)), {"standardise": True, "test_fraction": 0.5}
    for draw in (
        lambda seed: from_arrays(X, NAMES, 4, partition="iid", seed=seed, **how),
        lambda seed: from_loss(logistic, {"w": np.ones(P, np.float32)}, (X, Y > 0), nodes=4, seed=seed),
        lambda seed: from_model(model, X, NAMES, 4, seed=seed, **how),
    ):
        one, other = draw(0), draw(1)
        assert jax.tree.structure(one) == jax.tree.structure(other)
        assert jax.tree.map(jnp.shape, one) == jax.tree.map(jnp.shape, other)
        assert len(repr(one).splitlines()) <= 12
        assert len(str(jax.tree.structure(one))) < 1000
        assert jax.eval_shape(lambda p: [p.weight, repr(p)][0], one).shape == one.weight.shape
