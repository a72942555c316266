"""Clipped gradients are what they are said to be, however they are computed, and bounded by their sensitivity."""

from dataclasses import replace
from functools import partial

import hypothesis
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import random_array

import jdfl
from jdfl.algorithms import gradients as module
from jdfl.algorithms.round import Prepared, RoundContext
from tests.algorithms.play import M, N, direct, example, network
from tests.later import Later, Named
from tests.refused import refused

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
PLAIN = Later(example, np.float32)
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
    return RoundContext(jnp.int32(0), key, network().graph, jnp.arange(M, dtype=jnp.int32))


def point(problem):
    return jnp.asarray(np.random.default_rng(1).standard_normal((M, problem.n)), problem.dtype)


@jax.jit
def formed(problem, w):
    """The gradients of all examples [m, q, n], and the regulariser's [m, n]."""
    each = jax.vmap(problem.example_gradients)(w, problem.data)
    return each, jax.vmap(jax.grad(problem.regulariser))(w)


def by_hand(problem, w, norm, clip=None):
    """The clip, or the median of lengths; every node's mean of shortened gradients, and the regulariser's gradient."""
    each, penalty = (np.asarray(part, np.float64) for part in formed(problem, w))
    length, weight = np.linalg.norm(each, ORDER[norm], axis=2), np.asarray(problem.weight, np.float64)
    clip = float(np.median(length[weight > 0])) if clip is None else clip  # some are shortened, some are not
    share = weight * np.minimum(1, clip / np.maximum(length, 1e-30)) / weight.sum(axis=1, keepdims=True)
    return clip, np.einsum("iq,iqn->in", share, each) + penalty


FORMS = [
    *((name, "l2") for name in PROBLEMS),
    ("sparse", "linf"),
    ("softmax", "l1"),
]


@pytest.mark.parametrize(("name", "norm"), FORMS)
def test_clipping_is_per_example_in_every_norm_and_however_it_is_computed(name, norm):
    problem = PROBLEMS[name]
    w = point(problem)
    clip, expected = by_hand(problem, w, norm)
    for prepared in (True, False) if name == "linear" else (True,):
        found = evaluate(jdfl.Gradients(clip=clip, norm=norm), problem, w, jax.random.key(0), prepared)
        np.testing.assert_allclose(found, expected, rtol=2e-4, atol=2e-5)


@jdfl.base.struct.dataclass
class Absolute(jdfl.problems.LinearRegression):
    """Another loss, but the slopes of the squares."""

    def loss(self, w, example):
        a, b = example
        return jnp.abs(jnp.dot(a, w) - b)


def test_slopes_of_another_loss_are_refused():
    p = PROBLEMS["linear"]
    with refused("slopes", "Absolute"):
        jdfl.Gradients(clip=CLIP).check(Absolute(p.data, p.weight, p.curvature))


def test_chunks_change_nothing(monkeypatch):
    monkeypatch.setattr(module, "_AT_ONCE", 3 * M * N)
    evaluate.clear_cache()
    problem = PROBLEMS["opaque"]
    found = evaluate(jdfl.Gradients(clip=CLIP), problem, point(problem), jax.random.key(0))
    evaluate.clear_cache()
    _, expected = by_hand(problem, point(problem), "l2", CLIP)
    np.testing.assert_allclose(found, expected, rtol=2e-4, atol=2e-5)


NOISE, LAPLACE = jdfl.Gaussian(1.0), jdfl.Laplace(1.0)
KINDS = [
    {"norm": "l2", "mechanism": NOISE},
    {"norm": "l1", "mechanism": LAPLACE, "batch": 1},
    {"norm": "l2", "mechanism": NOISE, "batch": 4, "sampling": "subset"},
    {"norm": "linf", "mechanism": NOISE, "batch": 4, "adjacency": "add-remove"},
    {"norm": "l2", "mechanism": LAPLACE, "batch": 4, "sampling": "poisson", "adjacency": "add-remove"},
    {"norm": "l1", "mechanism": LAPLACE, "batch": 4, "sampling": "subset", "per": "batch"},
    {"norm": "l2", "mechanism": NOISE, "batch": 4, "sampling": "in order"},
    {"norm": "l2", "mechanism": NOISE, "batch": 3, "sampling": "epochs", "adjacency": "add-remove"},
]


def words(kind):
    return "-".join(one if isinstance(one, str) else type(one).__name__ for one in kind.values())


def exact(kind):
    """The gradients without noise."""
    return jdfl.Gradients(**{"clip": CLIP} | {k: v for k, v in kind.items() if k not in ("mechanism", "adjacency")})


@pytest.mark.parametrize("kind", KINDS, ids=words)
@given(slot=st.integers(0, 7), scale=st.sampled_from([1e-2, 1.0, 1e3, 1e18]), seed=st.integers(0, 2**16))
def test_what_neighbouring_data_change_is_within_the_sensitivity(kind, slot, scale, seed):
    gradients = jdfl.Gradients(clip=CLIP, **kind)
    problem, i = PROBLEMS["linear"], seed % M
    draw = np.random.default_rng(seed)
    A, b = problem.data
    new, target = scale * draw.standard_normal(N), 10 * scale * draw.standard_normal()
    if kind.get("adjacency") == "add-remove":  # there, or with zero gradients
        new, target = 0 * new, 0.0
    other = problem.replace(data=(A.at[i, slot].set(jnp.asarray(new, A.dtype)), b.at[i, slot].set(target)))
    if kind.get("per") == "batch":  # all of the node's records
        whole = jnp.asarray(scale, A.dtype) * A[i][::-1]
        other = problem.replace(data=(A.at[i].set(whole), b.at[i].set(0 * b[i])))
    w, key = point(problem), jax.random.key(seed)
    change = np.asarray(evaluate(exact(kind), other, w, key) - evaluate(exact(kind), problem, w, key), np.float64)
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
    problem, gradients = PLAIN(), jdfl.Gradients(clip=clip, norm=norm)
    A, b = problem.data
    other = problem.replace(data=(A.at[1, 2].set(10.0**size), b.at[1, 2].set(10.0**slope)))
    w = jnp.zeros((M, N), A.dtype)
    one, two = (np.asarray(evaluate(gradients, world, w, jax.random.key(0)), np.float64) for world in (problem, other))
    change = np.linalg.norm((one - two)[1], ORDER[norm])
    assert change <= 2 * clip / int(problem.sizes[1]) * (1 + 1e-3)


@pytest.mark.parametrize("sampling", ["replacement", "subset", "poisson"])
def test_samples_are_right_on_average(sampling):
    problem = example(np.float32) if sampling == "replacement" else PROBLEMS["linear"]  # means by the drawn weights
    w, few = point(problem), jdfl.Gradients(batch=4, sampling=sampling)
    found = jax.vmap(lambda key: evaluate(few, problem, w, key))(jax.random.split(jax.random.key(0), 4000))
    whole = evaluate(jdfl.Gradients(), problem, w, jax.random.key(0))
    error = np.asarray(found, np.float64).mean(axis=0) - np.asarray(whole)
    assert np.abs(error / (np.asarray(found).std(axis=0) / np.sqrt(4000))).max() < 5


def test_what_amplifies_is_only_what_is_performed():
    problem = PROBLEMS["linear"]

    def sampling(**kind):
        return jdfl.Gradients(clip=1.0, mechanism=NOISE, **kind).guarantee(problem, looks=2).sampling

    assert sampling() is None
    assert sampling(batch=4) is None
    assert sampling(batch=1) == jdfl.privacy.Sampling("subset", 1, 2)
    assert sampling(batch=4, sampling="subset") == jdfl.privacy.Sampling("subset", 4, 2)
    assert sampling(batch=4, sampling="poisson") == jdfl.privacy.Sampling("poisson", 4, 2)
    assert sampling(batch=4, sampling="poisson", per="batch") is None
