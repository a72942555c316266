"""Buckets of rows mix as the table does, wherever the rows go, and cost about the number of links."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jdfl import network as nw
from jdfl.network import sums
from tests.later import Named
from tests.network.examples import mix, rows, same

NETWORKS = Named(
    {
        "one": lambda: nw.ring(1),
        "star": lambda: nw.star(12),
        "hubs": lambda: nw.barabasi_albert(40, 2),
        "alone": lambda: nw.from_edges([(0, 1), (1, 2), (1, 3)], 6, connected=False),
    }
)


@pytest.mark.parametrize("name", NETWORKS)
def test_buckets_multiply_by_the_matrix(name):
    """And so they do after nodes are relabelled, or the table is padded, in half as many slots more than links."""
    graph = nw.bucketed(NETWORKS[name].graph)
    x, order = rows(graph.m), np.random.default_rng(1).permutation(graph.m)
    moved, wide = nw.relabel(graph, order), nw.pad(graph, graph.senders.shape[1] + 3)
    for one in (graph, moved, wide):
        nw.check_graph(one)
        assert one.format == "buckets"
    found = mix(graph, x)
    np.testing.assert_allclose(found, nw.to_scipy(graph) @ x, rtol=0, atol=1e-6)
    np.testing.assert_allclose(mix(moved, x[order]), found[order], rtol=0, atol=1e-6)
    assert same(nw.relabel(moved, np.argsort(order)), graph)
    np.testing.assert_array_equal(mix(wide, x), found)
    links = np.maximum(np.asarray(graph.in_degree), 1).sum()
    assert links <= graph.buckets.slots < 1.5 * links
    assert nw.summary(graph).mix_slots == graph.buckets.slots


def test_widths_are_few_and_close_to_the_degree():
    degree = np.arange(1, 100_001)
    width = sums.bucket_widths(degree, 90_000)
    assert (width[:90_000] >= degree[:90_000]).all()
    assert (width < 1.5 * degree).all()
    few = {f * 2**k for f in (1, 3) for k in range(20)}
    assert set(width.tolist()) == {size for size in few if size < 90_000} | {90_000}
    assert sums.bucket_widths(np.array([0]), 3) == [1]


def test_buckets_are_built_on_request_and_where_they_pay():
    asked, hub = nw.ring(5, format="buckets").graph, nw.barabasi_albert(300, 2).graph
    nw.check_graph(asked)
    assert same(asked, nw.bucketed(nw.ring(5, format="padded").graph))
    assert same(hub, nw.bucketed(replace(hub, format="padded", buckets=None)))
    assert nw.erdos_renyi(300, 0.05).graph.format == "padded"


@pytest.mark.parametrize("form", ["padded", "buckets"])
def test_mixing_over_a_hub_needs_memory_for_rows_only(form):
    m, n = 400, 64
    graph = nw.star(m, format=form).graph
    needed = jax.jit(nw.mix).lower(graph, jnp.zeros((m, n), jnp.float32)).compile().memory_analysis()
    assert needed.temp_size_in_bytes < 8 * (graph.senders.nbytes + 4 * m * n)  # an array [m, d, n] has 41 MB
