"""Synchronised networks: the exact mean of all in every so many rounds, and the wrapped network between them."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jdfl
from jdfl import network as nw
from jdfl.algorithms.round import MODEL, RoundContext
from tests.algorithms.play import direct
from tests.later import Later, Named
from tests.network.examples import graph_of_round, matrices, mix, rounds, rows, same

M, EVERY = 6, 3
KEY = jax.random.key(9)
KEYS = Later(jax.random.split, KEY, 7)
BASES = Named(
    {
        "ring": lambda: nw.ring(M),
        "dense": lambda: nw.complete(M, format="dense"),
        "buckets": lambda: nw.star(M, format="buckets"),
        "push-sum": lambda: nw.erdos_renyi(M, directed=True, weights="out-degree", format="padded"),
        "turns": lambda: nw.one_peer_exponential(M),
        "links": lambda: nw.random_links(nw.torus(M), 0.5),
        "loss": lambda: nw.link_loss(nw.torus(M), 0.4),
        "participation": lambda: nw.node_participation(nw.torus(M), count=3),
    }
)


def sync(net, every=EVERY):
    return nw.synchronised(net, every)


@pytest.mark.rotated(3)
@pytest.mark.parametrize("name", BASES)
def test_all_meet_in_some_rounds_and_the_others_are_as_they_were(name):
    base, x = BASES[name], rows(M)
    net = sync(base)
    stacked, before = rounds(net, KEYS()), rounds(base, KEYS())
    W, found = matrices(stacked), np.asarray(jax.jit(jax.vmap(nw.mix, (0, None)))(stacked, x))  # at once
    np.testing.assert_array_equal(stacked.synchronised, [(k + 1) % EVERY == 0 for k in range(7)])
    for k in range(7):
        graph = graph_of_round(stacked, k)
        nw.check_graph(graph, columns=name == "push-sum")
        np.testing.assert_allclose(found[k], W[k] @ x, rtol=0, atol=1e-6)
        np.testing.assert_array_equal(nw.to_scipy(graph).toarray(), W[k])
        if k in (2, 5):
            np.testing.assert_array_equal(W[k], np.full((M, M), np.float32(1 / M)))
            np.testing.assert_array_equal(found[k], found[k, :1].repeat(M, axis=0))
            np.testing.assert_allclose(found[k, 0], x.mean(axis=0, dtype=float), rtol=0, atol=1e-7)
            assert (np.asarray(graph.in_degree) == M - 1).all()
            assert (np.asarray(graph.out_degree) == M - 1).all()
        else:
            assert same(replace(graph, synchronised=None), graph_of_round(before, k))
    assert net.largest_out_degree == M - 1


def test_a_summary_of_a_synchronised_round_is_that_of_the_complete_network():
    alone = graph_of_round(rounds(sync(nw.ring(1), 2), KEYS()), 1)
    nw.check_graph(alone)
    np.testing.assert_array_equal(mix(alone, rows(1)), rows(1))
    told = nw.summary(graph_of_round(rounds(sync(nw.ring(M)), KEYS()), 2))
    assert (told.edges, told.diameter, told.stochastic, told.padding_ratio) == (M * (M - 1) // 2, 1, "doubly", 0)
    assert told.spectral_gap == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("codec", [jdfl.Dense("float16"), jdfl.Sparse(share=0.5)], ids=["float16", "sparse"])
def test_a_lossy_message_does_not_touch_the_own_row(codec):
    net, x, n = rounds(sync(nw.ring(M)), KEYS()), jnp.asarray(rows(M, 8)), 8
    node = jnp.arange(M, dtype=jnp.int32)
    wire = codec.prepare(KEY, node, n, n, "float32")
    for k in (1, 2):
        round = direct(RoundContext(jnp.int32(k), KEY, graph_of_round(net, k), node), None, wire=wire)
        z = np.asarray(round._received(x, jnp.ones(M, jnp.bool_), MODEL, 0), float)
        W = np.asarray(nw.as_dense(round.graph), float)
        expected = W @ z + np.diag(W)[:, None] * (np.asarray(x, float) - z)
        np.testing.assert_allclose(round.mix(x), expected, rtol=0, atol=1e-6)
