"""DP-DDA against its loop over nodes, and what activity at random means for counts, privacy and work."""

from dataclasses import replace
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jdfl
from jdfl.algorithms import gradients as oracle
from jdfl.algorithms.choosing import ACTIVE, active
from jdfl.algorithms.dp_dda import DPDDA
from jdfl.algorithms.round import RoundContext
from jdfl.base import streams
from tests.algorithms.play import ROUNDS, M, N, course, direct, example, gradient_of, matrices, network, round_of
from tests.reference import dual_averaging as reference

KEY, P, SENSITIVITY = 11, 0.4, 0.3
EXACT = jdfl.Dense("float64")
ASSUMED = jdfl.Gradients(mechanism=jdfl.Gaussian(0.5), sensitivity=SENSITIVITY)
PRIVATE = jdfl.Gradients(clip=2.0, mechanism=jdfl.Gaussian(0.5))


@jax.jit
def drawn():
    """Who is active [rounds, m], and what every gradient would be given [rounds, m, n]."""
    graph = jdfl.network.ring(M).graph

    def one(k):
        now = round_of(KEY, k, graph, jnp.arange(M, dtype=jnp.int32))
        chosen = ACTIVE.of(streams.Keys.of(jax.random.key(KEY)).at_start().choice)
        noise = jax.vmap(ASSUMED.mechanism.add, (0, None, None))(now.keys(oracle.NOISE), jnp.zeros(N), SENSITIVITY)
        return active(P, chosen, direct(now, None)), noise

    return jax.vmap(one)(jnp.arange(ROUNDS, dtype=jnp.int32))


@cache
def play(mu, order):
    """A run in float64 on links that come and go: W of every round, who is active, noise, and what `course` gives."""
    with jax.enable_x64(True):
        problem, net = example().replace(start=jnp.linspace(-1.0, 1.0, N)), jdfl.network.random_links(network(), 0.6)
        algorithm = DPDDA(lr=0.05, p=P, mu=mu, gradients=ASSUMED, codec=EXACT, order=order)
        return jax.tree.map(np.asarray, (matrices(net, KEY), *drawn(), *course(algorithm, problem, net, KEY)))


@pytest.mark.parametrize(("mu", "order"), [(None, "combine-then-adapt"), (0.2, "adapt-then-combine")])
def test_the_rounds_agree_with_the_loop(mu, order):
    W, on, draws, params, first, states, _ = play(mu, order)
    with jax.enable_x64(True):
        gradient = gradient_of(example())
    z, x = reference.dp_dda(
        gradient, W, first.x, on, draws, lr=0.05, p=P, mu=mu, adapt_first=order == "adapt-then-combine"
    )
    assert 0 < on.sum() < on.size
    np.testing.assert_allclose(states.z, z, rtol=0, atol=1e-9)
    np.testing.assert_allclose(params, x, rtol=0, atol=1e-9)
    assert np.abs(draws).max() > 0.1
    assert np.abs(x[-1] - first.x).max() > 0.1


def test_the_dual_changes_by_what_active_nodes_add_and_they_alone_are_counted():
    W, on, _, _, first, states, infos = play(None, "combine-then-adapt")
    z = states.z
    np.testing.assert_array_equal(infos.grads, on)
    np.testing.assert_array_equal(infos.releases, on)
    assert (infos.sent["model"] > 0).mean() > 0.9  # but for nodes without links, all send
    added = z - W @ np.concatenate([first.z[None], z[:-1]])
    assert np.abs(added[~on]).max() < 1e-12
    assert np.abs(added[on]).max(axis=-1).min() > 0.01


def test_nodes_are_active_as_often_as_p_says_and_each_on_its_own():
    nodes, count = 50, 400
    ids, keys = jnp.arange(nodes, dtype=jnp.int32), jax.random.split(jax.random.key(3), count)
    graph = jdfl.network.ring(M).graph

    def of(p, node=ids):
        def one(key):
            return active(p, key, direct(RoundContext(jnp.int32(0), key, graph, node), None))

        return np.asarray(jax.vmap(one)(keys))

    on = of(0.3)
    assert on.mean() == pytest.approx(0.3, abs=4 * np.sqrt(0.21 / on.size))
    assert abs(np.var(on.sum(axis=1)) / (0.21 * nodes) - 1) < 4 * np.sqrt(2 / count)  # no node follows another
    assert abs(np.var(on.sum(axis=0)) / (0.21 * count) - 1) < 4 * np.sqrt(2 / nodes)  # no round follows another
    np.testing.assert_array_equal(of(0.3, ids[::-1]), on[:, ::-1])
    assert of(1.0).all()
    assert (of(0.6) >= on).all()


@pytest.mark.rotated(2)
@pytest.mark.parametrize(("batch", "block"), [(None, 3), (3, 50)])
def test_blocks_of_active_nodes_change_nothing(batch, block):
    plain = DPDDA(lr=0.05, p=P, gradients=replace(PRIVATE, batch=batch))
    whole, parts = (
        course(method, example(np.float32), network(), KEY)[0] for method in (plain, replace(plain, block=block))
    )
    np.testing.assert_allclose(parts, whole, rtol=0, atol=3e-6)  # compiled apart, they round apart
    assert (plain.uneven, replace(plain, block=block).uneven) == (False, True)


def test_one_example_moves_a_message_by_the_sensitivity_over_p_and_no_amplification_is_claimed():
    problem, net = example(np.float32), network()
    A, b = problem.data
    wild = problem.replace(data=(A.at[2, 3].multiply(1e4), b.at[2, 3].multiply(-1e4)))
    on = np.asarray(drawn()[0])
    t = int(np.flatnonzero(on[:, 2])[0])  # before, nobody can tell the two apart
    algorithm = DPDDA(lr=0.05, p=P, gradients=PRIVATE)
    here, there = (np.asarray(course(algorithm, world, net, KEY)[2].z) for world in (problem, wild))
    np.testing.assert_array_equal(here[:t], there[:t])
    moved = np.linalg.norm(here[t] - there[t], axis=1)
    bound = float(PRIVATE.sensitivities(problem)[2]) / P
    assert 0.1 * bound < moved[2] <= bound * (1 + 1e-4)
    assert not np.delete(moved, 2).any()
    problem = example(np.float32)
    algorithm = DPDDA(p=P, gradients=replace(PRIVATE, batch=1, mechanism=jdfl.Gaussian(4.0)))
    assert algorithm.privacy(problem) == algorithm.gradients.guarantee(problem)
