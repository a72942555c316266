"""Gradients of some examples, clipped and noisy: what they are, what they cost, and what bounds them."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import random_array

import jdfl
from jdfl.algorithms.moment import Moment
from jdfl.engine.start import check_settings
from tests.algorithms.play import M, N, direct, example, gradient_of, network
from tests.later import Later

CLIP = 0.8
problem = Later(example, np.float32)
w = jnp.asarray(np.random.default_rng(0).standard_normal((M, N)), jnp.float32)


def moment(k: int = 0) -> Moment:
    net = network()
    return Moment(jnp.int32(k), jax.random.key(k), net.graph, jnp.arange(M, dtype=jnp.int32))


@partial(jax.jit, static_argnames=("step", "look", "talks"))
def evaluate(gradients, w, problem, moment, step=0, look=0, talks=True):
    round = replace(direct(moment, problem, gradients), local_step=step, exchanging=jnp.bool_(talks))
    return gradients(w, round, look=look)


def releases(gradients, period=1, local_steps=1):
    """What a round of local steps counts, and the next one."""

    def counted(k):
        round = direct(moment(k), problem(), gradients).every(period)
        round.repeat(local_steps, lambda here, w: w - gradients(w, here), w)
        return round.book.releases

    return [int(jax.jit(counted)(k)) for k in range(2)]


def clipped_by_hand(problem, clip):
    """Every node's mean of its examples' shortened gradients."""
    A, b = (np.asarray(leaf, np.float64) for leaf in problem.data)
    weight = np.asarray(problem.weight, np.float64)
    total = np.zeros((M, N))
    for i in range(M):
        for t in range(A.shape[1]):
            g = (A[i, t] @ np.asarray(w[i], np.float64) - b[i, t]) * A[i, t]
            norm = np.linalg.norm(g)
            total[i] += weight[i, t] * g * min(1.0, clip / norm if norm > 0 else 1.0)
        total[i] /= weight[i].sum()
    return total


def test_all_examples_unless_said_otherwise():
    g = gradient_of(problem())
    expected = np.stack([g(i, np.asarray(w[i])) for i in range(M)])
    np.testing.assert_allclose(evaluate(jdfl.Gradients(), w, problem(), moment()), expected, rtol=1e-4, atol=1e-5)


def test_a_clip_that_is_never_reached_changes_nothing_also_of_the_regulariser():
    logistic = jdfl.problems.classification("breast_cancer", M)
    x = 0.1 * jnp.ones((M, logistic.n), logistic.dtype)
    here = evaluate(jdfl.Gradients(clip=1e6), x, logistic, moment())
    np.testing.assert_allclose(here, evaluate(jdfl.Gradients(), x, logistic, moment()), rtol=1e-3, atol=1e-5)


@given(st.integers(0, M - 1), st.floats(-1e3, 1e3), st.integers(0, 2**16))
def test_one_example_replaced_changes_a_clipped_gradient_by_no_more_than_its_sensitivity(i, scale, seed):
    A, b = problem().data
    new = jnp.asarray(scale * np.random.default_rng(seed).standard_normal(N), jnp.float32)
    other = problem().replace(data=(A.at[i, 0].set(new), b.at[i, 0].set(scale)))
    gradients = jdfl.Gradients(clip=CLIP)
    change = evaluate(gradients, w, other, moment()) - evaluate(gradients, w, problem(), moment())
    norms = np.linalg.norm(np.asarray(change), axis=1)
    assert norms[i] <= 2 * CLIP / int(problem().sizes[i]) * (1 + 1e-4)
    assert norms.sum() == norms[i]


@pytest.mark.parametrize("scale", [1e15, 1e25, 3e38])
def test_no_example_is_too_large_to_be_clipped(scale):
    A, b = problem().data
    other = problem().replace(data=(A.at[2, 0].set(scale), b))
    gradients = jdfl.Gradients(clip=CLIP)
    change = evaluate(gradients, w, other, moment()) - evaluate(gradients, w, problem(), moment())
    assert np.linalg.norm(change[2]) <= 2 * CLIP / int(problem().sizes[2]) * (1 + 1e-4)


def test_clipped_gradients_of_rows_that_stay_sparse():
    draw = np.random.default_rng(0)
    parts = [(random_array((9, 30), density=0.2, format="csr", rng=draw), draw.integers(0, 2, 9)) for _ in range(M)]
    sparse = jdfl.problems.sparse_logistic_regression(parts)
    dense = jdfl.problems.logistic_regression([(features.toarray(), labels) for features, labels in parts])
    x = jnp.asarray(draw.standard_normal((M, 30)), jnp.float32)
    order = [np.argsort(-np.diff(features.indptr), kind="stable") for features, _ in parts]
    dense = dense.replace(data=tuple(jnp.stack([leaf[i][o] for i, o in enumerate(order)]) for leaf in dense.data))
    for gradients in (jdfl.Gradients(clip=0.1), jdfl.Gradients(clip=0.1, batch=4)):
        here = evaluate(gradients, x, sparse, moment())
        np.testing.assert_allclose(here, evaluate(gradients, x, dense, moment()), rtol=1e-4, atol=1e-6)


def test_the_noise_has_the_scale_that_is_said_and_is_everyones_own():
    noisy = jdfl.Gradients(clip=CLIP, mechanism=jdfl.Gaussian(3.0))
    exact = evaluate(jdfl.Gradients(clip=CLIP), w, problem(), moment())
    xi = np.stack([np.asarray(evaluate(noisy, w, problem(), moment(k)) - exact) for k in range(200)])
    deviation = 3.0 * 2 * CLIP / np.asarray(problem().sizes)
    np.testing.assert_allclose(xi.std(axis=(0, 2)), deviation, rtol=5 / np.sqrt(2 * 200 * N))
    np.testing.assert_allclose(xi.mean(axis=(0, 2)) / deviation, 0, atol=5 / np.sqrt(200 * N))
    scaled = (xi / deviation[None, :, None]).transpose(1, 0, 2).reshape(M, -1)
    assert np.abs(np.corrcoef(scaled) - np.eye(M)).max() < 5 / np.sqrt(200 * N)


def test_every_step_and_look_has_noise_of_its_own():
    noisy = jdfl.Gradients(sensitivity=1.0, mechanism=jdfl.Gaussian(1.0))
    found = [evaluate(noisy, w, problem(), moment(), step, look) for step in range(3) for look in range(2)]
    assert len({float(x[0, 0]) for x in found}) == 6


def test_looks_of_one_step_see_the_same_examples_and_steps_do_not():
    few = jdfl.Gradients(batch=3)
    here, again = (evaluate(few, w, problem(), moment(), 1, look) for look in (0, 1))
    np.testing.assert_array_equal(here, again)
    assert not np.array_equal(here, evaluate(few, w, problem(), moment(), 2))


def test_minibatches_are_right_on_average():
    exact = evaluate(jdfl.Gradients(), w, problem(), moment())
    found = np.stack([np.asarray(evaluate(jdfl.Gradients(batch=4), w, problem(), moment(k))) for k in range(600)])
    error = np.abs(found.mean(axis=0) - np.asarray(exact)) / (found.std(axis=0) / np.sqrt(600))
    assert error.max() < 5


def test_noise_after_an_exchange_only():
    noisy = jdfl.Gradients(sensitivity=1.0, mechanism=jdfl.Gaussian(1.0), noisy="communicating")
    exact = evaluate(jdfl.Gradients(), w, problem(), moment())
    np.testing.assert_array_equal(evaluate(noisy, w, problem(), moment(), talks=False), exact)
    assert not np.allclose(evaluate(noisy, w, problem(), moment(), talks=True), exact)
    assert releases(noisy, local_steps=5) == [1, 1]
    assert releases(jdfl.Gradients(sensitivity=1.0, mechanism=jdfl.Gaussian(1.0)), local_steps=5) == [5, 5]
    assert releases(jdfl.Gradients(), local_steps=5) == [0, 0]


PART = slice(2, 7)
PARTS = {
    "free": {},
    "example": {"clip": 1e6, "batch": 3, "sampling": "epochs"},
    "batch": {"clip": 1e6, "per": "batch", "batch": 3, "sampling": "poisson"},
}


@partial(jax.jit, static_argnames="bounds")
def partly(gradients, w, problem, moment, bounds=(PART.start, PART.stop)):
    return gradients(w, direct(moment, problem, gradients), part=None if bounds is None else slice(*bounds))


@pytest.mark.parametrize("kind", PARTS)
def test_a_part_of_a_gradient_is_that_part_of_the_whole(kind):
    gradients = jdfl.Gradients(**PARTS[kind])
    whole = partly(gradients, w, problem(), moment(3), bounds=None)
    found = partly(gradients, w, problem(), moment(3))
    np.testing.assert_allclose(found, whole[:, PART], rtol=1e-4, atol=1e-4)


def test_only_the_part_is_measured_and_clipped():
    g = np.stack([gradient_of(problem())(i, np.asarray(w[i])) for i in range(M)])[:, PART]
    length = np.linalg.norm(g, axis=1, keepdims=True)
    clip = float(np.median(length))
    found = partly(jdfl.Gradients(clip=clip, per="batch"), w, problem(), moment())
    np.testing.assert_allclose(found, g * np.minimum(1, clip / length), rtol=1e-4, atol=1e-5)

    A, b = (np.asarray(leaf, np.float64) for leaf in problem().data)
    weight = np.asarray(problem().weight, np.float64)
    each = ((A @ np.asarray(w, np.float64)[:, :, None])[:, :, 0] - b)[:, :, None] * A[:, :, PART]
    length = np.linalg.norm(each, axis=2, keepdims=True)
    clip = float(np.median(length[weight > 0]))
    share = weight[:, :, None] * np.minimum(1, clip / np.maximum(length, 1e-30))
    expected = (share * each).sum(axis=1) / weight.sum(axis=1, keepdims=True)
    found = partly(jdfl.Gradients(clip=clip), w, problem(), moment())
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_a_guarantee_is_claimed_only_where_every_gradient_is_clipped_and_noisy():
    gaussian = jdfl.Gaussian(1.0)
    assert not jdfl.Gradients().guarantee(problem()).claimed
    assert not jdfl.Gradients(sensitivity=0.1, mechanism=gaussian).guarantee(problem()).claimed
    assert not jdfl.Gradients(clip=1.0, mechanism=gaussian, noisy="communicating").guarantee(problem()).claimed
    claimed = jdfl.Gradients(clip=1.0, mechanism=gaussian).guarantee(problem())
    assert claimed.claimed
    assert claimed.enforced_by == "l2 clipping of every example's gradient to 1"
    assert claimed.sensitivity == pytest.approx(2 / int(problem().sizes.min()))
    assert (claimed.unit, claimed.event) == ("record", jdfl.Gaussian(1.0).event())
    assert jdfl.Gradients(clip=1.0, per="batch", mechanism=gaussian).guarantee(problem()).unit == "node"


def test_example_gradients_are_counted():
    few = jdfl.run(jdfl.DPSGD(lr=0.01, gradients=jdfl.Gradients(batch=3)), problem(), network(), key=0, steps=5)
    assert few.totals.gradients == 5 * M
    assert few.totals.examples == 5 * M * 3
    every = jdfl.run(jdfl.DFedSAM(lr=0.01, local_steps=2), problem(), network(), key=0, steps=5)
    assert every.totals.examples == 5 * 4 * int(problem().sizes.sum())
    assert every.history["examples"].tolist() == [k * 4 * int(problem().sizes.sum()) for k in range(6)]


@pytest.mark.parametrize(
    ("gradients", "words"),
    [
        (jdfl.Gradients(batch=0), ["batch", "0", "None: all"]),
        (jdfl.Gradients(batch=2.5), ["batch", "2.5"]),
        (jdfl.Gradients(clip=0.0), ["clip", "0.0"]),
        (jdfl.Gradients(clip=np.ones(3)), ["clip", "(3,)", "one number"]),
        (jdfl.Gradients(mechanism=0.5, clip=1.0), ["mechanism", "0.5", "Gaussian"]),
        (jdfl.Gradients(mechanism=jdfl.Gaussian(1.0)), ["clip or sensitivity", "None"]),
        (jdfl.Gradients(mechanism=jdfl.Gaussian(1.0), clip=1.0, sensitivity=1.0), ["clip or sensitivity", "1.0"]),
        (jdfl.Gradients(sensitivity=1.0), ["mechanism", "sensitivity = 1.0"]),
        (jdfl.Gradients(sampling="poisson"), ["batch", "'poisson'", "None"]),
        (jdfl.Gradients(sampling="subset", batch=10_000), ["batch", "10000", "smallest node"]),
        (jdfl.Gradients(sampling="epochs", batch=15), ["batch <= 14", "'epochs'"]),
        (jdfl.Gradients(sampling="in order", batch=10_000), ["batch", "10000", "smallest node", "'in order'"]),
        (jdfl.Gradients(sampling="epochs"), ["batch", "'epochs'", "None"]),
        (jdfl.Gradients(norm="l3"), ["norm", "'l3'"]),
        (jdfl.Gradients(noisy="never"), ["noisy", "'never'", "always"]),
    ],
    ids=str,
)
def test_mistakes_are_named(gradients, words):
    with pytest.raises(ValueError) as error:
        check_settings(jdfl.DPSGD(gradients=gradients), problem(), network())
    assert all(word in str(error.value) for word in words), error.value


def test_sums_of_products_are_exact():
    from jdfl.arrays import ops

    draw = np.random.default_rng(3)
    count, size = draw.integers(0, 2**31, 50), draw.integers(0, 2**31, 50)
    partial_sums = ops.product_limbs(jnp.asarray(count, jnp.int32), jnp.asarray(size, jnp.int32))
    assert ops.from_limbs(np.asarray(partial_sums)) == sum(int(a) * int(b) for a, b in zip(count, size))
