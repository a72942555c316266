"""A method refuses the networks it cannot use, and no others; the refusal names method, property, network, remedy."""

import re

import pytest

from jdfl import network as nw
from tests.later import Named

NETWORKS = Named(
    {
        "star(m=5)": lambda: nw.star(5),
        "uniform star(m=5)": lambda: nw.star(5, weights="uniform"),
        "column-stochastic star(m=5)": lambda: nw.star(5, weights="out-degree"),
        "ring(m=1)": lambda: nw.ring(1),
        "exponential(m=6)": lambda: nw.exponential(6),
        "1-out(m=5)": lambda: nw.d_out(5, 1),
        "random k-in(m=5, degree=2, seed=1)": lambda: nw.k_in(5, 2, connected=False, seed=1),
        "parts": lambda: nw.from_edges([(0, 1), (2, 3)], connected=False, name="parts"),
        "random matching(m=5)": lambda: nw.random_matching(5),
        "one-peer exponential(m=6)": lambda: nw.one_peer_exponential(6),
        "MATCHA(budget=0.5) of ring(m=5)": lambda: nw.matcha(nw.ring(5), 0.5),
        "random links(p=0.5) of ring(m=5)": lambda: nw.random_links(nw.ring(5), 0.5),
        "random links(p=0.5) of random k-in(m=5, degree=3, seed=0)": lambda: nw.random_links(
            nw.k_in(5, 3), 0.5, weights="out-degree"
        ),
        "random links(p=0.5) of parts": lambda: nw.random_links(NETWORKS["parts"], 0.5),
        "link loss(p=0.5) of ring(m=5)": lambda: nw.link_loss(nw.ring(5), 0.5),
        "link loss(p=0.1) of star(m=5)": lambda: nw.link_loss(nw.star(5), 0.1),
        "link loss(each way, p=0.5) of complete(m=5)": lambda: nw.link_loss(nw.complete(5), 0.5, directed=True),
        "link loss(p=0.5) of periodic(parts, network)": lambda: nw.link_loss(
            nw.periodic([NETWORKS["parts"], nw.from_edges([(1, 2)], 4, connected=False)]), 0.5
        ),
        "participation(p=0.5) of ring(m=5)": lambda: nw.node_participation(nw.ring(5), 0.5),
        "participation(p=0.5) of parts": lambda: nw.node_participation(NETWORKS["parts"], 0.5),
        "partial communication(rate=0.5) of ring(m=5)": lambda: nw.partial_communication(nw.ring(5), 0.5),
        "periodic(parts, parts)": lambda: nw.periodic([NETWORKS["parts"], NETWORKS["parts"]]),
    }
)
ALL = {"undirected": True, "doubly_stochastic": True, "symmetric_weights": True}
PUSH_SUM = {"column_stochastic": True, "connected": True}


@pytest.mark.parametrize(
    ("name", "needs"),
    [
        ("star(m=5)", {"fixed": True, **ALL}),
        ("ring(m=1)", {"fixed": True, **ALL}),
        ("uniform star(m=5)", {"fixed": True, "undirected": True}),
        ("random k-in(m=5, degree=2, seed=1)", {"fixed": True}),
        ("random links(p=0.5) of ring(m=5)", ALL),
        ("random matching(m=5)", ALL),
        ("MATCHA(budget=0.5) of ring(m=5)", ALL),
        ("link loss(p=0.5) of ring(m=5)", ALL),
        ("participation(p=0.5) of ring(m=5)", ALL),
        ("exponential(m=6)", {"fixed": True, "doubly_stochastic": True}),
        ("one-peer exponential(m=6)", {"doubly_stochastic": True}),
        ("star(m=5)", PUSH_SUM),
        ("column-stochastic star(m=5)", PUSH_SUM),
        ("random links(p=0.5) of random k-in(m=5, degree=3, seed=0)", PUSH_SUM),
        ("one-peer exponential(m=6)", PUSH_SUM),
        ("link loss(p=0.5) of periodic(parts, network)", {"connected": True}),
        ("random links(p=0.5) of parts", {"connected": True}),
        ("link loss(each way, p=0.5) of complete(m=5)", {}),
        ("partial communication(rate=0.5) of ring(m=5)", {}),
    ],
    ids=lambda value: value if isinstance(value, str) else ", ".join(value) or "nothing",
)
def test_a_network_with_the_properties_passes(name, needs):
    nw.require(NETWORKS[name], "a method", **needs)


FIXED = (
    r"fixed network for M-1, .*no message may be lost, got {}, which may change from "
    r"round to round\. Use a fixed one, such as jdfl\.network\.erdos_renyi\(m\), or D-PSGD, which takes any network"
)
TWO_WAY = r"an undirected network for M-1, .*got {}, which has one-way links{}\. Use .*erdos_renyi\(m\)"
SUMS = r"doubly stochastic weights for M-1, .*mean of nodes, got {}, which has rows or columns .*{}\. Use weights='"
ALIKE = r"symmetric weights for M-1, .*got {}, which has weights W with W_ij != W_ji{}\. Use weights='metropolis'"


COLUMNS = r"column-stochastic weights for M-1, .*sum over nodes, got {}, which has columns .*{}\. Use .*'out-degree'"
APART = (
    r"strongly connected network for M-1, .*got {}, whose links make {} components, the largest with {} .*d_out\(m, 2"
)


@pytest.mark.parametrize(
    ("name", "needs", "message"),
    [
        ("random links(p=0.5) of ring(m=5)", "fixed", FIXED),
        ("link loss(p=0.1) of star(m=5)", "fixed", FIXED),
        ("random k-in(m=5, degree=2, seed=1)", "undirected", TWO_WAY.format("{}", "")),
        ("link loss(each way, p=0.5) of complete(m=5)", "undirected", TWO_WAY.format("{}", r" \(round \d\)")),
        ("one-peer exponential(m=6)", "undirected", TWO_WAY.format("{}", r" \(round 0\)")),
        ("uniform star(m=5)", "doubly_stochastic", SUMS.format("{}", "")),
        ("partial communication(rate=0.5) of ring(m=5)", "doubly_stochastic", SUMS.format("{}", r"\(round \d\)")),
        ("uniform star(m=5)", "symmetric_weights", ALIKE.format("{}", "")),
        ("exponential(m=6)", "symmetric_weights", ALIKE.format("{}", "")),
        ("uniform star(m=5)", "column_stochastic", COLUMNS.format("{}", "")),
        ("link loss(each way, p=0.5) of complete(m=5)", "column_stochastic", COLUMNS.format("{}", r" \(round \d\)")),
        ("parts", "connected", APART.format("{}", 2, "2 of 4")),
        ("participation(p=0.5) of parts", "connected", APART.format("{}", 2, "2 of 4")),
        ("periodic(parts, parts)", "connected", APART.format("{}", 2, "2 of 4")),
        ("1-out(m=5)", "connected", APART.format("{}", 5, "1 of 5")),
        ("link loss(each way, p=0.5) of complete(m=5)", "symmetric_weights", ALIKE.format("{}", r" \(round \d\)")),
    ],
    ids=[
        "links",
        "loss",
        "arcs",
        "each way",
        "one peer",
        "sums",
        "part",
        "uniform",
        "exponential",
        "columns",
        "loss columns",
        "parts",
        "wrapped parts",
        "turns",
        "alone",
        "apart",
    ],
)
def test_a_network_without_the_property_is_refused_in_words(name, needs, message):
    network = NETWORKS[name]
    with pytest.raises(ValueError, match=message.format(re.escape(network.name))):
        nw.require(network, "M-1", **{needs: True})
    nw.require(network, "M-1")


def test_a_later_round_counts():
    late = nw.periodic([nw.ring(4), nw.ring(4, weights="uniform"), nw.star(4, weights="uniform")])
    with pytest.raises(ValueError, match=r"W_ij != W_ji \(round 2\)"):
        nw.require(late, "M-1", symmetric_weights=True)
