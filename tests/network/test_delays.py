"""Late messages: how old they are follows from how long they take, and runs agree with small loops over nodes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy

import jdfl
from jdfl import network as nw
from jdfl.base import streams
from tests.later import Later
from tests.network.examples import rows
from tests.toy import regression

M, BOUND, ROUNDS = 5, 3, 200
RING = Later(nw.ring, M)
ARCS = Later(nw.d_out, M, 2)
KEY = jax.random.key(4)


LATE = jax.jit(lambda net: jax.vmap(lambda k: net.at(k, KEY).late)(jnp.arange(ROUNDS)))


def lateness(net):
    """takes, age and come of the rounds [k, m, d]."""
    late = jax.device_get(LATE(net.replace(name="")))
    return late.takes, late.age, late.come


def test_a_message_takes_up_to_the_bound_and_the_newest_that_has_come_is_used():
    takes, age, come = lateness(in_its_run(nw.delays(RING(), BOUND, 0.6), 1))
    here = np.asarray(RING().graph.mask)
    for k in range(ROUNDS):
        for i, slot in np.argwhere(here):
            arrived = [t for t in range(max(0, k - BOUND), k + 1) if t + takes[t, i, slot] <= k]
            assert come[k, i, slot] == bool(arrived)
            assert age[k, i, slot] == (k - max(arrived) if arrived else 0)
    counts = np.bincount(takes[:, here].ravel(), minlength=BOUND + 1)
    assert counts.size == BOUND + 1
    assert scipy.stats.chisquare(counts, counts.sum() * np.array([0.4, 0.2, 0.2, 0.2])).pvalue > 1e-4


def in_its_run(net, seed=0):
    """The network as a run of that seed has it: with the key that `jdfl.run` gives it."""
    return nw.in_run(net, streams.Keys.of(jdfl.base.keys.typed_key(seed)).network, 0)


def test_mixing_takes_the_newest_rows():
    problem, net = regression(M, 4), nw.delays(RING(), BOUND, 0.5)
    result = jdfl.run(jdfl.DPSGD(lr=0.05), problem, net, steps=25)
    _, age, come = lateness(in_its_run(net))
    graph, x = RING().graph, np.asarray(problem.initial_params(), np.float64)
    senders, weight, history = np.asarray(graph.senders), np.asarray(graph.weight, np.float64), []
    gradients = jax.jit(problem.gradients)
    for k in range(25):
        history.append(x)
        g = np.asarray(gradients(jnp.asarray(x, jnp.float32)), np.float64)
        mixed = np.asarray(graph.self_weight, np.float64)[:, None] * x
        for i in range(M):
            for slot, j in enumerate(senders[i]):
                row = history[k - age[k, i, slot]][j] if come[k, i, slot] else x[i]
                mixed[i] += weight[i, slot] * row
        x = mixed - 0.05 * g
    np.testing.assert_allclose(result.params, x, rtol=0, atol=2e-5)


def test_push_sum_adds_up_everything_that_arrives_once():
    problem, net = jdfl.problems.averaging(rows(M)), nw.delays(ARCS(), BOUND, 0.5)
    result = jdfl.run(jdfl.AverageConsensus(), problem, net, steps=150, every=50)
    takes, _, _ = lateness(in_its_run(net))
    graph = ARCS().graph
    mask, senders, weight = (np.asarray(part) for part in (graph.mask, graph.senders, graph.weight))
    mass, flying = np.ones(M), []
    for k in range(150):
        for i, slot in np.argwhere(mask):
            flying.append((k + takes[k, i, slot], i, weight[i, slot] * mass[senders[i, slot]]))
        mass = np.asarray(graph.self_weight, np.float64) * mass
        for when, i, part in flying:
            mass[i] += part * (when == k)
        flying = [one for one in flying if one[0] > k]
        assert abs(mass.sum() + sum(part for _, _, part in flying) - M) < 1e-6
    np.testing.assert_allclose(result.state.state.sums.a, mass, rtol=0, atol=1e-5)
    assert result.history["consensus_error"].iloc[-1] < 1e-4


def test_push_sum_under_loss_and_delays_keeps_its_mass():
    problem = jdfl.problems.averaging(rows(M))
    net = nw.link_loss(nw.delays(ARCS(), BOUND, 0.5), 0.3, directed=True, weights="sender")
    result = jdfl.run(jdfl.AverageConsensus(), problem, net, steps=200, every=50)
    held = np.asarray(result.state.state.sums.a, np.float64).sum()
    under_way = np.asarray(result.state.mail["shared"].rows, np.float64)[:, :, -1].sum()
    assert abs(held + under_way - M) < 1e-5
    assert under_way > 0
    assert result.history["consensus_error"].iloc[-1] < 1e-6


@pytest.mark.rotated(3)
@pytest.mark.parametrize("kind", ["CEPS", "D-PSGD", "SGP"])
def test_where_nothing_is_late_nothing_changes(kind):
    method = {
        "CEPS": jdfl.CEPS(s=2, codec=jdfl.OneBit(d=20), periods=(1, 2), rate=0.7),
        "D-PSGD": jdfl.DPSGD(lr=0.05, codec=jdfl.Sparse(share=1.0)),
        "SGP": jdfl.SGP(lr=0.05),
    }[kind]
    problem, base = regression(M, 6), nw.circulant(M, [1, 2])
    plain, never = (jdfl.run(method, problem, net, steps=12) for net in (base, nw.delays(base, 2, 1e-9)))
    np.testing.assert_allclose(never.params, plain.params, rtol=1e-5, atol=1e-6)
    assert never.totals == plain.totals
