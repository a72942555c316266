"""Each family is what it says it is, at every size: links, degrees, weights, and what is equally likely."""

import networkx as nx
import numpy as np
import pytest
import scipy
from hypothesis import given
from hypothesis import strategies as st

from jdfl import network as nw
from tests.later import Later
from tests.network.examples import same

seeds = st.integers(0, 10**6)


def _is(net, expected):
    plain = nx.Graph()
    plain.add_nodes_from(expected)
    plain.add_edges_from((u, v) for u, v in expected.edges() if u != v)
    nw.check_graph(net.graph)
    return nx.utils.graphs_equal(nw.to_networkx(net), plain)


def strongly_connected(net):
    return nx.is_strongly_connected(nx.DiGraph(nw.to_networkx(net)))


def test_links_are_those_of_networkx():
    for m in (1, 2, 3, 8):
        assert _is(nw.ring(m), nx.cycle_graph(m))
        assert _is(nw.complete(m), nx.complete_graph(m))
        assert _is(nw.star(m), nx.star_graph(m - 1))
    for m, rows in ((1, 1), (4, 2), (6, 2), (12, 3), (12, 2), (5, 1)):
        grid = nx.grid_2d_graph(rows, m // rows, periodic=True)
        assert _is(nw.torus(m, rows), nx.relabel_nodes(grid, {(r, c): r * (m // rows) + c for r, c in grid}))
    for m, rows in ((1, 1), (4, 2), (12, 3), (25, 5)):  # the squarest
        assert same(nw.torus(m).graph, nw.torus(m, rows).graph)


@given(m=st.integers(2, 12), data=st.data())
def test_circulant(m, data):
    offsets = [1, *data.draw(st.lists(st.integers(1, m // 2), max_size=3))]
    assert _is(nw.circulant(m, offsets), nx.circulant_graph(m, offsets))


@pytest.mark.parametrize(
    ("net", "hears"),
    [
        (Later(nw.ring, 5, directed=True), lambda i: [(i - 1) % 5]),
        (Later(nw.circulant, 8, [1, 2, 4], directed=True), lambda i: [(i - o) % 8 for o in (1, 2, 4)]),
        (Later(nw.exponential, 6), lambda i: [(i - o) % 6 for o in (1, 2, 4)]),
        (Later(nw.torus, 12, directed=True), lambda i: [(i - 4) % 12, i - 1 if i % 4 else i + 3]),
    ],
    ids=["ring", "powers", "exponential", "torus"],
)
def test_directed_families_hear_one_way(net, hears):
    nw.check_graph(net.graph)
    W = nw.to_scipy(net).toarray()
    for i in range(net.m):
        heard = hears(i)
        assert set(np.flatnonzero(W[i])) == {i, *heard}
        np.testing.assert_allclose(W[i, [i, *heard]], 1 / (1 + len(heard)), atol=1e-7)


def test_the_exponential_network_is_doubly_stochastic_with_a_known_gap():
    for m in (1, 2, 3, 6, 8, 12, 16):
        net, tau = nw.exponential(m), int(np.ceil(np.log2(m)))
        nw.check_graph(net.graph)
        assert (np.asarray(net.graph.in_degree) == tau).all()
        np.testing.assert_allclose(nw.to_scipy(net).sum(axis=0), 1, atol=1e-6)
        assert m % 2 or nw.spectral_gap(net) == pytest.approx(2 / (1 + tau), rel=1e-5)


DRAWN = {
    "k-regular": lambda seed: [nw.k_regular(m, d, seed=seed) for m, d in ((1, 0), (2, 1), (5, 4), (8, 3), (9, 4))],
    "k-in": lambda seed: [nw.k_in(m, d, seed=seed) for m, d in ((1, 0), (2, 1), (6, 3), (9, 8), (12, 4))],
    "erdos-renyi": lambda seed: [nw.erdos_renyi(m, 0.4, seed=seed, tries=10_000) for m in (1, 2, 5, 20)],
    "one way": lambda seed: [nw.erdos_renyi(m, 0.5, directed=True, seed=seed, tries=10_000) for m in (1, 2, 12)],
    "watts-strogatz": lambda seed: [nw.watts_strogatz(m, d, 0.3, seed=seed) for m, d in ((3, 2), (8, 4), (15, 6))],
    "barabasi-albert": lambda seed: [nw.barabasi_albert(m, k, seed=seed) for m, k in ((2, 1), (9, 1), (20, 3), (7, 6))],
    "geometric": lambda seed: [nw.random_geometric(m, 0.6, seed=seed, tries=10_000) for m in (1, 2, 15)],
    "one-way geometric": lambda seed: [nw.random_geometric(15, 0.6, spread=0.5, seed=seed, tries=10_000)],
}


@pytest.mark.parametrize("kind", DRAWN)
@given(seed=seeds)
def test_drawn_networks_are_connected_and_repeatable(kind, seed):
    for net, again in zip(DRAWN[kind](seed), DRAWN[kind](seed), strict=True):
        nw.check_graph(net.graph)
        assert strongly_connected(net)
        assert same(again.graph, net.graph)
        degree, links = np.asarray(net.graph.in_degree), nw.to_networkx(net)
        if kind in ("k-regular", "k-in"):
            assert np.ptp(degree) == 0
        if kind == "watts-strogatz":
            assert links.number_of_edges() == net.m * {3: 2, 8: 4, 15: 6}[net.m] // 2
        if kind == "barabasi-albert":
            k = {2: 1, 9: 1, 20: 3, 7: 6}[net.m]
            assert all(sum(j < i for j in links[i]) == k for i in range(k + 1, net.m))


def likely(drawn, repeats, p):
    """Whether how often things were drawn looks like probability p, for all of them."""
    z = (drawn - repeats * p) / np.sqrt(repeats * p * (1 - p))
    return np.abs(z).max() < 4 and 0.4 < z.std() < 1.8


@pytest.mark.parametrize("directed", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_erdos_renyi_draws_every_link_with_probability_p(directed):
    m, p, repeats = 6, 0.4, 400
    nets = [nw.erdos_renyi(m, p, directed=directed, seed=seed, connected=False) for seed in range(repeats)]
    found = np.sum([nw.to_scipy(net).toarray() > 0 for net in nets], axis=0)
    assert likely(found[~np.eye(m, dtype=bool)] if directed else found[np.triu_indices(m, 1)], repeats, p)
    assert same(nw.erdos_renyi(30, 1).graph, nw.complete(30).graph)
    assert not nw.erdos_renyi(50, 1e-15, connected=False).graph.mask.any()


@pytest.mark.slow
def test_a_k_in_network_draws_every_set_alike():
    drawn = [nw.to_scipy(nw.k_in(5, 2, seed=seed, connected=False)).toarray() > 0 for seed in range(600)]
    for node in (0, 3):
        found = np.unique(np.array(drawn)[:, node] @ (1 << np.arange(5)), return_counts=True)[1]
        assert found.size == 6
        assert scipy.stats.chisquare(found).pvalue > 1e-3


def test_small_worlds_are_nearly_circulant_and_preferred_nodes_are_hubs():
    ring = set(nw.to_networkx(nw.circulant(200, [1, 2])).edges())
    small = set(nw.to_networkx(nw.watts_strogatz(200, 4, 0.05)).edges())
    assert 0.02 < 1 - len(ring & small) / 400 < 0.1
    degree = np.asarray(nw.barabasi_albert(2000, 2).graph.in_degree)
    assert degree.max() > 10 * degree.mean()


@pytest.mark.parametrize("spread", [0.0, 0.6])
def test_geometric_networks_are_those_of_the_distances(spread):
    m, radius, seed = 40, 0.3, 3
    net = nw.random_geometric(m, radius, spread=spread, seed=seed, connected=False)
    rng = np.random.default_rng(seed)
    place = rng.random((m, 2))
    reach = radius * (1 + spread * rng.uniform(-1, 1, m))
    distance = np.hypot(*(place[:, None] - place).transpose(2, 0, 1))
    heard = (distance <= reach) | np.eye(m, dtype=bool)  # row i: in whose range i lies
    np.testing.assert_array_equal(nw.to_scipy(net).toarray() > 0, heard)
    assert nw.to_networkx(net).is_directed() == (spread > 0)


def test_weights_and_format_reach_the_graph():
    given_both = {"weights": "uniform", "format": "bcoo"}
    nets = [nw.erdos_renyi(8, **given_both), nw.ring(8, **given_both), nw.circulant(8, [1, 2], **given_both)]
    for net in [*nets, nw.complete(8, **given_both), nw.k_regular(8, 3, **given_both)]:
        assert net.graph.format == "bcoo"
        np.testing.assert_allclose(net.graph.self_weight, 1 / (1 + net.graph.in_degree), atol=1e-7)


def test_a_hundred_thousand_nodes_cost_their_links():
    m, expected = 100_000, 2e-4 * 100_000 * 99_999 / 2
    np.testing.assert_array_equal(nw.ring(m).graph.senders[0], [1, m - 1])
    random = nw.erdos_renyi(m, 2e-4)
    links = int(np.asarray(random.graph.in_degree, np.int64).sum()) / 2
    assert abs(links - expected) < 5 * np.sqrt(expected)
    nw.check_graph(random.graph)
    for net in (nw.k_in(m, 3, connected=False), nw.random_geometric(m, 0.003, connected=False)):
        assert net.m == m
        assert net.graph.senders.size < 20 * m
