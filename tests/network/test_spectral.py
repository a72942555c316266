"""Spectral gaps against closed forms, diameters against networkx, and the text of a summary."""

from dataclasses import replace

import networkx as nx
import numpy as np
import pytest
from hypothesis import given

from jdfl import network as nw
from jdfl.network import spectral
from tests.network.examples import graphs


def _ring_gap(m):
    return 2 / 3 * (1 - np.cos(2 * np.pi / m))  # eigenvalues of the ring: (1 + 2 cos(2 pi j / m)) / 3


@pytest.mark.parametrize("m", [3, 4, 9, 50, 1501, 20_000])
def test_gap_of_a_ring(m):
    gap = 1 - 1 / 3 if m == 4 else _ring_gap(m)  # m = 4 has the eigenvalues 1, 1/3, 1/3, -1/3
    assert nw.spectral_gap(nw.ring(m)) == pytest.approx(gap, rel=1e-4)


def test_gap_of_a_complete_network_and_of_one_node():
    for m in (1, 2, 7, 40):
        assert nw.spectral_gap(nw.complete(m).graph) == pytest.approx(1, abs=1e-6)


def test_gap_counts_the_negative_end():
    W = np.array([[0.05, 0.95], [0.95, 0.05]])
    assert nw.spectral_gap(nw.from_matrix(W)) == pytest.approx(0.1, abs=1e-6)


def test_a_network_in_parts_has_no_gap():
    assert nw.spectral_gap(nw.circulant(8, [2], connected=False)) == pytest.approx(0, abs=1e-12)


def test_gap_of_a_directed_ring():
    m = 12  # eigenvalues (1 + exp(2 pi i j / m)) / 2 of modulus |cos(pi j / m)|
    edges = [(i, (i + 1) % m) for i in range(m)]
    net = nw.from_edges(edges, weights="uniform", directed=True)
    assert nw.spectral_gap(net) == pytest.approx(1 - np.cos(np.pi / m), rel=1e-5)


@pytest.mark.parametrize("weights", ["metropolis", "uniform"])
def test_the_sparse_methods_agree_with_the_dense_one(weights, monkeypatch):
    net = nw.erdos_renyi(300, 0.05, weights=weights)
    dense = nw.spectral_gap(net)
    monkeypatch.setattr(spectral, "DENSE_UP_TO", 10)
    assert nw.spectral_gap(net) == pytest.approx(dense, rel=1e-6)


def test_no_convergence_is_said():
    m = 3000
    node = np.arange(m)
    net = nw.from_edges(np.stack([node, (node + 1) % m], axis=1), weights="uniform", directed=True)
    with pytest.raises(ArithmeticError, match=r"m = 3000\) did not converge in 30"):
        nw.spectral_gap(net)
    found = nw.summary(net)
    assert found.spectral_gap is None
    assert "spectral gap not computed (no convergence)" in str(found)
    assert "3,000 directed arcs" in str(found)


def test_a_network_that_changes_has_no_one_gap():
    class Changing:
        m = 3

        def at(self, k, key):
            return nw.ring(3).graph

    with pytest.raises(ValueError, match=r"a Graph or a Static network, got Changing.*network\.at\(k, key\)"):
        nw.spectral_gap(Changing())


@given(graph=graphs())
def test_summary_agrees_with_networkx(graph):
    found = nw.summary(graph)
    plain = nw.to_networkx(graph)
    degree = [d for _, d in (plain.in_degree() if found.directed else plain.degree())]
    assert (found.nodes, found.edges) == (graph.m, plain.number_of_edges())
    assert (found.degree_min, found.degree_max) == (min(degree), max(degree))
    assert found.degree_mean == pytest.approx(np.mean(degree))
    assert found.density == pytest.approx(nx.density(plain))
    assert found.connected
    assert found.diameter == nx.diameter(plain)
    assert found.padding_ratio == pytest.approx(1 - np.asarray(graph.mask).mean())
    assert found.stochastic in ("doubly", "row")


@pytest.mark.parametrize("tail", [0, 1, 2, 3, 7, 8, 9])
def test_diameter_of_a_clique_with_a_tail(tail):
    shape = nx.lollipop_graph(4, tail)
    assert nw.summary(nw.from_networkx(shape)).diameter == nx.diameter(shape)


def test_summary_text():
    assert str(nw.summary(nw.ring(4, format="padded"))).splitlines() == [
        "ring(m=4)",
        "  nodes      4",
        "  edges      4 links (density 0.667)",
        "  degree     min 2, mean 2, max 2",
        "  connected  yes, diameter 2",
        "  weights    metropolis, doubly stochastic, spectral gap 0.6667",
        "  format     padded, 0.0% of the table is padding",
    ]


def test_summary_of_a_star_shows_the_cost_of_its_table():
    star = nw.from_networkx(nx.star_graph(9), format="padded")
    assert "80.0% of the table is padding" in str(nw.summary(star))


def test_summary_of_a_large_and_of_a_broken_network():
    assert "diameter not computed above 2000 nodes" in str(nw.summary(nw.circulant(2001, [1, 40, 700])))
    parts = nw.summary(nw.circulant(8, [2], connected=False))
    assert (parts.connected, parts.diameter) == (False, None)
    assert "connected  NO, diameter infinite" in str(parts)


def test_summary_tells_which_sums_are_one():
    graph = nw.from_matrix([[0.5, 0.5], [1, 0]]).graph
    transposed = replace(graph, weight=graph.weight[::-1])
    half = replace(graph, weight=graph.weight / 2)
    found = [nw.summary(g).stochastic for g in (nw.ring(5).graph, graph, transposed, half)]
    assert found == ["doubly", "row", "column", "neither"]
    assert "column-stochastic" in str(nw.summary(transposed))
    assert "not stochastic" in str(nw.summary(half))
    assert nw.summary(graph).name == "graph"
