"""Networks of all kinds are displayed in at most 12 lines, on the host and while they are traced."""

import html

import jax
import pytest

import jdfl
from jdfl import network as nw
from jdfl.base import checks
from jdfl.config import NETWORKS

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
KINDS = [kind for kind in NETWORKS.sources if kind not in ("edge-list-file",)]


def made(kind: str) -> nw.Network:
    import dataclasses

    names = {one.name for one in dataclasses.fields(NETWORKS.kinds[kind])}
    return NETWORKS(kind, **{name: value for name, value in SETTINGS.get(kind, {}).items() if name in names}).build(m=8)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_network_is_displayed_in_twelve_lines(kind):
    network = made(kind)
    lines = repr(network).splitlines()
    assert 2 <= len(lines) <= 12
    assert network.name[:80] in lines[0]
    assert any(line.split() == ["nodes", "8"] for line in lines)
    assert all(len(line) <= 120 for line in lines)
    shown = network._repr_html_()
    assert html.escape(network.name[:80]) in shown
    assert len(shown) < 3000
    assert "Array(" not in shown + repr(network)


def test_a_small_fixed_network_says_its_degrees_weights_and_gap():
    text = repr(nw.ring(6))
    assert "in-degree  2 to 2, mean 2" in text
    assert "metropolis, doubly stochastic" in text
    assert f"{nw.spectral_gap(nw.ring(6)):.4g}" in text
    star = repr(nw.from_matrix([[1.0, 0.5], [0.0, 0.5]], connected=False))
    assert "given, column stochastic" in star


def test_nothing_expensive_is_computed(monkeypatch):
    from jdfl.network import spectral

    monkeypatch.setattr(spectral, "spectral_gap", lambda _: 1 / 0)
    assert "gap" not in repr(nw.ring(2000))
    with pytest.raises(ZeroDivisionError):
        repr(nw.ring(6))


def test_wrappers_in_wrappers_stay_short():
    network = nw.link_loss(nw.timed(nw.delays(nw.ring(8), 2), nw.FixedTime(1.0), latency=nw.FixedTime(0.1)), 0.2)
    assert len(repr(network).splitlines()) <= 12


def test_traced_networks_and_other_trees_are_displayed_by_name():
    network, seen = nw.ring(6), []
    jax.jit(lambda net: seen.append(repr(net)) or net.graph.weight)(network)
    assert seen == [repr(network).splitlines()[0]]
    flags = jax.tree.map(lambda _: None, network)
    assert repr(jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), network)) == seen[0]
    assert "ring" in repr(flags)


def test_errors_show_the_first_line_alone():
    assert checks.shown(nw.ring(6)) == repr(nw.ring(6)).splitlines()[0]
    assert checks.shown("a\nb") == "'a\\nb'"
    with pytest.raises(ValueError, match=r"got problem = Static network '.*'\."):
        jdfl.run(jdfl.DPSGD(), nw.ring(4), nw.ring(4), steps=1)
