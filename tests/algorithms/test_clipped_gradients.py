"""Clipped gradients are what they are said to be, however they are computed, and bounded by their sensitivity."""

from dataclasses import replace
from functools import partial
from itertools import product

import hypothesis
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import random_array

import jdfl
from jdfl.algorithms import clipping
from jdfl.algorithms import gradients as module
from jdfl.algorithms.moment import Moment
from jdfl.algorithms.sending import Prepared
from tests.algorithms.play import M, N, direct, example, network
from tests.later import Named

CLIP, CLASSES = 0.7, 3
ORDER = {"l1": 1, "l2": 2, "linf": np.inf}


@jdfl.base.struct.dataclass
class Opaque(jdfl.problems.LinearRegression):
    """Least squares that does not tell what its gradients are made of."""

    def slopes(self, w, data):
        return None


def opaque(problem):
    return Opaque(problem.data, problem.weight, problem.curvature)


def uneven(problem):
    """The same problem with examples of unequal weight."""
    weight = np.asarray(problem.weight) * np.random.default_rng(4).uniform(0.5, 2.0, problem.weight.shape)
    return problem.replace(weight=jnp.asarray(weight, problem.dtype))


_draw = np.random.default_rng(0)
PARTS = [(_draw.standard_normal((int(q), N)), _draw.integers(0, CLASSES, int(q))) for q in _draw.integers(5, 11, M)]
TWO = [(features, labels % 2) for features, labels in PARTS]
ROWS = [(random_array((9, N), density=0.3, format="csr", rng=_draw), _draw.integers(0, 2, 9)) for _ in range(M)]
PROBLEMS = Named(
    {
        "linear": lambda: uneven(example(np.float32)),
        "opaque": lambda: opaque(uneven(example(np.float32))),
        "logistic": lambda: jdfl.problems.logistic_regression(TWO),
        "softmax": lambda: jdfl.problems.softmax_regression(PARTS, classes=CLASSES),
        "sparse": lambda: jdfl.problems.sparse_logistic_regression(ROWS),
    }
)


@partial(jax.jit, static_argnames=("prepared",))
def evaluate(gradients, problem, w, key, prepared=True):
    round = direct(first_moment(key), problem, gradients)
    return gradients(w, round if prepared else replace(round, prepared=Prepared(module.Ready())))


def first_moment(key):
    return Moment(jnp.int32(0), key, network().graph, jnp.arange(M, dtype=jnp.int32))


def point(problem):
    return jnp.asarray(np.random.default_rng(1).standard_normal((M, problem.n)), problem.dtype)


def by_hand(problem, w, clip, norm):
    """Every node's weighted mean of its examples' shortened gradients, and the regulariser's gradient."""
    each = np.asarray(jax.vmap(problem.example_gradients)(w, problem.data), np.float64)
    length = np.linalg.norm(each, ORDER[norm], axis=2)
    weight = np.asarray(problem.weight, np.float64) * np.minimum(1, clip / np.maximum(length, 1e-30))
    mean = np.einsum("iq,iqn->in", weight, each) / np.asarray(problem.weight, np.float64).sum(axis=1, keepdims=True)
    return mean + np.asarray(jax.vmap(jax.grad(problem.regulariser))(w))


@pytest.mark.parametrize(("name", "norm"), list(product(PROBLEMS, ORDER)))
def test_clipping_is_per_example_in_every_norm_and_however_it_is_computed(name, norm):
    problem = PROBLEMS[name]
    w = point(problem)
    lengths = np.linalg.norm(np.asarray(jax.vmap(problem.example_gradients)(w, problem.data)), ORDER[norm], axis=2)
    clip = float(np.median(lengths[np.asarray(problem.weight) > 0]))  # some are shortened, some are not
    expected = by_hand(problem, w, clip, norm)
    for prepared in (True, False):
        found = evaluate(jdfl.Gradients(clip=clip, norm=norm), problem, w, jax.random.key(0), prepared)
        np.testing.assert_allclose(found, expected, rtol=2e-4, atol=2e-5)


def test_the_features_lengths_are_computed_once_and_only_where_they_help():
    clip, moment = jdfl.Gradients(clip=CLIP), first_moment(jax.random.key(0))
    assert clip.prepare(PROBLEMS["linear"], moment).lengths.shape == PROBLEMS["linear"].weight.shape
    for gradients, name in (
        (jdfl.Gradients(), "linear"),
        (clip, "opaque"),
        (jdfl.Gradients(clip=CLIP, batch=2), "linear"),
        (jdfl.Gradients(clip=CLIP, per="batch"), "linear"),
    ):
        assert gradients.prepare(PROBLEMS[name], moment).lengths is None


@jdfl.base.struct.dataclass
class Absolute(jdfl.problems.LinearRegression):
    """Another loss, but the slopes of the squares."""

    def loss(self, w, example):
        a, b = example
        return jnp.abs(jnp.dot(a, w) - b)


def test_slopes_of_another_loss_are_refused():
    p = PROBLEMS["linear"]
    with pytest.raises(ValueError, match=r"slopes.*Absolute.*return None"):
        jdfl.Gradients(clip=CLIP).check(Absolute(p.data, p.weight, p.curvature))
    huge = p.replace(data=(p.data[0].at[0, 0].set(3e38), p.data[1]))
    for problem in [*PROBLEMS.values(), huge]:
        jdfl.Gradients(clip=CLIP).check(problem)


@pytest.mark.parametrize("at_once", [2**24, 3 * M * N])
def test_chunks_change_nothing(monkeypatch, at_once):
    monkeypatch.setattr(clipping, "_AT_ONCE", at_once)
    jax.clear_caches()
    problem = PROBLEMS["opaque"]
    found = evaluate(jdfl.Gradients(clip=CLIP), problem, point(problem), jax.random.key(0))
    np.testing.assert_allclose(found, by_hand(problem, point(problem), CLIP, "l2"), rtol=2e-4, atol=2e-5)


SAMPLINGS = [{}, {"batch": 1}, {"batch": 4}, {"batch": 4, "sampling": "subset"}, {"batch": 4, "sampling": "poisson"}]
KINDS = [
    {"per": per, "norm": norm, "mechanism": noise, "adjacency": adjacency} | sampling
    for (per, norm, noise, adjacency), sampling in zip(
        [
            ("example", "l2", jdfl.Gaussian(1.0), "replace-one"),
            ("example", "l1", jdfl.Laplace(1.0), "replace-one"),
            ("example", "linf", jdfl.Gaussian(1.0), "add-remove"),
            ("batch", "l2", jdfl.Gaussian(1.0), "replace-one"),
            ("example", "l2", jdfl.Laplace(1.0), "add-remove"),
            ("example", "l2", jdfl.Gaussian(1.0), "replace-one"),
            ("batch", "l1", jdfl.Laplace(1.0), "add-remove"),
            ("example", "l1", jdfl.Gaussian(1.0), "add-remove"),
            ("example", "l2", jdfl.Gaussian(1.0), "replace-one"),
            ("example", "linf", jdfl.Laplace(1.0), "replace-one"),
        ],
        SAMPLINGS * 2,
    )
]


def words(kind):
    sample = f"{kind.get('batch', 'all')}-{kind.get('sampling', 'replacement')}"
    return f"{kind['per']}-{kind['norm']}-{type(kind['mechanism']).__name__}-{kind['adjacency']}-{sample}"


@pytest.mark.parametrize("kind", KINDS, ids=words)
@given(slot=st.integers(0, 7), scale=st.sampled_from([1e-2, 1.0, 1e3, 1e18]), seed=st.integers(0, 2**16))
def test_what_neighbouring_data_change_is_within_the_sensitivity(kind, slot, scale, seed):
    gradients = jdfl.Gradients(clip=CLIP, **kind)
    problem, i = PROBLEMS["linear"], seed % M
    draw = np.random.default_rng(seed)
    A, b = problem.data
    new, target = scale * draw.standard_normal(N), 10 * scale * draw.standard_normal()
    if kind["adjacency"] == "add-remove":  # there, or with zero gradients
        new, target = 0 * new, 0.0
    other = problem.replace(data=(A.at[i, slot].set(jnp.asarray(new, A.dtype)), b.at[i, slot].set(target)))
    if kind["per"] == "batch":  # all of the node's records
        whole = 0 * A[i] if kind["adjacency"] == "add-remove" else jnp.asarray(scale, A.dtype) * A[i][::-1]
        other = problem.replace(data=(A.at[i].set(whole), b.at[i].set(0 * b[i])))
    w, key = point(problem), jax.random.key(seed)
    exact = jdfl.Gradients(**{"clip": CLIP} | {k: v for k, v in kind.items() if k not in ("mechanism", "adjacency")})
    change = np.asarray(evaluate(exact, other, w, key) - evaluate(exact, problem, w, key), np.float64)
    size = np.linalg.norm(change, ORDER[kind["mechanism"].norm], axis=1)
    allowed = np.asarray(gradients.sensitivities(problem))
    assert size[i] <= allowed[i] * (1 + 1e-3) + 1e-6
    assert not np.delete(size, i).any()


@pytest.mark.parametrize("norm", ORDER)
@hypothesis.example(size=-19, slope=19.1, clip=1e-2)  # squares vanish, and the gradient is of size 1
@hypothesis.example(size=-19, slope=19.1, clip=1e-1)
@hypothesis.example(size=37.95, slope=-37, clip=1e-2)  # reciprocals vanish
@given(size=st.floats(-37, 38.5), slope=st.floats(-37, 38.5), clip=st.sampled_from([1e-6, 1e-2, 1.0]))
def test_no_record_slips_through_by_the_size_of_its_numbers(norm, size, slope, clip):
    """Tiny features with a huge label, and the reverse: lengths must neither vanish nor be lost in between."""
    problem, gradients = example(np.float32), jdfl.Gradients(clip=clip, norm=norm)
    A, b = problem.data
    other = problem.replace(data=(A.at[1, 2].set(10.0**size), b.at[1, 2].set(10.0**slope)))
    w = jnp.zeros((M, N), A.dtype)
    one, two = (np.asarray(evaluate(gradients, world, w, jax.random.key(0)), np.float64) for world in (problem, other))
    change = np.linalg.norm((one - two)[1], ORDER[norm])
    assert change <= 2 * clip / int(problem.sizes[1]) * (1 + 1e-3)


@pytest.mark.parametrize("scale", [1e-35, 1e-25, 1e-19, 1.0, 1e19, 1e30, 1.1e38])
@pytest.mark.parametrize("norm", ORDER)
def test_lengths_are_right_for_every_size_of_numbers(norm, scale):
    x = np.random.default_rng(0).uniform(-1, 1, (5, 3)).astype(np.float32)
    x[:, 1] = 1.0
    found = np.asarray(measure(scale * x, norm), np.float64) / scale
    np.testing.assert_allclose(found, np.linalg.norm(x, ORDER[norm], axis=1), rtol=1e-6)


def test_lengths_of_nothing_and_of_what_no_float_holds():
    for norm in ORDER:
        assert measure(np.zeros((1, 3)), norm) == 0
        assert np.isinf(measure(np.array([[1.0, -np.inf]]), norm))
        assert np.isnan(measure(np.array([[1.0, np.nan]]), norm))
    assert np.isinf(measure(np.full((1, 3), 3e38), "l2"))


@partial(jax.jit, static_argnames="norm")
def length(x, norm):
    return jdfl.arrays.ops.length(x, norm)


def measure(x, norm):
    """As in a run, where the compiler rewrites what it is given."""
    return length(jnp.asarray(x, jnp.float32), norm)


@pytest.mark.parametrize("kind", [KINDS[0], KINDS[1], KINDS[8]], ids=words)
def test_the_sensitivity_is_attained(kind):
    """Two records whose gradients point in opposite directions, along one coordinate."""
    gradients = jdfl.Gradients(clip=CLIP, **kind)
    problem = example(np.float32)
    A, b = problem.data
    along = jnp.zeros(N, A.dtype).at[2].set(100.0)
    worlds = [
        problem.replace(data=(A.at[1].set(along), b.at[1].set(0).at[1, 0].set(sign * 1e4))) for sign in (1.0, -1.0)
    ]
    exact = jdfl.Gradients(**{"clip": CLIP} | {k: v for k, v in kind.items() if k not in ("mechanism", "adjacency")})
    w, allowed = jnp.zeros((M, N), A.dtype), float(gradients.sensitivities(problem)[1])
    found = 0.0
    for seed in range(200):
        if found:  # the record was in a sample
            break
        one, other = (evaluate(exact, world, w, jax.random.key(seed)) for world in worlds)
        found = max(found, float(np.linalg.norm(np.asarray(one - other)[1], ORDER[kind["mechanism"].norm])))
    assert found == pytest.approx(allowed, rel=1e-4)


@pytest.mark.parametrize("sampling", ["subset", "poisson"])
def test_samples_are_right_on_average_and_hold_each_example_equally_often(sampling):
    problem = PROBLEMS["linear"]
    w, few = point(problem), jdfl.Gradients(batch=4, sampling=sampling)
    found = jax.vmap(lambda key: evaluate(few, problem, w, key))(jax.random.split(jax.random.key(0), 4000))
    exact = evaluate(jdfl.Gradients(), problem, w, jax.random.key(0))
    error = np.asarray(found, np.float64).mean(axis=0) - np.asarray(exact)
    assert np.abs(error / (np.asarray(found).std(axis=0) / np.sqrt(4000))).max() < 5


def test_a_subset_holds_no_example_twice_and_no_padding():
    problem = PROBLEMS["linear"]
    marked = jnp.arange(problem.weight.shape[1], dtype=jnp.float32)
    for i in (0, 3):
        size = int(problem.sizes[i])
        data = (jnp.broadcast_to(marked[:, None], (marked.size, 1)), marked)
        (_, chosen), weight = problem.subset(jax.random.key(i), data, problem.weight[i], size)
        assert sorted(np.asarray(chosen).tolist()) == list(range(size))
        assert (np.asarray(weight) > 0).all()


def test_poisson_samples_divide_by_what_is_expected():
    problem = example(np.float32)
    everything = jdfl.Gradients(batch=int(problem.sizes.min()), sampling="poisson")
    i = int(np.argmin(np.asarray(problem.sizes)))  # the node whose every example is taken
    w = point(problem)
    one, all_ = (evaluate(g, problem, w, jax.random.key(5)) for g in (everything, jdfl.Gradients()))
    np.testing.assert_allclose(one[i], all_[i], rtol=1e-4, atol=1e-5)
    assert everything.examples(problem).tolist() == problem.sizes.tolist()


def test_what_amplifies_is_only_what_is_performed():
    problem, noise = PROBLEMS["linear"], jdfl.Gaussian(1.0)

    def sampling(**kind):
        return jdfl.Gradients(clip=1.0, mechanism=noise, **kind).guarantee(problem, looks=2).sampling

    assert sampling() is None
    assert sampling(batch=4) is None
    assert sampling(batch=1) == jdfl.privacy.Sampling("subset", 1, 2)
    assert sampling(batch=4, sampling="subset") == jdfl.privacy.Sampling("subset", 4, 2)
    assert sampling(batch=4, sampling="poisson") == jdfl.privacy.Sampling("poisson", 4, 2)
    assert sampling(batch=4, sampling="poisson", per="batch") is None
