"""Networks of all kinds are displayed in at most 12 lines, on the host and while they are traced."""

import dataclasses
import html

import jax
import pytest

from jdfl import network as nw
from jdfl.base import checks
from jdfl.config import NETWORKS
from jdfl.network import spectral

SETTINGS = {
    "k-regular": {"degree": 2},
    "k-in": {"degree": 2},
    "watts-strogatz": {"degree": 2},
    "barabasi-albert": {"links": 2},
    "random-geometric": {"radius": 0.9},
    "circulant": {"offsets": (1,)},
    "d-out": {"d": 2},
    "random-links": {"p": 0.5},
    "random-neighbours": {"degree": 2},
    "matcha": {"budget": 0.5},
    "partial-communication": {"rate": 0.5},
    "link-loss": {"p": 0.2},
    "bursty-loss": {"to_bad": 0.1, "to_good": 0.5},
    "node-participation": {"p": 0.5},
    "outages": {"down": 0.1, "up": 0.5},
    "membership": {"joins": (1,)},
    "delays": {"bound": 2},
    "synchronised": {"every": 3},
}


@pytest.mark.parametrize("kind", [kind for kind in NETWORKS.sources if kind != "edge-list-file"])
def test_every_kind_of_network_is_displayed_in_twelve_lines_with_its_settings(kind):
    names, given = {one.name for one in dataclasses.fields(NETWORKS.kinds[kind])}, SETTINGS.get(kind, {})
    network = NETWORKS(kind, **{name: value for name, value in given.items() if name in names}).build(m=8)
    lines = repr(network).splitlines()
    assert 2 <= len(lines) <= 12
    assert network.name[:80] in lines[0]
    assert kind == "membership" or all(str(value).strip("(,)") in network.name for value in given.values())
    assert any(line.split() == ["nodes", "8"] for line in lines)
    assert all(len(line) <= 120 for line in lines)
    shown = network._repr_html_()
    assert html.escape(network.name[:80]) in shown
    assert len(shown) < 3000
    assert "Array(" not in shown + repr(network)


def test_a_small_fixed_network_says_its_degrees_weights_and_gap(monkeypatch):
    text = repr(nw.ring(6))
    for part in ("2 to 2, mean 2", "metropolis, doubly stochastic", f"{nw.spectral_gap(nw.ring(6)):.4g}"):
        assert part in text
    assert "given, column stochastic" in repr(nw.from_matrix([[1.0, 0.5], [0.0, 0.5]], connected=False))
    monkeypatch.setattr(spectral, "spectral_gap", lambda _: 1 / 0)
    assert "gap" not in repr(nw.ring(2000))  # nothing expensive is computed


def test_traced_networks_other_trees_and_errors_have_the_first_line_alone():
    network, seen = nw.ring(6), []
    jax.jit(lambda net: seen.append(repr(net)) or net.graph.weight)(network)
    assert seen == [repr(network).splitlines()[0]] == [checks.shown(network)]
    assert repr(jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), network)) == seen[0]
    assert "ring" in repr(jax.tree.map(lambda _: None, network))
    around = nw.link_loss(nw.timed(nw.delays(nw.ring(8), 2), nw.FixedTime(1.0), latency=nw.FixedTime(0.1)), 0.2)
    assert len(repr(around).splitlines()) <= 12
