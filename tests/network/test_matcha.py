"""MATCHA: matchings that are matchings, probabilities that are the best ones, rounds that are what they promise."""

import jax
import networkx as nx
import numpy as np
import pytest
import scipy
from hypothesis import given
from hypothesis import strategies as st

from jdfl import network as nw
from jdfl.network.matching import TOLERANCE, activation, laplacian, mixing_step
from tests.later import Later
from tests.network.examples import edge_lists, matrices, rounds

KEY = jax.random.key(3)
BASE = Later(nw.erdos_renyi, 9, 0.5, seed=2)


def matrices_of(net, count):
    return matrices(rounds(net, jax.random.split(KEY, count))).astype(float)


def second(L):
    return np.linalg.eigvalsh(L)[1]


def laplacian_of(net):
    return nx.laplacian_matrix(nw.to_networkx(net)).toarray().astype(float)


def expected_norm(p, partner, alpha):
    """|| E[W^T W] - J || from the definition: the mean over all sets of active matchings."""
    m, count = partner.shape
    mean = np.zeros((m, m))
    for code in range(2**count):
        on = (code >> np.arange(count)) & 1
        W = np.eye(m) - alpha * laplacian(on.astype(float), partner)
        mean += np.prod(np.where(on, p, 1 - p)) * W.T @ W
    return np.linalg.norm(mean - 1 / m, 2)


def assert_matchings(net, partner):
    m, node = partner.shape[0], np.arange(partner.shape[0])
    for j in range(partner.shape[1]):
        np.testing.assert_array_equal(partner[partner[:, j], j], node)
    met = np.zeros((m, m), int)
    np.add.at(met, (np.repeat(node, partner.shape[1]), partner.ravel()), 1)
    np.fill_diagonal(met, 0)
    np.testing.assert_array_equal(met, laplacian_of(net) < 0)
    assert partner.shape[1] <= laplacian_of(net).max() + 1


@given(edge_lists(), st.randoms(use_true_random=False))
def test_every_link_is_in_one_of_at_most_one_more_matchings_than_the_degree(case, shuffle):
    m, edges = case
    order = list(range(m))
    shuffle.shuffle(order)
    net = nw.from_edges(np.array(order)[edges].reshape(-1, 2), m)
    for one in (net, nw.complete(9)):  # the latter has paths of two colours to swap, and long fans
        assert_matchings(one, nw.matchings(one))


@given(case=edge_lists(), budget=st.sampled_from([0.02, 0.3, 0.5, 0.8, 0.99]), seed=st.integers(0, 1000))
def test_probabilities_are_certified_to_be_the_best(case, budget, seed):
    m, edges = case
    net = nw.from_edges(edges, m)
    if m == 1:
        return
    partner = nw.matchings(net)
    found = activation(partner, budget)
    assert 0 <= found.p.min() <= found.p.max() <= 1
    assert found.p.sum() <= budget * found.p.size * (1 + 1e-12)
    assert second(laplacian(found.p, partner)) == pytest.approx(found.connectivity, rel=1e-9)
    assert found.connectivity <= found.bound <= found.connectivity / (1 - TOLERANCE)
    rng = np.random.default_rng(seed)
    for _ in range(20):  # the bound holds for all others
        other = rng.dirichlet(np.full(found.p.size, 0.5)) * budget * found.p.size
        assert second(laplacian(np.minimum(other, 1), partner)) <= found.bound * (1 + 1e-12)


@pytest.mark.parametrize("p", [(0.3, 0.9, 0.5, 0.2), (1, 1, 1, 1)], ids=str)
def test_alpha_minimises_the_norm_of_the_definition(p):
    net = nw.circulant(6, [1, 3])
    partner = nw.matchings(net)
    p = np.array(p[: partner.shape[1]], float)
    alpha, rho = mixing_step(p, partner)
    assert rho == pytest.approx(expected_norm(p, partner, alpha), abs=1e-9)
    grid = np.linspace(0.01, 1, 100)
    norms = [expected_norm(p, partner, a) for a in grid]
    assert rho <= min(norms) + 1e-9
    assert abs(alpha - grid[np.argmin(norms)]) <= 0.011


def test_the_whole_budget_is_the_base_with_its_best_step_in_every_round():
    net = nw.matcha(BASE(), 1)
    L = laplacian_of(BASE())
    low, high = np.linalg.eigvalsh(L)[[1, -1]]
    assert np.asarray(net.p).tolist() == [1] * net.p.size
    assert net.alpha == pytest.approx(2 / (low + high), rel=1e-6)
    assert net.rho == pytest.approx(((high - low) / (high + low)) ** 2, rel=1e-9)
    assert net.expected_edges == L.trace() / 2
    np.testing.assert_allclose(matrices_of(net, 3), np.tile(np.eye(9) - float(net.alpha) * L, (3, 1, 1)), atol=1e-6)


def test_the_active_links_are_those_of_matchings_drawn_with_their_probabilities():
    net = nw.matcha(BASE(), 0.5)
    partner, p, repeats = np.asarray(net.partner), np.asarray(net.p, float), 2000
    graphs = rounds(net, jax.random.split(KEY, repeats))
    mask = np.asarray(graphs.mask)  # [repeats, m, M]
    met = partner != np.arange(9)[:, None]
    on = mask.any(axis=1)
    np.testing.assert_array_equal(mask, on[:, None, :] & met)
    for j in range(p.size):
        assert scipy.stats.binomtest(int(on[:, j].sum()), repeats, float(np.clip(p[j], 0, 1))).pvalue > 1e-3
    links = mask.sum(axis=(1, 2)) / 2
    spread = np.sqrt(np.sum(p * (1 - p) * (met.sum(axis=0) / 2) ** 2) / repeats)
    assert abs(links.mean() - net.expected_edges) < 4 * spread
    np.testing.assert_array_equal(graphs.out_degree, mask.sum(axis=2))
