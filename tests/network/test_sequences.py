"""Networks that change: valid in every round, drawn with the right probabilities, the same for the same key."""

from dataclasses import replace

import jax
import numpy as np
import pytest
import scipy

from jdfl import network as nw
from tests.later import Later, Named
from tests.network.examples import graph_of_round, matrices, mix, rounds, rows, same

SEQUENCES = Named(
    {
        "periodic": lambda: nw.periodic([nw.ring(6), nw.star(6), nw.complete(6)]),
        "choice": lambda: nw.random_choice([nw.ring(6), nw.star(6)], [0.3, 0.7]),
        "links": lambda: nw.random_links(nw.complete(6), 0.4),
        "uniform links": lambda: nw.random_links(nw.torus(6), 0.5, weights="uniform"),
        "laplacian links": lambda: nw.random_links(nw.torus(6), 0.5, weights="laplacian"),
        "arcs": lambda: nw.random_links(nw.circulant(6, [1, 2], directed=True), 0.6),
        "links of buckets": lambda: nw.random_links(nw.star(6, format="buckets"), 0.5),
        "neighbours": lambda: nw.random_neighbours(6, 2),
        "matching": lambda: nw.random_matching(6),
        "odd matching": lambda: nw.random_matching(7),
        "one node": lambda: nw.random_matching(1),
        "one peer": lambda: nw.one_peer_exponential(6),
        "one offset": lambda: nw.equi_rounds(6),
        "one offset, one way": lambda: nw.equi_rounds(7, 3, directed=True),
        "matchings": lambda: nw.matcha(nw.torus(6), 0.5),
    }
)
KEY, COUNT = jax.random.key(5), 3000
KEYS = Later(jax.random.split, KEY, COUNT)
OTHERS = Later(jax.random.split, jax.random.key(6), COUNT)


@pytest.mark.rotated(3)
@pytest.mark.parametrize("net", SEQUENCES.data.values(), ids=list(SEQUENCES))
def test_every_round_is_a_valid_graph_that_follows_from_the_key(net):
    stacked, x = rounds(net, KEYS()), rows(net.m)
    for k in range(12):
        graph = graph_of_round(stacked, k)
        nw.check_graph(graph)
        assert graph.m == net.m
        assert graph.out_degree.max() <= net.largest_out_degree
        np.testing.assert_allclose(mix(graph, x), nw.to_scipy(graph) @ x, rtol=0, atol=1e-6)
    fixed = net.m == 1 or isinstance(net, nw.Periodic) or getattr(net, "period", None) is not None
    for keys, alike in ((KEYS(), True), (OTHERS(), fixed)):  # the key decides the round
        assert same(stacked, rounds(net, keys)) == alike


def test_periodic_networks_take_turns_and_have_the_common_format():
    nets = [nw.ring(6), nw.star(6, format="buckets"), nw.complete(6)]
    stacked = rounds(nw.periodic(nets), KEYS())
    for k in range(7):
        expected = replace(nw.pad(nets[k % 3].graph, 5), format="padded", buckets=None)
        assert same(graph_of_round(stacked, k), expected)
    dense, padded, hub = nw.complete(6, format="dense"), nw.ring(6, format="padded"), nets[1]
    assert nw.periodic([dense, dense]).graphs.format == "dense"
    for mixed in ([dense, padded], [dense, hub], [hub, hub], [padded, padded]):
        assert nw.periodic(mixed).graphs.format == "padded"


def test_choices_follow_their_probabilities():
    nets = [nw.complete(3), nw.ring(3, directed=True), nw.star(3), nw.complete(3)]
    chance = [0.0, 0.2, 0.5, 0.3]
    arcs = rounds(nw.random_choice(nets, chance), KEYS()).mask.sum(axis=(1, 2))
    found = [(arcs == count).sum() for count in (3, 4, 6)]
    assert scipy.stats.chisquare(found, COUNT * np.array(chance[1:])).pvalue > 1e-3
    assert nw.random_choice(nets).probability.tolist() == [0.25] * 4


@pytest.mark.parametrize("rule", ["metropolis", "uniform", "laplacian"])
def test_weights_are_those_of_the_links_that_are_up(rule):
    base = nw.torus(6)
    stacked = rounds(nw.random_links(base, 0.5, weights=rule), KEYS())
    for W in matrices(stacked)[:10]:
        up = (W > 0) & ~np.eye(6, dtype=bool)
        expected = nw.from_scipy(up, weights=rule, connected=False)
        np.testing.assert_allclose(W, nw.to_scipy(expected).toarray(), rtol=0, atol=1e-6)
    W = matrices(rounds(nw.random_links(base, 1, weights=rule), KEYS()))  # with certainty
    certain = nw.to_scipy(nw.torus(6, weights=rule)).toarray()
    np.testing.assert_allclose(W, np.broadcast_to(certain, W.shape), rtol=0, atol=1e-6)
    if rule == "uniform":  # who hears nobody keeps its row
        alone = ~stacked.mask.any(axis=2)
        k = int(np.flatnonzero(alone.any(axis=1))[0])
        found = np.asarray(mix(graph_of_round(stacked, k), rows(6)))
        np.testing.assert_array_equal(found[alone[k]], rows(6)[alone[k]])


def test_links_are_up_with_probability_p_and_independently():
    p, up = 0.4, matrices(rounds(SEQUENCES["links"], KEYS())) > 0
    links = up[:, *np.triu_indices(6, 1)]
    assert np.abs(links.sum(axis=0) - COUNT * p).max() < 4 * np.sqrt(COUNT * p * (1 - p))
    correlation = np.corrcoef(links.T)[np.triu_indices(links.shape[1], 1)] * np.sqrt(COUNT)
    assert np.abs(correlation).max() < 4
    np.testing.assert_array_equal(up, up.swapaxes(1, 2))
    assert same(rounds(nw.erdos_renyi_rounds(6, 0.4), KEYS()), rounds(SEQUENCES["links"], KEYS()))
    base = nw.circulant(6, [1, 3])  # and a link does not depend on the others, nor on the padding of the table
    for net in (base, replace(base, graph=nw.pad(base.graph, 6))):
        some = matrices(rounds(nw.random_links(net, p), KEYS())) > 0
        np.testing.assert_array_equal(some, up & (nw.to_scipy(base).toarray() > 0))


def test_arcs_of_a_directed_base_are_drawn_apart():
    both = nw.from_networkx(nw.to_networkx(nw.complete(5)).to_directed(), weights="uniform")
    oneway = replace(nw.random_links(both, 0.5, weights="uniform"), directed=True)
    stacked = rounds(oneway, KEYS())
    up = matrices(stacked) > 0
    assert scipy.stats.binomtest(int((up[:, 0, 1] == up[:, 1, 0]).sum()), COUNT, 0.5).pvalue > 1e-3
    np.testing.assert_array_equal(stacked.out_degree, up.sum(axis=1) - 1)


def test_every_set_of_neighbours_is_equally_likely_and_no_memory_is_needed_for_all():
    stacked = rounds(nw.random_neighbours(6, 3), KEYS())
    up = matrices(stacked) > 0
    assert (stacked.mask.sum(axis=2) == 3).all()
    code = up @ (1 << np.arange(6))
    for node in (0, 3, 5):
        found = np.unique(code[:, node], return_counts=True)[1]
        assert found.size == 10
        assert scipy.stats.chisquare(found).pvalue > 1e-3
    hears = up[:, [0, 3], [1, 1]]
    assert scipy.stats.binomtest(int((hears[:, 0] == hears[:, 1]).sum()), COUNT, 0.6**2 + 0.4**2).pvalue > 1e-3
    needed = jax.jit(nw.random_neighbours(10**6, 8).at).lower(0, KEY).compile().memory_analysis()
    assert needed.temp_size_in_bytes < 40 * 4 * 10**6 * 8


@pytest.mark.parametrize("m", [5, 6])
def test_a_matching_pairs_everybody_and_all_are_equally_likely(m):
    W = matrices(rounds(nw.random_matching(m), KEYS()))
    np.testing.assert_array_equal(W, W.swapaxes(1, 2))
    np.testing.assert_array_equal(W @ W, W)  # the mean of two, taken twice
    assert ((W.diagonal(axis1=1, axis2=2) == 1).sum(axis=1) == m % 2).all()
    found = np.unique((W > 0).reshape(COUNT, -1), axis=0, return_counts=True)[1]
    assert found.size == 15
    assert scipy.stats.chisquare(found).pvalue > 1e-3
