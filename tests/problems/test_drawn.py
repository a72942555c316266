"""Problems whose examples are drawn when they are looked at agree with the same problems in memory."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jdfl
from jdfl.problems import check_problem, drawn_regression, example1, linear_regression, optimum, value_at_truth
from jdfl.problems import drawn as module
from jdfl.problems.linear import build
from tests.later import Later

pytestmark = pytest.mark.optimized  # what is drawn again has the same bits

M, N = 6, 30
drawn = Later(example1, m=M, n=N, s=4, rows=(5, 9), storage="generated")
stored = Later(lambda: drawn().stored())
network = Later(jdfl.network.ring, M)


@pytest.mark.slow
def test_what_is_stored_is_the_weights():
    check_problem(drawn())
    check_problem(stored())
    assert sum(leaf.size for leaf in jax.tree.leaves((drawn().data, drawn().weight, drawn().curvature))) < M * (9 + 3)
    assert stored().data[0].shape == (M, 9, N)
    assert drawn().replace(shared=7).stored().n_shared == 7
    assert not np.asarray(stored().data[0])[np.asarray(stored().weight) == 0].any()


def test_it_is_example_1():
    many = example1(m=40, n=50, s=4, rows=(20, 60), storage="generated", seed=3)
    sizes = np.asarray(many.sizes)
    assert sizes.min() >= 20
    assert sizes.max() <= 60
    assert len(set(sizes.tolist())) > 10
    np.testing.assert_array_equal(many.truth, example1(m=1, n=50, s=4, rows=(2, 6), seed=3).truth)
    A = np.asarray(many.stored().data[0])[np.asarray(many.weight) > 0]
    assert abs(A.mean()) < 5 / np.sqrt(A.size)
    assert abs(A.var() - 1) < 5 * np.sqrt(2 / A.size)
    assert len(np.unique(A)) > 0.98 * A.size  # every example has a key of its own
    deviation = 0.125 * np.sqrt(np.mean(2 / sizes) / 40)
    assert abs(value_at_truth(many) - 0.125) < 5 * deviation


@pytest.mark.slow
def test_more_nodes_begin_alike_and_seeds_differ():
    more = example1(m=M + 3, n=N, s=4, rows=(5, 9), storage="generated")
    np.testing.assert_array_equal(
        more.nodes(jnp.arange(M)).gradients(drawn().begin()), drawn().gradients(drawn().begin())
    )
    other = example1(m=M, n=N, s=4, rows=(5, 9), storage="generated", seed=1)
    assert not np.array_equal(other.gradients(other.begin()), drawn().gradients(drawn().begin()))


def test_values_gradients_curvature_and_optimum():
    w = jax.random.normal(jax.random.key(1), (M, N))
    np.testing.assert_allclose(drawn().values(w), stored().values(w), rtol=1e-6)
    np.testing.assert_allclose(drawn().values_at(w[0]), stored().values_at(w[0]), rtol=1e-6)
    np.testing.assert_allclose(drawn().gradients(w), stored().gradients(w), rtol=1e-5, atol=1e-6)
    again = build(stored().data, stored().weight, None, None, "", np.dtype("float32")).curvature
    np.testing.assert_allclose(drawn().curvature, again, rtol=1e-6)
    np.testing.assert_allclose(optimum(drawn()).w, optimum(stored()).w, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("at_once", [1, 4])
def test_nodes_may_go_one_after_another(at_once, monkeypatch):
    w = jax.random.normal(jax.random.key(1), (M, N))
    whole = drawn().gradients(w)
    monkeypatch.setattr("jdfl.problems.drawn._AT_ONCE", at_once * 9 * N)
    text = str(jax.make_jaxpr(lambda problem: problem.gradients(w))(drawn()))
    assert f"f32[{M},9,{N}]" not in text
    np.testing.assert_allclose(drawn().gradients(w), whole, rtol=1e-6, atol=1e-7)


@pytest.mark.rotated(6)
@pytest.mark.parametrize(
    "gradients",
    [
        jdfl.Gradients(),
        jdfl.Gradients(clip=1.0),
        jdfl.Gradients(batch=2),
        jdfl.Gradients(batch=2, sampling="subset", clip=1.0, norm="entries"),
        jdfl.Gradients(batch=2, sampling="poisson", clip=1.0),
        jdfl.Gradients(batch=2, sampling="epochs"),
    ],
    ids=["all", "clipped", "batch", "subset", "poisson", "epochs"],
)
def test_runs_agree(gradients):
    algorithm = jdfl.DPSGD(lr=0.05, gradients=gradients)
    ours, theirs = (jdfl.run(algorithm, one, network(), steps=8, key=2) for one in (drawn(), stored()))
    np.testing.assert_allclose(ours.params, theirs.params, rtol=1e-5, atol=1e-6)
    chex.assert_trees_all_close(dict(ours.history.iloc[-1]), dict(theirs.history.iloc[-1]), rtol=1e-5)


def test_a_draw_of_ones_own():
    def draw(key):
        features = jax.random.uniform(key, (3,))
        return features, features[0]

    problem = drawn_regression(draw, [2, 1, 4, 4], key=jax.random.key(5))
    assert (problem.m, problem.n, problem.weight.shape[1]) == (4, 3, 4)
    np.testing.assert_allclose(optimum(problem).w, [1, 0, 0], atol=1e-5)
    key = jax.random.fold_in(jax.random.fold_in(module._EXAMPLES.of(jax.random.key(5)), 2), 3)
    np.testing.assert_array_equal(problem.stored().data[0][2, 3], draw(key)[0])


def test_float64():
    with jax.enable_x64(True):
        problem = example1(m=2, n=5, s=1, rows=(7, 7), storage="generated", noise=0.0, dtype="float64")
        assert problem.gradients(problem.begin()).dtype == np.float64
        assert value_at_truth(problem) < 1e-28


def one(key):
    return jnp.zeros(3), jnp.float32(0)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"sizes": [2, 0]}, "sizes of whole numbers from 1"),
        ({"sizes": []}, "sizes of whole numbers from 1"),
        ({"sizes": [1.5]}, "sizes of whole numbers from 1"),
        ({"sizes": 3}, "sizes"),
        ({"draw": 3}, "draw to be a function"),
        ({"draw": lambda key: jnp.zeros(3)}, "features .n. and a target"),
        ({"draw": lambda key: (jnp.zeros(3), jnp.zeros(1))}, "features .n. and a target"),
        ({"draw": lambda key: (jnp.zeros(3, jnp.int32), jnp.float32(0))}, "float32"),
        ({"key": -1}, "key"),
        ({"truth": [1.0]}, "truth"),
        ({"rows": 1}, "rows >= 2"),
    ],
)
def test_refusals(settings, message):
    with pytest.raises(ValueError, match=message):
        drawn_regression(**({"draw": one, "sizes": [2, 2]} | settings))


def test_other_refusals():
    with pytest.raises(ValueError, match=r"storage.*generated"):
        example1(storage="disk")
    bad = drawn_regression(lambda key: (jnp.full(3, jnp.nan), jnp.float32(0)), [2, 2])
    with pytest.raises(ValueError, match=r"finite.*draw"):
        check_problem(bad)
    noisy = jdfl.DPSGD(gradients=jdfl.Gradients(clip=1.0, mechanism=jdfl.Gaussian(1.0)))
    with pytest.raises(ValueError, match="dense"):
        jdfl.audit(noisy, drawn(), network(), steps=2, node=0)


def test_linear_regression_draws_or_stores_what_a_function_makes():
    def draw(key):
        features = jax.random.normal(key, (5,))
        return features, features[0] - features[3]

    given = {"truth": [1.0, 0, 0, -1, 0], "test": (np.eye(5), np.ones(5))}
    made = linear_regression(draw, [3, 2], storage="generated", key=7, **given)
    assert made.data.shape == (2,)  # nothing but the nodes' numbers
    stored = linear_regression(draw, [3, 2], key=7, **given)
    assert stored.data[0].shape == (2, 3, 5)
    w = jnp.ones((2, 5))
    np.testing.assert_allclose(made.gradients(w), stored.gradients(w), rtol=1e-6)
    np.testing.assert_array_equal(made.test[0], stored.test[0])
    np.testing.assert_allclose(stored.values(jnp.broadcast_to(stored.truth, (2, 5))), 0, atol=1e-12)
    with pytest.raises(ValueError, match=r"storage = 'generated', got arrays.*Give draw"):
        linear_regression([np.eye(5)], [np.ones(5)], storage="generated")
    with pytest.raises(ValueError, match="storage"):
        linear_regression(draw, [3, 2], storage="elsewhere")
