"""DECOR and Muffliato: the loops of their papers, what noise of pairs hides from whom, and what two rounds tell."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jdfl
from experiments.observer_attack import reached, world
from jdfl.algorithms.decor import _PAIRS
from jdfl.algorithms.program import planned
from jdfl.base.streams import Stream
from jdfl.network import as_dense, spectral_gap
from jdfl.observers import Neighbour
from tests.algorithms.play import course, direct, example, gradient_of, network, round_of

_TRIED = Stream("test.pairs", "private")
NOISY = jdfl.Gradients(clip=1.0, mechanism=jdfl.Gaussian(0.8))
M, T = 6, 4


@jax.jit
def round_of_noise(x, key, k):
    """The pairs' noise of two streams, and the noisy gradients at x [m, n], in round k."""
    net, problem = network(), example(x.dtype)
    context = round_of(key, k, net.graph, jnp.arange(net.m, dtype=jnp.int32))
    here = direct(context, problem)
    narrow = x[:, : problem.n]
    return here.pairwise(_TRIED, x), here.pairwise(_PAIRS, narrow), NOISY(narrow, direct(context, problem, NOISY))


def test_noise_of_pairs_cancels_over_links_and_has_their_number_as_variance():
    x = jnp.zeros((7, 40_000), jnp.float32)
    noise, again, other = (np.asarray(round_of_noise(x, jax.random.key(key), jnp.int32(3))[0]) for key in (0, 0, 1))
    np.testing.assert_allclose(np.sum(noise, axis=0), 0, atol=2e-5)
    links = np.asarray(as_dense(network().graph)) != 0
    np.fill_diagonal(links, False)
    laplacian = np.diag(links.sum(axis=1)) - links
    np.testing.assert_allclose(np.cov(noise), laplacian, atol=0.12)
    np.testing.assert_array_equal(again, noise)
    assert np.mean(other == noise) < 1e-3


def test_it_is_the_loop_of_its_paper():
    with jax.enable_x64(True):
        problem, net, key = example(), network(), jax.random.key(11)
        algorithm = jdfl.DECOR(lr=0.05, gradients=NOISY, pairs=0.7)
        found = course(algorithm, problem, net, key, rounds=5)[0]
        W, x = np.asarray(as_dense(net.graph), np.float64), np.zeros((problem.m, problem.n))
        scale = float(np.max(NOISY.sensitivities(problem)))
        for k in range(5):
            _, pairs, g = (np.asarray(part) for part in round_of_noise(jnp.asarray(x), key, jnp.int32(k)))
            x = W @ (x - 0.05 * (g + 0.7 * scale * pairs))
            np.testing.assert_allclose(found[k], x, rtol=1e-9, atol=1e-12)


def test_its_guarantee_is_between_that_of_own_noise_and_that_of_all_nodes():
    line = 2 * np.eye(5) - np.eye(5, k=1) - np.eye(5, k=-1)  # of the others, where one colludes
    line[0, 0] = line[4, 4] = 1
    left = np.linalg.inv((0.8 * 2) ** 2 * np.eye(5) + (3.0 * 2) ** 2 * line)
    told = {(1e-3, 0): 2.5, (1e3, 0): 2.5 / np.sqrt(M), (3.0, 1): np.sqrt(T) * 2 * np.sqrt(np.max(np.diag(left)))}
    for (pairs, colluding), mu in told.items():
        algorithm = jdfl.DECOR(gradients=NOISY, pairs=pairs, colluding=colluding)
        guarantee = planned(algorithm, world(M, 0, 1.0), jdfl.network.ring(M), T).privacy(world(M, 0, 1.0))
        assert np.sqrt(T) / guarantee.event.noise_multiplier == pytest.approx(mu, rel=1e-4)
        assert "secrets" in guarantee.observer


def test_attacks_with_the_own_secrets_reach_what_is_derived():
    algorithm, net = jdfl.DECOR(gradients=NOISY, pairs=3.0), jdfl.network.ring(M)
    found, wanted = reached(algorithm, net, Neighbour(0), 1, steps=T)
    assert found == pytest.approx(wanted, rel=0.05)


LR, ROUNDS = 0.05, 20


def weight(gap):
    return 2 * (1 - np.sqrt(gap * (1 - gap / 4))) / (1 - gap / 2) ** 2


@pytest.mark.parametrize("accelerated", [False, True])
def test_muffliato_is_the_loop_of_its_paper(accelerated):
    with jax.enable_x64(True):
        problem, net = example(), network()
        algorithm = jdfl.Muffliato(lr=LR, gossips=3, accelerated=accelerated)
        found = course(algorithm, problem, net, rounds=ROUNDS)[0]
        W, gradient = np.asarray(as_dense(net.graph), np.float64), gradient_of(problem)
        x, before = np.zeros((problem.m, problem.n)), None
        for k in range(ROUNDS):
            if k % 3 == 0:
                x = np.stack([x[i] - LR * gradient(i, x[i]) for i in range(problem.m)])
                x, before = W @ x, x
            else:
                w = weight(spectral_gap(net)) if accelerated else 1.0
                x, before = w * (W @ x) + (1 - w) * before, x
            np.testing.assert_allclose(found[k], x, rtol=1e-9, atol=1e-12)
