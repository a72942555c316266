"""Gradients of some examples, drawn or in passes, clipped and noisy: what they are, cost, and what bounds them."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jdfl
from jdfl.algorithms.gradients import sample
from jdfl.algorithms.round import RoundContext
from tests.algorithms.play import M, N, direct, example, gradient_of, network
from tests.later import Later

CLIP = 0.8
problem = Later(example, np.float32)
w = np.random.default_rng(0).standard_normal((M, N)).astype(np.float32)


def moment(k=0, key=None) -> RoundContext:
    key = jax.random.key(0) if key is None else key
    return RoundContext(jnp.asarray(k, jnp.int32), key, network().graph, jnp.arange(M, dtype=jnp.int32))


@partial(jax.jit, static_argnames="look")
def _evaluate(gradients, w, problem, context, step, look, talks):
    round = replace(direct(context, problem, gradients), local_step=step, exchanging=talks)
    return gradients(w, round, look=look)


def evaluate(gradients, context, step=0, look=0, talks=True):
    return _evaluate(gradients, w, problem(), context, np.int32(step), look, np.bool_(talks))


def test_the_noise_has_the_scale_that_is_said_and_is_everyones_own():
    noisy = jdfl.Gradients(clip=CLIP, mechanism=jdfl.Gaussian(3.0))
    here, keys = moment(), jax.random.split(jax.random.key(0), 200)
    exact = evaluate(jdfl.Gradients(clip=CLIP), here)
    found = jax.vmap(lambda key: evaluate(noisy, replace(here, key=key)))(keys)
    xi = np.asarray(found) - np.asarray(exact)
    deviation = 3.0 * 2 * CLIP / np.asarray(problem().sizes)
    np.testing.assert_allclose(xi.std(axis=(0, 2)), deviation, rtol=5 / np.sqrt(2 * 200 * N))
    np.testing.assert_allclose(xi.mean(axis=(0, 2)) / deviation, 0, atol=5 / np.sqrt(200 * N))
    scaled = (xi / deviation[None, :, None]).transpose(1, 0, 2).reshape(M, -1)
    assert np.abs(np.corrcoef(scaled) - np.eye(M)).max() < 5 / np.sqrt(200 * N)


def test_every_step_and_look_has_noise_of_its_own():
    noisy = jdfl.Gradients(sensitivity=1.0, mechanism=jdfl.Gaussian(1.0))
    found = [evaluate(noisy, moment(), step, look) for step, look in ((0, 0), (0, 1), (1, 0), (2, 0))]
    assert len({float(x[0, 0]) for x in found}) == 4
    few = jdfl.Gradients(batch=3)  # whose examples are those of the step
    first, again, later = (evaluate(few, moment(), *at) for at in ((1, 0), (1, 1), (2, 0)))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, later)


def test_noise_after_an_exchange_only():
    noisy = jdfl.Gradients(sensitivity=1.0, mechanism=jdfl.Gaussian(1.0), noisy="communicating")
    exact = evaluate(jdfl.Gradients(), moment())
    np.testing.assert_array_equal(evaluate(noisy, moment(), talks=False), exact)
    assert not np.allclose(evaluate(noisy, moment(), talks=True), exact)

    @jax.jit
    def releases(k):
        round = direct(moment(k), problem(), noisy).every(1)
        round.repeat(5, lambda here, w: w - noisy(w, here), w)
        return round.trace.releases

    assert [int(releases(k)) for k in range(2)] == [1, 1]


def test_rows_that_all_know_are_not_mixed_in_rounds_without_exchange():
    @jax.jit
    def mixed(k):
        round = direct(moment(k), problem(), jdfl.Gradients())
        return round.mix(w, None), round.every(2).mix(w, None)

    for k in range(2):
        always, now = mixed(k)
        np.testing.assert_array_equal(now, w if k else always)
        assert not np.allclose(always, w)


PART = slice(2, 7)


@jax.jit
def partly(gradients, w, problem, context):
    return gradients(w, direct(context, problem, gradients), part=PART)


def test_only_the_part_is_measured_and_clipped():
    g = np.stack([gradient_of(problem())(i, w[i]) for i in range(M)])[:, PART]
    length = np.linalg.norm(g, axis=1, keepdims=True)
    clip = float(np.median(length))
    found = partly(jdfl.Gradients(clip=clip, per="batch"), w, problem(), moment())
    np.testing.assert_allclose(found, g * np.minimum(1, clip / length), rtol=1e-4, atol=1e-5)

    A, b = (np.asarray(leaf, np.float64) for leaf in problem().data)
    weight = np.asarray(problem().weight, np.float64)
    each = ((A @ w.astype(np.float64)[:, :, None])[:, :, 0] - b)[:, :, None] * A[:, :, PART]
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


@partial(jax.jit, static_argnames=("sampling", "batch", "steps"))
def looks(key, marked, step, sampling, batch, steps):
    first = direct(moment(0, key), marked, jdfl.Gradients(batch=batch, sampling=sampling))

    def one(k):  # with what was prepared before the first
        now = moment(k, jax.random.fold_in(jax.random.key(99), k))
        here = replace(first, context=now, local_step=step, local_steps=steps)
        (data,), _, total = sample(here, sampling, batch)
        return data, total

    return jax.lax.map(one, jnp.arange(40, dtype=jnp.int32))


def turns(sampling, batch, step=0, steps=1, key=0):
    """Which examples every node looks at in rounds 0 .. 39: [round, node, batch]."""
    q = problem().weight.shape[1]
    marked = problem().replace(data=(np.tile(np.arange(q, dtype=np.int32), (M, 1)),))
    data, total = jax.device_get(looks(jax.random.key(key), marked, np.int32(step), sampling, batch, steps))
    assert (total == batch).all()
    return data


SIZES = Later(lambda: np.asarray(problem().sizes))


@pytest.mark.parametrize(("batch", "sampling"), [(1, "epochs"), (3, "epochs"), (3, "in order")])
def test_a_pass_looks_at_every_example_at_most_once_and_leaves_out_what_fills_no_batch(batch, sampling):
    assert len(set(SIZES().tolist())) > 2
    found = turns(sampling, batch)
    for i, size in enumerate(SIZES()):
        one = size // batch
        for start in range(0, len(found) - one + 1, one):
            seen = found[start : start + one, i].ravel()
            assert len(set(seen.tolist())) == len(seen) == one * batch
        assert found[:, i].max() < size


def test_epochs_have_orders_of_their_own_and_in_order_has_the_datas():
    epochs, again, other, ordered = (
        turns(sampling, 1, key=key) for sampling, key in (("epochs", 0), ("epochs", 0), ("epochs", 1), ("in order", 0))
    )
    np.testing.assert_array_equal(epochs, again)
    passes = set()
    for i, size in enumerate(SIZES()):
        first, second = (epochs[k * size : (k + 1) * size, i, 0].tolist() for k in range(2))
        assert sorted(first) == sorted(second) == list(range(size))
        passes |= {tuple(first), tuple(second), tuple(other[:size, i, 0].tolist())}
        np.testing.assert_array_equal(ordered[: 2 * size, i, 0], np.arange(2 * size) % size)
    assert len(passes) == 3 * M  # every node, pass and run its own


def test_steps_of_a_round_go_on_where_the_last_one_ended():
    for i, size in enumerate(SIZES()):
        for step in range(3):
            found = turns("in order", 2, step=step, steps=3)[:, i]
            place = 2 * ((3 * np.arange(40) + step) % (size // 2))
            np.testing.assert_array_equal(found, place[:, None] + [[0, 1]])


def test_passes_make_no_guarantee_stronger_and_say_so():
    told = jdfl.Gradients(batch=4, sampling="in order", clip=1.0, mechanism=jdfl.Gaussian(1.0)).guarantee(problem())
    assert told.claimed
    assert told.sampling is None
    assert told.sensitivity == pytest.approx(2 / 4)
    assert any("a pass over the data" in words for words in told.warnings)
