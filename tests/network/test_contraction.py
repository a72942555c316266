"""Networks that draw their weights must bring nodes together on average; single rounds may expand."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jdfl
from jdfl import network as nw
from jdfl.base import struct
from jdfl.network import growth
from jdfl.network.growth import mean_growth
from tests.later import Later
from tests.network.examples import matrices, rounds
from tests.network.test_matcha import expected_norm

BASE = Later(nw.erdos_renyi, 9, 0.5, seed=2)
FINE = Later(lambda: nw.matcha(BASE(), 0.5))
EXPANDING = Later(lambda: replace(FINE(), alpha=FINE().alpha * 2))
PERIODIC = Later(lambda: nw.matcha(BASE(), 0.25, schedule="periodic"))


def refused(network, method="M-1", **options):
    with pytest.raises(ValueError, match="contract on average") as error:
        nw.check_weights(network, method, **options)
    return str(error.value)


@pytest.mark.parametrize("budget", [0.02, 0.1, 0.3, 0.5, 0.8, 1.0])
@pytest.mark.parametrize(
    "base",
    [BASE, Later(nw.ring, 12), Later(nw.star, 7), Later(nw.complete, 6), Later(nw.ring, 2)],
    ids=["Erdos-Renyi(m=9, p=0.5, seed=2)", "ring(m=12)", "star(m=7)", "complete(m=6)", "ring(m=2)"],
)
def test_matcha_as_it_is_passes_with_the_rho_that_it_promises(base, budget):
    network = nw.matcha(base, budget)
    nw.check_weights(network, "M-1")
    np.testing.assert_allclose(mean_growth(network).most, network.rho, atol=1e-6)


def test_the_mean_is_that_over_all_sets_of_matchings():
    for scale in (0.5, 1.0, 2.0, 4.0):
        network = replace(FINE(), alpha=FINE().alpha * scale)
        p, partner = np.asarray(network.p, float), np.asarray(network.partner)
        np.testing.assert_allclose(
            mean_growth(network).most, expected_norm(p, partner, float(network.alpha)), rtol=1e-9
        )


def test_matchings_that_expand_on_average_are_refused_with_the_number():
    said = refused(EXPANDING())
    assert f"{mean_growth(EXPANDING()).most:.6g}" in said
    assert "M-1" in said
    assert EXPANDING().name in said
    assert "jdfl.network.matcha(base, budget)" in said
    nw.check_weights(PERIODIC(), "M-1")
    refused(replace(PERIODIC(), alpha=PERIODIC().alpha * 3))
    nw.check_weights(EXPANDING(), "M-1", mixes=False)


def test_a_run_is_refused_before_anything_is_compiled():
    problem = jdfl.problems.example1(m=9, n=6, s=2, rows=(4, 6))
    with pytest.raises(ValueError, match="for MATCHA whose rounds contract on average"):
        jdfl.run(jdfl.MATCHA(), problem, EXPANDING(), steps=2)


def test_push_sum_refuses_weights_that_may_be_negative_in_any_round():
    with pytest.raises(ValueError, match="weights >= 0 for SGP"):
        nw.check_weights(FINE(), "SGP", columns=True)
    small = replace(FINE(), alpha=jnp.float32(0.05))
    nw.check_weights(small, "SGP", columns=True)


WRAPPERS = {
    "loss": lambda network: nw.link_loss(network, 0.1),
    "participation": lambda network: nw.node_participation(network, 0.9),
    "times": lambda network: nw.timed(network, nw.FixedTime(1.0)),
}


@pytest.mark.parametrize("kind", WRAPPERS)
def test_wrappers_are_looked_into(kind):
    nw.check_weights(WRAPPERS[kind](FINE()), "M-1")
    refused(WRAPPERS[kind](replace(EXPANDING(), alpha=FINE().alpha * 3)))


def test_a_wrapped_matrix_that_expands_is_refused():
    W = np.array([[2.0, -0.5, -0.5], [-0.5, 2.0, -0.5], [-0.5, -0.5, 2.0]])
    refused(nw.link_loss(nw.from_matrix(W, connected=False), 0.2))
    swinging = np.full((3, 3), 0.6) - 0.8 * np.eye(3)
    nw.check_weights(nw.link_loss(nw.from_matrix(swinging), 0.2), "M-1")
    nw.check_weights(nw.partial_communication(nw.from_matrix(swinging), 0.5), "M-1")


@struct.dataclass
class Own:
    """A person's network: links of a complete network, each with its Laplacian taken alpha times, or not at all."""

    m: int = struct.field(pytree_node=False)
    alpha: float

    def at(self, k, key):
        graph = nw.complete(self.m).graph
        up = jax.random.bernoulli(key, 0.5) & graph.mask
        weight = jnp.where(up, jnp.float32(self.alpha), 0)
        node = jnp.arange(self.m, dtype=jnp.int32)[:, None]
        return replace(
            graph,
            senders=jnp.where(up, graph.senders, node),
            mask=up,
            weight=weight,
            self_weight=1 - weight.sum(axis=1),
            out_degree=up.sum(axis=1, dtype=jnp.int32),
        )


@pytest.mark.slow
def test_a_network_of_ones_own_is_judged_by_its_mean():
    """W = I or I - alpha (m I - 1 1^T): the squared disagreement grows by (1 + (1 - alpha m)^2) / 2 in the mean."""
    for alpha in (0.1, 0.3, 0.39):
        nw.check_weights(Own(5, alpha), "M-1")
    for alpha in (0.5, 1.0):
        refused(Own(5, alpha))
        found = mean_growth(Own(5, alpha))
        assert abs(found.most - (1 + (1 - 5 * alpha) ** 2) / 2) < 4 * (found.error or 0)


def test_the_estimate_is_that_of_the_drawn_matrices():
    network = nw.link_loss(EXPANDING(), 0.1)
    W = matrices(rounds(network, jax.random.split(jax.random.key(5), 4000))).astype(float)
    mean = np.mean([M.T @ M for M in W], axis=0) - 1 / 9
    found = mean_growth(network)
    assert abs(found.most - np.linalg.norm(mean, 2)) < 4 * (found.error or 0)


U, V = np.array([1, -1, 0, 0]) / 2**0.5, np.array([0, 0, 1, -1]) / 2**0.5
# Either alone brings all nodes together in two rounds; in turn they multiply differences by nine.
THERE, BACK = (nw.from_matrix(np.full((4, 4), 0.25) + 3 * np.outer(*pair)) for pair in ((U, V), (V, U)))


def test_a_period_is_judged_by_its_product():
    turns = nw.periodic([THERE, BACK])
    with pytest.raises(
        ValueError, match=r"product of W over its 2 rounds at most 1 in modulus, got 9 .*period"
    ) as error:
        nw.check_weights(turns, "M-1")
    assert turns.name in str(error.value)
    nw.check_weights(nw.periodic([THERE, BACK, THERE, THERE]), "M-1")
    assert "got 81" in refused(nw.link_loss(turns, 1e-9))  # of squares
    half = [nw.from_matrix(np.full((4, 4), 0.25) + 0.9 * np.outer(*pair)) for pair in ((U, V), (V, U))]
    nw.check_weights(nw.periodic(half), "M-1")
    nw.check_weights(nw.link_loss(nw.periodic(half), 1e-9), "M-1")


def test_a_random_choice_is_judged_by_its_exact_mean():
    networks = [THERE, BACK]
    for p in (0.5, 0.9, 1.0):
        chosen = nw.random_choice(networks, [p, 1 - p])
        found = mean_growth(chosen)
        np.testing.assert_allclose(found.most, 9 * p, rtol=1e-6)
        assert found.error is None
        assert f"{found.most:.6g}" in refused(chosen)
    nw.check_weights(nw.random_choice([nw.complete(4), THERE], [0.95, 0.05]), "M-1")


def test_large_networks_are_judged_alike(monkeypatch):
    alone = nw.random_choice([EXPANDING().at(k, jax.random.key(k)) for k in range(5)])
    turns = nw.periodic([EXPANDING().at(k, jax.random.key(k)) for k in range(5)])
    found = mean_growth(alone).most, growth.spectral_radius([turns.at(k, None) for k in range(5)])
    monkeypatch.setattr(growth, "EXACT_UP_TO", 0)
    large = mean_growth(alone).most, growth.spectral_radius([turns.at(k, None) for k in range(5)])
    np.testing.assert_allclose(large, found, rtol=1e-6)
