"""From edges, networkx and matrices to a graph and back; the rules for the weights; what is refused."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from jdfl import network as nw
from jdfl.network import weights as rules
from tests.later import Later
from tests.network.examples import edge_lists, graphs, same


def _reference(A, weights):
    """W [m, m] from the 0/1 matrix A, entry by entry from the formulas."""
    m, degree = len(A), A.sum(axis=1)
    W = np.zeros((m, m))
    for i in range(m):
        for j in np.flatnonzero(A[i]):
            W[i, j] = {
                "metropolis": 1 / (1 + max(degree[i], degree[j])),
                "uniform": 1 / (1 + degree[i]),
                "laplacian": 1 / (1 + degree.max()),
            }[weights]
        W[i, i] = 1 - W[i].sum()
    return W


def _adjacency(m, edges, directed=False):
    A = np.zeros((m, m), int)
    A[edges[:, 1], edges[:, 0]] = 1
    if not directed:
        A[edges[:, 0], edges[:, 1]] = 1
    np.fill_diagonal(A, 0)
    return A


@pytest.mark.parametrize("weights", ["metropolis", "uniform", "laplacian"])
@given(case=edge_lists())
def test_weights_follow_the_formula(weights, case):
    m, edges = case
    graph = nw.from_edges(edges, m, weights=weights).graph
    nw.check_graph(graph)
    W = nw.to_scipy(graph).toarray()
    np.testing.assert_allclose(W, _reference(_adjacency(m, edges), weights), rtol=0, atol=1e-7)


@given(case=edge_lists(directed=True))
def test_directed_edges_point_from_speaker_to_hearer(case):
    m, edges = case
    graph = nw.from_edges(edges, m, weights="uniform", directed=True).graph
    nw.check_graph(graph)
    A = _adjacency(m, edges, directed=True)
    np.testing.assert_allclose(nw.to_scipy(graph).toarray(), _reference(A, "uniform"), rtol=0, atol=1e-7)
    np.testing.assert_array_equal(graph.out_degree, A.sum(axis=0))
    np.testing.assert_array_equal(graph.in_degree, A.sum(axis=1))


@pytest.mark.parametrize("directed", [False, True])
@given(data=st.data())
def test_round_trip_through_networkx(directed, data):
    m, edges = data.draw(edge_lists(directed))
    net = nw.from_edges(edges, m, weights="uniform", directed=directed)
    back = nw.from_networkx(nw.to_networkx(net), weights="uniform")
    assert same(back.graph, net.graph)


@given(graph=graphs())
def test_round_trip_through_scipy(graph):
    back = nw.from_matrix(nw.to_scipy(graph), format="padded").graph
    assert same(nw.pad(back, graph.senders.shape[1]), graph)


@given(case=edge_lists())
def test_round_trip_through_edges(case):
    m, edges = case
    net = nw.from_edges(edges, m)
    again = list(nw.to_networkx(net.graph).edges())
    assert same(nw.from_edges(again, m).graph, net.graph)


@given(case=edge_lists(directed=True))
@pytest.mark.parametrize("make", [sp.csr_array, sp.coo_matrix, jnp.asarray, np.ndarray.tolist, lambda A: A > 0])
def test_every_kind_of_matrix_gives_the_same_network(make, case):
    m, edges = case
    A = _adjacency(m, edges, directed=True)
    expected = nw.from_edges(edges, m, weights="uniform", directed=True).graph
    assert same(nw.from_scipy(make(A), weights="uniform").graph, expected)


@given(case=edge_lists(), directed=edge_lists(directed=True))
def test_without_a_choice_weights_are_metropolis_or_uniform(case, directed):
    for (m, edges), oneway in ((case, False), (directed, True)):
        net = nw.from_edges(edges, m, directed=oneway)
        rule = "uniform" if nw.to_networkx(net).is_directed() else "metropolis"
        assert same(nw.from_edges(edges, m, directed=oneway, weights=rule).graph, net.graph)


def test_networkx_labels_order_loops_and_parallel_edges():
    graph = nx.MultiGraph(name="office")
    graph.add_nodes_from(["carol", ("b", 2), 7])
    graph.add_edges_from([("carol", 7), ("carol", 7), (7, ("b", 2)), (7, 7)], weight=5.0)
    with pytest.raises(ValueError, match=r"parallel"):
        nw.from_networkx(graph)
    net = nw.from_networkx(graph, weights="metropolis")
    assert net.name == "office"
    np.testing.assert_array_equal(nw.to_scipy(net.graph).toarray() > 0, [[1, 0, 1], [0, 1, 1], [1, 1, 1]])
    assert nw.from_networkx(graph, name="mine", weights="metropolis").name == "mine"


def test_networkx_arrow_points_to_the_hearer():
    net = nw.from_networkx(nx.DiGraph([(0, 1), (1, 2), (2, 0), (0, 2)]), weights="uniform")
    np.testing.assert_array_equal(nw.to_scipy(net.graph).toarray() > 0, [[1, 0, 1], [1, 1, 0], [1, 1, 1]])
    assert nw.to_networkx(net).is_directed()
    assert not nw.to_networkx(nw.ring(4)).is_directed()


def test_given_weights_are_taken_as_they_are():
    W = np.array([[0.5, 0.75, -0.25], [0.25, 0.75, 0], [1, 0, 0]])
    graph = nw.from_matrix(W).graph
    np.testing.assert_array_equal(nw.to_scipy(graph).toarray(), W)
    np.testing.assert_array_equal(graph.self_weight, [0.5, 0.75, 0])
    nw.check_graph(graph)


def test_the_diagonal_of_an_adjacency_is_ignored_and_stored_zeros_are_no_edges():
    A = sp.csr_array((np.array([1.0, 1, 1, 0]), (np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1]))), shape=(2, 2))
    B = A.copy()
    B[0, 1] = 0
    assert same(nw.from_scipy(A).graph, nw.complete(2).graph)
    assert not nw.from_scipy(B, weights="uniform", connected=False).graph.mask[0].any()


@pytest.mark.parametrize(("backend", "expected"), [("cpu", "padded"), ("gpu", "dense"), ("tpu", "dense")])
def test_auto_format_follows_density_and_backend(monkeypatch, backend, expected):
    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    chord = nw.circulant(40, [1, 2, 3])  # density of W 7/40
    assert chord.graph.format == expected
    assert nw.complete(40).graph.format == "dense"
    assert nw.ring(40 * 3).graph.format == "padded"
    assert nw.complete(40, format="bcoo").graph.format == "bcoo"
    assert nw.star(200).graph.format == "buckets"
    monkeypatch.setattr(rules, "DENSE_UP_TO", 39)
    assert nw.complete(40).graph.format == "padded"


def test_isolated_nodes_are_kept_when_accepted():
    graph = nw.from_edges([(0, 1)], 4, connected=False).graph
    nw.check_graph(graph)
    np.testing.assert_array_equal(graph.self_weight, [0.5, 0.5, 1, 1])


two_parts = [(0, 1), (1, 2), (3, 4)]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: nw.from_edges([]), r"m >= 1.*got m = 0.*Pass m, the number of nodes"),
        (lambda: nw.from_edges([(0, 1)], 2.0), r"m to be a whole number.*got m = 2\.0"),
        (lambda: nw.from_edges([(0, 1, 2)]), r"edges of shape \(any, 2\), got \(1, 3\).*one row \(u, v\)"),
        (lambda: nw.from_edges([(0.0, 1.0)]), r"edges of whole numbers, got dtype float64.*0 \.\. m-1"),
        (lambda: nw.from_edges([(0, 1), (1, 5)], 3), r"0 to 2 \(m = 3\), got edges\[1\] = \(1, 5\) \(1 such"),
        (lambda: nw.from_edges([(0, -1)]), r"got edges\[0\] = \(0, -1\)"),
        (lambda: nw.from_edges(two_parts), r"a connected network, got 2 components.*3 of 5 nodes.*connected=False"),
        (lambda: nw.from_scipy(np.eye(3)), r"a connected network, got 3 components, the largest with 1 of 3"),
        (
            lambda: nw.from_matrix(np.eye(3)),
            r"nothing from node 0 ever reaches nodes 1, 2 \(2 of 3",
        ),
        (
            lambda: nw.from_edges([(0, 1), (1, 2)], directed=True, weights="uniform"),
            r"a strongly connected network, got 3 components, the largest with 1 of 3 nodes",
        ),
        (lambda: nw.from_networkx(nx.Graph()), r"m >= 1.*got m = 0"),
        (
            lambda: nw.from_networkx(nx.DiGraph([(0, 1), (1, 2), (2, 0)]), weights="metropolis"),
            r"'uniform' for a directed.*'metropolis'",
        ),
        (lambda: nw.from_scipy([[0, 1], [0, 0]], weights="laplacian", connected=False), r"directed.*'laplacian'"),
        (lambda: nw.from_edges([(0, 1)], weights="max"), r"weights to be one of 'metropolis'.*weights = 'max'"),
        (lambda: nw.from_edges([(0, 1)], weights="given"), r"weights to be one of"),
        (lambda: nw.from_matrix([[1.0]], format="csr"), r"format to be one of 'auto'.*'csr'"),
        (lambda: nw.from_scipy([[1, 1]]), r"adjacency of shape \(1, 1\), got \(1, 2\)"),
        (lambda: nw.from_scipy(3.0), r"adjacency of shape \(0, 0\), got \(\)"),
        (lambda: nw.from_scipy(np.zeros((0, 0))), r"m >= 1.*at least one node"),
        (lambda: nw.from_scipy([[0, np.nan], [1, 0]]), r"finite numbers in adjacency, got adjacency\[0, 1\] = nan"),
        (lambda: nw.from_matrix([[0.5, 0.5], [1, 1]]), r"sum to 1, got 2 in row 1 \(1 such"),
    ],
)
def test_bad_input_is_refused_in_words(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def _ring(**changed):
    return replace(nw.pad(nw.ring(4).graph, 3), **changed)


ring = Later(_ring)


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        (Later(lambda: _ring(senders=ring().senders[0])), r"senders of shape \(any, any\), got \(3,?\)"),
        (Later(lambda: _ring(mask=ring().mask[:, :2])), r"mask of shape \(4, 3\), got \(4, 2\)"),
        (Later(lambda: _ring(out_degree=ring().out_degree[:3])), r"out_degree of shape \(4,?\)"),
        (Later(lambda: jax.tree.map(lambda part: part[:0], ring())), r"m >= 1, got m = 0"),
        (Later(lambda: _ring(weight=ring().weight.astype(jnp.float16))), r"weight of dtype float32, got float16"),
        (
            Later(lambda: _ring(senders=ring().senders.at[1, 0].set(4))),
            r"ids from 0 to 3, got senders\[1, 0\] = 4 \(1 such",
        ),
        (Later(lambda: _ring(senders=ring().senders.at[1, 0].set(-1))), r"got senders\[1, 0\] = -1"),
        (Later(lambda: _ring(senders=ring().senders.at[1, 0].set(1))), r"no node among its own neighbours"),
        (
            Later(lambda: _ring(senders=ring().senders.at[1, 2].set(3))),
            r"padded slots to hold the node itself, got senders\[1, 2\]",
        ),
        (
            Later(lambda: _ring(weight=ring().weight.at[2, 2].set(0.5))),
            r"padded slots of weight 0, got weight\[2, 2\] = 0.5",
        ),
        (
            Later(lambda: _ring(weight=ring().weight.at[2, 1].set(np.nan))),
            r"finite numbers in weight, got nan at index \(2, 1\)",
        ),
        (Later(lambda: _ring(senders=ring().senders.at[1, :2].set(0))), r"each neighbour once.*senders\[1, 0\]"),
        (
            Later(lambda: _ring(self_weight=ring().self_weight.at[3].set(1))),
            r"sum to 1, got 1.66667 in row 3.*Set self_weight",
        ),
        (Later(lambda: _ring(out_degree=ring().out_degree.at[2].set(5))), r"out_degree\[2\] = 2.*got 5"),
    ],
)
def test_check_graph_finds_the_fault(graph, message):
    nw.check_graph(ring())
    with pytest.raises(ValueError, match=message):
        nw.check_graph(graph)


def test_pad_and_relabel_refuse():
    with pytest.raises(ValueError, match=r"d >= 3.*, got d = 2\..*3 slots"):
        nw.pad(ring(), 2)
    with pytest.raises(ValueError, match=r"every node from 0 to 3 once"):
        nw.relabel(ring(), [0, 1, 2, 2])
    with pytest.raises(ValueError, match=r"order of shape \(4,?\), got \(3,?\)"):
        nw.relabel(ring(), [0, 1, 2])
