"""Laws of mixing, also by buckets of rows, and of neighbour sampling, on any connected network."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jdfl import network as nw
from jdfl.network import sums
from tests.later import Named
from tests.network.examples import FORMATS, SYMMETRIC, WIDTH, graphs, mix, rows, same, sample

seeds = st.integers(0, 2**31 - 1)
DENSE = jax.jit(nw.as_dense)


@pytest.mark.parametrize("form", FORMATS)
@settings(max_examples=10)
@given(graph=graphs(), seed=seeds)
def test_every_format_multiplies_by_the_matrix(form, graph, seed):
    """Padded or not, nodes in any order; rows that agree stay as they are."""
    x, W = rows(graph.m, seed=seed), nw.to_scipy(graph)
    order = np.random.default_rng(seed).permutation(graph.m)
    moved, graph = replace(nw.relabel(graph, order), format=form), replace(graph, format=form)
    wide = nw.pad(graph, WIDTH + 3)
    found = mix(graph, x)
    np.testing.assert_allclose(found, W @ x, rtol=0, atol=1e-6)
    np.testing.assert_array_equal(mix(wide, x), found)
    np.testing.assert_allclose(mix(moved, x[order]), found[order], rtol=0, atol=0 if form == "padded" else 1e-6)
    same_rows = np.full_like(x, 100 * x[0, 0])
    np.testing.assert_allclose(mix(graph, same_rows), same_rows, rtol=1e-6, atol=1e-30)
    for one in (moved, wide):
        nw.check_graph(one)
    assert same(nw.relabel(moved, np.argsort(order)), graph)
    np.testing.assert_array_equal(DENSE(graph), W.toarray().astype(np.float32))


@settings(max_examples=15)
@given(graph=graphs(weights=SYMMETRIC, directed=False), seed=seeds)
def test_symmetric_weights_are_doubly_stochastic_and_keep_the_mean(graph, seed):
    W = nw.to_scipy(graph).toarray()
    np.testing.assert_array_equal(W, W.T)
    np.testing.assert_allclose(W.sum(axis=0), 1, rtol=0, atol=2e-7)
    assert (W >= 0).all()
    assert (W.diagonal() > 0).all()
    x = rows(graph.m, seed=seed)
    np.testing.assert_allclose(mix(graph, x).mean(axis=0), x.mean(axis=0), rtol=0, atol=1e-6)


@settings(max_examples=15)
@given(graph=graphs(), seed=seeds, data=st.data())
def test_a_sample_has_exact_counts_of_neighbours_and_follows_the_node_id(graph, seed, data):
    """Neither its place nor the padding of the table matters; each row may be drawn alone, or some of them."""
    count = np.array(data.draw(st.lists(st.integers(0, WIDTH + 2), min_size=graph.m, max_size=graph.m)), np.int32)
    key, node = jax.random.key(seed), np.arange(graph.m, dtype=np.int32)
    chosen = np.asarray(sample(key, graph, node, count))
    np.testing.assert_array_equal(chosen.sum(axis=1), np.minimum(count, graph.in_degree))
    assert not (chosen & ~np.asarray(graph.mask)).any()
    wide = sample(key, nw.pad(graph, WIDTH + 3), node, count)
    np.testing.assert_array_equal(wide, np.pad(chosen, ((0, 0), (0, 3))))
    order = np.random.default_rng(seed).permutation(graph.m).astype(np.int32)
    np.testing.assert_array_equal(sample(key, nw.relabel(graph, order), order, count[order]), chosen[order])
    last = jax.tree.map(lambda part: np.asarray(part)[-1:], graph)  # as on a device that holds a part
    np.testing.assert_array_equal(sample(key, last, node[-1:], count[-1:]), chosen[-1:])
    wanted = np.random.default_rng(seed).random(graph.m) < 0.5
    np.testing.assert_array_equal(sample(key, graph, node, count, wanted), chosen & wanted[:, None])


def test_mixing_takes_host_arrays_and_keeps_the_dtype_of_the_rows():
    x, graph = rows(5).astype(np.float64), jax.device_get(nw.ring(5, format="padded").graph)
    np.testing.assert_allclose(nw.mix(graph, x), nw.to_scipy(graph) @ x, rtol=0, atol=1e-6)
    for form in FORMATS:
        assert mix(nw.ring(5, format=form).graph, rows(5).astype(jnp.bfloat16)).dtype == jnp.bfloat16


BUCKETED = Named(
    {
        "one": lambda: nw.ring(1),
        "star": lambda: nw.star(12),
        "hubs": lambda: nw.barabasi_albert(40, 2),
        "alone": lambda: nw.from_edges([(0, 1), (1, 2), (1, 3)], 6, connected=False),
    }
)


@pytest.mark.parametrize("name", BUCKETED)
def test_buckets_multiply_by_the_matrix(name):
    """And so they do after nodes are relabelled, or the table is padded, in half as many slots more than links."""
    graph = nw.bucketed(BUCKETED[name].graph)
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


def test_widths_are_few_and_close_to_the_degree_and_buckets_are_built_where_they_pay():
    degree = np.arange(1, 100_001)
    width = sums.bucket_widths(degree, 90_000)
    assert (width[:90_000] >= degree[:90_000]).all()
    assert (width < 1.5 * degree).all()
    few = {f * 2**k for f in (1, 3) for k in range(20)}
    assert set(width.tolist()) == {size for size in few if size < 90_000} | {90_000}
    assert sums.bucket_widths(np.array([0]), 3) == [1]
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
