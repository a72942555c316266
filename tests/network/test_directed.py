"""Directed networks for push-sum: columns of W sum to one, so that s / a comes to the mean whatever the out-degrees."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jdfl import network as nw
from jdfl.config import NETWORKS
from jdfl.network.links import equal_shares
from tests.later import Named
from tests.network.examples import edge_lists, graph_of_round, matrices, rounds, rows
from tests.refused import refused

KEY = jax.random.key(4)
M, ROUNDS = 40, 500
PUSH_SUM = Named(
    {
        "erdos-renyi": lambda: nw.erdos_renyi(M, 0.15, directed=True, weights="out-degree", format="padded"),
        "geometric": lambda: nw.random_geometric(M, 0.35, spread=0.4, weights="out-degree", format="dense"),
        "star": lambda: nw.star(M, weights="out-degree"),  # its hub adds up 40 rows
        "turns": lambda: nw.periodic(
            [nw.k_in(M, 3, seed=seed, weights="out-degree", connected=False) for seed in range(3)]
        ),
        "links": lambda: nw.random_links(nw.k_in(M, 9, format="padded"), 0.6, weights="out-degree"),
        "undirected links": lambda: nw.random_links(nw.erdos_renyi(M, 0.3, format="padded"), 0.5, weights="out-degree"),
        "neighbours": lambda: nw.random_neighbours(M, 4, weights="out-degree"),
    }
)
STEADY = ("erdos-renyi", "geometric", "turns")  # and without a hub


@jax.jit
def play(net, x, keys):
    """W_k ... W_0 x for rows x [m, n], and the graphs of the rounds."""

    def step(carry, key):
        k, x = carry
        graph = net.at(k, key)
        return (k + 1, nw.mix(graph, x)), graph

    (_, x), graphs = jax.lax.scan(step, (jnp.int32(0), x), keys)
    return x, graphs


@given(case=edge_lists(), directed=edge_lists(directed=True))
def test_columns_are_equal_parts_and_sum_to_one(case, directed):
    """So the powers of W bring s / a to the mean, on any strongly connected network."""
    for (m, edges), oneway in ((case, False), (directed, True)):
        graph = nw.from_edges(edges, m, weights="out-degree", directed=oneway).graph
        nw.check_graph(graph, columns=True)
        W = nw.to_scipy(graph).toarray()
        hears = W > 0
        np.testing.assert_array_equal(hears.sum(axis=0), graph.out_degree + 1)
        np.testing.assert_allclose(W, hears / hears.sum(axis=0), rtol=0, atol=3e-8 * m)
        np.testing.assert_allclose(W.sum(axis=0), 1, rtol=0, atol=3e-8)
        x = np.concatenate([rows(m), np.ones((m, 1))], axis=1)
        after = np.linalg.matrix_power(W, 2000) @ x
        np.testing.assert_allclose(after[:, :-1] / after[:, -1:], np.tile(x[:, :-1].mean(axis=0), (m, 1)), atol=1e-7)


@pytest.mark.rotated(2)
@pytest.mark.parametrize("name", PUSH_SUM)
def test_columns_sum_to_one_mass_is_kept_and_the_ratio_comes_to_the_mean(name):
    net, x = PUSH_SUM[name], np.concatenate([rows(M), np.ones((M, 1), np.float32)], axis=1)
    after, stacked = jax.device_get(play(net.replace(name=""), x, jax.random.split(KEY, ROUNDS)))
    for k in range(3):
        graph = graph_of_round(stacked, k)
        nw.check_graph(graph, columns=True)
        with refused("rows"):
            nw.check_graph(graph)
        W = nw.to_scipy(graph).toarray()
        hears = W > 0
        np.testing.assert_allclose(W, hears / hears.sum(axis=0), rtol=0, atol=1e-6)
        np.testing.assert_array_equal(W.sum(axis=0), 1)
        assert np.ptp(graph.out_degree) > 0
        assert graph.out_degree.max() <= net.largest_out_degree
    drift = np.abs(after.sum(axis=0, dtype=float) - x.sum(axis=0, dtype=float)) / np.abs(x).sum(axis=0)
    at_random = math.sqrt(ROUNDS) * 2.0**-24  # rounding of as many sums, each relative error being independent
    assert drift.max() < (1e-6 if name in STEADY else 1.5 * at_random)
    assert np.ptp(after[:, -1]) > 0.01  # the sums alone would not do
    mean = x[:, :-1].mean(axis=0, dtype=float)
    np.testing.assert_allclose(after[:, :-1] / after[:, -1:], np.tile(mean, (M, 1)), rtol=0, atol=5e-6)


def test_equal_shares_leave_nothing_to_rounding():
    count = np.arange(4096)
    weight, own = (np.asarray(part, np.float64) for part in jax.jit(equal_shares)(jnp.asarray(count, jnp.int32)))
    np.testing.assert_array_equal(count * weight + own, 1)
    np.testing.assert_allclose(own, weight, rtol=4096 * 2.0**-24)  # count times the rounding of the weight
    np.testing.assert_allclose(weight, 1 / (1 + count), rtol=1e-7)


def test_columns_and_rows_are_told_apart():
    by_in, by_out = nw.star(5, weights="uniform").graph, nw.star(5, weights="out-degree").graph
    assert (nw.summary(by_in).stochastic, nw.summary(by_out).stochastic) == ("row", "column")
    nw.check_graph(by_in)
    with refused("2.2 in column 0", "weights='out-degree'"):
        nw.check_graph(by_in, columns=True)
    with refused("2.2 in row 0", "'metropolis'", "jdfl.SGP"):
        nw.check_graph(by_out)
    for graph in (nw.ring(5).graph, nw.d_out(5, 3).graph, nw.complete(5, weights="out-degree").graph):
        nw.check_graph(graph)
        nw.check_graph(graph, columns=True)


@given(m=st.integers(1, 12), data=st.data())
def test_d_out_sends_to_itself_and_the_next(m, data):
    d = data.draw(st.integers(1, m))
    net = nw.d_out(m, d)
    nw.check_graph(net.graph)
    nw.check_graph(net.graph, columns=True)
    sent = sum(np.roll(np.eye(m), o, axis=0) for o in range(d)) / d  # column i: i, i + 1, ..., i + d - 1
    np.testing.assert_allclose(nw.to_scipy(net).toarray(), sent, rtol=0, atol=1e-6)
    assert net.largest_out_degree == d - 1


def test_one_peer_goes_through_its_hops_in_turn():
    """Reading "paper" has log2(m - 1) rounded up and one more, which is too many for some m."""
    periods = {"minimal": {2: 1, 3: 2, 10: 4}, "paper": {2: 1, 3: 2, 10: 5}, "code": {2: 1, 3: 2, 10: 4}}
    for hops, of in periods.items():
        for m, period in of.items():
            net = NETWORKS("one-peer-exponential", hops=hops).build(m=m)
            assert net.graphs.senders.shape[0] == period
            for t, W in enumerate(matrices(rounds(net.replace(name=""), jax.random.split(KEY, 7)))):
                sent = np.roll(np.eye(m), 2 ** (t % period), axis=0)  # column i: one at i + 2^t (mod m)
                np.testing.assert_array_equal(W, (np.eye(m) + sent) / 2)
            nw.require(net, "M-1", doubly_stochastic=True, column_stochastic=True, connected=True)
        alone = nw.one_peer_exponential(1, hops=hops).at(jnp.int32(1), KEY)
        assert nw.to_scipy(alone).toarray() == 1
