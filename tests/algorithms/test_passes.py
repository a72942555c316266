"""Passes over the data: whose turn it is in a round, and what one record can change."""

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
w = jnp.asarray(np.random.default_rng(0).standard_normal((M, N)), jnp.float32)


def moment(k, key) -> Moment:
    return Moment(jnp.int32(k), key, network().graph, jnp.arange(M, dtype=jnp.int32))


def later(round, k, key, **fields):
    """Round k, with what was prepared before the first one."""
    return replace(round, moment=moment(k, jax.random.fold_in(key, k)), **fields)


def turns(sampling, batch, rounds, step=0, steps=1, key=0):
    """Which examples every node looks at in rounds 0 .. rounds - 1: [round, node, batch]."""
    gradients = jdfl.Gradients(batch=batch, sampling=sampling)
    q = problem().weight.shape[1]
    marked = problem().replace(data=(jnp.broadcast_to(jnp.arange(q, dtype=jnp.int32), (M, q)),))
    first = direct(moment(key, jax.random.key(key)), marked, gradients)

    @jax.jit
    def one(k):
        here = later(first, k, jax.random.key(99), local_step=step, local_steps=steps)
        (data,), _, total = sample(here, sampling, batch)
        return data, total

    data, total = jax.lax.map(one, jnp.arange(rounds, dtype=jnp.int32))
    np.testing.assert_array_equal(total, np.full((rounds, M), batch))
    return np.asarray(data)


SIZES = Later(lambda: np.asarray(problem().sizes))


@pytest.mark.parametrize("batch", [1, 3])
def test_a_pass_looks_at_every_example_at_most_once_and_leaves_out_what_fills_no_batch(batch):
    rounds = 2 * int(SIZES().max()) // batch
    assert len(set(SIZES().tolist())) > 2
    for sampling in ("epochs", "in order"):
        found = turns(sampling, batch, rounds)
        for i, size in enumerate(SIZES()):
            one = size // batch
            for start in range(0, rounds - one + 1, one):
                seen = found[start : start + one, i].ravel()
                assert len(set(seen.tolist())) == len(seen) == one * batch
                assert seen.max() < size
            assert not found[:, i].max() >= size


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


def test_gradients_of_a_pass_average_to_that_of_all_examples():
    """Over a whole pass, where the batch divides a node's examples."""
    batch = 2
    found = np.asarray(passing(jdfl.Gradients(batch=batch, sampling="epochs"), w, problem(), rounds=10))
    exact = np.stack([gradient_of(problem())(i, np.asarray(w[i])) for i in range(M)])
    even = [i for i, size in enumerate(SIZES()) if size % batch == 0]
    assert even
    for i in even:
        np.testing.assert_allclose(found[: SIZES()[i] // batch, i].mean(axis=0), exact[i], rtol=1e-4, atol=1e-5)


NOISE = jdfl.Gaussian(1.0)
CHANGED = {
    "epochs": {"batch": 4, "sampling": "epochs", "mechanism": NOISE},
    "in-order": {"batch": 4, "sampling": "in order", "mechanism": NOISE},
    "add-remove": {"batch": 3, "sampling": "epochs", "mechanism": NOISE, "adjacency": "add-remove"},
    "laplace": {"batch": 4, "sampling": "epochs", "mechanism": jdfl.Laplace(1.0), "norm": "l1"},
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
        first = direct(moment(5, jax.random.key(5)), problem, gradients)
        return gradients(w, later(first, k, jax.random.key(3)))

    return jax.lax.map(one, jnp.arange(rounds, dtype=jnp.int32))


@pytest.mark.parametrize("sampling", ["epochs", "in order"])
def test_passes_make_no_guarantee_stronger_and_say_so(sampling):
    told = jdfl.Gradients(batch=4, sampling=sampling, clip=1.0, mechanism=NOISE).guarantee(problem())
    assert told.claimed
    assert told.sampling is None
    assert told.sensitivity == pytest.approx(2 / 4)
    assert any("a pass over the data" in words for words in told.warnings)
