"""A method refuses the networks it cannot use, and no others; the refusal names method, property, network, remedy."""

import pytest

from jdfl import network as nw

METROPOLIS, UNIFORM = nw.star(5), nw.star(5, weights="uniform")
ARCS, LINKS = nw.k_in(5, 2, connected=False, seed=1), nw.random_links(nw.ring(5), 0.5)
LOSS = nw.link_loss(nw.complete(5), 0.5, directed=True)
PART = nw.partial_communication(nw.ring(5), 0.5)
PARTS = nw.from_edges([(0, 1), (2, 3)], connected=False, name="parts")
TURNS = nw.periodic([PARTS, nw.from_edges([(1, 2)], 4, connected=False)])
ALL = {"undirected": True, "doubly_stochastic": True, "symmetric_weights": True}


@pytest.mark.parametrize(
    ("network", "needs"),
    [
        (METROPOLIS, {"fixed": True, **ALL}),
        (nw.ring(1), {"fixed": True, **ALL}),
        (UNIFORM, {"fixed": True, "undirected": True}),
        (ARCS, {"fixed": True}),
        (LINKS, ALL),
        (nw.random_matching(5), ALL),
        (nw.matcha(nw.ring(5), 0.5), ALL),
        (nw.link_loss(nw.ring(5), 0.5), ALL),
        (nw.node_participation(nw.ring(5), 0.5), ALL),
        (nw.exponential(6), {"fixed": True, "doubly_stochastic": True}),
        (nw.one_peer_exponential(6), {"doubly_stochastic": True}),
        (METROPOLIS, {"column_stochastic": True, "connected": True}),
        (nw.star(5, weights="out-degree"), {"column_stochastic": True, "connected": True}),
        (nw.random_links(nw.k_in(5, 3), 0.5, weights="out-degree"), {"column_stochastic": True, "connected": True}),
        (nw.one_peer_exponential(6), {"column_stochastic": True, "connected": True}),
        (nw.link_loss(TURNS, 0.5), {"connected": True}),
        (nw.random_links(PARTS, 0.5), {"connected": True}),
        (LOSS, {}),
        (PART, {}),
    ],
    ids=lambda value: value.name if hasattr(value, "name") else ", ".join(value) or "nothing",
)
def test_a_network_with_the_properties_passes(network, needs):
    nw.require(network, "a method", **needs)


FIXED = (
    r"fixed network for M-1, .*same neighbours have sent in .*no message may be lost, got {}, which may change from "
    r"round to round\. Use a fixed one, such as jdfl\.network\.erdos_renyi\(m\), or D-PSGD, which takes any network"
)
TWO_WAY = (
    r"an undirected network for M-1, which answers.*got {}, which has links of one way only{}\. Use .*erdos_renyi\(m\)"
)
SUMS = r"doubly stochastic weights for M-1, .*mean of all nodes, got {}, which has rows or columns .*{}\. Use weights='"
ALIKE = r"symmetric weights for M-1, .*got {}, which has weights W with W_ij != W_ji{}\. Use weights='metropolis'"


COLUMNS = (
    r"column-stochastic weights for M-1, .*sum over all nodes, got {}, which has columns .*{}\. Use .*'out-degree'"
)
APART = (
    r"strongly connected network for M-1, .*got {}, whose links make {} components, the largest with {} .*d_out\(m, 2"
)


@pytest.mark.parametrize(
    ("network", "needs", "message"),
    [
        (LINKS, "fixed", FIXED.format(r"random links\(p=0\.5\) of ring\(m=5\)")),
        (nw.link_loss(METROPOLIS, 0.1), "fixed", FIXED.format(r"link loss\(p=0\.1\) of star\(m=5\)")),
        (ARCS, "undirected", TWO_WAY.format(r"random k-in\(m=5, degree=2, seed=1\)", "")),
        (LOSS, "undirected", TWO_WAY.format(r"link loss\(each way, p=0\.5\) of complete\(m=5\)", r" \(round \d\)")),
        (nw.one_peer_exponential(6), "undirected", TWO_WAY.format(r"one-peer exponential\(m=6\)", r" \(round 0\)")),
        (UNIFORM, "doubly_stochastic", SUMS.format(r"star\(m=5\)", "")),
        (PART, "doubly_stochastic", SUMS.format(r"partial communication\(rate=0\.5\) of ring\(m=5\)", r"\(round \d\)")),
        (UNIFORM, "symmetric_weights", ALIKE.format(r"star\(m=5\)", "")),
        (nw.exponential(6), "symmetric_weights", ALIKE.format(r"exponential\(m=6\)", "")),
        (UNIFORM, "column_stochastic", COLUMNS.format(r"star\(m=5\)", "")),
        (LOSS, "column_stochastic", COLUMNS.format(r"link loss.*", r" \(round \d\)")),
        (PARTS, "connected", APART.format("parts", 2, "2 of 4")),
        (nw.node_participation(PARTS, 0.5), "connected", APART.format(r"participation\(p=0.5\) of parts", 2, "2 of 4")),
        (nw.periodic([PARTS, PARTS]), "connected", APART.format(r"periodic\(parts, parts\)", 2, "2 of 4")),
        (nw.d_out(5, 1), "connected", APART.format(r"1-out\(m=5\)", 5, "1 of 5")),
        (LOSS, "symmetric_weights", ALIKE.format(r"link loss\(each way, p=0\.5\) of .*", r" \(round \d\)")),
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
def test_a_network_without_the_property_is_refused_in_words(network, needs, message):
    with pytest.raises(ValueError, match=message):
        nw.require(network, "M-1", **{needs: True})
    nw.require(network, "M-1")


def test_a_later_round_counts():
    late = nw.periodic([nw.ring(4), nw.ring(4, weights="uniform"), nw.star(4, weights="uniform")])
    with pytest.raises(ValueError, match=r"W_ij != W_ji \(round 2\)"):
        nw.require(late, "M-1", symmetric_weights=True)
