"""Networks with something missing: valid in every round, what is away is what was drawn, the rest as it was."""

import functools

import jax
import numpy as np
import pytest
import scipy

from jdfl import network as nw
from jdfl.network.links import INNER
from tests.later import Later, Named
from tests.network.examples import graph_of_round, heard, matrices, mix, rounds, rows, same

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
KEY, COUNT = jax.random.key(8), 1500
KEYS = Later(jax.random.split, KEY, COUNT)
INSIDE = Later(lambda: jax.jit(jax.vmap(INNER.of))(KEYS()))


@functools.cache
def of(name):
    """The rounds of a network."""
    return rounds(NETS[name], KEYS())


@functools.cache
def inside(name):
    """The rounds of the network that is wrapped, as the wrapper draws them."""
    base = NETS[name].base
    if isinstance(base, nw.Static):
        return jax.tree.map(lambda leaf: np.broadcast_to(leaf, (COUNT, *leaf.shape)), base.graph)
    return rounds(base, INSIDE())


def active(net, keys):
    return np.asarray(jax.jit(jax.vmap(net.active))(keys))


@pytest.mark.rotated(3)
@pytest.mark.parametrize("name", NETS)
def test_every_round_is_a_valid_graph(name):
    net, stacked, x = NETS[name], of(name), rows(6)
    if name in WHOLE:
        np.testing.assert_array_equal(stacked.out_degree, heard(stacked).sum(axis=1))
    W = matrices(stacked)
    if name in SYMMETRIC:
        np.testing.assert_allclose(W, W.swapaxes(1, 2), rtol=0, atol=1e-6)
        np.testing.assert_allclose(W.sum(axis=1), 1, rtol=0, atol=1e-6)
    assert stacked.out_degree.max() <= net.largest_out_degree
    for k in (0, 5, 11):
        graph = graph_of_round(stacked, k)
        nw.check_graph(graph)
        assert graph.lossy == (name in LOSSY)
        np.testing.assert_allclose(mix(graph, x), W[k] @ x, rtol=0, atol=1e-6)


@pytest.mark.rotated(3)
@pytest.mark.parametrize("name", LOSSY)
def test_a_lost_message_was_sent_and_its_weight_goes_to_the_own_row(name):
    before, after = inside(name), of(name)
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


def test_without_loss_and_with_everybody_nothing_changes(compilations):
    for net in (nw.link_loss(TORUS(), 0), nw.node_participation(TORUS(), 1), nw.node_participation(TORUS(), count=6)):
        assert same(rounds(net, KEYS()), inside("loss"))
    another = nw.link_loss(TORUS().replace(name="another"), 0.5)
    before = compilations()  # networks that differ in name and rate are compiled once
    rounds(another, KEYS())
    assert compilations() == before


def test_links_are_lost_with_probability_p_whatever_the_network_draws():
    """Both ways of a link together, or apart."""
    up = {}
    for name, chance in {"loss": 0.6, "loss of links": 0.25, "loss of loss": 0.25, "loss each way": 0.6}.items():
        up[name] = heard(of(name))
        links = up[name].any(axis=0)
        z = (up[name][:, links].sum(axis=0) - COUNT * chance) / np.sqrt(COUNT * chance * (1 - chance))
        assert np.abs(z).max() < 4.5
    np.testing.assert_array_equal(up["loss"], up["loss"].swapaxes(1, 2))
    i, j = np.argwhere(up["loss each way"].any(axis=0))[0]
    agree = int((up["loss each way"][:, i, j] == up["loss each way"][:, j, i]).sum())
    assert scipy.stats.binomtest(agree, COUNT, 0.6**2 + 0.4**2).pvalue > 1e-3


@pytest.mark.parametrize("name", ["participation", "participation of buckets"])
def test_who_is_silent_neither_hears_nor_is_heard_and_the_others_go_on(name):
    stacked, here = of(name), active(NETS[name], KEYS())
    both = here[:, :, None] & here[:, None, :]
    np.testing.assert_array_equal(heard(stacked), heard(inside(name)) & both)
    np.testing.assert_allclose(stacked.self_weight[~here], 1, rtol=0, atol=1e-6)
    assert not stacked.out_degree[~here].any()


def test_who_is_silent_sends_nothing_that_is_lost():
    net = nw.link_loss(nw.node_participation(nw.complete(6), 0.5), 0.9)
    here = active(net.base, INSIDE())
    sent = np.where(here, here.sum(axis=1, keepdims=True) - 1, 0)
    np.testing.assert_array_equal(rounds(net, KEYS()).out_degree, sent)


def test_nodes_take_part_with_probability_p_or_in_every_subset_alike():
    often = active(NETS["participation"], KEYS()).sum(axis=0)
    assert np.abs((often - COUNT * 0.6) / np.sqrt(COUNT * 0.6 * 0.4)).max() < 4
    some = active(nw.node_participation(nw.ring(5), count=2), KEYS())
    part = heard(rounds(nw.partial_communication(nw.complete(6), 0.4), KEYS()))
    alike = int((part[:, 0, 1:] == part[:, 5, :5]).all(axis=1).sum())  # nodes choose independently
    assert scipy.stats.binomtest(alike, COUNT, 0.1).pvalue > 1e-3
    for code in (some @ (1 << np.arange(5)), *(part[:, node] @ (1 << np.arange(6)) for node in (0, 4))):
        found = np.unique(code, return_counts=True)[1]
        assert found.size == 10
        assert scipy.stats.chisquare(found).pvalue > 1e-3


@pytest.mark.rotated(3)
@pytest.mark.parametrize("name", ["part", "part of others", "part of arcs", "part of buckets", "part of links"])
def test_a_part_has_exact_counts_and_equal_weights(name):
    net = NETS[name]
    before, after = heard(inside(name)), heard(of(name))
    assert not (after & ~before).any()
    count = np.ceil(float(net.rate) * before.sum(axis=2) - 1e-4)
    np.testing.assert_array_equal(after.sum(axis=2), count)
    own = np.ones_like(count) if net.include_self else (count == 0).astype(float)
    W = (after + own[..., None] * np.eye(6)) / (count + own)[..., None]
    np.testing.assert_allclose(matrices(of(name)), W, rtol=0, atol=1e-6)
    if name == "part":  # the whole of the neighbours is the uniform network
        uniform = nw.to_scipy(nw.erdos_renyi(6, 0.7, weights="uniform")).toarray()
        W = matrices(rounds(nw.partial_communication(net.base, 1), KEYS()))
        np.testing.assert_allclose(W, np.broadcast_to(uniform, W.shape), rtol=0, atol=1e-6)
