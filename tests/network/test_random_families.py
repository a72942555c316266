"""The other random families: degrees, connectivity, what is equally likely, and what is refused."""

import networkx as nx
import numpy as np
import pytest
import scipy
from hypothesis import given
from hypothesis import strategies as st

from jdfl import network as nw
from tests.network.examples import same

seeds = st.integers(0, 10**6)


@given(case=st.sampled_from([(1, 0), (2, 1), (6, 3), (9, 8), (12, 4)]), seed=seeds)
def test_in_a_k_in_network_every_node_hears_as_many(case, seed):
    m, degree = case
    net = nw.k_in(m, degree, seed=seed)
    nw.check_graph(net.graph)
    assert (np.asarray(net.graph.in_degree) == degree).all()
    assert nx.is_strongly_connected(nx.DiGraph(nw.to_networkx(net)))
    assert same(nw.k_in(m, degree, seed=seed).graph, net.graph)


@pytest.mark.slow
def test_a_k_in_network_draws_every_set_alike():
    m, degree = 5, 2
    drawn = [nw.as_dense(nw.k_in(m, degree, seed=seed, connected=False).graph) > 0 for seed in range(600)]
    for node in (0, 3):
        code = np.array(drawn)[:, node] @ (1 << np.arange(m))
        found = np.unique(code, return_counts=True)[1]
        assert found.size == 6
        assert scipy.stats.chisquare(found).pvalue > 1e-3


@given(case=st.sampled_from([(3, 2), (8, 4), (15, 6)]), p=st.floats(0.01, 1), seed=seeds)
def test_watts_strogatz_moves_links_and_keeps_their_number(case, p, seed):
    m, degree = case
    net = nw.watts_strogatz(m, degree, p, seed=seed)
    nw.check_graph(net.graph)
    drawn = nw.to_networkx(net)
    assert nx.is_connected(drawn)
    assert drawn.number_of_edges() == m * degree // 2


def test_watts_strogatz_with_few_moved_links_is_nearly_a_circulant():
    ring = set(nw.to_networkx(nw.circulant(200, [1, 2])).edges())
    small = set(nw.to_networkx(nw.watts_strogatz(200, 4, 0.05)).edges())
    assert 0.02 < 1 - len(ring & small) / 400 < 0.1


@given(case=st.sampled_from([(2, 1), (9, 1), (20, 3), (7, 6)]), seed=seeds)
def test_barabasi_albert_joins_every_node_to_earlier_ones(case, seed):
    m, links = case
    net = nw.barabasi_albert(m, links, seed=seed)
    nw.check_graph(net.graph)
    drawn = nw.to_networkx(net)
    assert nx.is_connected(drawn)
    assert all(sum(j < i for j in drawn[i]) == links for i in range(links + 1, m))
    assert same(nw.barabasi_albert(m, links, seed=seed).graph, net.graph)


def test_barabasi_albert_has_hubs():
    degree = np.asarray(nw.barabasi_albert(2000, 2).graph.in_degree)
    assert degree.max() > 10 * degree.mean()


@pytest.mark.parametrize("spread", [0.0, 0.6])
def test_geometric_networks_are_those_of_the_distances(spread):
    m, radius, seed = 40, 0.3, 3
    net = nw.random_geometric(m, radius, spread=spread, seed=seed, connected=False)
    nw.check_graph(net.graph)
    rng = np.random.default_rng(seed)
    place = rng.random((m, 2))
    reach = radius * (1 + spread * rng.uniform(-1, 1, m))
    distance = np.hypot(*(place[:, None] - place).transpose(2, 0, 1))
    heard = (distance <= reach) & ~np.eye(m, dtype=bool)  # row i: in whose range i lies
    np.testing.assert_array_equal(nw.to_scipy(net).toarray() > 0, heard | np.eye(m, dtype=bool))
    assert nw.to_networkx(net).is_directed() == (spread > 0)


@given(m=st.integers(1, 15), spread=st.sampled_from([0.0, 0.5]), seed=seeds)
def test_geometric_networks_are_redrawn_until_connected(m, spread, seed):
    net = nw.random_geometric(m, 0.6, spread=spread, seed=seed, tries=10_000)
    assert nx.is_strongly_connected(nx.DiGraph(nw.to_networkx(net)))


def test_large_networks_cost_their_links():
    m = 100_000
    for net in (nw.k_in(m, 3, connected=False), nw.random_geometric(m, 0.003, connected=False)):
        assert net.m == m
        assert net.graph.senders.size < 20 * m


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: nw.torus(7), r"a composite m, got m = 7.*Use m = 8 \(2 x 4\), or ring"),
        (lambda: nw.torus(2), r"got m = 2.*Use m = 4 \(2 x 2\)"),
        (lambda: nw.torus(12, 5), r"rows that divide m, got rows = 5 with m = 12"),
        (lambda: nw.torus(12, 0), r"rows >= 1 and <= 12, got rows = 0"),
        (lambda: nw.star(0), r"m >= 1.*got m = 0"),
        (lambda: nw.star(100_000), r"at most 2\^31 slots, got m = 100000 rows of 99999.*90 GB.*fewer nodes"),
        (lambda: nw.ring(5, directed=True, weights="metropolis"), r"'uniform' for a directed.*'metropolis'"),
        (lambda: nw.circulant(8, [8], directed=True), r"offsets\[0\] >= 1 and <= 7.*to the node before"),
        (lambda: nw.circulant(8, [2, 4], directed=True), r"got 2 components.*Add offset 1"),
        (
            lambda: nw.erdos_renyi(10**6, 1e-6, directed=True),
            r"m = 1000000, p = 1e-06: about 3678\d\d nodes are isolated",
        ),
        (lambda: nw.k_in(5, 5), r"degree >= 1 and <= 4, got degree = 5.*4 other nodes"),
        (lambda: nw.k_in(5, 0), r"degree >= 1.*got degree = 0"),
        (lambda: nw.k_in(10_000, 3), r"m = 10000, degree = 3: about 498 nodes are isolated.*connected=False"),
        (lambda: nw.watts_strogatz(9, 3), r"an even degree, got degree = 3"),
        (lambda: nw.watts_strogatz(9, 2, 0), r"p in \(0, 1\], got p = 0\..*For p = 0 use circulant"),
        (lambda: nw.watts_strogatz(5, 6), r"degree >= 2 and <= 4, got degree = 6"),
        (lambda: nw.barabasi_albert(5, 5), r"links >= 1 and <= 4, got links = 5.*4 other nodes"),
        (lambda: nw.random_geometric(5, 0), r"radius > 0.*got radius = 0"),
        (lambda: nw.random_geometric(5, 0.5, spread=2), r"spread in \[0, 1\], got spread = 2"),
        (lambda: nw.random_geometric(10**4, 0.005), r"m = 10000, radius = 0.005: about 4560 nodes.*Raise radius"),
        (lambda: nw.random_geometric(50, 0.15, tries=1), r"none in tries = 1 with m = 50, radius = 0.15; the last"),
        (lambda: nw.random_geometric(5, 0.5, seed=-1), r"seed >= 0.*got seed = -1"),
    ],
)
def test_bad_input_is_refused_in_words(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_any_number_of_tries_may_be_asked_for():
    """NumPy has no logarithm of so large a whole number."""
    assert nw.k_in(12, 3, tries=10**30).m == 12
