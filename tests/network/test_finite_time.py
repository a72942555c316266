"""Exact means after a fixed number of rounds, rates that do not depend on the number of nodes, and learned links."""

import math

import jax
import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jdfl import network as nw
from tests.network.examples import matrices, rounds

DRAW = np.random.default_rng(2)
COUNTS = np.eye(5, dtype=int)[DRAW.permutation(np.repeat(np.arange(5), 6))] * 7  # 30 nodes with one class each


def of_period(net):
    """The mixing matrices [p, m, m] of a period."""
    return matrices(net.graphs).astype(float)


def product(Ws):
    return np.linalg.multi_dot([*Ws[::-1], np.eye(Ws.shape[1])]) if len(Ws) > 1 else Ws[0]


def far(W):
    """The largest factor by which W [m, m] reduces differences."""
    return np.linalg.norm(W - 1 / len(W), 2)


def doubly_stochastic(Ws, symmetric):
    np.testing.assert_allclose(Ws.sum(axis=-1), 1, atol=1e-6)
    np.testing.assert_allclose(Ws.sum(axis=-2), 1, atol=1e-6)
    assert (Ws >= -1e-7).all()
    if symmetric:
        np.testing.assert_array_equal(Ws, np.swapaxes(Ws, -1, -2))


@given(m=st.integers(1, 70), k=st.integers(1, 5))
def test_a_base_graph_has_the_exact_mean_after_its_period(m, k):
    Ws = of_period(nw.base_graph(m, k))
    doubly_stochastic(Ws, True)
    np.testing.assert_allclose(product(Ws), 1 / m, atol=1e-6)
    assert ((Ws != 0).sum(axis=-1) - 1).max() <= min(k, m - 1)
    assert len(Ws) <= max(1, 2 * math.log(m, k + 1) + 2)


@settings(max_examples=10)
@given(factors=st.lists(st.integers(2, 4), max_size=3))
def test_a_base_graph_of_small_factors_has_a_round_for_each(factors):
    assert len(of_period(nw.base_graph(math.prod(factors), 3))) <= max(1, len(factors))


def test_a_one_peer_hypercube_flips_one_bit_in_every_round_and_base_graphs_have_their_lengths():
    for t, W in enumerate(of_period(nw.base_graph(8))):
        np.testing.assert_array_equal(W, (np.eye(8) + np.eye(8)[np.arange(8) ^ (1 << t)]) / 2)
    # By hand: those of the largest part, one exchange, and those of its groups; 6 is 3 at first, and then 2.
    for m, k, length in [(5, 1, 5), (6, 1, 4), (7, 2, 4), (7, 3, 3), (25, 1, 9), (25, 4, 2)]:
        assert len(of_period(nw.base_graph(m, k))) == length


@given(m=st.integers(2, 60), degree=st.integers(2, 5))
def test_de_bruijn_powers_reach_the_mean_where_m_divides_them(m, degree):
    degree = min(m, degree)
    W = nw.to_scipy(nw.de_bruijn(m, degree)).toarray()
    doubly_stochastic(W, False)
    if degree**10 % m == 0:
        np.testing.assert_allclose(np.linalg.matrix_power(W, 10), 1 / m, atol=1e-6)
    assert set(np.flatnonzero(W[:, 1])) == {(degree + s) % m for s in range(degree)}


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("m", [40, 160])
def test_the_rate_of_equitopo_does_not_depend_on_the_number_of_nodes(m, directed):
    """A static network with 8 ln(2 m) / (3 rho^2) offsets, and one peer in each round, in the mean of 200."""
    rho = 0.75
    W = nw.to_scipy(nw.equi_static(m, math.ceil(8 * math.log(2 * m) / (3 * rho**2)), directed=directed)).toarray()
    doubly_stochastic(W, False)
    assert directed or abs(W - W.T).max() < 1e-7
    assert far(W) < rho
    net = nw.equi_rounds(m, directed=directed)
    Ws = matrices(rounds(net, jax.random.split(jax.random.key(1), 60)))
    doubly_stochastic(Ws, not directed)
    x = np.random.default_rng(0).standard_normal((m, 9))
    x -= x.mean(axis=0)
    assert np.mean((Ws @ x) ** 2) / np.mean(x**2) < 0.72
    assert np.count_nonzero(Ws, axis=-1).max() == 2


def test_pairs_of_equitopo_are_a_greedy_matching():
    """As it is printed: from a random node on, everyone is paired with the node u places on if both are free."""
    m, found = 11, set()
    for W in matrices(rounds(nw.equi_rounds(m, eta=1.0), jax.random.split(jax.random.key(0), 60))) > 0:
        pairs = {tuple(pair) for pair in np.argwhere(np.triu(W, 1)).tolist()}
        (u,) = {min((j - i) % m, (i - j) % m) for i, j in pairs}
        matched = []
        for start in range(m):
            partner = {}
            for i in [(start + place) % m for place in range(m)]:
                j = (i + u) % m
                if i not in partner and j not in partner:
                    partner |= {i: j, j: i}
            matched.append({tuple(sorted(pair)) for pair in partner.items()})
        assert pairs in matched
        found.add(u)
    assert found == {1, 2, 3, 4, 5}
    assert nw.equi_rounds(1).at(np.int32(0), jax.random.key(0)).in_degree == 0


@pytest.mark.parametrize(("between", "links"), [("ring", 6), ("small-world", 12), ("complete", 15)])
def test_d_cliques_have_the_classes_of_all_nodes(between, links):
    graph = nw.to_networkx(nw.d_cliques(COUNTS, 5, between=between)).to_undirected()
    graph.remove_edges_from(nx.selfloop_edges(graph))
    cliques = [one for one in nx.find_cliques(graph) if len(one) == 5]
    assert [COUNTS[one].sum(axis=0).tolist() for one in cliques] == [[7] * 5] * 6
    assert graph.number_of_edges() == 6 * 10 + links
    assert max(degree - 4 for _, degree in graph.degree()) <= math.ceil(2 * links / 6 / 5)
    mixed, sorted_ = (nw.to_networkx(nw.d_cliques(COUNTS, 5, **how)) for how in ({"swaps": 0}, {}))
    assert not nx.utils.graphs_equal(mixed, sorted_)


def test_stl_fw_learns_neighbourhoods_with_all_classes():
    P = COUNTS / COUNTS.sum(axis=1, keepdims=True)

    def value(W):
        return (np.linalg.norm(W @ P - P.mean(axis=0)) ** 2 + 0.1 * np.linalg.norm(W - 1 / 30) ** 2) / 30

    last = value(np.eye(30))
    for budget in (6, 8, 12):
        W = nw.to_scipy(nw.stl_fw(COUNTS, budget)).toarray()
        doubly_stochastic(W, False)
        assert (np.count_nonzero(W, axis=1) - 1).max() <= budget
        assert value(W) < last
        last = value(W)
    assert np.linalg.norm(W @ P - P.mean(axis=0)) < 0.35 * np.linalg.norm(P - P.mean(axis=0))
    two = np.array([[1.0, 0.0], [0.0, 1.0]])  # the first step, by hand: half way to the other node
    np.testing.assert_allclose(nw.to_scipy(nw.stl_fw(two, 1)).toarray(), 0.5, atol=1e-7)
