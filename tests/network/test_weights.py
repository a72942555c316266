"""From edges, networkx and matrices to a graph and back, and the rules for the weights."""

import jax
import jax.numpy as jnp
import networkx as nx
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from hypothesis import given

from jdfl import network as nw
from jdfl.config.families import edge_list_file
from jdfl.network import weights as rules
from tests.network.examples import edge_lists, graphs, same
from tests.refused import all_refused, refused


def _reference(A, weights):
    """W [m, m] from the 0/1 matrix A by the formulas."""
    degree = A.sum(axis=1)
    most = {"metropolis": np.maximum.outer(degree, degree), "uniform": degree[:, None], "laplacian": degree.max()}
    W = A / (1 + most[weights])
    return W + np.diag(1 - W.sum(axis=1))


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


ROADS = [("Oslo", "Bern", 1440.0), ("Cairo", "Bern", 2820.0), ("Lima", "Cairo", 12420.0), ("Oslo", "Cairo", 3600.0)]


def _near(roads):
    """W by the formula, link by link; nodes in sorted order."""
    names = sorted({name for *pair, _ in roads for name in pair})
    s, middle = np.zeros((len(names),) * 2), np.median([length for *_, length in roads])
    for u, v, length in roads:
        i, j = names.index(u), names.index(v)
        s[i, j] = s[j, i] = 2 / (1 + length / middle)
    W = np.zeros_like(s)
    for i, j in np.argwhere(s):
        W[i, j] = s[i, j] / (1 + max(s[i].sum(), s[j].sum()))
    return W + np.diag(1 - W.sum(axis=1))


def test_lengths_make_symmetric_weights_in_every_door_and_unit(tmp_path):
    table = pd.DataFrame(ROADS, columns=["source", "target", "km"])
    graph, far = nx.Graph(), pd.DataFrame(0.0, *[sorted({*table["source"], *table["target"]})] * 2)
    graph.add_nodes_from(far.index)
    graph.add_weighted_edges_from(ROADS)
    for u, v, length in ROADS:
        far.loc[u, v] = far.loc[v, u] = length
    (tmp_path / "roads").write_text("\n".join(f"{u},{v},{length}" for u, v, length in ROADS))
    how = {"weights": "by-distance"}
    for found in (
        nw.from_edges(ROADS, **how),
        nw.from_edges(table[["km", "target", "source"]], **how),
        nw.from_edges([(u, v, 0.621 * length) for u, v, length in ROADS], **how),
        nw.from_networkx(graph, **how),
        nw.from_scipy(far, **how),
        edge_list_file(4, str(tmp_path / "roads"), **how),
    ):
        assert (found.node_names, nw.summary(found).rule) == (("Bern", "Cairo", "Lima", "Oslo"), "by-distance")
        W = nw.to_scipy(found).toarray()
        np.testing.assert_allclose(W, _near(ROADS), atol=1e-7)
    np.testing.assert_array_equal(W, W.T)
    assert W.diagonal().min() > 0
    alike = nw.from_edges([(0, 1, 7.0), (1, 2, 7.0)], **how)
    assert same(alike.graph, nw.from_edges([(0, 1), (1, 2)]).graph)
    given = nw.from_edges(table[["source", "target"]], weights=[0.1, 0.2, 0.3, 0.4])
    assert same(given.graph, nw.from_edges([(*road[:2], w) for road, w in zip(ROADS, (0.1, 0.2, 0.3, 0.4))]).graph)
    np.testing.assert_allclose(nw.to_scipy(given).toarray()[1], [0.2, 0.1, 0.3, 0.4], atol=1e-7)
    all_refused(
        (lambda: nw.from_edges(ROADS), "Cairo", "weights='by-distance'"),
        (lambda: nw.from_scipy(far, weights="given"), "Cairo", "weights='by-distance'"),
        (lambda: nw.from_networkx(graph), "Cairo", "weights='by-distance'"),
        (lambda: nw.from_edges([*ROADS, ("Bern", "Oslo", 3.0)], **how), "directed=True"),
        (lambda: nw.from_edges([(0, 1, 0.0)], **how), "lengths > 0"),
        (lambda: nw.from_edges([(0, 1, np.nan)], **how), "edges[:, 2]"),
        (lambda: nw.from_edges([(0, 1)], **how), "third column"),
        (lambda: nw.from_scipy(np.triu(far), **how), "both directions"),
    )


@given(case=edge_lists(directed=True))
def test_directed_edges_point_from_speaker_to_hearer(case):
    m, edges = case
    graph = nw.from_edges(edges, m, weights="uniform", directed=True).graph
    nw.check_graph(graph)
    A = _adjacency(m, edges, directed=True)
    np.testing.assert_allclose(nw.to_scipy(graph).toarray(), _reference(A, "uniform"), rtol=0, atol=1e-7)
    np.testing.assert_array_equal(graph.out_degree, A.sum(axis=0))
    np.testing.assert_array_equal(graph.in_degree, A.sum(axis=1))
    for make in (sp.csr_array, sp.coo_matrix, jnp.asarray, np.ndarray.tolist, lambda A: A > 0):
        assert same(nw.from_scipy(make(A), weights="uniform").graph, graph)


@given(case=edge_lists(), oneway=edge_lists(directed=True), graph=graphs())
def test_networks_are_the_same_after_a_round_trip(case, oneway, graph):
    for (m, edges), directed in ((case, False), (oneway, True)):
        net = nw.from_edges(edges, m, weights="uniform", directed=directed)
        assert same(nw.from_networkx(nw.to_networkx(net), weights="uniform").graph, net.graph)
        rule = "uniform" if nw.to_networkx(net).is_directed() else "metropolis"  # without a choice
        net = nw.from_edges(edges, m, directed=directed)
        assert same(nw.from_edges(edges, m, directed=directed, weights=rule).graph, net.graph)
    m, edges = case
    net = nw.from_edges(edges, m)
    assert same(nw.from_edges(list(nw.to_networkx(net.graph).edges()), m).graph, net.graph)
    back = nw.from_matrix(nw.to_scipy(graph), format="padded").graph
    assert same(nw.pad(back, graph.senders.shape[1]), graph)


def test_networkx_labels_order_loops_parallel_edges_and_weights():
    graph = nx.MultiGraph(name="office")
    graph.add_nodes_from(["carol", ("b", 2), 7])
    graph.add_edges_from([("carol", 7), ("carol", 7), (7, ("b", 2)), (7, 7)], weight=5.0)
    with refused("parallel"):
        nw.from_networkx(graph)
    net = nw.from_networkx(graph, weights="metropolis")
    assert net.name == "office"
    np.testing.assert_array_equal(nw.to_scipy(net.graph).toarray() > 0, [[1, 0, 1], [0, 1, 1], [1, 1, 1]])
    arrows = nw.from_networkx(nx.DiGraph([(0, 1), (1, 2), (2, 0), (0, 2)]), weights="uniform")  # point to the hearer
    np.testing.assert_array_equal(nw.to_scipy(arrows.graph).toarray() > 0, [[1, 0, 1], [1, 1, 0], [1, 1, 1]])
    assert nw.to_networkx(arrows).is_directed()
    path = nx.Graph()
    path.add_weighted_edges_from([("a", "b", 0.9), ("b", "c", 0.9)])
    with refused("lowest weight", "-0.8"):
        nw.from_networkx(path)
    assert nw.summary(nw.from_networkx(path, weights="metropolis")).rule == "metropolis"


def test_the_diagonal_of_an_adjacency_is_ignored_and_stored_zeros_are_no_edges():
    A = sp.csr_array((np.array([1.0, 1, 1, 0]), (np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1]))), shape=(2, 2))
    B = A.copy()
    B[0, 1] = 0
    assert same(nw.from_scipy(A).graph, nw.complete(2).graph)
    assert not nw.from_scipy(B, weights="uniform", connected=False).graph.mask[0].any()


@pytest.mark.parametrize(("backend", "expected"), [("cpu", "padded"), ("gpu", "dense")])
def test_auto_format_follows_density_and_backend(monkeypatch, backend, expected):
    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    assert nw.circulant(40, [1, 2, 3]).graph.format == expected  # density of W 7/40
    assert nw.complete(40).graph.format == "dense"
    assert nw.ring(40 * 3).graph.format == "padded"
    assert nw.star(200).graph.format == "buckets"
    monkeypatch.setattr(rules, "DENSE_UP_TO", 39)
    assert nw.complete(40).graph.format == "padded"
