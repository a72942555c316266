"""Each family is what it says it is, at every size, and refuses what does not exist."""

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jdfl import network as nw
from tests.later import Later
from tests.network.examples import same


def _is(net, expected):
    return nx.utils.graphs_equal(nw.to_networkx(net), expected)


def _plain(graph):
    plain = nx.Graph()
    plain.add_nodes_from(graph)
    plain.add_edges_from((u, v) for u, v in graph.edges() if u != v)
    return plain


@pytest.mark.parametrize("m", [1, 2, 3, 8])
def test_ring_and_complete(m):
    assert _is(nw.ring(m), _plain(nx.cycle_graph(m)))
    assert _is(nw.complete(m), _plain(nx.complete_graph(m)))
    for net in (nw.ring(m), nw.complete(m)):
        nw.check_graph(net.graph)


@given(m=st.integers(2, 12), data=st.data())
def test_circulant(m, data):
    offsets = [1, *data.draw(st.lists(st.integers(1, m // 2), max_size=3))]
    net = nw.circulant(m, offsets)
    nw.check_graph(net.graph)
    assert _is(net, _plain(nx.circulant_graph(m, offsets)))


@pytest.mark.parametrize(("m", "rows"), [(1, 1), (4, 2), (6, 2), (12, 3), (12, 2), (5, 1), (25, 5)])
def test_torus(m, rows):
    net = nw.torus(m, rows)
    nw.check_graph(net.graph)
    grid = nx.grid_2d_graph(rows, m // rows, periodic=True)
    assert _is(net, _plain(nx.relabel_nodes(grid, {(r, c): r * (m // rows) + c for r, c in grid})))
    if (m, rows) in ((1, 1), (4, 2), (6, 2), (12, 3), (25, 5)):
        assert same(nw.torus(m).graph, net.graph)


@pytest.mark.parametrize("m", [1, 2, 9])
def test_star(m):
    assert _is(nw.star(m), _plain(nx.star_graph(m - 1)))
    nw.check_graph(nw.star(m).graph)


@pytest.mark.parametrize(
    ("net", "hears"),
    [
        (Later(nw.ring, 5, directed=True), lambda i: [(i - 1) % 5]),
        (Later(nw.circulant, 8, [1, 2, 4], directed=True), lambda i: [(i - o) % 8 for o in (1, 2, 4)]),
        (Later(nw.exponential, 8), lambda i: [(i - o) % 8 for o in (1, 2, 4)]),
        (Later(nw.exponential, 6), lambda i: [(i - o) % 6 for o in (1, 2, 4)]),
        (Later(nw.circulant, 8, [7], directed=True), lambda i: [(i + 1) % 8]),
        (Later(nw.torus, 12, directed=True), lambda i: [(i - 4) % 12, i - 1 if i % 4 else i + 3]),
    ],
    ids=["ring", "powers", "exponential", "exponential of 6", "backwards", "torus"],
)
def test_directed_families_hear_one_way(net, hears):
    nw.check_graph(net.graph)
    W = nw.to_scipy(net).toarray()
    for i in range(net.m):
        heard = hears(i)
        assert set(np.flatnonzero(W[i])) == {i, *heard}
        np.testing.assert_allclose(W[i, [i, *heard]], 1 / (1 + len(heard)), atol=1e-7)


@pytest.mark.parametrize("m", [1, 2, 3, 6, 8, 12, 16])
def test_the_exponential_network_is_doubly_stochastic_with_a_known_gap(m):
    net = nw.exponential(m)
    nw.check_graph(net.graph)
    tau = int(np.ceil(np.log2(m)))
    assert (np.asarray(net.graph.in_degree) == tau).all()
    np.testing.assert_allclose(nw.to_scipy(net).sum(axis=0), 1, atol=1e-6)
    if m % 2 == 0:
        assert nw.spectral_gap(net) == pytest.approx(2 / (1 + tau), rel=1e-5)


@given(case=st.sampled_from([(1, 0), (2, 1), (5, 2), (5, 4), (8, 3), (9, 4)]), seed=st.integers(0, 1000))
def test_random_regular(case, seed):
    m, degree = case
    net = nw.k_regular(m, degree, seed=seed)
    nw.check_graph(net.graph)
    assert (np.asarray(net.graph.in_degree) == degree).all()
    assert nx.is_connected(nw.to_networkx(net))
    assert same(nw.k_regular(m, degree, seed=seed).graph, net.graph)


@given(m=st.integers(1, 20), p=st.floats(0.3, 1), seed=st.integers(0, 10**6))
def test_erdos_renyi_is_connected_and_repeatable(m, p, seed):
    net = nw.erdos_renyi(m, p, seed=seed, tries=10_000)
    nw.check_graph(net.graph)
    assert nx.is_connected(nw.to_networkx(net))
    assert same(nw.erdos_renyi(m, p, seed=seed, tries=10_000).graph, net.graph)


def test_erdos_renyi_draws_every_pair_with_probability_p():
    m, p, repeats = 6, 0.4, 400
    drawn = [nw.as_dense(nw.erdos_renyi(m, p, seed=seed, connected=False).graph) > 0 for seed in range(repeats)]
    found = np.sum(drawn, axis=0)[np.triu_indices(m, 1)]
    z = (found - repeats * p) / np.sqrt(repeats * p * (1 - p))
    assert np.abs(z).max() < 4
    assert 0.4 < z.std() < 1.8


@given(m=st.integers(1, 12), p=st.floats(0.4, 1), seed=st.integers(0, 10**6))
def test_a_directed_erdos_renyi_is_strongly_connected(m, p, seed):
    net = nw.erdos_renyi(m, p, directed=True, seed=seed, tries=10_000)
    nw.check_graph(net.graph)
    assert nx.is_strongly_connected(nx.DiGraph(nw.to_networkx(net)))


@pytest.mark.slow
def test_a_directed_erdos_renyi_draws_every_arc_with_probability_p():
    m, p, repeats = 5, 0.3, 400
    drawn = [nw.erdos_renyi(m, p, directed=True, seed=seed, connected=False) for seed in range(repeats)]
    found = np.sum([nw.as_dense(net.graph) > 0 for net in drawn], axis=0)[~np.eye(m, dtype=bool)]
    z = (found - repeats * p) / np.sqrt(repeats * p * (1 - p))
    assert np.abs(z).max() < 4
    assert 0.4 < z.std() < 1.8


def test_erdos_renyi_with_certainty_is_complete():
    assert same(nw.erdos_renyi(30, 1).graph, nw.complete(30).graph)


def test_erdos_renyi_accepts_a_nearly_empty_draw():
    assert not nw.erdos_renyi(50, 1e-15, connected=False).graph.mask.any()


def test_weights_and_format_reach_the_graph():
    made = [
        nw.erdos_renyi(8, weights="uniform", format="bcoo"),
        nw.ring(8, weights="uniform", format="bcoo"),
        nw.circulant(8, [1, 2], weights="uniform", format="bcoo"),
        nw.complete(8, weights="uniform", format="bcoo"),
        nw.k_regular(8, 3, weights="uniform", format="bcoo"),
    ]
    for net in made:
        assert net.graph.format == "bcoo"
        np.testing.assert_allclose(net.graph.self_weight, 1 / (1 + net.graph.in_degree), atol=1e-7)


def test_names():
    assert nw.erdos_renyi(32).name == "Erdos-Renyi(m=32, p=0.45, seed=0)"
    assert nw.ring(4).name == "ring(m=4)"
    assert nw.circulant(9, (1, 3)).name == "circulant(m=9, offsets=[1, 3])"
    assert nw.complete(4).name == "complete(m=4)"
    assert nw.k_regular(6, 3, seed=2).name == "random regular(m=6, degree=3, seed=2)"
    assert nw.exponential(6).name == "exponential(m=6)"
    assert nw.torus(6).name == "torus(2 x 3)"
    assert nw.ring(4, directed=True).name == "directed ring(m=4)"
    assert nw.random_geometric(4, 0.9, spread=0.5).name == "random geometric(m=4, radius=0.9, spread=0.5, seed=0)"


def test_a_hundred_thousand_nodes():
    m = 100_000
    ring = nw.ring(m).graph
    np.testing.assert_array_equal(ring.senders[0], [1, m - 1])
    assert ring.senders.shape == (m, 2)
    random = nw.erdos_renyi(m, 2e-4)
    links = int(np.asarray(random.graph.in_degree, np.int64).sum()) / 2
    expected = 2e-4 * m * (m - 1) / 2
    assert abs(links - expected) < 5 * np.sqrt(expected)
    assert random.graph.format == "padded"
    nw.check_graph(random.graph)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: nw.ring(0), r"m >= 1.*got m = 0"),
        (lambda: nw.exponential(0), r"m >= 1.*got m = 0"),
        (lambda: nw.complete(-3), r"m >= 1.*got m = -3"),
        (lambda: nw.ring(True), r"got m = True"),
        (lambda: nw.ring(4, weights="max"), r"weights to be one of"),
        (lambda: nw.ring(4, format="csr"), r"format to be one of"),
        (lambda: nw.erdos_renyi(5, 0), r"p in \(0, 1\], got p = 0"),
        (lambda: nw.erdos_renyi(5, 1.2), r"p in \(0, 1\], got p = 1.2"),
        (lambda: nw.erdos_renyi(5, float("nan")), r"p in \(0, 1\], got p = nan"),
        (lambda: nw.erdos_renyi(5, seed=-1), r"seed >= 0.*got seed = -1"),
        (lambda: nw.erdos_renyi(5, tries=0), r"tries >= 1.*got tries = 0"),
        (
            lambda: nw.erdos_renyi(10, 0.02, tries=20),
            r"none in tries = 20 with m = 10, p = 0.02; the last had \d+ components, the largest with \d of 10 nodes\. "
            r"Raise p \(connected draws become likely above ln\(m\)/m = 0.23\)",
        ),
        (lambda: nw.erdos_renyi(10**6, 1e-6), r"m = 1000000, p = 1e-06: about 36788\d nodes are isolated.*Raise p"),
        (
            lambda: nw.circulant(8, [1, 5]),
            r"offsets\[1\] >= 1 and <= 4, got offsets\[1\] = 5.*half way round \(m = 8\)",
        ),
        (lambda: nw.circulant(8, [0]), r"got offsets\[0\] = 0"),
        (lambda: nw.circulant(8, [2, 4]), r"got 2 components, the largest with 4 of 8 nodes\. Add offset 1"),
        (lambda: nw.circulant(8, []), r"got 8 components"),
        (lambda: nw.k_regular(5, 3), r"m \* degree even, got m = 5, degree = 3\. Change one"),
        (lambda: nw.k_regular(5, 5), r"degree >= 2 and <= 4, got degree = 5.*4 other nodes"),
        (lambda: nw.k_regular(6, 1), r"degree >= 2 and <= 5, got degree = 1\. With fewer than 2"),
        (lambda: nw.k_regular(300, 2, tries=1), r"none in tries = 1 with m = 300, degree = 2;.*Raise degree or"),
    ],
)
def test_bad_input_is_refused_in_words(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_a_circulant_in_parts_is_accepted_on_request():
    assert nx.number_connected_components(nw.to_networkx(nw.circulant(8, [2, 4], connected=False))) == 2
