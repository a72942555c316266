"""Networks that exist: names, lengths and latencies of links, and drawings of any network."""

import json
import sys
from types import SimpleNamespace

import jax
import matplotlib.figure
import numpy as np
import pytest

import jdfl
from jdfl import network as nw
from jdfl.network.graph import round_of
from jdfl.network.ordering import in_order_of
from tests.refused import refused

HOPS = {("a", "b"): 300.0, ("b", "c"): 100.0, ("c", "d"): 0.0, ("b", "d"): 50.0}


def travelled(timed, k=0):
    """The travel time of every message of a round, by the names of sender and receiver."""
    graph, names = round_of(timed, k), timed.node_names
    slots = np.argwhere(np.asarray(graph.mask))
    return {(names[graph.senders[i, j]], names[i]): float(graph.timing.travel[i, j]) for i, j in slots}


@pytest.fixture
def polska(monkeypatch, tmp_path):
    def made(**other):
        """A topology of four nodes, as topohub has it in its folder."""
        nodes = [{"id": k, "name": name, "pos": [k, k % 2]} for k, name in zip((7, 5, 3, 1), "abcd")]
        ids = {one["name"]: one["id"] for one in nodes}
        edges = [{"source": ids[u], "target": ids[v], "dist": km} for (u, v), km in HOPS.items()]
        content = {"directed": False, "multigraph": False, "graph": {}, "nodes": nodes, "edges": edges} | other
        (tmp_path / "data" / "sndlib").mkdir(parents=True, exist_ok=True)
        (tmp_path / "data" / "sndlib" / "polska.json").write_text(json.dumps(content))
        monkeypatch.setitem(sys.modules, "topohub", SimpleNamespace(__path__=[str(tmp_path)]))
        return nw.topohub("sndlib/polska")

    return made


def test_latency_follows_the_lengths_in_any_order_of_nodes(polska):
    network = polska()
    assert network.node_names == tuple("abcd")
    assert network.kilometres() == HOPS
    timed = nw.timed(network, nw.FixedTime(0.5), latency=network.latency(1e5), bandwidth=16.0)
    expected = {pair: km / 1e5 + 2.0 for (u, v), km in HOPS.items() for pair in ((u, v), (v, u))}
    for names in ("abcd", "dbca"):
        moved = in_order_of(timed, tuple(names))
        assert travelled(nw.in_run(moved, jax.random.key(0), 32)) == pytest.approx(expected)
        assert np.isfinite(round_of(moved, 0).timing.travel).all()  # of padding, too
        assert {frozenset(pair): km for pair, km in moved.base.kilometres().items()} == {
            frozenset(pair): km for pair, km in HOPS.items()
        }
        assert moved.base.positions.tolist() == [[float(k), 1.0] for k in (7 - 2 * "abcd".index(one) for one in names)]
    clock = dict.fromkeys("abcd", 0.0)
    for _ in range(3):  # a node waits for all that it hears from
        sent = {name: time + 0.5 for name, time in clock.items()}
        clock = {
            one: max([sent[one], *(sent[u] + expected[u, one] for u in "abcd" if (u, one) in expected)])
            for one in "abcd"
        }
    problem = jdfl.problems.averaging(np.zeros((4, 1))).named(list("dbca"))  # 4 bytes a message
    found = jdfl.run(jdfl.DPSGD(lr=0.1), problem, timed, steps=3).final
    assert found["network_seconds_last"] == pytest.approx(max(clock.values()))


def test_topologies_as_they_are():
    pytest.importorskip("topohub")
    network = nw.topohub("topozoo/Geant2012")
    assert (network.m, len(network.kilometres())) == (37, 58)
    assert network.kilometres()["NL", "BE"] == 173.53
    africa = nw.topohub("backbone/africa")
    assert (africa.m, africa.node_names[0]) == (403, "node 6272")
    assert len(set(nw.topohub("topozoo/Bellsouth").node_names)) == 50
    lengths = nw.topohub("topozoo/Geant2012", weights="by-distance")
    again = nw.from_edges([(u, v, km) for (u, v), km in network.kilometres().items()], weights="by-distance")
    order = [again.node_names.index(name) for name in lengths.node_names]
    np.testing.assert_allclose(nw.as_dense(lengths.graph), nw.as_dense(again.graph)[np.ix_(order, order)], atol=1e-6)


def test_what_is_refused(polska):
    with refused("sndlib/polska", name="Polska2"):
        polska() and nw.topohub("Polska2")
    with refused("sndlib (1)", name="../x"):
        nw.topohub("../x")
    with refused("weights='by-distance'", "sndlib/polska"):
        nw.topohub("sndlib/polska", weights="by-distance")
    for other in ({"directed": True}, {"edges": [{"source": 7, "target": 5, "dist": 1.0}]}):
        with refused("sndlib/polska"):
            polska(**other)


def test_a_latency_of_other_links_is_refused(polska, monkeypatch):
    latency = polska().latency()
    for base in (nw.ring(4), nw.ring(5), nw.ring(4).named(list("abce")), nw.complete(4).named(list("abcd"))):
        with refused("latency"):
            nw.timed(base, latency=latency)
    with refused("compute"):
        nw.timed(polska(), compute=latency)
    timed, problem = nw.timed(polska(), latency=latency), jdfl.problems.averaging(np.zeros((4, 1)))
    with refused("LinkTimes"):
        jdfl.run(jdfl.events.ADPSGD(lr=0.1), problem, timed, steps=2)
    monkeypatch.setitem(sys.modules, "topohub", None)
    with refused(OSError, "pip install 'jdfl[natural]'"):
        nw.topohub("sndlib/polska")


def test_drawings():
    places = {"c": (2, 0), "a": (0, 0), "b": (1, 5)}
    network = nw.from_edges([("a", "b"), ("b", "c")])
    figure, axis = nw.timed(network).plot(places)
    drawn = {text.get_text(): tuple(text.xy) for text in axis.texts}
    assert drawn == places
    segments = {tuple(map(tuple, line)) for line in axis.collections[0].get_segments()}
    assert segments == {((0, 0), (1, 5)), ((1, 5), (2, 0))}
    assert figure.get_figwidth() == 7
    _, axis = nw.from_edges([(0, 1), (1, 2), (2, 0), (0, 2)], directed=True).plot(np.eye(3)[:, :2], labels=False)
    assert [(arrow.xyann, tuple(arrow.xy)) for arrow in axis.texts] == [
        ((1, 0), (0, 1)),
        ((0, 1), (0, 0)),
    ] or axis.texts
    assert len(nw.ring(100).plot(ax=matplotlib.figure.Figure().subplots()).ax.texts) == 0
    for bad in (np.zeros((2, 2)), {"a": (0, 0)}, {**places, "b": (0, np.nan)}):
        with refused("positions"):
            network.plot(bad)
    with refused(ax=3):
        network.plot(ax=3)
