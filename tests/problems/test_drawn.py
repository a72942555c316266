"""The instance of the CEPS paper's Example 1, and problems whose examples are drawn when they are looked at."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jdfl
from jdfl.devices import memory
from jdfl.problems import check_problem, example1, linear_regression, optimum, sample_regression, value_at_truth
from jdfl.problems import least_squares as module
from jdfl.problems.least_squares import build
from tests.later import Later
from tests.refused import all_refused, each_refused, refused

M, N = 6, 30
drawn = Later(example1, m=M, n=N, s=4, rows=(5, 9), storage="generated")
stored = Later(lambda: drawn().stored())
network = Later(jdfl.network.ring, M)


@pytest.mark.parametrize("storage", ["stored", "generated"])
def test_facts_of_example_1(storage):
    problem = example1(m=16, n=60, s=10, rows=(50, 150), seed=7, storage=storage)
    check_problem(problem)
    sizes, truth = np.asarray(problem.weight).sum(axis=1), np.asarray(problem.truth)
    assert 50 <= sizes.min() < sizes.max() <= 150
    nonzeros = truth[truth != 0]
    assert (len(nonzeros), np.abs(nonzeros).min() >= 0.5, np.abs(nonzeros).max() <= 2) == (10, True, True)
    assert 0 < np.mean(nonzeros > 0) < 1
    deviation = 0.125 * np.sqrt(np.mean(2 / sizes) / 16)  # of the mean of m scaled chi-squares
    assert abs(value_at_truth(problem) - 0.125) < 5 * deviation
    A, b = (np.asarray(leaf) for leaf in (problem.stored() if storage == "generated" else problem).data)
    real = np.asarray(problem.weight) > 0
    assert abs(A[real].mean()) < 5 / np.sqrt(A[real].size)
    assert abs(A[real].var() - 1) < 5 * np.sqrt(2 / A[real].size)
    assert len(np.unique(A[real])) > 0.98 * A[real].size  # every example has a key of its own
    assert not any(np.any(part[~real]) for part in (A, b))


def test_noise_sizes_seeds_and_nodes():
    exact = example1(3, 40, 4, (9, 9), noise=0.0)
    assert np.asarray(exact.weight).all()
    assert value_at_truth(exact) < 1e-12
    first, again, other = example1(3, 40, 4, (5, 9)), example1(3, 40, 4, (5, 9)), example1(3, 40, 4, (5, 9), seed=1)
    np.testing.assert_array_equal(first.data[0], again.data[0])
    assert not np.array_equal(first.data[0], other.data[0])
    assert first.data[0].shape == other.data[0].shape
    more = example1(5, 40, 4, (5, 9))
    np.testing.assert_array_equal(more.data[1][:3], first.data[1])
    np.testing.assert_array_equal(more.truth, first.truth)
    assert not np.array_equal(first.data[0][0], first.data[0][1])


@pytest.mark.parametrize("storage", ["stored", "generated"])
def test_what_would_not_fit_is_refused_before_anything_is_drawn(storage, monkeypatch):
    monkeypatch.setattr(memory, "available", lambda: 2**34)
    all_refused(
        (lambda: example1(2**31 - 1, storage=storage), "2147483647 x 750"),
        (lambda: example1(4, rows=(250, 2**63), storage=storage), "2147483647"),
    )
    monkeypatch.setattr(memory, "available", lambda: 2**20)
    n = 2**15 if storage == "generated" else 2**16  # 40 bytes of each, or 12 and two examples
    with refused(f"{n} true parameters"):
        example1(1, n, 2, rows=(1, 2), storage=storage)
    assert example1(1, n // 2, 2, rows=(1, 2), storage=storage).n == n // 2


@jax.jit
def looked_at(problem, w):
    return problem.values(w), problem.values_at(w[0]), problem.gradients(w)


def test_values_gradients_and_curvature_are_those_of_the_same_problem_in_memory(monkeypatch):
    w = np.random.default_rng(1).standard_normal((M, N)).astype(np.float32)
    assert sum(leaf.size for leaf in jax.tree.leaves((drawn().data, drawn().weight, drawn().curvature))) < M * (9 + 3)
    assert stored().data[0].shape == (M, 9, N)
    expected = looked_at(stored(), w)
    again = build(stored().data, stored().weight, None, None, "", np.dtype("float32")).curvature
    np.testing.assert_allclose(drawn().curvature, again, rtol=1e-6)
    chex.assert_trees_all_close(looked_at(drawn(), w), expected, rtol=1e-5, atol=1e-6)
    monkeypatch.setattr("jdfl.problems.least_squares._AT_ONCE", 4 * 9 * N)  # some nodes after others
    apart = jax.jit(lambda problem, w: problem.gradients(w))
    assert f"f32[{M},9,{N}]" not in str(jax.make_jaxpr(apart)(drawn(), w))
    np.testing.assert_allclose(apart(drawn(), w), expected[2], rtol=1e-5, atol=1e-6)


@pytest.mark.rotated(4)
@pytest.mark.parametrize(
    "gradients",
    [
        {},
        {"batch": 2, "sampling": "subset", "clip": 1.0, "norm": "entries"},
        {"batch": 2, "sampling": "poisson", "clip": 1.0},
        {"batch": 2, "sampling": "epochs"},
    ],
    ids=str,
)
def test_runs_agree(gradients):
    algorithm, how = (
        jdfl.DPSGD(lr=0.05, gradients=jdfl.Gradients(**gradients)),
        {"steps": 6, "key": 2, "metrics": ["objective"]},
    )
    ours, theirs = (jdfl.run(algorithm, one, network(), **how) for one in (drawn(), stored()))
    np.testing.assert_allclose(ours.params, theirs.params, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(ours.final["objective"], theirs.final["objective"], rtol=1e-5)


def test_a_draw_of_ones_own_is_drawn_or_stored():
    def draw(key):
        features = jax.random.uniform(key, (3,))
        return features, features[0]

    problem = sample_regression(draw, [2, 1, 4, 4], key=jax.random.key(5))
    np.testing.assert_allclose(optimum(problem).w, [1, 0, 0], atol=1e-5)
    key = jax.random.fold_in(jax.random.fold_in(module._EXAMPLES.of(jax.random.key(5)), 2), 3)
    np.testing.assert_array_equal(problem.stored().data[0][2, 3], draw(key)[0])
    made = sample_regression(draw, [3, 2], truth=[1.0, 0, 0], key=7)
    kept = made.stored()
    assert (made.data.shape, kept.data[0].shape) == ((2,), (2, 3, 3))  # nothing but the nodes' numbers
    chex.assert_trees_all_close(looked_at(made, jnp.ones((2, 3))), looked_at(kept, jnp.ones((2, 3))), rtol=1e-6)


def test_refusals():
    def one(key):
        return jnp.zeros(3), jnp.float32(0)

    for name, value in {"sizes": [2, 0], "draw": 3, "key": -1, "truth": [1.0], "rows": 1}.items():
        with refused(name):
            sample_regression(**{"draw": one, "sizes": [2, 2], name: value})
    jdfl.problems.base.check_finite("data", jax.random.split(jax.random.key(0), 2))  # keys, which NumPy cannot read
    nan = sample_regression(lambda key: (jnp.full(3, jnp.nan), jnp.float32(0)), [2, 2])
    noisy = jdfl.DPSGD(gradients=jdfl.Gradients(clip=1.0, mechanism=jdfl.Gaussian(1.0)))
    all_refused(
        (lambda: sample_regression(lambda key: jnp.zeros(3), [2, 2]), "draw"),
        (lambda: sample_regression(lambda key: (jnp.zeros(3, jnp.float16), jnp.float32(0)), [2, 2]), "float16"),
        (lambda: check_problem(nan), "finite", "draw"),
        (lambda: jdfl.audit(noisy, drawn(), network(), steps=2, node=0), "dense"),
        (lambda: linear_regression(one, [2, 2]), "features"),
    )
    each_refused(example1, {"storage": "disk"}, {"noise": -0.5})
    all_refused((lambda: example1(n=5, s=6), "s"), (lambda: example1(rows=(9, 8)), "rows"))
