"""DSGT, EXTRA, NIDS and exact diffusion: the loops of their papers, where they end, what they refuse."""

import warnings
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jdfl
from jdfl.algorithms import step_sizes
from jdfl.algorithms.round import RoundContext
from jdfl.engine.start import check_settings
from jdfl.network import from_edges, random_links, ring
from tests.algorithms.play import course, direct, matrices
from tests.reference import exact as reference
from tests.refused import refused

M, N, Q, ROUNDS = 7, 5, 20, 500
EDGES = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 6), (0, 2), (0, 3), (0, 5)]  # degrees 4, 2, 3, 3, 2, 3, 1
DRAW = np.random.default_rng(7)
A = DRAW.standard_normal((M, Q, N))
B = np.einsum("iqn,in->iq", A, 1 + DRAW.standard_normal((M, N))) + DRAW.standard_normal((M, Q))
LARGEST = np.linalg.eigvalsh(np.einsum("iqn,iqp->inp", A, A) / Q)[:, -1]  # L_i [m]
BEST = np.linalg.solve(np.einsum("iqn,iqp->np", A, A), np.einsum("iqn,iq->n", A, B))
KEY, WIRE = 0, jdfl.Dense("float64")
CORRECTED = {kind.title: kind for kind in (jdfl.EXTRA, jdfl.NIDS, jdfl.ExactDiffusion)}
every = pytest.mark.parametrize("method", [jdfl.DSGT, *CORRECTED.values()], ids=lambda kind: kind.title)
corrected = pytest.mark.parametrize("method", CORRECTED.values(), ids=CORRECTED)


def network(**options: Any) -> jdfl.network.Static:
    return from_edges(EDGES, M, name="seven", **options)


def example(dtype: Any = np.float64) -> Any:
    """Least squares that is strongly convex at every node, with a solution of its own at every node."""
    return jdfl.problems.linear_regression(A, B, dtype=dtype)


def gradient(i, w):
    return A[i].T @ (A[i] @ w - B[i]) / Q


def weights(net, rounds: int = 1) -> np.ndarray:
    """The matrices [rounds, m, m] of a run, without the rounding of their diagonals."""
    W = matrices(net, KEY, rounds)
    return W + np.eye(M) * (1 - W.sum(axis=2, keepdims=True))


@cache
def lowest() -> float:
    return float(np.linalg.eigvalsh(weights(network())[0])[0])


def step_length(share: float = 0.5) -> float:
    """`share` of EXTRA's bound, which is the smallest of the three."""
    return float(share * (1 + lowest()) / LARGEST.max())


@cache
def full(method):
    """The states of one exact run of ROUNDS rounds in float64."""
    with jax.enable_x64(True):
        algorithm = method(lr=step_length(), codec=WIRE)
        return jax.tree.map(np.asarray, course(algorithm, example(), network(), KEY, ROUNDS)[2])


def distances(x) -> np.ndarray:
    return np.abs(np.asarray(x, np.float64) - BEST).max(axis=(1, 2)) / np.linalg.norm(BEST)


@every
def test_the_first_rounds_agree_with_the_loop_of_the_paper(method):
    W, found, lr, start, rounds = weights(network())[0], full(method), step_length(), np.zeros((M, N)), 100
    if method is jdfl.DSGT:
        x, y = reference.dsgt(gradient, lambda k: W, start, lr, rounds)
        np.testing.assert_allclose(found.y[:rounds], y, rtol=0, atol=1e-9)
    else:
        paper = {jdfl.EXTRA: reference.extra, jdfl.NIDS: reference.nids}.get(method, reference.exact_diffusion)
        x = paper(gradient, W, start, lr, rounds)
    np.testing.assert_allclose(found.x[:rounds], x, rtol=0, atol=1e-9)
    assert distances(found.x)[-1] < 1e-8


def test_gradient_tracking_agrees_with_its_loop_on_links_that_come_and_go():
    with jax.enable_x64(True):
        net = random_links(network(), 0.6)
        _, _, states, _ = course(jdfl.DSGT(lr=0.02, codec=WIRE), example(), net, KEY, 100)
        W = weights(net, 100)
    assert len({one.tobytes() for one in W}) > 1
    x, y = reference.dsgt(gradient, W.__getitem__, np.zeros((M, N)), 0.02, 100)
    np.testing.assert_allclose(states.x, x, rtol=0, atol=1e-9)
    np.testing.assert_allclose(states.y, y, rtol=0, atol=1e-9)


@pytest.mark.rotated(4)
@every
def test_float32_does_not_wander_off_over_many_rounds(method):
    x = course(method(lr=step_length(0.1)), example(np.float32), network(), KEY, 20_000)[0]
    assert distances(x[::1000])[5:].max() < 3e-6


def test_the_average_tracker_is_the_average_gradient_in_every_round():
    with jax.enable_x64(True):
        gradients = jdfl.Gradients(batch=4, clip=2.0, mechanism=jdfl.Gaussian(0.5))
        algorithm = jdfl.DSGT(lr=0.01, gradients=gradients, codec=jdfl.Sparse(value="int8"))
        _, first, states, _ = course(algorithm, example(), random_links(network(), 0.6), KEY, 60)
        np.testing.assert_array_equal(first.y, first.g)
        np.testing.assert_allclose(states.y.mean(axis=1), states.g.mean(axis=1), rtol=0, atol=1e-13)
        assert np.abs(states.y - states.g).max() > 0.1


@pytest.mark.rotated(2)
@pytest.mark.parametrize("format", ["padded", "dense", "buckets"])
def test_a_pull_is_w_x_minus_x_and_nothing_where_nodes_agree(format):
    net = network(format=format)
    context = RoundContext(jnp.int32(0), jax.random.key(KEY), net.graph, jnp.arange(M, dtype=jnp.int32))
    wire = jdfl.Dense().prepare(context.key, context.node, 9, 9, jnp.float32)
    pull = jax.jit(lambda x: direct(context, None, wire=wire).pull(x))
    x, W = jax.random.normal(context.key, (M, 9), jnp.float32), weights(net)[0]
    np.testing.assert_allclose(pull(x), W @ np.asarray(x, float) - x, atol=1e-6)
    near = 1000 + 1e-3 * x
    exact = np.asarray(near, float)
    np.testing.assert_allclose(pull(near), W @ exact - exact, atol=1e-9)
    np.testing.assert_array_equal(pull(jnp.full((M, 9), 0.1)), 0)


def checked(algorithm, problem):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        check_settings(algorithm, problem, network())
    return [str(warning.message) for warning in caught]


def fatal(method) -> float:
    if method is jdfl.EXTRA:
        return float(np.min((5 + 3 * np.diag(weights(network())[0])) / (4 * LARGEST)))
    return float((3 + 2 / (1 + lowest())) / (2 * LARGEST.max()))


def safe(method) -> float:
    return step_length(1.0) if method is jdfl.EXTRA else 2 / float(LARGEST.max())


@corrected
def test_long_steps_are_warned_of_and_steps_that_diverge_refused(method):
    problem, low, high = example(np.float32), safe(method), fatal(method)
    assert low < high
    assert checked(method(lr=0.99 * low), problem) == []
    (text,) = checked(method(lr=1.01 * low), problem)
    assert method.title in text
    assert f"{low:.3g}" in text
    with refused(f"{high:.3g}", f"{low:.3g}", "lr"):
        check_settings(method(lr=1.01 * high), problem, network())
    assert len(checked(method(lr=2 * high, gradients=jdfl.Gradients(batch=3)), problem)) == 1
    assert checked(method(lr=2 * high, gradients=jdfl.Gradients(clip=1.0)), problem) == []


@corrected
def test_the_bounds_are_true(method):
    with jax.enable_x64(True):
        near, beyond = (
            distances(course(method(lr=lr, codec=WIRE), example(), network(), KEY, ROUNDS)[0])
            for lr in (0.99 * safe(method), 1.05 * fatal(method))
        )
    assert near[-1] < 1e-3 * near[0]
    assert not beyond[-1] < 100 * beyond[0]


def test_the_lowest_eigenvalue_of_a_large_ring():
    assert step_sizes.lowest_eigenvalue(ring(1200)) == pytest.approx(-1 / 3, abs=1e-3)


def test_every_release_has_fresh_noise_of_the_declared_size():
    """At the start and in the rounds after it, seen where nothing moves."""
    clip, multiplier, rounds = 0.5, 0.8, 30
    gradients = jdfl.Gradients(clip=clip, mechanism=jdfl.Gaussian(multiplier))
    _, first, states, _ = course(jdfl.DSGT(lr=1e-20, gradients=gradients), example(np.float32), network(), KEY, rounds)
    each = -B[:, :, None] * A
    exact = (each * np.minimum(1, clip / np.linalg.norm(each, axis=2, keepdims=True))).mean(axis=1)
    noise = (np.concatenate([first.g[None], states.g]) - exact).reshape(rounds + 1, -1)
    size = multiplier * 2 * clip / Q  # all examples weigh the same
    assert noise.std() == pytest.approx(size, rel=5 / np.sqrt(2 * noise.size))
    assert abs(noise.mean()) < 5 * size / np.sqrt(noise.size)
    assert np.abs(np.corrcoef(noise) - np.eye(rounds + 1)).max() < 5.5 / np.sqrt(M * N)
