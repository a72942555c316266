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
from tests.network.examples import graph_of_round, heard, matrices, rounds, rows, same

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


def inside(net):
    """The rounds of the network that is wrapped, as the wrapper draws them."""
    return rounds(net.base, jax.vmap(INNER.of)(KEYS()))


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
@pytest.mark.parametrize("name", LOSSY)
def test_a_lost_message_was_sent_and_its_weight_goes_to_the_own_row(name):
    net = LOSSY[name]
    before, after = inside(net), rounds(net, KEYS())
    np.testing.assert_array_equal(after.out_degree, before.out_degree)
    up = heard(after)
    assert not (up & ~heard(before)).any()
    assert up.sum() < heard(before).sum()
    kept = matrices(before) * (up | np.eye(6, dtype=bool))
    if name == "rescaled loss":  # what is left is scaled up
        kept = kept / kept.sum(axis=2, keepdims=True)
        swap = nw.from_matrix([[0, 1], [1, 0]], connected=False)  # but where nothing is left
        W = matrices(rounds(nw.link_loss(swap, 0.5, weights="rescale"), KEYS()))
        assert {round(float(own), 6) for own in W[:, 0, 0]} == {0.0, 1.0}
    missing = (1 - kept.sum(axis=2))[..., None] * np.eye(6)
    np.testing.assert_allclose(matrices(after), kept + missing, rtol=0, atol=1e-6)


@pytest.mark.rotated(3)
@pytest.mark.parametrize("name", ["loss", "participation", "part"])
def test_rounds_of_many_keys_at_once_or_of_a_padded_table_are_the_same(name):
    net, found = NETS[name], rounds(NETS[name], KEYS())
    together = jax.jit(jax.vmap(net.at, (None, 0)))(jnp.int32(0), KEYS())
    np.testing.assert_array_equal(together.mask, found.mask)
    assert not np.array_equal(found.mask[0], found.mask[1])
    wide = net.replace(base=replace(net.base, graph=nw.pad(net.base.graph, 8)))
    np.testing.assert_array_equal(matrices(rounds(wide, KEYS())), matrices(found))


def test_without_loss_and_with_everybody_nothing_changes(compilations):
    whole = rounds(TORUS(), KEYS())
    for net in (nw.link_loss(TORUS(), 0), nw.node_participation(TORUS(), 1), nw.node_participation(TORUS(), count=6)):
        assert same(rounds(net, KEYS()), whole)
    rounds(nw.link_loss(RING(), 0.25).replace(name=""), KEYS())
    before = compilations()  # networks that differ in name and rate are compiled once
    rounds(nw.link_loss(RING().replace(name="another"), 0.5).replace(name=""), KEYS())
    assert compilations() == before


def test_links_are_lost_with_probability_p_whatever_the_network_draws():
    """Both ways of a link together, or apart."""
    repeats, up = 1500, {}
    keys = jax.random.split(KEY, repeats)
    for name, chance in {"loss": 0.6, "loss of links": 0.25, "loss of loss": 0.25, "loss each way": 0.6}.items():
        up[name] = heard(rounds(NETS[name], keys))
        links = up[name].any(axis=0)
        z = (up[name][:, links].sum(axis=0) - repeats * chance) / np.sqrt(repeats * chance * (1 - chance))
        assert np.abs(z).max() < 4.5
    np.testing.assert_array_equal(up["loss"], up["loss"].swapaxes(1, 2))
    i, j = np.argwhere(up["loss each way"].any(axis=0))[0]
    agree = int((up["loss each way"][:, i, j] == up["loss each way"][:, j, i]).sum())
    assert scipy.stats.binomtest(agree, repeats, 0.6**2 + 0.4**2).pvalue > 1e-3


@pytest.mark.parametrize("name", ["participation", "count", "participation of buckets"])
def test_who_is_silent_neither_hears_nor_is_heard_and_the_others_go_on(name):
    net = NETS[name]
    stacked, active = rounds(net, KEYS()), np.asarray(jax.vmap(net.active)(KEYS()))
    both = active[:, :, None] & active[:, None, :]
    np.testing.assert_array_equal(heard(stacked), heard(inside(net)) & both)
    np.testing.assert_allclose(np.asarray(stacked.self_weight)[~active], 1, rtol=0, atol=1e-6)
    assert not np.asarray(stacked.out_degree)[~active].any()


def test_who_is_silent_sends_nothing_that_is_lost():
    net = nw.link_loss(nw.node_participation(nw.complete(6), 0.5), 0.9)
    active = np.asarray(jax.vmap(lambda key: net.base.active(INNER.of(key)))(KEYS()))
    sent = np.where(active, active.sum(axis=1, keepdims=True) - 1, 0)
    np.testing.assert_array_equal(rounds(net, KEYS()).out_degree, sent)


def test_nodes_take_part_with_probability_p_or_in_every_subset_alike():
    keys = jax.random.split(KEY, 2000)
    often = np.asarray(jax.vmap(NETS["participation"].active)(keys)).sum(axis=0)
    z = (often - 2000 * 0.6) / np.sqrt(2000 * 0.6 * 0.4)
    assert np.abs(z).max() < 4
    some = np.asarray(jax.vmap(nw.node_participation(nw.ring(5), count=2).active)(keys))
    part = heard(rounds(nw.partial_communication(nw.complete(6), 0.4), keys))
    for code in (some @ (1 << np.arange(5)), *(part[:, node] @ (1 << np.arange(6)) for node in (0, 4))):
        found = np.unique(code, return_counts=True)[1]
        assert found.size == 10
        assert scipy.stats.chisquare(found).pvalue > 1e-3


@pytest.mark.rotated(3)
@pytest.mark.parametrize("name", ["part", "part of others", "part of arcs", "part of buckets", "part of links"])
def test_a_part_has_exact_counts_and_equal_weights(name):
    net = NETS[name]
    before, after = heard(inside(net)), heard(rounds(net, KEYS()))
    assert not (after & ~before).any()
    count = np.ceil(float(net.rate) * before.sum(axis=2) - 1e-4)
    np.testing.assert_array_equal(after.sum(axis=2), count)
    own = np.ones_like(count) if net.include_self else (count == 0).astype(float)
    W = (after + own[..., None] * np.eye(6)) / (count + own)[..., None]
    np.testing.assert_allclose(matrices(rounds(net, KEYS())), W, rtol=0, atol=1e-6)
    if name == "part":  # the whole of the neighbours is the uniform network
        uniform = nw.to_scipy(nw.erdos_renyi(6, 0.7, weights="uniform")).toarray()
        W = matrices(rounds(nw.partial_communication(net.base, 1), KEYS()))
        np.testing.assert_allclose(W, np.tile(uniform, (12, 1, 1)), rtol=0, atol=1e-6)
