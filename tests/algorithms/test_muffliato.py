"""Muffliato is the loop of its paper, faster when accelerated, and tells more than its paper's formula adds up."""

import jax
import numpy as np
import pytest

import jdfl
from jdfl.network import as_dense, spectral_gap
from jdfl.observers import Neighbour, observe
from tests.algorithms.play import course, example, gradient_of, network

LR, ROUNDS = 0.05, 20


def weight(gap):
    return 2 * (1 - np.sqrt(gap * (1 - gap / 4))) / (1 - gap / 2) ** 2


@pytest.mark.parametrize("accelerated", [False, True])
def test_it_is_the_loop_of_its_paper(accelerated):
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


def values(m):
    """Losses ||x - v_i||^2 / 2, of which one gradient step of length 1 leads to v_i."""
    return jdfl.problems.linear_regression(np.ones((m, 1, 1), np.float32), np.arange(m, dtype=np.float32)[:, None])


def test_acceleration_averages_values_faster():
    net = jdfl.network.ring(20)
    gaps = []
    for accelerated in (False, True):
        algorithm = jdfl.Muffliato(lr=1.0, gossips=60, accelerated=accelerated)
        x = jdfl.run(algorithm, values(20), net, key=0, steps=60).params
        assert np.mean(x) == pytest.approx(9.5, abs=1e-4)
        gaps.append(np.max(np.abs(np.asarray(x) - 9.5)))
    assert gaps[1] < 0.2 * gaps[0]


def test_two_rounds_tell_the_first_of_three_all_that_the_last_released():
    """One message of the middle node holds a third of it: 1/3 is what the paper's formula adds up."""
    line = jdfl.network.from_edges([(0, 1), (1, 2)], 3)
    noise = jdfl.Gradients(clip=1.0, mechanism=jdfl.Gaussian(2.0))
    found = observe(jdfl.Muffliato(lr=1.0, gradients=noise), values(3), line, Neighbour(0), steps=2, delta=0.1)
    W = np.asarray(as_dense(line.graph), np.float64)
    formula = W[1, 2] ** 2 / np.sum(W[1] ** 2)
    assert formula == pytest.approx(1 / 3)
    np.testing.assert_allclose(found.mu[1:] * 2.0, [1.0, 1.0], rtol=1e-6)
    assert found.bound  # values are fixed
