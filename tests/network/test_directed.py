"""Directed networks for push-sum: columns of W sum to one, so that s / a comes to the mean whatever the out-degrees."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jdfl import network as nw
from jdfl.config import NETWORKS
from jdfl.network.links import equal_shares
from tests.later import Named
from tests.network.examples import WIDTH, edge_lists, graph_of_round, matrices, rounds, rows

KEY = jax.random.key(4)
M = 40
PUSH_SUM = Named(
    {
        "erdos-renyi": lambda: nw.erdos_renyi(M, 0.15, directed=True, weights="out-degree", format="padded"),
        "k-in": lambda: nw.k_in(M, 6, weights="out-degree"),
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
STEADY = ("erdos-renyi", "k-in", "geometric", "turns")  # and without a hub
ROUNDS = 500
networks = pytest.mark.parametrize("name", PUSH_SUM)


@jax.jit
def play(net, x, keys):
    """W_k ... W_0 x for rows x [m, n], and the graphs of the rounds."""

    def step(carry, key):
        k, x = carry
        graph = net.at(k, key)
        return (k + 1, nw.mix(graph, x)), graph

    (_, x), graphs = jax.lax.scan(step, (jnp.int32(0), x), keys)
    return x, graphs


def with_ones(x):
    """The rows [m, n] with the weights of push-sum, all one, in a last column."""
    return np.concatenate([x, np.ones((len(x), 1), np.float32)], axis=1)


@given(case=edge_lists(), directed=edge_lists(directed=True))
def test_columns_are_equal_parts_and_sum_to_one(case, directed):
    for (m, edges), oneway in ((case, False), (directed, True)):
        graph = nw.from_edges(edges, m, weights="out-degree", directed=oneway).graph
        nw.check_graph(graph, columns=True)
        W = nw.to_scipy(graph).toarray()
        hears = W > 0
        np.testing.assert_array_equal(hears.sum(axis=0), graph.out_degree + 1)
        np.testing.assert_allclose(W, hears / hears.sum(axis=0), rtol=0, atol=3e-8 * m)
        np.testing.assert_allclose(W.sum(axis=0), 1, rtol=0, atol=3e-8)


@settings(max_examples=12)
@given(case=edge_lists(directed=True), seed=st.integers(0, 10**6))
def test_the_ratio_comes_to_the_mean_on_any_strongly_connected_network(case, seed):
    m, edges = case
    net = nw.from_edges(edges, m, weights="out-degree", directed=True, format="padded")
    net = net.replace(graph=nw.pad(net.graph, WIDTH), name="")
    x = rows(m, seed=seed)
    after = np.linalg.matrix_power(nw.to_scipy(net).toarray(), 2000) @ with_ones(x).astype(np.float64)
    np.testing.assert_allclose(after[:, :-1] / after[:, -1:], np.tile(x.mean(axis=0, dtype=float), (m, 1)), atol=1e-9)
    after = np.asarray(play(net, with_ones(x), jax.random.split(KEY, ROUNDS))[0])
    np.testing.assert_allclose(after[:, :-1] / after[:, -1:], np.tile(x.mean(axis=0), (m, 1)), rtol=0, atol=2e-5)


@networks
def test_columns_sum_to_one_mass_is_kept_and_the_ratio_comes_to_the_mean(name):
    net, x = PUSH_SUM[name], with_ones(rows(M))
    after, stacked = jax.device_get(play(net.replace(name=""), x, jax.random.split(KEY, ROUNDS)))
    for k in range(3):
        graph = graph_of_round(stacked, k)
        nw.check_graph(graph, columns=True)
        with pytest.raises(ValueError, match=r"rows of the mixing matrix W that sum to 1"):
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


def test_where_all_are_heard_alike_the_rules_agree():
    for make in (nw.ring, nw.torus):
        by_in, by_out = (nw.to_scipy(make(6, directed=True, weights=rule)) for rule in ("uniform", "out-degree"))
        np.testing.assert_array_equal(by_in.toarray(), by_out.toarray())


def test_columns_and_rows_are_told_apart():
    by_in, by_out = nw.star(5, weights="uniform").graph, nw.star(5, weights="out-degree").graph
    assert (nw.summary(by_in).stochastic, nw.summary(by_out).stochastic) == ("row", "column")
    nw.check_graph(by_in)
    with pytest.raises(
        ValueError, match=r"columns of .* sum to 1, got 2.2 in column 0 \(5 such .*weights='out-degree'"
    ):
        nw.check_graph(by_in, columns=True)
    with pytest.raises(ValueError, match=r"got 2.2 in row 0 .*'metropolis' .*'out-degree' and a push-sum .*jdfl\.SGP"):
        nw.check_graph(by_out)
    for graph in (nw.ring(5).graph, nw.d_out(5, 3).graph, nw.complete(5, weights="out-degree").graph):
        nw.check_graph(graph)
        nw.check_graph(graph, columns=True)


def test_a_given_matrix_may_have_columns_that_sum_to_one():
    W = np.array([[0.5, 0, 0.25], [0.5, 0.75, 0], [0, 0.25, 0.75]])
    for given_matrix in (W, W.T):
        net = nw.from_matrix(given_matrix)
        np.testing.assert_array_equal(nw.to_scipy(net).toarray(), given_matrix)
    nw.check_graph(nw.from_matrix(W).graph, columns=True)
    with pytest.raises(ValueError, match=r"sum to 1, got 0\.875 in row 0 .*Divide every row"):
        nw.from_matrix(W - np.eye(3) / 8 + np.diag([0.25, 0, 0]))


@given(m=st.integers(1, 12), data=st.data())
def test_d_out_sends_to_itself_and_the_next(m, data):
    d = data.draw(st.integers(1, m))
    net = nw.d_out(m, d)
    nw.check_graph(net.graph)
    nw.check_graph(net.graph, columns=True)
    sent = sum(np.roll(np.eye(m), o, axis=0) for o in range(d)) / d  # column i: i, i + 1, ..., i + d - 1
    np.testing.assert_allclose(nw.to_scipy(net).toarray(), sent, rtol=0, atol=1e-6)
    assert net.name == f"{d}-out(m={m})"
    assert net.largest_out_degree == d - 1


PERIODS = {
    "minimal": lambda m: np.ceil(np.log2(m)),
    "paper": lambda m: np.ceil(np.log2(m - 1)) + 1,
    "code": lambda m: np.floor(np.log2(m - 1)) + 1,
}


@pytest.mark.rotated(3)
@pytest.mark.parametrize("hops", PERIODS)
@pytest.mark.parametrize("m", [2, 3, 8, 10])
def test_one_peer_goes_through_its_hops_in_turn(hops, m):
    net = nw.one_peer_exponential(m, hops=hops)
    period = net.graphs.senders.shape[0]
    assert period == PERIODS[hops](m)
    if m == 10:
        assert period == {"minimal": 4, "paper": 5, "code": 4}[hops]
    for t, W in enumerate(matrices(rounds(net, jax.random.split(KEY, period + 2)))):
        sent = np.roll(np.eye(m), 2 ** (t % period), axis=0)  # column i: one at i + 2^t (mod m)
        np.testing.assert_array_equal(W, (np.eye(m) + sent) / 2)
    nw.require(net, "M-1", doubly_stochastic=True, column_stochastic=True, connected=True)


@pytest.mark.parametrize("hops", PERIODS)
def test_one_peer_of_one_node_is_alone(hops):
    W = matrices(rounds(nw.one_peer_exponential(1, hops=hops), jax.random.split(KEY, 2)))
    np.testing.assert_array_equal(W, np.ones((2, 1, 1)))


@pytest.mark.parametrize("m", range(2, 40))
def test_the_hops_of_the_code_are_the_minimal_ones(m):
    assert PERIODS["code"](m) == PERIODS["minimal"](m) == (m - 1).bit_length()
    assert PERIODS["paper"](m) == (m - 2).bit_length() + 1


def test_names():
    assert nw.one_peer_exponential(4, hops="paper").name == "one-peer exponential(m=4, hops=paper)"
    assert nw.one_peer_exponential(4, hops="minimal").name == "one-peer exponential(m=4)"


def test_the_configuration_builds_them():
    assert NETWORKS("d-out", d=3).build(m=7).name == "3-out(m=7)"
    assert NETWORKS("one-peer-exponential", hops="paper").build(m=10).graphs.senders.shape[0] == 5
    assert NETWORKS("random-neighbours", degree=2, weights="out-degree").build(m=7).weights == "out-degree"
    drawn = NETWORKS("erdos-renyi", directed=True, weights="out-degree").build(m=7)
    nw.check_graph(drawn.graph, columns=True)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: nw.d_out(5, 6), r"d >= 1 and <= 5, got d = 6.*itself and at most m - 1 = 4 others"),
        (lambda: nw.d_out(5, 0), r"d >= 1.*got d = 0"),
        (lambda: nw.d_out(0, 1), r"m >= 1.*got m = 0"),
        (lambda: nw.one_peer_exponential(5, hops="all"), r"hops to be one of 'minimal', 'paper', 'code', got hops"),
        (lambda: nw.random_neighbours(5, 2, weights="metropolis"), r"weights to be one of 'uniform', 'out-degree'"),
        (lambda: nw.erdos_renyi(30, 0.02, directed=True, weights="out-degree", tries=5), r"none in tries = 5"),
        (lambda: nw.ring(5, directed=True, weights="laplacian"), r"'out-degree' or 'uniform' for a directed.*'lapl"),
    ],
    ids=["too many", "nobody", "no node", "hops", "neighbours", "parts", "laplacian"],
)
def test_bad_input_is_refused_in_words(call, message):
    with pytest.raises(ValueError, match=message):
        call()
