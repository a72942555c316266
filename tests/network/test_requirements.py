"""A method refuses the networks it cannot use, and no others; the refusal names method, property and network."""

import pytest

from jdfl import network as nw
from tests.later import Named
from tests.refused import refused

NETWORKS = Named(
    {
        "star": lambda: nw.star(5),
        "uniform star": lambda: nw.star(5, weights="uniform"),
        "column-stochastic star": lambda: nw.star(5, weights="out-degree"),
        "alone": lambda: nw.ring(1),
        "exponential": lambda: nw.exponential(6),
        "1-out": lambda: nw.d_out(5, 1),
        "k-in": lambda: nw.k_in(5, 2, connected=False, seed=1),
        "parts": lambda: nw.from_edges([(0, 1), (2, 3)], connected=False, name="parts"),
        "matching": lambda: nw.random_matching(5),
        "one peer": lambda: nw.one_peer_exponential(6),
        "matchings": lambda: nw.matcha(nw.ring(5), 0.5),
        "links": lambda: nw.random_links(nw.ring(5), 0.5),
        "links of k-in": lambda: nw.random_links(nw.k_in(5, 3), 0.5, weights="out-degree"),
        "links of parts": lambda: nw.random_links(NETWORKS["parts"], 0.5),
        "loss": lambda: nw.link_loss(nw.ring(5), 0.5),
        "loss each way": lambda: nw.link_loss(nw.complete(5), 0.5, directed=True),
        "joined parts": lambda: nw.periodic([NETWORKS["parts"], nw.from_edges([(1, 2)], 4, connected=False)]),
        "loss of joined parts": lambda: nw.link_loss(NETWORKS["joined parts"], 0.5),
        "participation": lambda: nw.node_participation(nw.ring(5), 0.5),
        "participation of parts": lambda: nw.node_participation(NETWORKS["parts"], 0.5),
        "part": lambda: nw.partial_communication(nw.ring(5), 0.5),
        "turns of parts": lambda: nw.periodic([NETWORKS["parts"], NETWORKS["parts"]]),
        "met": lambda: nw.synchronised(nw.ring(5), 2),
        "met turns": lambda: nw.synchronised(nw.one_peer_exponential(6), 2),
        "met push-sum": lambda: nw.synchronised(nw.erdos_renyi(6, directed=True, weights="out-degree"), 2),
        "met parts": lambda: nw.synchronised(NETWORKS["parts"], 3),
        "later": lambda: nw.periodic(
            [nw.ring(4), nw.ring(4, weights="uniform"), nw.star(4, weights="uniform")]  # rounds 0 and 1 are symmetric
        ),
    }
)
MEAN = ["star", "alone", "links", "matching", "matchings", "loss", "participation"]  # symmetric weights keep it
PUSH_SUM = ["star", "column-stochastic star", "links of k-in", "one peer", "met push-sum"]
HAVE = {
    "fixed": ["star", "alone", "uniform star", "k-in", "exponential"],
    "undirected": [*MEAN, "uniform star"],
    "doubly_stochastic": [*MEAN, "exponential", "one peer", "met", "met turns"],
    "symmetric_weights": MEAN,
    "column_stochastic": [*PUSH_SUM, "met"],
    "connected": [*PUSH_SUM, "loss of joined parts", "links of parts", "met parts"],
    "table": [*MEAN, "k-in"],
}
LACK = {
    "fixed": ["links", "loss", "met"],
    "undirected": ["k-in", "loss each way", "one peer", "met turns"],
    "doubly_stochastic": ["uniform star", "part", "met push-sum"],
    "symmetric_weights": ["uniform star", "exponential", "loss each way", "later"],
    "column_stochastic": ["uniform star", "loss each way"],
    "connected": ["parts", "participation of parts", "turns of parts", "1-out"],
    "table": ["met", "met parts"],
}


@pytest.mark.parametrize("need", HAVE)
def test_a_network_without_the_property_is_refused_and_no_other(need):
    for name in HAVE[need]:
        nw.require(NETWORKS[name], "M-1", **{need: True})
    for name in LACK[need]:
        with refused("M-1", NETWORKS[name].name):
            nw.require(NETWORKS[name], "M-1", **{need: True})
        nw.require(NETWORKS[name], "M-1")
