"""What networks say of themselves: gaps against closed forms, diameters against networkx, and at most 12 lines."""

import dataclasses
import html
from dataclasses import replace

import jax
import networkx as nx
import numpy as np
import pytest
from hypothesis import given

from jdfl import network as nw
from jdfl.base import checks
from jdfl.config import NETWORKS
from jdfl.network import properties
from tests.network.examples import graphs
from tests.refused import refused


def test_gaps_are_those_of_closed_forms():
    for m in (3, 4, 9, 1501):  # eigenvalues of the ring: (1 + 2 cos(2 pi j / m)) / 3; -1/3 for m = 4
        gap = 2 / 3 if m == 4 else 2 / 3 * (1 - np.cos(2 * np.pi / m))
        assert nw.spectral_gap(nw.ring(m)) == pytest.approx(gap, rel=1e-4)
    for m in (1, 2, 7, 40):
        assert nw.spectral_gap(nw.complete(m).graph) == pytest.approx(1, abs=1e-6)
    assert nw.spectral_gap(nw.from_matrix(np.array([[0.05, 0.95], [0.95, 0.05]]))) == pytest.approx(0.1, abs=1e-6)
    assert nw.spectral_gap(nw.circulant(8, [2], connected=False)) == pytest.approx(0, abs=1e-12)
    one_way = nw.ring(12, directed=True)  # eigenvalues (1 + exp(2 pi i j / m)) / 2 of modulus |cos(pi j / m)|
    assert nw.spectral_gap(one_way) == pytest.approx(1 - np.cos(np.pi / 12), rel=1e-5)


@pytest.mark.parametrize("weights", ["metropolis", "uniform"])
def test_the_sparse_methods_agree_with_the_dense_one(weights, monkeypatch):
    net = nw.erdos_renyi(300, 0.05, weights=weights)
    dense = nw.spectral_gap(net)
    monkeypatch.setattr(properties, "DENSE_UP_TO", 10)
    assert nw.spectral_gap(net) == pytest.approx(dense, rel=1e-6)


def test_no_convergence_is_said():
    net = nw.ring(3000, directed=True)
    with refused(ArithmeticError, "m = 3000"):
        nw.spectral_gap(net)
    found = nw.summary(net)
    assert found.spectral_gap is None
    assert "not computed (no convergence)" in str(found)


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


def test_a_summary_tells_sums_slots_parts_and_diameters():
    text = str(nw.summary(nw.ring(4, format="padded")))
    assert "  edges      4 links (density 0.667)\n" in text
    assert "  weights    metropolis, doubly stochastic, spectral gap 0.6667\n" in text
    assert "mixing reads 398 slots" in str(nw.summary(nw.star(200)))
    assert "not computed above 2000 nodes" in str(nw.summary(nw.circulant(2001, [1, 40, 700])))
    parts = nw.summary(nw.circulant(8, [2], connected=False))
    assert (parts.connected, parts.diameter) == (False, None)
    graph = nw.from_matrix([[0.5, 0.5], [1, 0]]).graph
    told = {"doubly": nw.ring(5).graph, "row": graph, "column": replace(graph, weight=graph.weight[::-1])}
    for sums, one in (told | {"neither": replace(graph, weight=graph.weight / 2)}).items():
        assert nw.summary(one).stochastic == sums
    shape = nx.lollipop_graph(4, 8)  # a clique with a tail
    assert nw.summary(nw.from_networkx(shape)).diameter == nx.diameter(shape)


GIVEN = {"degree": 2, "links": 2, "radius": 0.9, "d": 2, "p": 0.5, "budget": 0.5, "rate": 0.5}
GIVEN |= {"to_bad": 0.1, "to_good": 0.5, "down": 0.1, "up": 0.5, "joins": (1,), "bound": 2, "every": 3}


def test_every_kind_of_network_is_displayed_in_twelve_lines_with_its_settings():
    for kind in set(NETWORKS.sources) - {"edge-list-file"}:
        names = {one.name for one in dataclasses.fields(NETWORKS.kinds[kind])}
        given = {name: value for name, value in GIVEN.items() if name in names}
        given |= {"offsets": (1,)} if kind == "circulant" else {}
        network = NETWORKS(kind, **given).build(m=8)
        lines, shown = repr(network).splitlines(), network._repr_html_()
        assert 2 <= len(lines) <= 12
        assert network.name[:80] in lines[0]
        assert kind == "membership" or all(str(value).strip("(,)") in network.name for value in given.values())
        assert any(line.split() == ["nodes", "8"] for line in lines)
        assert all(len(line) <= 120 for line in lines)
        assert html.escape(network.name[:80]) in shown
        assert "Array(" not in shown + repr(network)


def test_a_fixed_network_says_its_degrees_and_weights_and_a_traced_one_its_name():
    network, seen = nw.ring(6), []
    for part in ("2 to 2, mean 2", "metropolis"):
        assert part in repr(network)
    jax.jit(lambda net: seen.append(repr(net)) or net.graph.weight)(network)
    assert seen == [repr(network).splitlines()[0]] == [checks.text(network)]
    assert "ring" in repr(jax.tree.map(lambda _: None, network))
