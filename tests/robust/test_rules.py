"""The laws of robust rules: loops in NumPy, bounded influence, rows that are not finite, memory."""

from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jdfl
from jdfl import robust
from jdfl.robust.order import exchanges
from tests.field.row import EDGES, weighted
from tests.later import Later
from tests.refused import refused
from tests.robust.loops import combined

RULES = [
    robust.CoordinateMedian(),
    robust.TrimmedMean(b=1),
    robust.TrimmedMean(b=2),
    robust.Krum(b=1),
    robust.MultiKrum(b=1),
    robust.MultiKrum(b=1, average=2),
    robust.GeometricMedian(tolerance=1e-12, iterations=100_000),
    robust.ClippedGossip(b=1),
    robust.ClippedGossip(b=1, reach="at-least"),
    robust.ClippedGossip(tau=1.5),
    robust.NNA(b=1),
    robust.CSPlus(b=1),
    robust.UBAR(),
    robust.UBAR(rho=1.0, fallback="nearest"),
    robust.BALANCE(gamma=1.2, horizon=10),
    robust.Weighted(),
]
ROBUST = RULES[:-1]
named = partial(pytest.mark.parametrize, "rule", ids=lambda rule: f"{rule.kind}-{rule.b}-{getattr(rule, 'tau', None)}")
W, FULL = weighted(), np.full((6, 6), 1 / 6)  # six nodes with two to four in-neighbours, or with five
UNEQUAL = Later(
    lambda: jdfl.network.to_scipy(jdfl.network.from_edges(EDGES, 6, weights="metropolis")).toarray().astype(float)
)
TARGET = np.random.default_rng(4).standard_normal((6, 8))


def losses(rows):
    return jnp.sum((rows - jnp.asarray(TARGET[:, : rows.shape[1]])) ** 2, axis=1)


def loss(i, row):
    return float(((row - TARGET[i, : len(row)]) ** 2).sum())


def drawn(seed=0, n=5):
    return np.random.default_rng(seed).standard_normal((6, n))


@partial(jax.jit, static_argnames=("rule",))
def _ruled(rule, graph, x, sent, aimed, k):
    return rule(graph, x, sent, aimed=aimed, k=k, losses=losses if x.shape[1] in (5, 8) else None)


@cache
def graph(W: bytes, m: int):
    """That of W [m, m], whose table is as wide as that of a complete network, so that all have one shape."""
    return jdfl.network.pad(jdfl.network.from_matrix(np.frombuffer(W).reshape(m, m)).graph, m - 1)


def ruled(rule, x, sent=None, *, aimed=None, k=0, W=W):
    here = graph(W.tobytes(), len(W))
    with jax.enable_x64(True):
        if aimed is not None:
            aimed = robust.Aimed(jnp.asarray(aimed[0]), jnp.asarray(aimed[1]))
        sent = jnp.asarray(x if sent is None else sent)
        return np.asarray(_ruled(rule, here, jnp.asarray(x), sent, aimed, k))


@named(RULES)
def test_a_rule_is_the_loop_of_its_paper(rule):
    for seed in range(5):
        x, sent = drawn(seed), drawn(seed + 10)
        np.testing.assert_allclose(ruled(rule, x, k=seed), combined(rule, W, x, k=seed, loss=loss), atol=1e-9)
        other = combined(rule, UNEQUAL(), x, k=seed, loss=loss)
        np.testing.assert_allclose(ruled(rule, x, k=seed, W=UNEQUAL()), other, atol=1e-6)  # weights are float32
        theirs = combined(rule, W, x, sent=sent, k=seed, loss=loss)
        np.testing.assert_allclose(ruled(rule, x, sent, k=seed), theirs, atol=1e-9)


@named(RULES)
def test_rows_for_single_nodes_are_received_from_every_attacker(rule):
    x, thrown, liars = drawn(1, 8), drawn(2, 8), np.arange(6) % 3 == 0  # Krum takes other distances of longer rows
    theirs = combined(rule, W, x, loss=loss, received=lambda i, j: thrown[i] if liars[j] else x[j])
    np.testing.assert_allclose(ruled(rule, x, aimed=(liars, thrown)), theirs, atol=1e-9)


@named(ROBUST)
def test_rows_that_are_not_finite_are_left_out(rule):
    for bad in (np.nan, np.inf, -np.inf):
        x = drawn(3)
        sent = x.copy()
        sent[2, 1] = bad
        found = ruled(rule, x, sent)
        assert np.isfinite(found).all()
        np.testing.assert_allclose(found, combined(rule, W, x, sent=sent, loss=loss), atol=1e-9)


@named(ROBUST)
def test_one_arbitrary_row_moves_nobody_far_and_agreeing_nodes_stay(rule):
    """Complete network of six: at most one attacker at every node, for which all rules here are made."""
    x = drawn(5)
    for size in (1e3, 1e30):
        sent = x.copy()
        sent[4] = size * np.random.default_rng(1).standard_normal(5)
        found = np.delete(ruled(rule, x, sent, W=FULL), 4, axis=0)
        assert np.abs(found).max() < 6 * np.abs(np.delete(x, 4, axis=0)).max()
    same = np.broadcast_to(drawn(0)[0], (6, 5))
    np.testing.assert_allclose(ruled(rule, same), same, atol=1e-9)
    for seed in range(10):  # the published bias is of the order of how far the nodes are apart
        x = drawn(seed)
        spread, far = (((one - x.mean(axis=0)) ** 2).sum(axis=1) for one in (x, ruled(rule, x, W=FULL)))
        assert far.max() <= max(spread.max(), 4 * spread.mean()) + 1e-9


def test_with_no_attacker_assumed_it_is_the_mean():
    x = drawn(2)
    found = ruled(robust.ClippedGossip(b=0), x, W=FULL)
    np.testing.assert_allclose(found, np.broadcast_to(x.mean(axis=0), x.shape), atol=1e-6)


def test_few_neighbours_are_sorted_by_exchanges_and_many_otherwise():
    """By the 0-1 principle for small sizes, and random numbers for the others."""
    for size in (*range(1, 11), 16, 19, 33):
        zeros_and_ones = np.array([[(i >> j) & 1 for j in range(size)] for i in range(2 ** min(size, 10))])
        rows = zeros_and_ones if size < 11 else np.random.default_rng(size).standard_normal((200, size))
        found = rows.copy()
        for i, j in exchanges(size):
            found[:, [i, j]] = np.sort(found[:, [i, j]], axis=1)
        np.testing.assert_array_equal(found, np.sort(rows, axis=1))
    x = np.random.default_rng(0).standard_normal((80, 3))
    full = np.full((80, 80), 1 / 80)
    for rule in (robust.TrimmedMean(b=5), robust.CSPlus(b=5)):
        np.testing.assert_allclose(ruled(rule, x, W=full), combined(rule, full, x), atol=1e-6)


@named([robust.TrimmedMean(b=1), robust.GeometricMedian(), robust.CSPlus(b=1)])
def test_no_rule_forms_all_received_rows_at_once(rule):
    """By the compiler's count: state in, state out, and at most three states in between."""
    m, n = 2048, 2000
    network = jdfl.network.k_regular(m, 16)
    x = jax.ShapeDtypeStruct((m, n), jnp.float32)
    made = jax.jit(lambda graph, x: rule(graph, x)).lower(network.graph, x).compile().memory_analysis()
    assert made.temp_size_in_bytes <= 3 * 4 * m * n


def test_what_a_rule_lacks_is_refused():
    ring = jdfl.network.ring(6)
    met = jdfl.network.synchronised(ring, every=2)
    problem = jdfl.problems.example1(m=6, n=6, s=2, rows=(5, 9))
    with refused("synchronised"):
        robust.CSPlus()(met.at(jnp.int32(0), jax.random.key(0)), jnp.zeros((6, 2)))
    with refused("losses"):
        robust.UBAR()(ring.graph, jnp.zeros((6, 2)))
    for named, method, network in (
        ("synchronised", jdfl.RobustDSGD(), met),
        ("b >= 0", jdfl.RobustDSGD(rule=robust.CSPlus(b=-1)), ring),
        ("push-sum", jdfl.combined_by(jdfl.SGP(), robust.CSPlus(b=0)), ring),
        ("delays", jdfl.RobustDSGD(), jdfl.network.delays(ring, 2)),
    ):
        with refused(named):
            jdfl.run(method, problem, network, steps=1)


def test_the_geometric_median_is_as_near_as_its_tolerance():
    """Of rows in float32 at every size, with one far away, relative to the rows' median distance."""
    rule = robust.GeometricMedian()
    for seed in range(12):
        x = 1e6 ** (seed % 3 - 1) * drawn(seed, 20).astype(np.float32)
        x[0] *= 1 if seed % 2 else 1000
        found = np.asarray(_ruled(rule, graph(FULL.tobytes(), 6), jnp.asarray(x), None, None, 0))
        best = combined(rule, FULL, x.astype(np.float64))[0]
        far = np.sort(np.sqrt(((x - np.median(x, axis=0)) ** 2).sum(axis=1)))[3]
        assert np.sqrt(((found - best) ** 2).sum(axis=1)).max() <= 1.5e-4 * far
