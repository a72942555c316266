"""Networks with something missing: valid in every round, what is away is what was drawn, the rest as it was."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy

from jdfl import network as nw
from jdfl.network.links import INNER
from tests.later import Later, Named
from tests.network.examples import graph_of_round, matrices, rounds, rows, same

RING = Later(nw.ring, 6)
TORUS = Later(nw.torus, 6)
STAR = Later(nw.star, 6, format="buckets")
ARCS = Later(nw.circulant, 6, [1, 2], directed=True)
LINKS = Later(lambda: nw.random_links(nw.complete(6), 0.5))
LOSSY = Named(
    {
        "loss": lambda: nw.link_loss(TORUS(), 0.4),
        "loss of dense": lambda: nw.link_loss(nw.complete(6, format="dense"), 0.4),
        "loss of buckets": lambda: nw.link_loss(STAR(), 0.4),
        "loss of links": lambda: nw.link_loss(LINKS(), 0.5),
        "loss of turns": lambda: nw.link_loss(nw.one_peer_exponential(6), 0.5),
        "loss of matchings": lambda: nw.link_loss(nw.matcha(TORUS(), 0.6), 0.3),
        "loss each way": lambda: nw.link_loss(TORUS(), 0.4, directed=True),
        "rescaled loss": lambda: nw.link_loss(ARCS(), 0.4, weights="rescale"),
        "loss of loss": lambda: nw.link_loss(nw.link_loss(TORUS(), 0.5), 0.5),
        "loss of a part": lambda: nw.link_loss(nw.partial_communication(TORUS(), 0.5), 0.3),
    }
)
WHOLE = Named(
    {
        "participation": lambda: nw.node_participation(TORUS(), 0.6),
        "count": lambda: nw.node_participation(nw.complete(6), count=4),
        "participation of buckets": lambda: nw.node_participation(STAR(), 0.6),
        "participation of neighbours": lambda: nw.node_participation(nw.random_neighbours(6, 2), 0.7),
        "part": lambda: nw.partial_communication(nw.erdos_renyi(6, 0.7), 0.5),
        "part of others": lambda: nw.partial_communication(TORUS(), 0.5, include_self=False),
        "part of arcs": lambda: nw.partial_communication(ARCS(), 0.5),
        "part of buckets": lambda: nw.partial_communication(STAR(), 0.3),
        "part of links": lambda: nw.partial_communication(LINKS(), 0.5),
    }
)
NETS = LOSSY | WHOLE
SYMMETRIC = ("loss", "loss of dense", "loss of buckets", "loss of links", "loss of matchings", "loss of loss")
SYMMETRIC += ("participation", "count", "participation of buckets")
KEY = jax.random.key(8)
KEYS = Later(jax.random.split, KEY, 12)


def heard(stacked):
    """Who hears whom: bool [k, m, m]."""
    W = matrices(stacked.replace(weight=stacked.mask.astype(jnp.float32), format="padded", buckets=None))
    return (W > 0) & ~np.eye(W.shape[1], dtype=bool)


def inside(net, keys):
    """The rounds of the network that is wrapped, as the wrapper draws them."""
    return rounds(net.base, jax.vmap(INNER.of)(keys))


@pytest.mark.rotated(3)
@pytest.mark.parametrize("name", NETS)
def test_every_round_is_a_valid_graph(name):
    net, x = NETS[name], rows(6)
    stacked = rounds(net, KEYS())
    arcs = heard(stacked)
    if name in WHOLE:
        np.testing.assert_array_equal(stacked.out_degree, arcs.sum(axis=1))
    W = matrices(stacked)
    if name in SYMMETRIC:
        np.testing.assert_allclose(W, W.swapaxes(1, 2), rtol=0, atol=1e-6)
        np.testing.assert_allclose(W.sum(axis=1), 1, rtol=0, atol=1e-6)
    assert stacked.out_degree.max() <= net.largest_out_degree
    for k in (0, 5, 11):
        graph = graph_of_round(stacked, k)
        nw.check_graph(graph)
        assert graph.lossy == (name in LOSSY)
        np.testing.assert_allclose(nw.mix(graph, x), W[k] @ x, rtol=0, atol=1e-6)


@pytest.mark.rotated(3)
@pytest.mark.parametrize("name", ["loss of links", "participation", "part"])
def test_rounds_of_many_keys_at_once_are_those_of_each(name):
    net = NETS[name]
    together = jax.jit(jax.vmap(net.at, (None, 0)))(jnp.int32(0), KEYS())
    np.testing.assert_array_equal(together.mask, rounds(net, KEYS()).mask)
    assert not np.array_equal(together.mask[0], together.mask[1])


@pytest.mark.rotated(3)
@pytest.mark.parametrize(
    "wrap",
    [
        lambda base: nw.link_loss(base, 0.5),
        lambda base: nw.node_participation(base, 0.5),
        lambda base: nw.partial_communication(base, 0.5),
    ],
    ids=["loss", "participation", "part"],
)
def test_padding_does_not_change_a_round(wrap):
    base = nw.erdos_renyi(6, 0.7, format="padded")
    wide = replace(base, graph=nw.pad(base.graph, 8))
    np.testing.assert_array_equal(matrices(rounds(wrap(wide), KEYS())), matrices(rounds(wrap(base), KEYS())))


@pytest.mark.rotated(3)
@pytest.mark.parametrize("name", LOSSY)
def test_a_lost_message_was_sent(name):
    net = LOSSY[name]
    before, after = inside(net, KEYS()), rounds(net, KEYS())
    np.testing.assert_array_equal(after.out_degree, before.out_degree)
    assert not (heard(after) & ~heard(before)).any()
    assert heard(after).sum() < heard(before).sum()


@pytest.mark.rotated(3)
@pytest.mark.parametrize("name", ["loss", "loss of buckets", "loss of links", "loss of matchings", "loss each way"])
def test_what_is_missing_goes_to_the_own_weight(name):
    net = LOSSY[name]
    before, after = matrices(inside(net, KEYS())), matrices(rounds(net, KEYS()))
    up = heard(rounds(net, KEYS()))
    expected = np.where(up, before, 0)
    expected += (1 - expected.sum(axis=2))[..., None] * np.eye(6)
    np.testing.assert_allclose(after, expected, rtol=0, atol=1e-6)


def test_what_is_left_is_scaled_up_on_request():
    net = LOSSY["rescaled loss"]
    stacked = rounds(net, KEYS())
    kept = matrices(inside(net, KEYS())) * (heard(stacked) | np.eye(6, dtype=bool))
    np.testing.assert_allclose(matrices(stacked), kept / kept.sum(axis=2, keepdims=True), rtol=0, atol=1e-6)
    swap = nw.from_matrix([[0, 1], [1, 0]], connected=False)
    W = matrices(rounds(nw.link_loss(swap, 0.5, weights="rescale"), KEYS()))
    assert {round(float(own), 6) for own in W[:, 0, 0]} == {0.0, 1.0}


def test_without_loss_and_with_everybody_nothing_changes():
    whole = rounds(TORUS(), KEYS())
    for net in (nw.link_loss(TORUS(), 0), nw.node_participation(TORUS(), 1), nw.node_participation(TORUS(), count=6)):
        assert same(rounds(net, KEYS()), whole)


def test_links_are_lost_with_probability_p_whatever_the_network_draws():
    repeats = 1500
    keys = jax.random.split(KEY, repeats)
    expected = {"loss": 0.6, "loss of links": 0.25, "loss of loss": 0.25, "loss each way": 0.6}
    for name, chance in expected.items():
        net = NETS[name]
        base = net.base.base if name == "loss of loss" else net.base
        links = heard(rounds(base, keys[:50])).any(axis=0)
        up = heard(rounds(net, keys))[:, links].sum(axis=0)
        z = (up - repeats * chance) / np.sqrt(repeats * chance * (1 - chance))
        assert np.abs(z).max() < 4.5


def test_the_ways_of_a_link_are_lost_together_or_apart():
    keys = jax.random.split(KEY, 1000)
    together, apart = heard(rounds(NETS["loss"], keys)), heard(rounds(NETS["loss each way"], keys))
    np.testing.assert_array_equal(together, together.swapaxes(1, 2))
    i, j = np.argwhere(apart.any(axis=0))[0]
    agree = int((apart[:, i, j] == apart[:, j, i]).sum())
    assert scipy.stats.binomtest(agree, 1000, 0.6**2 + 0.4**2).pvalue > 1e-3


def test_who_is_silent_neither_hears_nor_is_heard_and_the_others_go_on():
    for name in ("participation", "count", "participation of buckets"):
        net = NETS[name]
        stacked, active = rounds(net, KEYS()), np.asarray(jax.vmap(net.active)(KEYS()))
        both = active[:, :, None] & active[:, None, :]
        np.testing.assert_array_equal(heard(stacked), heard(inside(net, KEYS())) & both)
        np.testing.assert_allclose(np.asarray(stacked.self_weight)[~active], 1, rtol=0, atol=1e-6)
        assert not np.asarray(stacked.out_degree)[~active].any()


def test_a_lossy_graph_has_sent_at_least_what_is_heard():
    graph = nw.link_loss(TORUS(), 0.4).at(jnp.int32(0), KEY)
    nw.check_graph(graph)
    with pytest.raises(ValueError, match=r"out_degree\[1\] from \d to 5, .*got 6"):
        nw.check_graph(replace(graph, out_degree=graph.out_degree.at[1].set(6)))
    with pytest.raises(ValueError, match=r"out_degree\[\d\] from [1-5] to 5, .*got 0"):
        nw.check_graph(replace(graph, out_degree=jnp.zeros_like(graph.out_degree)))
    with pytest.raises(ValueError, match=r"out_degree\[\d\] = \d, "):
        nw.check_graph(replace(graph, lossy=False))


def test_who_is_silent_sends_nothing_that_is_lost():
    """And nobody sends to who is not there, which could not be told where the losses came first."""
    net = nw.link_loss(nw.node_participation(nw.complete(6), 0.5), 0.9)
    active = np.asarray(jax.vmap(lambda key: net.base.active(INNER.of(key)))(KEYS()))
    sent = np.where(active, active.sum(axis=1, keepdims=True) - 1, 0)
    np.testing.assert_array_equal(rounds(net, KEYS()).out_degree, sent)
    with pytest.raises(ValueError, match="without lost messages inside node_participation"):
        nw.node_participation(nw.link_loss(nw.complete(6), 0.9), 0.5)


def test_nodes_take_part_with_probability_p_or_in_every_subset_alike():
    keys = jax.random.split(KEY, 2000)
    often = np.asarray(jax.vmap(NETS["participation"].active)(keys)).sum(axis=0)
    z = (often - 2000 * 0.6) / np.sqrt(2000 * 0.6 * 0.4)
    assert np.abs(z).max() < 4
    some = np.asarray(jax.vmap(nw.node_participation(nw.ring(5), count=2).active)(keys))
    found = np.unique(some @ (1 << np.arange(5)), return_counts=True)[1]
    assert found.size == 10
    assert scipy.stats.chisquare(found).pvalue > 1e-3


@pytest.mark.rotated(3)
@pytest.mark.parametrize("name", ["part", "part of others", "part of arcs", "part of buckets", "part of links"])
def test_a_part_has_exact_counts_and_equal_weights(name):
    net = NETS[name]
    before, after = heard(inside(net, KEYS())), heard(rounds(net, KEYS()))
    assert not (after & ~before).any()
    count = np.ceil(float(net.rate) * before.sum(axis=2) - 1e-4)
    np.testing.assert_array_equal(after.sum(axis=2), count)
    own = np.ones_like(count) if net.include_self else (count == 0).astype(float)
    W = (after + own[..., None] * np.eye(6)) / (count + own)[..., None]
    np.testing.assert_allclose(matrices(rounds(net, KEYS())), W, rtol=0, atol=1e-6)


def test_every_part_of_the_neighbours_is_equally_likely():
    keys = jax.random.split(KEY, 2000)
    code = heard(rounds(nw.partial_communication(nw.complete(6), 0.4), keys)) @ (1 << np.arange(6))
    for node in (0, 4):
        found = np.unique(code[:, node], return_counts=True)[1]
        assert found.size == 10
        assert scipy.stats.chisquare(found).pvalue > 1e-3


def test_the_whole_of_the_neighbours_is_the_uniform_network():
    base = nw.erdos_renyi(6, 0.5, seed=3)
    uniform = nw.to_scipy(nw.erdos_renyi(6, 0.5, seed=3, weights="uniform")).toarray()
    W = matrices(rounds(nw.partial_communication(base, 1), KEYS()))
    np.testing.assert_allclose(W, np.tile(uniform, (12, 1, 1)), rtol=0, atol=1e-6)


def test_networks_that_differ_in_name_and_rate_are_compiled_once(compilations):
    rounds(nw.link_loss(RING(), 0.25).replace(name=""), KEYS())
    before = compilations()
    rounds(nw.link_loss(RING().replace(name="another"), 0.5).replace(name=""), KEYS())
    assert compilations() == before


def test_names_and_sizes():
    assert nw.link_loss(RING(), 0.1).name == "link loss(p=0.1) of ring(m=6)"
    assert nw.link_loss(RING(), 0.1, directed=True).name == "link loss(each way, p=0.1) of ring(m=6)"
    assert nw.node_participation(RING(), 0.5).name == "participation(p=0.5) of ring(m=6)"
    assert nw.node_participation(RING(), count=2).name == "participation(count=2) of ring(m=6)"
    assert nw.partial_communication(RING(), 0.5).name == "partial communication(rate=0.5) of ring(m=6)"
    assert nw.link_loss(nw.link_loss(STAR(), 0.1), 0.2).name == "link loss(p=0.2) of link loss(p=0.1) of star(m=6)"
    assert nw.link_loss(STAR(), 0.1).largest_out_degree == 5


def test_a_network_of_ones_own_can_be_wrapped():
    class Own:
        m = 6

        def at(self, k, key):
            return RING().graph

    net = nw.link_loss(Own(), 0.5)
    assert net.name == "link loss(p=0.5) of graph"
    assert net.largest_out_degree == 5
    assert net.at(jnp.int32(0), KEY).m == 6


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: nw.link_loss(RING().graph, 0.5), r"base to be a network, got base = Graph.*Static"),
        (lambda: nw.link_loss(RING(), 1), r"p in \[0, 1\), got p = 1\. p: Probability that a message is lost"),
        (lambda: nw.link_loss(RING(), -0.1), r"p in \[0, 1\), got p = -0\.1"),
        (lambda: nw.link_loss(RING(), [0.1]), r"p to be a number, got p = \[0\.1\]"),
        (
            lambda: nw.link_loss(RING(), 0.1, weights="drop"),
            r"weights to be one of 'own', 'rescale', 'sender', got weights = 'drop'",
        ),
        (lambda: nw.link_loss(RING(), 0.1, directed=2), r"directed to be one of False, True, got directed = 2"),
        (lambda: nw.node_participation(RING()), r"either p or count, got p = None and count = None\. Give one"),
        (lambda: nw.node_participation(RING(), 0.5, count=2), r"either p or count, got p = 0\.5 and count = 2"),
        (lambda: nw.node_participation(RING(), 0), r"p in \(0, 1\], got p = 0\..*participates"),
        (lambda: nw.node_participation(RING(), count=7), r"count >= 1 and <= 6, got count = 7.*m = 6 nodes"),
        (lambda: nw.node_participation(RING().graph, 0.5), r"base to be a network"),
        (lambda: nw.partial_communication(RING(), 0), r"rate in \(0, 1\], got rate = 0\..*in-neighbours"),
        (lambda: nw.partial_communication(RING(), [0.5]), r"rate to be a number, got rate = \[0\.5\]"),
        (
            lambda: nw.partial_communication(RING(), 0.5, include_self=3),
            r"include_self to be one of False, True, got.*3",
        ),
        (lambda: nw.partial_communication(RING().graph, 0.5), r"base to be a network"),
    ],
)
def test_bad_input_is_refused_in_words(call, message):
    with pytest.raises(ValueError, match=message):
        call()
