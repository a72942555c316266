"""Buckets of rows mix as the table does, wherever the rows go, and cost about the number of links."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jdfl import network as nw
from jdfl.network import sums
from tests.later import Later, Named
from tests.network.examples import mix, rows, same

NETWORKS = Named(
    {
        "one": lambda: nw.ring(1),
        "star": lambda: nw.star(12),
        "hubs": lambda: nw.barabasi_albert(40, 2),
        "directed": lambda: nw.k_in(12, 3, connected=False),
        "alone": lambda: nw.from_edges([(0, 1), (1, 2), (1, 3)], 6, connected=False),
        "uneven": lambda: nw.erdos_renyi(12, 0.3, connected=False, seed=4, weights="uniform"),
    }
)
BUCKETED = [Later(lambda net: nw.bucketed(net().graph), net) for net in NETWORKS.data.values()]
graphs = pytest.mark.parametrize("graph", BUCKETED, ids=list(NETWORKS))


@graphs
def test_buckets_multiply_by_the_matrix(graph):
    nw.check_graph(graph)
    assert graph.format == "buckets"
    x = rows(graph.m)
    np.testing.assert_allclose(mix(graph, x), nw.to_scipy(graph) @ x, rtol=0, atol=1e-6)
    np.testing.assert_allclose(mix(graph, np.ones_like(x)), 1, rtol=0, atol=1e-6)


@graphs
def test_buckets_are_moved_by_relabelling(graph):
    order = np.random.default_rng(1).permutation(graph.m)
    moved = nw.relabel(graph, order)
    nw.check_graph(moved)
    x = rows(graph.m)
    np.testing.assert_allclose(mix(moved, x[order]), mix(graph, x)[order], rtol=0, atol=1e-6)
    assert same(nw.relabel(moved, np.argsort(order)), graph)


@graphs
def test_padding_the_table_does_not_touch_the_buckets(graph):
    wide = nw.pad(graph, graph.senders.shape[1] + 3)
    nw.check_graph(wide)
    np.testing.assert_array_equal(mix(wide, rows(graph.m)), mix(graph, rows(graph.m)))


@graphs
def test_buckets_go_through_half_as_many_slots_more_than_links_at_most(graph):
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


def test_masked_neighbours_are_not_heard():
    graph = nw.bucketed(nw.barabasi_albert(40, 2).graph)
    keep = np.random.default_rng(0).random(graph.mask.shape) < 0.5  # neighbours that stay
    fewer = replace(graph, mask=graph.mask & keep, weight=jnp.where(keep, graph.weight, 0))
    x = rows(graph.m)
    W = np.asarray(nw.as_dense(replace(fewer, format="padded")))
    np.testing.assert_allclose(mix(fewer, x), W @ x, rtol=0, atol=1e-6)


def test_from_edges_builds_buckets_on_request_and_where_they_pay():
    asked = nw.ring(5, format="buckets").graph
    nw.check_graph(asked)
    assert same(asked, nw.bucketed(nw.ring(5, format="padded").graph))
    hub = nw.barabasi_albert(300, 2).graph
    assert hub.format == "buckets"
    assert same(hub, nw.bucketed(replace(hub, format="padded", buckets=None)))
    assert nw.erdos_renyi(300, 0.05).graph.format == "padded"


@pytest.mark.parametrize("form", ["padded", "buckets"])
def test_mixing_over_a_hub_needs_memory_for_rows_only(form):
    m, n = 400, 64
    graph = nw.star(m, format=form).graph
    needed = jax.jit(nw.mix).lower(graph, jnp.zeros((m, n), jnp.float32)).compile().memory_analysis()
    assert needed.temp_size_in_bytes < 8 * (graph.senders.nbytes + 4 * m * n)  # an array [m, d, n] has 41 MB


def test_the_summary_tells_what_buckets_save():
    assert str(nw.summary(nw.star(200))).splitlines()[-2:] == [
        "  format     buckets, 99.0% of the table is padding",
        "             mixing reads 398 slots",
    ]


star = Later(lambda: nw.star(6, format="buckets").graph)


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        (
            Later(lambda: replace(star(), buckets=None)),
            r"buckets in a graph with format = 'buckets', got buckets = None.*bucketed",
        ),
        (
            Later(lambda: replace(star(), buckets=replace(star().buckets, rows=star().buckets.rows[::-1]))),
            r"every row from 0 to 5 once, in place, in buckets\.rows.*bucketed",
        ),
        (Later(lambda: replace(star(), buckets=replace(star().buckets, rows=()))), r"every row from 0 to 5 once"),
        (
            Later(lambda: replace(star(), buckets=replace(star().buckets, widths=(1, 4)))),
            r"at least 5 slots for row 0, got width 4 \(1 such rows\).*bucketed",
        ),
    ],
    ids=["none", "order", "missing", "narrow"],
)
def test_check_graph_finds_bad_buckets(graph, message):
    nw.check_graph(star())
    with pytest.raises(ValueError, match=message):
        nw.check_graph(graph)


def test_mixing_without_buckets_is_refused():
    with pytest.raises(ValueError, match=r"format = 'buckets', got buckets = None.*bucketed"):
        nw.mix(replace(star(), buckets=None), rows(6))
