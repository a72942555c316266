"""Laws of mixing and of neighbour sampling, on any connected network."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy
from hypothesis import given
from hypothesis import strategies as st

from jdfl import network as nw
from tests.network.examples import FORMATS, SIZES, SYMMETRIC, WIDTH, graphs, mix, rows, same, sample

seeds = st.integers(0, 2**31 - 1)


@pytest.mark.parametrize("form", FORMATS)
@given(graph=graphs(), seed=seeds)
def test_every_format_multiplies_by_the_matrix(form, graph, seed):
    x = rows(graph.m, seed=seed)
    np.testing.assert_allclose(mix(replace(graph, format=form), x), nw.to_scipy(graph) @ x, rtol=0, atol=1e-6)


@given(graph=graphs())
def test_the_dense_and_bcoo_matrices_are_the_scipy_one(graph):
    W = nw.to_scipy(graph).toarray()
    np.testing.assert_array_equal(nw.as_dense(graph), W.astype(np.float32))
    np.testing.assert_array_equal(nw.as_bcoo(graph).todense(), W.astype(np.float32))


@given(graph=graphs(weights=SYMMETRIC, directed=False), seed=seeds)
def test_symmetric_weights_are_doubly_stochastic_and_keep_the_mean(graph, seed):
    W = nw.to_scipy(graph).toarray()
    np.testing.assert_array_equal(W, W.T)
    np.testing.assert_allclose(W.sum(axis=0), 1, rtol=0, atol=2e-7)
    assert (W >= 0).all()
    assert (W.diagonal() > 0).all()
    x = rows(graph.m, seed=seed)
    np.testing.assert_allclose(mix(graph, x).mean(axis=0), x.mean(axis=0), rtol=0, atol=1e-6)


@pytest.mark.parametrize("form", FORMATS)
@given(graph=graphs(), value=st.floats(-100, 100, width=32, allow_subnormal=False))
def test_agreement_is_a_fixed_point(form, graph, value):
    x = np.full((graph.m, 3), value, np.float32)
    np.testing.assert_allclose(mix(replace(graph, format=form), x), x, rtol=1e-6, atol=1e-30)


@pytest.mark.parametrize("form", FORMATS)
@given(graph=graphs(), seed=seeds)
def test_mixing_commutes_with_relabelling(form, graph, seed):
    order = np.random.default_rng(seed).permutation(graph.m)
    moved = nw.relabel(graph, order)
    nw.check_graph(moved)
    x = rows(graph.m, seed=seed)
    ours, theirs = mix(replace(moved, format=form), x[order]), mix(replace(graph, format=form), x)[order]
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=0 if form == "padded" else 1e-6)


@given(graph=graphs(), seed=seeds)
def test_relabelling_back_restores_the_graph(graph, seed):
    order = np.random.default_rng(seed).permutation(graph.m)
    assert same(nw.relabel(nw.relabel(graph, order), np.argsort(order)), graph)


@pytest.mark.parametrize("form", FORMATS)
@given(graph=graphs(), seed=seeds)
def test_padding_does_not_change_mixing(form, graph, seed):
    graph = replace(graph, format=form)
    wide = nw.pad(graph, WIDTH + 3)
    nw.check_graph(wide)
    assert wide.senders.shape == (graph.m, WIDTH + 3)
    x = rows(graph.m, seed=seed)
    np.testing.assert_array_equal(mix(wide, x), mix(graph, x))


@given(graph=graphs(), seed=seeds)
def test_padding_does_not_change_the_sample(graph, seed):
    key, node = jax.random.key(seed), jnp.arange(graph.m)
    count = jnp.full(graph.m, 2, jnp.int32)
    narrow, wide = sample(key, graph, node, count), sample(key, nw.pad(graph, WIDTH + 3), node, count)
    np.testing.assert_array_equal(wide[:, :WIDTH], narrow)
    assert not wide[:, WIDTH:].any()


@given(graph=graphs(), seed=seeds, data=st.data())
def test_a_sample_has_exact_counts_and_only_neighbours(graph, seed, data):
    count = np.array(data.draw(st.lists(st.integers(0, WIDTH + 2), min_size=graph.m, max_size=graph.m)), np.int32)
    chosen = sample(jax.random.key(seed), graph, jnp.arange(graph.m), count)
    np.testing.assert_array_equal(chosen.sum(axis=1), np.minimum(count, graph.in_degree))
    assert not (chosen & ~graph.mask).any()
    receiver, slot = np.nonzero(np.asarray(chosen))
    assert (np.asarray(graph.senders)[receiver, slot] != receiver).all()


@given(graph=graphs(), seed=seeds)
def test_a_sample_follows_the_node_id_and_not_its_place(graph, seed):
    key, node = jax.random.key(seed), np.arange(graph.m, dtype=np.int32)
    order = np.random.default_rng(seed).permutation(graph.m).astype(np.int32)
    count = np.full(graph.m, 2, np.int32)
    chosen = np.asarray(sample(key, graph, node, count))
    np.testing.assert_array_equal(sample(key, nw.relabel(graph, order), order, count), chosen[order])
    last = jax.tree.map(lambda part: part[-1:], graph)  # one row alone, as on a device that holds a part
    np.testing.assert_array_equal(sample(key, last, node[-1:], count[-1:]), chosen[-1:])


def _draws(repeats):
    """Which 2 of their 5 neighbours the nodes 0 and 1 of a complete network chose: [repeats, 2] codes of subsets."""
    graph = nw.complete(6).graph
    node, count = jnp.arange(6), jnp.full(6, 2, jnp.int32)
    keys = jax.random.split(jax.random.key(7), repeats)
    chosen = jax.jit(jax.vmap(lambda key: nw.sample_neighbours(key, graph, node, count)))(keys)
    return np.asarray(chosen[:, :2]) @ (1 << np.arange(5))


def test_every_subset_of_neighbours_is_equally_likely():
    codes = _draws(4000)
    for node in (0, 1):
        subsets, found = np.unique(codes[:, node], return_counts=True)
        assert subsets.size == 10
        assert scipy.stats.chisquare(found).pvalue > 1e-3


def test_nodes_choose_independently():
    codes = _draws(4000)
    agree = int((codes[:, 0] == codes[:, 1]).sum())
    assert scipy.stats.binomtest(agree, 4000, 0.1).pvalue > 1e-3


@pytest.mark.parametrize("m", SIZES)
def test_gather_sum_of_some_rows(m):
    graph = nw.complete(m, format="padded").graph
    x = rows(m)
    some = slice(m // 2, m)
    expected = (nw.to_scipy(graph).toarray() - np.diag(graph.self_weight))[some] @ x
    np.testing.assert_allclose(nw.gather_sum(graph.senders[some], graph.weight[some], x), expected, atol=1e-6)


def test_mixing_takes_host_arrays():
    x = rows(5).astype(np.float64)
    graph = jax.device_get(nw.ring(5, format="padded").graph)
    np.testing.assert_allclose(nw.mix(graph, x), nw.to_scipy(graph) @ x, rtol=0, atol=1e-6)


def test_mixing_keeps_the_dtype_of_the_rows():
    for form in FORMATS:
        assert mix(nw.ring(5, format=form).graph, rows(5).astype(jnp.bfloat16)).dtype == jnp.bfloat16


def test_mixing_refuses_whole_numbers():
    with pytest.raises(ValueError, match=r"floating-point rows x, got dtype int32.*astype"):
        nw.mix(nw.ring(5).graph, jnp.arange(5)[:, None])


def test_a_static_network_gives_its_graph_in_every_round():
    net = nw.ring(5)
    assert net.m == 5
    for k in (0, 9):
        assert same(net.at(jnp.int32(k), jax.random.key(k)), net.graph)


@given(st.lists(st.booleans(), min_size=12, max_size=12))
def test_sampling_for_some_nodes_is_sampling_for_all_and_nobody_else(wanted):
    graph, node = nw.circulant(12, [1, 2, 5]).graph, jnp.arange(12, dtype=jnp.int32)
    count, key = jnp.arange(12, dtype=jnp.int32) % 5, jax.random.key(2)
    some = sample(key, graph, node, count, jnp.asarray(wanted))
    everyone = sample(key, graph, node, count)
    np.testing.assert_array_equal(some, np.asarray(everyone) & np.asarray(wanted)[:, None])
