"""Each family is what it says it is, at every size: links, degrees, weights, and what is equally likely."""

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jdfl import network as nw
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


def test_directed_families_hear_one_way():
    for net, hears in (
        (nw.ring(5, directed=True), lambda i: [(i - 1) % 5]),
        (nw.circulant(8, [1, 2, 4], directed=True), lambda i: [(i - o) % 8 for o in (1, 2, 4)]),
        (nw.torus(12, directed=True), lambda i: [(i - 4) % 12, i - 1 if i % 4 else i + 3]),
    ):
        nw.check_graph(net.graph)
        W = nw.to_scipy(net).toarray()
        for i in range(net.m):
            assert set(np.flatnonzero(W[i])) == {i, *hears(i)}
            np.testing.assert_allclose(W[i, [i, *hears(i)]], 1 / (1 + len(hears(i))), atol=1e-7)


def test_the_exponential_network_is_doubly_stochastic_with_a_known_gap():
    for m in (1, 2, 3, 6, 8, 12, 16):
        net, tau = nw.exponential(m), int(np.ceil(np.log2(m)))
        assert set(np.flatnonzero(nw.to_scipy(net).toarray()[0])) == {0, *(-(2**j) % m for j in range(tau))}
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
    "barabasi-albert": lambda seed: [nw.barabasi_albert(m, k, seed=seed) for m, k in ((9, 1), (20, 3))],
    "geometric": lambda seed: [nw.random_geometric(m, 0.6, seed=seed, tries=10_000) for m in (1, 2, 15)],
    "one-way geometric": lambda seed: [nw.random_geometric(15, 0.6, spread=0.5, seed=seed, tries=10_000)],
}


@pytest.mark.parametrize("kind", DRAWN)
@settings(max_examples=8)
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
            assert all(sum(j < i for j in links[i]) == {9: 1, 20: 3}[net.m] for i in range(4, net.m))


def test_links_are_drawn_as_often_as_each_family_says():
    m, p, repeats = 6, 0.4, 300
    nets = [nw.erdos_renyi(m, p, directed=True, seed=seed, connected=False) for seed in range(repeats)]
    links = np.sum([nw.to_scipy(net).toarray() > 0 for net in nets], axis=0)[~np.eye(m, dtype=bool)]
    z = (links - repeats * p) / np.sqrt(repeats * p * (1 - p))
    assert np.abs(z).max() < 4
    assert 0.6 < z.std() < 1.5
    assert same(nw.erdos_renyi(30, 1, weights="uniform").graph, nw.complete(30, weights="uniform").graph)
    assert not nw.erdos_renyi(50, 1e-15, connected=False).graph.mask.any()
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


def test_a_hundred_thousand_nodes_cost_their_links():
    m, some = 100_000, {"connected": False}
    drawn = nw.erdos_renyi(m, 3e-5, **some), nw.k_in(m, 3, **some), nw.random_geometric(m, 2e-3, **some)
    for net in (nw.ring(m), *drawn):
        assert m < np.asarray(net.graph.senders).size < 20 * m
