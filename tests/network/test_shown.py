"""Networks of all kinds are displayed in at most 12 lines, on the host and while they are traced."""

import dataclasses
import html

import jax

from jdfl import network as nw
from jdfl.base import checks
from jdfl.config import NETWORKS
from jdfl.network import spectral

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


def test_a_small_fixed_network_says_its_degrees_weights_and_gap_and_a_traced_one_its_name(monkeypatch):
    network, seen = nw.ring(6), []
    for part in ("2 to 2, mean 2", "metropolis, doubly stochastic", f"{nw.spectral_gap(network):.4g}"):
        assert part in repr(network)
    jax.jit(lambda net: seen.append(repr(net)) or net.graph.weight)(network)
    assert seen == [repr(network).splitlines()[0]] == [checks.shown(network)]
    assert "ring" in repr(jax.tree.map(lambda _: None, network))
    monkeypatch.setattr(spectral, "spectral_gap", lambda _: 1 / 0)
    assert "gap" not in repr(nw.ring(2000))  # nothing expensive is computed
