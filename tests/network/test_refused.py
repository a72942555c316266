"""What networks, their wrappers and functions refuse: every wrong setting is named with its value."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import networkx as nx
import numpy as np

import jdfl
from jdfl import network as nw
from tests.later import Later
from tests.network.test_timing import TRACE
from tests.refused import all_refused, each_refused, refused

RING = Later(nw.ring, 6)
PARTS = Later(nw.circulant, 8, [2], connected=False)
SYNC = Later(lambda: nw.synchronised(RING(), 3))
LATE = Later(lambda: nw.delays(RING(), 2))
FAMILIES: list[tuple[Callable[..., Any], dict[str, Any], list[dict[str, Any]]]] = [
    (nw.ring, {"m": 6}, [{"m": 0}, {"m": True}, {"weights": "max"}, {"format": "csr"}]),
    (nw.star, {}, [{"m": 0}, {"m": 100_000}]),
    (nw.torus, {"m": 12}, [{"m": 7}, {"m": 2}, {"rows": 5}]),
    (nw.erdos_renyi, {"m": 5}, [{"p": 0}, {"p": 1.2}, {"p": float("nan")}, {"seed": -1}, {"tries": 0}]),
    (nw.erdos_renyi, {}, [{"m": 10, "p": 0.02, "tries": 20}, {"m": 10**6, "p": 1e-06}]),
    (nw.erdos_renyi, {"directed": True}, [{"m": 10**6, "p": 1e-06}]),
    (nw.k_regular, {"m": 5}, [{"m": 5, "degree": 3}, {"degree": 5}, {"degree": 1}]),
    (nw.k_regular, {}, [{"m": 300, "degree": 2, "tries": 1}]),
    (nw.k_in, {"m": 5}, [{"degree": 5}, {"degree": 0}, {"m": 10_000, "degree": 3}]),
    (nw.watts_strogatz, {"m": 9, "degree": 2}, [{"degree": 3}, {"p": 0}, {"degree": 10}]),
    (nw.barabasi_albert, {"m": 5}, [{"links": 5}]),
    (nw.random_geometric, {"m": 5, "radius": 0.5}, [{"radius": 0}, {"spread": 2}]),
    (nw.random_geometric, {}, [{"m": 10**4, "radius": 0.005}, {"m": 50, "radius": 0.15, "tries": 1}]),
    (nw.d_out, {"m": 5, "d": 1}, [{"d": 6}, {"d": 0}]),
    (nw.one_peer_exponential, {"m": 5}, [{"hops": "all"}]),
    (nw.random_neighbours, {"m": 5, "degree": 2}, [{"degree": 5}, {"degree": 0}, {"weights": "metropolis"}]),
    (nw.random_matching, {}, [{"m": 0}]),
    (nw.from_edges, {"edges": [(0, 1)]}, [{"weights": "max"}, {"weights": "given"}]),
]
WRAPPERS: list[tuple[Callable[..., Any], dict[str, Any], list[dict[str, Any]]]] = [
    (nw.link_loss, {"p": 0.1}, [{"p": 1}, {"p": -0.1}, {"p": [0.1]}, {"weights": "drop"}, {"directed": 2}]),
    (nw.bursty_loss, {"to_bad": 0.1, "to_good": 0.1}, [{"to_bad": 0}, {"to_good": 1.5}, {"bad": 1.1}, {"good": -1}]),
    (nw.node_participation, {}, [{"p": None, "count": None}, {"p": 0.5, "count": 2}, {"p": 0}, {"count": 7}]),
    (nw.partial_communication, {"rate": 0.5}, [{"rate": 0}, {"rate": [0.5]}, {"include_self": 3}]),
    (nw.outages, {"down": 0.1, "up": 0.1}, [{"weights": "all"}]),
    (nw.membership, {"joins": 1}, [{"joins": 0.5}, {"leaves": -1}, {"joins": 5, "leaves": 3}]),
    (nw.delays, {"bound": 2}, [{"bound": 0}, {"bound": 65}, {"p": 0}]),
    (nw.synchronised, {"every": 2}, [{"every": 0}, {"every": 2.5}]),
    (nw.random_links, {"p": 0.5}, [{"p": 0}, {"p": [0.5]}, {"weights": "max"}]),
    (nw.matcha, {"budget": 0.5}, [{"budget": 0}, {"budget": 1.5}, {"budget": [0.5]}]),
    (nw.timed, {}, [{"bandwidth": 0}, {"first": 2}]),
]


def test_settings_of_families_and_wrappers():
    for door, right, wrong in FAMILIES:
        each_refused(door, *wrong, **right)
    for door, right, wrong in WRAPPERS:
        each_refused(lambda door=door, **given: door(RING(), **given), *wrong, **right)


def test_settings_that_are_wrong_together_or_one_of_several():
    all_refused(
        (lambda: nw.circulant(8, [1, 5]), "offsets[1] = 5"),
        (lambda: nw.circulant(8, [2, 4]), "offset 1"),
        (lambda: nw.circulant(8, [2, 4], directed=True), "2 components"),
        (lambda: nw.ring(5, directed=True, weights="metropolis"), "'metropolis'"),
        (lambda: nw.random_links(nw.ring(4, directed=True), 0.5, weights="laplacian"), "weights = 'laplacian'"),
        (lambda: nw.erdos_renyi(30, 0.02, directed=True, weights="out-degree", tries=5), "tries = 5"),
        (lambda: nw.periodic([]), "networks = []"),
        (lambda: nw.periodic([nw.ring(4), nw.ring(5)]), "m = 5 in networks[1]"),
        (lambda: nw.periodic([nw.random_matching(4)]), "RandomMatching"),
        (lambda: nw.random_choice([RING()], [0.5, 0.5]), "probability"),
        (lambda: nw.random_choice([RING()] * 2, [0.5, 0.4]), "probability = [0.5 0.4]"),
        (lambda: nw.bursty_loss(RING(), 1, 1), "to_good"),
        (lambda: nw.bursty_loss(RING(), 1e-20, 0.1), "to_bad = 1e-20"),
        (lambda: nw.membership(RING()), "neither"),
        (lambda: nw.membership(RING(), joins=[1, 2]), "joins"),
        (lambda: nw.timed(RING(), nw.ExponentialTime(0)), "compute.mean = 0"),
        (lambda: nw.timed(RING(), latency=nw.FixedTime(-1)), "latency.seconds"),
        (lambda: nw.timed(RING(), slowness=nw.ParetoTime(1, -1)), "slowness.shape"),
        (lambda: nw.timed(nw.ring(5), TRACE()), "m = 5"),
        (lambda: nw.timed(RING(), latency=TRACE()), "latency"),
        (lambda: nw.timed(RING(), slowness=[1.0, 2.0]), "one factor"),
        (lambda: nw.timed(RING(), slowness=[0.0] * 6), "slowness > 0"),
        (lambda: nw.time_trace([[1.0, 0.0]]), "seconds > 0"),
        (lambda: nw.equi_static(4, 1, seed=1), "seed = 1"),
        (lambda: nw.from_networkx(nx.Graph(), weights="given"), "m = 0"),
    )
    for name in ("compute", "latency", "slowness"):  # a codec has a `draw` and a `check`, too
        with refused(name):
            nw.timed(RING(), **{name: jdfl.codecs.Dense()})
    for learn in (nw.d_cliques, nw.stl_fw):
        for bad in (np.ones(3), np.zeros((3, 2)), -np.ones((3, 2)), np.full((2, 2), np.nan)):
            with refused("counts"):
                learn(bad)


def test_networks_that_a_wrapper_cannot_be_around():
    lossy, round_of = nw.link_loss(RING(), 0.1), SYNC().at(jnp.int32(0), jax.random.key(0))
    inside = nw.timed(nw.bursty_loss(RING(), 0.3, 0.4), nw.FixedTime(0.1))
    wrappers = (nw.link_loss, nw.node_participation, nw.partial_communication, nw.synchronised, nw.timed)
    all_refused(
        (lambda: nw.delays(lossy, 2), "delays"),
        (lambda: nw.outages(LATE(), 0.1, 0.1), "outages"),
        (lambda: nw.node_participation(LATE(), 0.5), "node_participation"),
        (lambda: nw.synchronised(LATE(), 3), "synchronised"),
        (lambda: nw.node_participation(lossy, 0.5), "node_participation"),
        (lambda: nw.partial_communication(inside, 0.5), "link_loss"),
        (lambda: nw.partial_communication(nw.node_participation(RING(), 0.5, weights="sender"), 0.5), "'sender'"),
        (lambda: nw.timed(nw.link_loss(inside, 0.1), nw.FixedTime(0.2)), "base = link loss"),
        (lambda: nw.matcha(nw.random_matching(4), 0.5), "RandomMatching"),
        (lambda: nw.matcha(nw.exponential(8), 0.5), "exponential(m=8)"),
        (lambda: nw.matcha(PARTS(), 0.5), PARTS().name),
        (lambda: nw.refuse_synchronised(SYNC(), "CEPS"), "CEPS"),
        *((lambda wrap=wrap: wrap(SYNC(), 0.5), "synchronised") for wrap in wrappers[:3]),
        (lambda: nw.synchronised(SYNC(), 3), "synchronised"),
        (lambda: nw.periodic([RING().graph, round_of]), "synchronised"),
        (lambda: nw.random_links(round_of, 0.5), "synchronised"),
        (lambda: nw.periodic([SYNC()]), "Synchronised"),
        *((lambda wrap=wrap: wrap(RING().graph, 0.5), "base = Graph") for wrap in wrappers),
    )
    for net in (RING(), RING().graph, lossy, nw.random_matching(4)):
        nw.refuse_synchronised(net, "CEPS")


def test_edges_graphs_and_adjacency_matrices():
    one_way = nx.DiGraph([(0, 1), (1, 2), (2, 0)])
    all_refused(
        (lambda: nw.from_edges([]), "m"),
        (lambda: nw.from_edges([(0, 1, 2, 3)]), "edges"),
        (lambda: nw.from_edges([(0.0, 1.0)]), "float64"),
        (lambda: nw.from_edges([(0, 1), (1, 5)], 3), "edges[1] = (1, 5)"),
        (lambda: nw.from_edges([(0, 1), (1, 2), (3, 4)]), "2 components"),
        (lambda: nw.from_edges([(0, 1), (1, 2)], directed=True, weights="uniform"), "strongly connected"),
        (lambda: nw.from_networkx(one_way, weights="metropolis"), "'metropolis'"),
        (lambda: nw.from_scipy([[0, 1], [0, 0]], weights="laplacian", connected=False), "'laplacian'"),
        (lambda: nw.from_scipy([[1, 1]]), "adjacency"),
        (lambda: nw.from_scipy([[0, np.nan], [1, 0]]), "adjacency[0, 1] = nan"),
        (lambda: nw.from_scipy(np.full((2, 2), 0.5)), "0.5"),
        (lambda: nw.from_matrix([[1.0]], format="csr"), "'csr'"),
    )
    assert nx.number_connected_components(nw.to_networkx(nw.circulant(8, [2, 4], connected=False))) == 2


def _padded(**changed: Any) -> nw.Graph:
    return replace(nw.pad(nw.ring(4).graph, 3), **changed)


def _hub(**changed: Any) -> nw.Graph:
    graph = nw.star(6, format="buckets").graph
    return replace(graph, buckets=replace(graph.buckets, **changed)) if changed else replace(graph, buckets=None)


def test_graphs_that_are_none():
    ring, rows = _padded(), nw.star(6, format="buckets").graph.buckets.rows
    lossy = nw.link_loss(RING(), 0.4).at(jnp.int32(0), jax.random.key(8))
    met = SYNC().at(jnp.int32(2), jax.random.key(8))
    for good in (ring, lossy, met, nw.star(6, format="buckets").graph):
        nw.check_graph(good)
    each = [
        ("out_degree", _padded(out_degree=ring.out_degree[:3])),
        ("float16", _padded(weight=ring.weight.astype(jnp.float16))),
        ("senders[1, 0] = 4", _padded(senders=ring.senders.at[1, 0].set(4))),
        ("neighbours", _padded(senders=ring.senders.at[1, 0].set(1))),
        ("senders[1, 2]", _padded(senders=ring.senders.at[1, 2].set(3))),
        ("weight[2, 2] = 0.5", _padded(weight=ring.weight.at[2, 2].set(0.5))),
        ("senders[1, 0]", _padded(senders=ring.senders.at[1, :2].set(0))),
        ("1.66667 in row 3", _padded(self_weight=ring.self_weight.at[3].set(1))),
        ("out_degree[2] = 2", _padded(out_degree=ring.out_degree.at[2].set(5))),
        ("out_degree[1]", replace(lossy, out_degree=lossy.out_degree.at[1].set(6))),
        ("out_degree", replace(lossy, lossy=False)),
        ("self_weight", replace(met, self_weight=met.self_weight.at[1].set(1 / 3))),
        ("out_degree[0] = 5", replace(met, out_degree=met.out_degree.at[0].set(2))),
        ("synchronised", replace(met, synchronised=met.mask[:, 0])),
        ("buckets = None", _hub()),
        ("buckets.rows", _hub(rows=rows[::-1])),
        ("width 4", _hub(widths=(1, 4))),
    ]
    x = jnp.ones((6, 2))
    all_refused(
        *((lambda graph=graph: nw.check_graph(graph), named) for named, graph in each),
        (lambda: nw.mix(_hub(), x), "buckets = None"),
        (lambda: nw.mix(ring, jnp.arange(4)[:, None]), "int32"),
        (lambda: nw.pad(ring, 2), "d = 2"),
        (lambda: nw.relabel(ring, [0, 1, 2, 2]), "every node from 0 to 3"),
        (lambda: nw.relabel(ring, [0, 1, 2]), "order"),
        (lambda: nw.summary(nw.random_links(RING(), 0.5)), "RandomLinks"),
        (lambda: nw.spectral_gap(nw.random_matching(4)), "RandomMatching"),
    )


def test_late_messages_are_refused_by_methods_that_have_no_use_for_them():
    problem = jdfl.problems.example1(m=6, n=6, s=2, rows=(4, 6))
    for method in (jdfl.DSGT(), jdfl.DPSGD(period=2), jdfl.CEPS(s=2, storage="sparse"), jdfl.EXTRA()):
        with refused(method.title):
            jdfl.run(method, problem, LATE(), steps=2)
