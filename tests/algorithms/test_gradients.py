"""Gradients of some examples, drawn or in passes, clipped and noisy: what they are, cost, and what bounds them."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import jdfl
from jdfl.algorithms.moment import Moment
from jdfl.algorithms.sampling import sample
from tests.algorithms.play import M, N, direct, example, gradient_of, network
from tests.later import Later

CLIP = 0.8
problem = Later(example, np.float32)
w = np.random.default_rng(0).standard_normal((M, N)).astype(np.float32)


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


def test_the_noise_has_the_scale_that_is_said_and_is_everyones_own():
    noisy = jdfl.Gradients(clip=CLIP, mechanism=jdfl.Gaussian(3.0))
    here, keys = moment(), jax.random.split(jax.random.key(0), 200)
    exact = evaluate(jdfl.Gradients(clip=CLIP), w, problem(), here)
    found = jax.vmap(lambda key: evaluate(noisy, w, problem(), replace(here, key=key)))(keys)
    xi = np.asarray(found) - np.asarray(exact)
    deviation = 3.0 * 2 * CLIP / np.asarray(problem().sizes)
    np.testing.assert_allclose(xi.std(axis=(0, 2)), deviation, rtol=5 / np.sqrt(2 * 200 * N))
    np.testing.assert_allclose(xi.mean(axis=(0, 2)) / deviation, 0, atol=5 / np.sqrt(200 * N))
    scaled = (xi / deviation[None, :, None]).transpose(1, 0, 2).reshape(M, -1)
    assert np.abs(np.corrcoef(scaled) - np.eye(M)).max() < 5 / np.sqrt(200 * N)


def test_every_step_and_look_has_noise_of_its_own():
    noisy = jdfl.Gradients(sensitivity=1.0, mechanism=jdfl.Gaussian(1.0))
    found = [evaluate(noisy, w, problem(), moment(), step, look) for step, look in ((0, 0), (0, 1), (1, 0), (2, 0))]
    assert len({float(x[0, 0]) for x in found}) == 4
    few = jdfl.Gradients(batch=3)  # whose examples are those of the step
    first, again, later = (evaluate(few, w, problem(), moment(), *at) for at in ((1, 0), (1, 1), (2, 0)))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, later)


def test_noise_after_an_exchange_only():
    noisy = jdfl.Gradients(sensitivity=1.0, mechanism=jdfl.Gaussian(1.0), noisy="communicating")
    exact = evaluate(jdfl.Gradients(), w, problem(), moment())
    np.testing.assert_array_equal(evaluate(noisy, w, problem(), moment(), talks=False), exact)
    assert not np.allclose(evaluate(noisy, w, problem(), moment(), talks=True), exact)
    assert releases(noisy, local_steps=5) == [1, 1]
    assert releases(jdfl.Gradients(sensitivity=1.0, mechanism=jdfl.Gaussian(1.0)), local_steps=5) == [5, 5]


PART = slice(2, 7)


@partial(jax.jit, static_argnames="bounds")
def partly(gradients, w, problem, moment, bounds=(PART.start, PART.stop)):
    return gradients(w, direct(moment, problem, gradients), part=None if bounds is None else slice(*bounds))


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


def at(k, key) -> Moment:
    return Moment(jnp.int32(k), key, network().graph, jnp.arange(M, dtype=jnp.int32))


def later(round, k, key, **fields):
    """Round k, with what was prepared before the first one."""
    return replace(round, moment=at(k, jax.random.fold_in(key, k)), **fields)


def turns(sampling, batch, rounds, step=0, steps=1, key=0):
    """Which examples every node looks at in rounds 0 .. rounds - 1: [round, node, batch]."""
    gradients = jdfl.Gradients(batch=batch, sampling=sampling)
    q = problem().weight.shape[1]
    marked = problem().replace(data=(jnp.broadcast_to(jnp.arange(q, dtype=jnp.int32), (M, q)),))
    first = direct(at(key, jax.random.key(key)), marked, gradients)

    @jax.jit
    def one(k):
        here = later(first, k, jax.random.key(99), local_step=step, local_steps=steps)
        (data,), _, total = sample(here, sampling, batch)
        return data, total

    data, total = jax.lax.map(one, jnp.arange(rounds, dtype=jnp.int32))
    np.testing.assert_array_equal(total, np.full((rounds, M), batch))
    return np.asarray(data)


SIZES = Later(lambda: np.asarray(problem().sizes))


@pytest.mark.parametrize(("batch", "sampling"), [(1, "epochs"), (3, "epochs"), (3, "in order")])
def test_a_pass_looks_at_every_example_at_most_once_and_leaves_out_what_fills_no_batch(batch, sampling):
    rounds = 2 * int(SIZES().max()) // batch
    assert len(set(SIZES().tolist())) > 2
    found = turns(sampling, batch, rounds)
    for i, size in enumerate(SIZES()):
        one = size // batch
        for start in range(0, rounds - one + 1, one):
            seen = found[start : start + one, i].ravel()
            assert len(set(seen.tolist())) == len(seen) == one * batch
        assert found[:, i].max() < size


def test_epochs_have_orders_of_their_own_and_in_order_has_the_datas():
    epochs, again, other, ordered = (
        turns(sampling, 1, int(SIZES().max()) * 2, key=key)
        for sampling, key in (("epochs", 0), ("epochs", 0), ("epochs", 1), ("in order", 0))
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
    ordered = turns("in order", 2, 12)
    for step in range(3):
        np.testing.assert_array_equal(turns("in order", 2, 4, step=step, steps=3), ordered[step::3])


NOISE = jdfl.Gaussian(1.0)
CHANGED = {
    "in order": {"batch": 4, "sampling": "in order", "mechanism": NOISE},
    "add-remove": {"batch": 3, "sampling": "epochs", "mechanism": NOISE, "adjacency": "add-remove"},
    "node": {"batch": 4, "sampling": "epochs", "mechanism": NOISE, "per": "batch"},
}


@pytest.mark.parametrize("kind", CHANGED)
@given(slot=st.integers(0, 7), scale=st.sampled_from([1e-2, 1.0, 1e3, 1e18]), seed=st.integers(0, 2**16))
def test_what_neighbouring_data_change_in_a_pass_is_within_the_sensitivity(kind, slot, scale, seed):
    gradients, i = jdfl.Gradients(clip=CLIP, **CHANGED[kind]), seed % M
    uneven = unevenly_weighted()
    draw = np.random.default_rng(seed)
    A, b = uneven.data
    new, target = scale * draw.standard_normal(N), 10 * scale * draw.standard_normal()
    if gradients.adjacency == "add-remove":  # there, or with zero gradients
        new, target = 0 * new, 0.0
    other = uneven.replace(data=(A.at[i, slot].set(jnp.asarray(new, A.dtype)), b.at[i, slot].set(target)))
    if gradients.per == "batch":  # all of the node's records
        other = uneven.replace(data=(A.at[i].set(jnp.asarray(scale, A.dtype) * A[i][::-1]), b.at[i].set(0 * b[i])))
    exact = gradients.replace(mechanism=None)
    change = np.stack([passing(exact, w, one) for one in (uneven, other)]).astype(np.float64)
    order = {"l1": 1, "l2": 2}[gradients.mechanism.norm]
    size = np.linalg.norm(change[0] - change[1], order, axis=2)  # [round, node]
    allowed = np.asarray(gradients.sensitivities(uneven))
    assert (size[:, i] <= allowed[i] * (1 + 1e-3) + 1e-6).all()
    assert not np.delete(size, i, axis=1).any()
    if gradients.per == "example":  # a record counts in one release of a pass at most
        assert (size[: int(uneven.sizes[i]) // gradients.batch, i] > 1e-6).sum() <= 1


def unevenly_weighted():
    weight = problem().weight
    draw = np.random.default_rng(4).uniform(0.5, 2, weight.shape)
    return problem().replace(weight=weight * jnp.asarray(draw, jnp.float32))


@partial(jax.jit, static_argnames="rounds")
def passing(gradients, w, problem, rounds=5):
    """The gradients of the first rounds [round, node, n]."""

    def one(k):
        first = direct(at(5, jax.random.key(5)), problem, gradients)
        return gradients(w, later(first, k, jax.random.key(3)))

    return jax.lax.map(one, jnp.arange(rounds, dtype=jnp.int32))


def test_passes_make_no_guarantee_stronger_and_say_so():
    told = jdfl.Gradients(batch=4, sampling="in order", clip=1.0, mechanism=NOISE).guarantee(problem())
    assert told.claimed
    assert told.sampling is None
    assert told.sensitivity == pytest.approx(2 / 4)
    assert any("a pass over the data" in words for words in told.warnings)
