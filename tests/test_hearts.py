"""Second tests of what everything rests on, each from a definition, so that no mistake in it is seen by one test alone.

Closed forms, counts by hand and short loops in NumPy; whole files elsewhere are about each of them.
"""

import math
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jdfl
from jdfl import network as nw
from jdfl import testing
from jdfl.codecs import transmit
from jdfl.events import RandomWalkSGD
from jdfl.privacy import LaplaceEvent, Sampled, epsilon_pure
from jdfl.problems import linear_regression

KEY = jax.random.key(7)


# ---------------------------------------------------------------- pure epsilon of samples with several looks


def of_looks(rate: float, looks: int, multiplier: float) -> float:
    """The largest log-ratio of several looks with Laplace noise at one sample: all outputs far to one side."""
    return math.log(1 - rate + rate * math.exp(looks / multiplier))


@pytest.mark.parametrize("releases", [1, 3, 5])
def test_the_last_looks_at_a_sample_are_paid_for(releases: int) -> None:
    """An output whose ratio is known exactly: a claim below it is false."""
    sampled, event = Sampled("poisson", 5, 20, looks=2), LaplaceEvent(1.5)
    attained = releases // 2 * of_looks(0.25, 2, 1.5) + releases % 2 * of_looks(0.25, 1, 1.5)
    found = epsilon_pure(event, releases, sampled=sampled)
    assert found is not None
    assert found >= attained * (1 - 1e-12)


def test_pure_epsilon_is_that_of_all_samples_begun() -> None:
    sampled, event = Sampled("poisson", 5, 20, looks=3), LaplaceEvent(4.0)
    found = [epsilon_pure(event, releases, sampled=sampled) for releases in range(8)]
    one = of_looks(0.25, 3, 4.0)
    expected = [0, of_looks(0.25, 1, 4.0), of_looks(0.25, 2, 4.0), one, 2 * one, 2 * one, 2 * one, 3 * one]
    assert found == pytest.approx([min(k / 4, value) for k, value in enumerate(expected)])


# ---------------------------------------------------------------- codecs


def sent(codec: Any, x: np.ndarray, key: jax.Array = KEY) -> np.ndarray:
    """What receivers decode of rows x [b, n]."""
    wire = codec.prepare(KEY, jnp.arange(len(x)), x.shape[1], x.shape[1], x.dtype)
    return np.asarray(transmit(wire, jax.random.split(key, len(x)), jnp.asarray(x), jnp.ones(len(x), bool)))


def test_scaled_random_entries_arrive_n_over_k_times_as_large() -> None:
    x = np.random.default_rng(1).standard_normal((4, 12), np.float32)
    found = sent(jdfl.RandomK(k=3, scaled=True), x)
    assert (np.count_nonzero(found, axis=1) == 3).all()
    np.testing.assert_allclose(found[found != 0], 4 * x[found != 0], rtol=1e-6)


def test_scaled_random_entries_are_right_on_average() -> None:
    x = np.tile(np.array([[1.0, -2.0, 3.0, 0.5]], np.float32), (4000, 1))
    mean, error = sent(jdfl.RandomK(k=2, scaled=True), x).mean(axis=0), np.abs(x[0]) / np.sqrt(4000)
    assert (np.abs(mean - x[0]) < 5 * error).all()


@pytest.mark.parametrize("levels", [1, 127, 128, 255, 300])
def test_the_largest_level_arrives_with_its_sign(levels: int) -> None:
    x = np.array([[-3.0, 0.0, 3.0, 0.0]], np.float32)
    np.testing.assert_allclose(sent(jdfl.QSGD(levels, norm="max"), x), x, rtol=1e-6)


@pytest.mark.parametrize("levels", [127, 128, 129])
def test_rounded_entries_are_off_by_less_than_a_level(levels: int) -> None:
    x = np.random.default_rng(2).standard_normal((3, 500), np.float32)
    x[:, 0] = 4.0
    off = np.abs(sent(jdfl.QSGD(levels, norm="max"), x) - x)
    assert off.max() <= np.abs(x).max() / levels * (1 + 1e-5)
    assert off.max() > np.abs(x).max() / levels / 2
    assert off[:, 0].max() < 1e-5


# ---------------------------------------------------------------- the regulariser, once


def ridge() -> Any:
    """Linear regression with a penalty that is as large as its loss."""
    draw = np.random.default_rng(3)
    A, b = draw.standard_normal((3, 5, 4), np.float32), draw.standard_normal((3, 5), np.float32)
    made = linear_regression(list(A), list(b))
    return jdfl.from_loss(lambda w, one: (one[0] @ w - one[1]) ** 2 / 2, jnp.ones(4), made.data, test=None, penalty=0.7)


def test_a_clip_of_batches_that_never_binds_changes_nothing() -> None:
    problem, ring = ridge(), nw.ring(3)
    found = [
        jdfl.run(jdfl.DPSGD(lr=0.1, gradients=one), problem, ring, steps=4, metrics=[]).params
        for one in (jdfl.Gradients(), jdfl.Gradients(clip=1e6, per="batch"))
    ]
    np.testing.assert_allclose(*found, rtol=1e-5, atol=1e-6)


def test_a_clip_of_batches_bounds_the_data_and_adds_the_penalty_once() -> None:
    problem, clip = ridge(), 0.3
    A, b = (np.asarray(leaf, float) for leaf in problem.data)
    w = np.ones((3, 4))
    W = np.asarray(nw.to_scipy(nw.ring(3)).toarray(), float)
    for _ in range(4):
        g = np.stack([A[i].T @ (A[i] @ w[i] - b[i]) / 5 for i in range(3)])
        g *= np.minimum(1, clip / np.linalg.norm(g, axis=1))[:, None]
        w = W @ w - 0.1 * (g + 0.7 * w)
    given = jdfl.Gradients(clip=clip, per="batch")
    found = jdfl.run(jdfl.DPSGD(lr=0.1, gradients=given), problem, nw.ring(3), steps=4, metrics=[])
    np.testing.assert_allclose(found.params, w, rtol=1e-4, atol=1e-5)


# ---------------------------------------------------------------- where a walk goes


def walks() -> tuple[np.ndarray, np.ndarray]:
    """The nodes at which walks over a star were in turn, and whether they moved on; node 0 is the hub."""
    net = nw.timed(nw.star(9), nw.FixedTime(1.0)).in_run(KEY, 0)
    found = RandomWalkSGD(tokens=20).events(net, KEY, 400.0)
    return found.actor, found.rows[:, 1] >= 0


def test_a_walk_leaves_the_hub_of_a_star_always_and_a_leaf_seldom() -> None:
    node, moved = walks()
    assert moved[node == 0].all()
    assert moved[node > 0].mean() == pytest.approx(1 / 8, abs=0.02)


def test_a_walk_visits_all_nodes_of_a_star_equally_often() -> None:
    node, _ = walks()
    assert np.bincount(node, minlength=9) / len(node) == pytest.approx(np.full(9, 1 / 9), abs=0.03)


# ---------------------------------------------------------------- steps, counts, mixing, stopping, resuming

PROBLEM, RING = testing.small_problem(), nw.ring(testing.NODES)
FEW: dict[str, Any] = {"steps": 5, "metrics": []}


def slopes(w: np.ndarray) -> np.ndarray:
    """The gradients [m, n] of all nodes in float64."""
    A, b = (np.asarray(leaf, float) for leaf in PROBLEM.data)
    return np.stack([A[i].T @ (A[i] @ w[i] - b[i]) / len(b[i]) for i in range(len(w))])


def test_gradient_descent_and_tracking_are_their_formulas() -> None:
    W, lr = np.asarray(nw.to_scipy(RING).toarray(), float), 0.02
    x = begin = np.asarray(PROBLEM.begin(), float)
    for _ in range(5):
        x = W @ x - lr * slopes(x)
    np.testing.assert_allclose(jdfl.run(jdfl.DPSGD(lr=lr), PROBLEM, RING, **FEW).params, x, rtol=1e-4, atol=1e-5)
    x, y = begin, slopes(begin)
    for _ in range(5):
        new = W @ (x - lr * y)
        x, y = new, W @ y + slopes(new) - slopes(x)
    np.testing.assert_allclose(jdfl.run(jdfl.DSGT(lr=lr), PROBLEM, RING, **FEW).params, x, rtol=1e-4, atol=1e-5)


def test_messages_bytes_gradients_and_releases_are_those_of_a_round() -> None:
    m, n = PROBLEM.m, PROBLEM.n
    noisy = jdfl.Gradients(clip=1.0, mechanism=jdfl.Gaussian(1.0))
    result = jdfl.run(jdfl.DPSGD(lr=0.01, gradients=noisy), PROBLEM, RING, **FEW | {"every": 2})
    told = result.history[["round", "messages", "bytes", "gradients", "examples", "releases"]].to_numpy().tolist()
    assert told == [[k, 2 * m * k, 8 * m * n * k, m * k, 8 * m * k, m * k] for k in (0, 2, 4, 5)]


@pytest.mark.parametrize("format", ["dense", "padded", "buckets"])
def test_mixing_is_the_product_with_the_weights(format: Any) -> None:
    W = np.zeros((5, 5))
    for i, j, weight in ((0, 1, 0.25), (1, 2, 0.3), (2, 0, 0.125), (3, 0, 0.2)):
        W[i, j] = W[j, i] = weight
    W += np.diag(1 - W.sum(axis=1))
    x = np.random.default_rng(5).standard_normal((5, 3), np.float32)
    found = nw.mix(nw.from_matrix(W, format=format, connected=False).graph, jnp.asarray(x))
    np.testing.assert_allclose(found, W @ x, rtol=1e-5, atol=1e-6)


def test_a_rule_stops_in_the_first_round_in_which_it_holds_and_a_resumed_run_stops_there_too() -> None:
    method = jdfl.DPSGD(lr=0.02)
    whole = jdfl.run(method, PROBLEM, RING, steps=60, metrics=["objective"])
    assert whole.totals.gradients == 60 * PROBLEM.m
    falling, first = whole.history["objective"].to_numpy(), 12
    stop = jdfl.objective_below(float(falling[first - 1 : first + 1].mean()))
    found = jdfl.run(method, PROBLEM, RING, steps=60, metrics=[], stop=stop)
    assert (found.rounds, found.ending) == (first, "stop rule")
    half = jdfl.run(method, PROBLEM, RING, steps=25, metrics=["objective"])
    again = jdfl.run(method, PROBLEM, RING, steps=60, metrics=["objective"], resume=half)
    np.testing.assert_array_equal(again.params, whole.params)
    assert again.history.equals(whole.history)
    assert replace(again.totals) == whole.totals
