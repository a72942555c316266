"""Networks that change: valid in every round, drawn with the right probabilities, the same for the same key."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy

from jdfl import network as nw
from tests.later import Named
from tests.network.examples import graph_of_round, matrices, rounds, rows, same

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
        "rounds": lambda: nw.erdos_renyi_rounds(6, 0.5),
        "one peer": lambda: nw.one_peer_exponential(6),
        "one peer alone": lambda: nw.one_peer_exponential(1),
        "one offset": lambda: nw.equi_rounds(6),
        "one offset, one way": lambda: nw.equi_rounds(7, 3, directed=True),
        "matchings": lambda: nw.matcha(nw.torus(6), 0.5),
        "periodic matchings": lambda: nw.matcha(nw.star(6, format="buckets"), 0.5, schedule="periodic"),
    }
)
sequences = pytest.mark.parametrize("net", SEQUENCES.data.values(), ids=list(SEQUENCES))
KEY = jax.random.key(5)


@pytest.mark.rotated(3)
@sequences
def test_every_round_is_a_valid_graph(net):
    stacked = rounds(net.replace(name=""), jax.random.split(KEY, 12))
    x = rows(net.m)
    for k in range(12):
        graph = graph_of_round(stacked, k)
        nw.check_graph(graph)
        assert graph.m == net.m
        assert graph.out_degree.max() <= net.largest_out_degree
        np.testing.assert_allclose(nw.mix(graph, x), nw.to_scipy(graph) @ x, rtol=0, atol=1e-6)


@sequences
def test_the_key_decides_the_round(net):
    keys = jax.random.split(KEY, 12)
    once, again = rounds(net, keys), rounds(net, keys)
    assert same(once, again)
    fixed = net.m == 1 or isinstance(net, nw.Periodic) or getattr(net, "period", None) is not None
    assert same(once, rounds(net, jax.random.split(jax.random.key(6), 12))) == fixed


@pytest.mark.parametrize(
    "name", ["links", "laplacian links", "links of buckets", "matching", "odd matching", "matchings"]
)
def test_undirected_rounds_keep_the_mean_and_come_to_agree(name):
    net = SEQUENCES[name]

    @jax.jit
    def play(x):
        keys = jax.random.split(KEY, 80)
        return jax.lax.scan(lambda x, key: (nw.mix(net.at(0, key), x), None), x, keys)[0]

    x = rows(net.m)
    np.testing.assert_allclose(play(x), np.tile(x.mean(axis=0), (net.m, 1)), rtol=0, atol=1e-4)


def test_periodic_networks_take_turns():
    nets = [nw.ring(6), nw.star(6, format="buckets"), nw.complete(6)]
    stacked = rounds(nw.periodic(nets), jax.random.split(KEY, 7))
    for k in range(7):
        expected = replace(nw.pad(nets[k % 3].graph, 5), format="padded", buckets=None)
        assert same(graph_of_round(stacked, k), expected)


def test_erdos_renyi_rounds_are_the_links_of_the_complete_network():
    keys = jax.random.split(KEY, 3)
    links = nw.random_links(nw.complete(7), 0.3, weights="laplacian")
    found = rounds(nw.erdos_renyi_rounds(7, 0.3, weights="laplacian").replace(name=links.name), keys)
    assert same(found, rounds(links, keys))


@pytest.mark.parametrize("m", [2, 3, 6, 8])
def test_one_peer_at_a_time_is_doubly_stochastic_and_averages_powers_of_two(m):
    tau = int(np.ceil(np.log2(m)))
    W = matrices(rounds(nw.one_peer_exponential(m), jax.random.split(KEY, 2 * tau)))
    for k in range(2 * tau):
        expected = (np.eye(m) + np.roll(np.eye(m), 2 ** (k % tau), axis=0)) / 2
        np.testing.assert_array_equal(W[k], expected)
    after = np.linalg.multi_dot([np.eye(m), *W[:tau], np.eye(m)])
    assert np.allclose(after, 1 / m, rtol=0, atol=1e-6) == (m & (m - 1) == 0)


def test_the_format_is_the_common_one():
    dense, padded, hub = nw.complete(5), nw.ring(5, format="padded"), nw.star(5, format="buckets")
    assert nw.periodic([dense, dense]).graphs.format == "dense"
    for mixed in ([dense, padded], [dense, hub], [hub, hub], [padded, padded]):
        assert nw.periodic(mixed).graphs.format == "padded"


def test_choices_follow_their_probabilities():
    nets = [nw.complete(3), nw.ring(3, directed=True), nw.star(3), nw.complete(3)]
    chance = [0.0, 0.2, 0.5, 0.3]
    net = nw.random_choice(nets, chance)
    arcs = np.asarray(rounds(net, jax.random.split(KEY, 1000)).mask).sum(axis=(1, 2))
    found = [(arcs == count).sum() for count in (3, 4, 6)]
    assert scipy.stats.chisquare(found, 1000 * np.array(chance[1:])).pvalue > 1e-3
    assert nw.random_choice(nets).probability.tolist() == [0.25] * 4


@pytest.mark.parametrize("rule", ["metropolis", "uniform", "laplacian"])
def test_weights_are_those_of_the_links_that_are_up(rule):
    stacked = rounds(nw.random_links(nw.torus(9), 0.5, weights=rule), jax.random.split(KEY, 10))
    for W in matrices(stacked):
        up = (W > 0) & ~np.eye(9, dtype=bool)
        expected = nw.from_scipy(up, weights=rule, connected=False)
        np.testing.assert_allclose(W, nw.to_scipy(expected).toarray(), rtol=0, atol=1e-6)


def test_links_are_up_with_probability_p_and_independently():
    m, p, repeats = 6, 0.3, 1500
    up = matrices(rounds(nw.random_links(nw.complete(m), p), jax.random.split(KEY, repeats))) > 0
    links = up[:, *np.triu_indices(m, 1)]
    z = (links.sum(axis=0) - repeats * p) / np.sqrt(repeats * p * (1 - p))
    assert np.abs(z).max() < 4
    correlation = np.corrcoef(links.T)[np.triu_indices(links.shape[1], 1)] * np.sqrt(repeats)
    assert np.abs(correlation).max() < 4
    np.testing.assert_array_equal(up, up.swapaxes(1, 2))


def test_arcs_of_a_directed_base_are_drawn_apart():
    m, p, repeats = 5, 0.5, 1000
    both = nw.from_networkx(nw.to_networkx(nw.complete(m)).to_directed(), weights="uniform")
    oneway = replace(nw.random_links(both, p, weights="uniform"), directed=True)
    up = matrices(rounds(oneway, jax.random.split(KEY, repeats))) > 0
    assert scipy.stats.binomtest(int((up[:, 0, 1] == up[:, 1, 0]).sum()), repeats, 0.5).pvalue > 1e-3
    np.testing.assert_array_equal(rounds(oneway, jax.random.split(KEY, 3)).out_degree, up[:3].sum(axis=1) - 1)


def test_a_link_does_not_depend_on_the_others():
    keys = jax.random.split(KEY, 20)
    every = matrices(rounds(nw.random_links(nw.complete(8), 0.5), keys)) > 0
    base = nw.circulant(8, [1, 3])
    wide = replace(base, graph=nw.pad(base.graph, 6))
    heard = nw.to_scipy(base).toarray() > 0
    for net in (base, wide):
        some = matrices(rounds(nw.random_links(net, 0.5), keys)) > 0
        np.testing.assert_array_equal(some, every & heard)


def test_with_certainty_all_links_are_up():
    base = nw.erdos_renyi(9, 0.5)
    W = matrices(rounds(nw.random_links(base, 1), jax.random.split(KEY, 2)))
    np.testing.assert_allclose(W, np.tile(nw.to_scipy(base).toarray(), (2, 1, 1)), rtol=0, atol=1e-6)


def test_who_hears_nobody_keeps_its_row():
    graph = nw.random_links(nw.ring(5), 1e-12).at(jnp.int32(0), KEY)
    assert not graph.in_degree.any()
    np.testing.assert_array_equal(nw.mix(graph, rows(5)), rows(5))


@pytest.mark.parametrize(("m", "degree"), [(2, 1), (6, 5), (40, 7)])
def test_every_node_hears_as_many_random_neighbours(m, degree):
    stacked = rounds(nw.random_neighbours(m, degree), jax.random.split(KEY, 20))
    for k in range(20):
        graph = graph_of_round(stacked, k)
        nw.check_graph(graph)  # no node itself, and nobody twice
        assert (graph.in_degree == degree).all()


def test_every_set_of_neighbours_is_equally_likely():
    m, degree, repeats = 6, 3, 3000
    up = matrices(rounds(nw.random_neighbours(m, degree), jax.random.split(KEY, repeats))) > 0
    code = up @ (1 << np.arange(m))
    for node in (0, 3, 5):
        found = np.unique(code[:, node], return_counts=True)[1]
        assert found.size == 10
        assert scipy.stats.chisquare(found).pvalue > 1e-3
    hears = up[:, [0, 3], [1, 1]]
    assert scipy.stats.binomtest(int((hears[:, 0] == hears[:, 1]).sum()), repeats, 0.6**2 + 0.4**2).pvalue > 1e-3


def test_a_million_nodes_draw_within_memory():
    m, degree = 10**6, 8
    needed = jax.jit(nw.random_neighbours(m, degree).at).lower(0, KEY).compile().memory_analysis()
    assert needed.temp_size_in_bytes < 40 * 4 * m * degree


@pytest.mark.parametrize("m", [2, 7, 8])
def test_a_matching_pairs_everybody(m):
    W = matrices(rounds(nw.random_matching(m), jax.random.split(KEY, 30)))
    np.testing.assert_array_equal(W, W.swapaxes(1, 2))
    np.testing.assert_array_equal(W @ W, W)  # the mean of two, taken twice
    assert (W.diagonal(axis1=1, axis2=2) == 1).sum(axis=1).tolist() == [m % 2] * 30


@pytest.mark.parametrize("m", [5, 6])
def test_every_matching_is_equally_likely(m):
    up = matrices(rounds(nw.random_matching(m), jax.random.split(KEY, 3000))) > 0
    found = np.unique(up.reshape(3000, -1), axis=0, return_counts=True)[1]
    assert found.size == 15
    assert scipy.stats.chisquare(found).pvalue > 1e-3


def test_names():
    assert nw.periodic([nw.ring(4), nw.star(4).graph]).name == "periodic(ring(m=4), graph)"
    three = nw.periodic([nw.erdos_renyi(4, seed=seed) for seed in range(3)]).name
    assert three.startswith("periodic(3 networks, Erdos-Renyi(m=4, p=0.45, seed=0), ..., Erdos-Renyi(m=4,")
    assert nw.random_choice([nw.ring(4)]).name == "random choice(ring(m=4))"
    assert nw.random_links(nw.ring(4), 0.5).name == "random links(p=0.5) of ring(m=4)"
    assert nw.random_neighbours(5, 2).name == "random neighbours(m=5, degree=2)"
    assert nw.random_matching(4).name == "random matching(m=4)"
    assert nw.erdos_renyi_rounds(4, 0.3).name == "Erdos-Renyi rounds(m=4, p=0.3)"
    assert nw.one_peer_exponential(4).name == "one-peer exponential(m=4)"


def test_a_summary_asks_for_one_round():
    net = nw.random_links(nw.ring(5), 0.5)
    with pytest.raises(ValueError, match=r"got RandomLinks.*network\.at\(k, key\)"):
        nw.summary(net)
    assert nw.summary(net.at(jnp.int32(0), KEY)).nodes == 5


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: nw.periodic([]), r"at least one network, got networks = \[\]"),
        (lambda: nw.periodic(nw.ring(4)), r"networks to be a list of .* network, got networks = Static"),
        (lambda: nw.periodic([nw.ring(4), nw.ring(5)]), r"got m = 5 in networks\[1\] and m = 4 in.*same number"),
        (lambda: nw.periodic([nw.random_matching(4)]), r"a Graph or a Static network, got RandomMatching"),
        (lambda: nw.random_choice([nw.ring(4)], [0.5, 0.5]), r"probability of shape \(1\), got \(2,\).*one probab"),
        (lambda: nw.random_choice([nw.ring(4)] * 2, [-1, 2]), r"probability >= 0.*got probability"),
        (lambda: nw.random_choice([nw.ring(4)] * 2, [0.5, 0.4]), r"sums to 1, got probability = \[0.5 0.4\].*Divide"),
        (lambda: nw.random_links(nw.ring(4), 0), r"p in \(0, 1\], got p = 0"),
        (lambda: nw.random_links(nw.ring(4), [0.5]), r"p to be a number, got p = \[0\.5\]"),
        (lambda: nw.random_links(nw.ring(4), 0.5, weights="max"), r"weights to be one of 'metropolis'"),
        (lambda: nw.random_links(nw.random_matching(4), 0.5), r"got RandomMatching"),
        (
            lambda: nw.random_links(nw.ring(4, directed=True), 0.5, weights="laplacian"),
            r"weights = 'out-degree' or 'uniform' with a directed base, got weights = 'laplacian'.*one of these two",
        ),
        (lambda: nw.random_neighbours(1, 1), r"m >= 2.*got m = 1"),
        (lambda: nw.random_neighbours(5, 5), r"degree >= 1 and <= 4, got degree = 5.*4 other nodes"),
        (lambda: nw.random_neighbours(5, 0), r"degree >= 1.*got degree = 0"),
        (lambda: nw.random_matching(0), r"m >= 1.*got m = 0"),
        (lambda: nw.erdos_renyi_rounds(5, 1.2), r"p in \(0, 1\], got p = 1.2"),
        (lambda: nw.one_peer_exponential(0), r"m >= 1.*got m = 0"),
    ],
)
def test_bad_input_is_refused_in_words(call, message):
    with pytest.raises(ValueError, match=message):
        call()
