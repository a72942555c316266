"""Networks that draw their weights must bring nodes together on average; single rounds may expand."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np

import jdfl
from jdfl import network as nw
from jdfl.network import properties
from jdfl.network.properties import centred, largest_modulus, mean_growth, spectral_radius
from tests.later import Later
from tests.network.examples import graph_of_round, matrices, rounds
from tests.refused import refused

BASE = Later(nw.erdos_renyi, 9, 0.5, seed=2)
FINE = Later(lambda: nw.matcha(BASE(), 0.5))
EXPANDING = Later(lambda: replace(FINE(), alpha=FINE().alpha * 2))


def told(network, number=None):
    """A network is refused, with the mean growth that it has."""
    with refused("M-1", "contract on average", f"{number or mean_growth(network)[0]:.6g}"):
        nw.check_weights(network, "M-1")


def test_matcha_as_it_is_passes_with_the_rho_that_it_promises():
    for base, budget in ((BASE(), 0.3), (BASE(), 1.0), (nw.star(7), 0.02), (nw.ring(2), 0.8)):
        network = nw.matcha(base, budget)
        nw.check_weights(network, "M-1")
        np.testing.assert_allclose(mean_growth(network)[0], network.rho, atol=1e-6)


def test_matchings_that_expand_on_average_are_refused_with_the_number():
    told(EXPANDING())
    nw.check_weights(EXPANDING(), "M-1", mixes=False)
    with refused("MATCHA"):
        jdfl.run(jdfl.MATCHA(), jdfl.problems.example1(m=9, n=6, s=2, rows=(4, 6)), EXPANDING(), steps=2)


def test_push_sum_refuses_weights_that_may_be_negative_in_any_round():
    with refused("weights >= 0", "SGP"):
        nw.check_weights(FINE(), "SGP", columns=True)
    nw.check_weights(replace(FINE(), alpha=jnp.float32(0.05)), "SGP", columns=True)


def test_wrappers_are_looked_into():
    strong = replace(EXPANDING(), alpha=FINE().alpha * 3)
    for wrap in (lambda net: nw.link_loss(net, 0.1), lambda net: nw.node_participation(net, 0.9), nw.timed):
        nw.check_weights(wrap(FINE()), "M-1")
        told(wrap(strong))
    told(nw.link_loss(nw.from_matrix(2.5 * np.eye(3) - 0.5, connected=False), 0.2))
    swinging = np.full((3, 3), 0.6) - 0.8 * np.eye(3)
    nw.check_weights(nw.link_loss(nw.from_matrix(swinging), 0.2), "M-1")
    nw.check_weights(nw.partial_communication(nw.from_matrix(swinging), 0.5), "M-1")


def test_the_estimate_is_that_of_the_drawn_matrices():
    network = nw.link_loss(EXPANDING(), 0.1)
    W = matrices(rounds(network, jax.random.split(jax.random.key(5), 4000))).astype(float)
    most, error = mean_growth(network)
    assert abs(most - np.linalg.norm(np.mean(W.swapaxes(1, 2) @ W, axis=0) - 1 / 9, 2)) < 4 * (error or 0)


U, V = np.array([1, -1, 0, 0]) / 2**0.5, np.array([0, 0, 1, -1]) / 2**0.5


def pair(scale):
    """Either alone brings all nodes together in two rounds; in turn they multiply differences by the scale's square."""
    return [nw.from_matrix(np.full((4, 4), 0.25) + scale * np.outer(*of)) for of in ((U, V), (V, U))]


TURNING = Later(pair, 3)


def test_a_period_is_judged_by_its_product():
    turns = nw.periodic(TURNING())
    with refused("M-1", "got 9", turns.name):
        nw.check_weights(turns, "M-1")
    nw.check_weights(nw.periodic([*TURNING(), *TURNING()[:1] * 2]), "M-1")
    told(nw.link_loss(turns, 1e-9), 81)  # of squares
    nw.check_weights(nw.periodic(pair(0.9)), "M-1")
    nw.check_weights(nw.link_loss(nw.periodic(pair(0.9)), 1e-9), "M-1")


def test_a_random_choice_is_judged_by_its_exact_mean():
    for p in (0.5, 0.9, 1.0):
        chosen = nw.random_choice(TURNING(), [p, 1 - p])
        found = mean_growth(chosen)
        np.testing.assert_allclose(found[0], 9 * p, rtol=1e-6)
        assert found[1] is None
        told(chosen)
    nw.check_weights(nw.random_choice([nw.complete(4), TURNING()[0]], [0.95, 0.05]), "M-1")


def test_large_networks_are_judged_alike(monkeypatch):
    drawn = rounds(EXPANDING(), jax.random.split(jax.random.key(0), 5))
    graphs = [graph_of_round(drawn, k) for k in range(5)]

    def found():
        turns = nw.periodic(graphs)
        return mean_growth(nw.random_choice(graphs))[0], spectral_radius([turns.at(k, None) for k in range(5)])

    dense = found()
    monkeypatch.setattr(properties, "EXACT_UP_TO", 0)
    np.testing.assert_allclose(found(), dense, rtol=1e-6)
    turn = centred(np.eye(6)) @ np.roll(np.eye(6), 1, axis=1)
    for matrix, m, modulus in ((0.8 * turn - 0.1 * turn @ turn, 6, 0.9), (0 * turn, 6, 0), (turn, 1, 0)):
        np.testing.assert_allclose(largest_modulus(matrix.__matmul__, m, symmetric=False), modulus, rtol=1e-6)
