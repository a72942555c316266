"""DECOR: noise that cancels over links, what it hides from whom, and the loop of its paper."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jdfl
from experiments.observer_attack import derived, reached, world
from jdfl.algorithms.decor import _PAIRS
from jdfl.base.streams import Stream
from jdfl.network import as_dense
from jdfl.observers import Everyone, Neighbour, observe
from jdfl.observers.observe import Observed
from tests.algorithms.play import course, direct, example, network, round_of

_TRIED = Stream("test.pairs", "private")
NOISY = jdfl.Gradients(clip=1.0, mechanism=jdfl.Gaussian(0.8))
EXACT = jdfl.Gradients(clip=1.0, mechanism=jdfl.ExactGaussian(1.0))
M, T = 6, 4


def drawn(x, node=None, key=0):
    net = network()
    node = jnp.arange(net.m, dtype=jnp.int32) if node is None else node
    moment = round_of(jax.random.key(key), jnp.int32(3), net.graph, node)
    return direct(moment, example(np.float32)).pairwise(_TRIED, x), net


def test_noise_of_pairs_cancels_over_links_and_has_their_number_as_variance():
    x = jnp.zeros((7, 40_000), jnp.float32)
    noise, net = drawn(x)
    np.testing.assert_allclose(jnp.sum(noise, axis=0), 0, atol=2e-5)
    links = np.asarray(as_dense(net.graph)) != 0
    np.fill_diagonal(links, False)
    laplacian = np.diag(links.sum(axis=1)) - links
    np.testing.assert_allclose(np.cov(np.asarray(noise)), laplacian, atol=0.12)
    again, _ = drawn(x[:, :1])
    other, _ = drawn(x[:, :1], key=1)
    assert np.array_equal(again, drawn(x[:, :1])[0])
    assert not np.any(np.asarray(other) == np.asarray(again))


def test_it_is_the_loop_of_its_paper():
    """Own noise is D-PSGD's of the same key, to which the noise of pairs is added."""
    with jax.enable_x64(True):
        problem, net, key = example(), network(), jax.random.key(11)
        algorithm = jdfl.DECOR(lr=0.05, gradients=NOISY, pairs=0.7)
        found = course(algorithm, problem, net, key, rounds=5)[0]
        W, x = np.asarray(as_dense(net.graph), np.float64), np.zeros((problem.m, problem.n))
        scale = float(np.max(NOISY.sensitivities(problem)))
        node = jnp.arange(problem.m, dtype=jnp.int32)
        for k in range(5):
            moment = round_of(key, jnp.int32(k), net.graph, node)
            there = direct(moment, problem, NOISY)
            g = np.asarray(NOISY(jnp.asarray(x), there))
            pairs = np.asarray(direct(moment, problem).pairwise(_PAIRS, jnp.asarray(x)))
            x = W @ (x - 0.05 * (g + 0.7 * scale * pairs))
            np.testing.assert_allclose(found[k], x, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("pairs", "colluding", "mu"), [(1e-3, 0, 2.5), (1e3, 0, 2.5 / np.sqrt(M)), (3.0, 1, None)])
def test_its_guarantee_is_between_that_of_own_noise_and_that_of_all_nodes(pairs, colluding, mu):
    algorithm = jdfl.DECOR(gradients=NOISY, pairs=pairs, colluding=colluding)
    problem, net = world(M, 0, 1.0), jdfl.network.ring(M)
    report = jdfl.account_plan(algorithm, problem, net, steps=T, delta=0.01)
    found = np.sqrt(T) / report.noise_multiplier
    if mu is not None:
        assert found == pytest.approx(mu, rel=1e-4)
    if not colluding:
        seen = observe(algorithm, problem, net, Everyone(), steps=T, delta=0.01)
        np.testing.assert_allclose(seen.mu, found, rtol=1e-6)
        assert seen.bound
    else:  # the secrets of one node, and all messages: a line of five
        line = 2 * np.eye(5) - np.eye(5, k=1) - np.eye(5, k=-1)
        line[0, 0] = line[4, 4] = 1
        each = np.linalg.inv((0.8 * 2) ** 2 * np.eye(5) + (3.0 * 2) ** 2 * line)
        assert found == pytest.approx(np.sqrt(T) * 2 * np.sqrt(np.max(np.diag(each))), rel=1e-6)
    assert "secrets" in report.observer


def test_attacks_with_the_own_secrets_reach_what_is_derived():
    algorithm, net = jdfl.DECOR(gradients=NOISY, pairs=3.0), jdfl.network.ring(M)
    found, wanted = reached(algorithm, net, Neighbour(0), 1, steps=T)
    assert found == pytest.approx(wanted, rel=0.05)
    run = Observed.of(algorithm, world(M, 0, 1.0), net, steps=T, key=0, delta=0.01)
    one, two = run.spread.senders == 1, run.spread.senders == 2
    heard = run.spread.heard.copy()
    heard[:, 1] &= ~two[:, 1]
    heard[:, 2] &= ~one[:, 2]
    planted = replace(run, spread=replace(run.spread, heard=heard))  # a link's noise is missing
    assert derived(planted, Neighbour(0), 1) != pytest.approx(found, rel=0.05)


@pytest.mark.parametrize(
    ("fields", "net", "words"),
    [
        ({"gradients": jdfl.Gradients(clip=1.0, mechanism=jdfl.Laplace(1.0))}, jdfl.network.ring, "Gaussian noise"),
        ({"gradients": EXACT}, jdfl.network.ring, "Gaussian noise"),
        ({"gradients": NOISY, "colluding": M}, jdfl.network.ring, "colluding = 6 of 6"),
        ({"gradients": NOISY, "pairs": 0.0}, jdfl.network.ring, "pairs = 0.0"),
        ({"gradients": NOISY}, jdfl.network.exponential, "undirected"),
        ({"gradients": NOISY}, lambda m: jdfl.network.link_loss(jdfl.network.ring(m), 0.5), "fixed network"),
    ],
)
def test_what_makes_no_sense_is_refused(fields, net, words):
    with pytest.raises(ValueError, match=words):
        jdfl.run(jdfl.DECOR(**fields), world(M, 0, 1.0), net(M), key=0, steps=2)


def test_noise_of_pairs_cancels_between_devices_whose_nodes_have_other_sensitivities():
    """Nodes of one device have one example, those of the other ten."""
    features = [np.ones((1 if i < M // 2 else 10, 3), np.float32) for i in range(M)]
    problem = jdfl.problems.linear_regression(features, [one[:, 0] for one in features])
    algorithm, net = jdfl.DECOR(lr=0.1, gradients=NOISY, pairs=5.0), jdfl.network.ring(M)
    found = [
        jdfl.run(algorithm, problem, net, key=0, steps=3, options=jdfl.Options(devices=devices)).params
        for devices in (None, 2)
    ]
    np.testing.assert_allclose(found[1], found[0], rtol=1e-5, atol=1e-5)
