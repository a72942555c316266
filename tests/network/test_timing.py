"""Simulated time: distributions, who is first to respond, and clocks as a small loop over nodes has them."""

from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy

import jdfl
from jdfl import network as nw
from jdfl.base import streams
from jdfl.network.timing import added
from tests.later import Later, Named
from tests.refused import refused
from tests.toy import regression

M = 6
KEY = jax.random.key(5)
COMPLETE = Later(nw.complete, M)
RING = Later(nw.ring, M)
MEASURED = np.random.default_rng(3).uniform(0.5, 2.0, (M, 5))
TRACE = Later(nw.time_trace, MEASURED)
TIMES = Named(
    {
        "exponential": lambda: (nw.ExponentialTime(2.0), scipy.stats.expon(scale=2.0)),
        "log-normal": lambda: (nw.LogNormalTime(2.0, 0.5), scipy.stats.lognorm(0.5, scale=2.0)),
        "pareto": lambda: (nw.ParetoTime(2.0, 1.5), scipy.stats.pareto(1.5, scale=2.0)),
    }
)


@pytest.mark.parametrize("name", TIMES)
def test_times_are_distributed_as_they_say(name):
    times, law = TIMES[name]
    drawn = jax.vmap(times.draw)(jax.random.split(KEY, 4000))
    assert scipy.stats.kstest(np.asarray(drawn), law.cdf).pvalue > 1e-4


def test_a_node_takes_the_times_of_its_trace_one_after_another():
    slow = [1.0, 2.0, 1.0, 1.0, 0.5, 1.0]
    for cycle, rounds in ((False, range(5)), (True, range(12))):
        net = nw.in_run(nw.timed(RING(), nw.time_trace(MEASURED, cycle=cycle), slowness=slow), KEY, 0)
        for k in rounds:
            compute = net.at(jnp.int32(k), jax.random.key(k)).timing.compute
            np.testing.assert_array_equal(compute, np.float32(MEASURED[:, k % 5]) * np.float32(slow))


def test_a_run_that_needs_more_times_than_a_trace_has_is_refused():
    method, problem, edges = jdfl.DPSGD(lr=0.01), regression(M), nw.from_edges([], M, connected=False)
    alone = nw.outages(nw.timed(edges, TRACE()), 0.1, 0.5)
    jdfl.run(method, problem, alone, steps=5)
    with refused("6 times", "cycle"):
        jdfl.run(method, problem, alone, steps=6)
    found = jdfl.run(method, problem, nw.timed(edges, nw.time_trace(MEASURED, cycle=True)), steps=10)
    np.testing.assert_allclose(found.clock, 2 * MEASURED.sum(axis=1), rtol=1e-6)


def test_a_response_is_computing_latency_and_the_bits():
    slow = [1.0, 1.0, 4.0, 1.0, 1.0, 1.0]
    net = nw.timed(RING(), nw.FixedTime(2.0), latency=nw.FixedTime(0.5), bandwidth=100.0, slowness=slow)
    timing = nw.in_run(net, KEY, 50).at(jnp.int32(0), KEY).timing
    np.testing.assert_allclose(timing.compute, 2 * np.array(slow))
    np.testing.assert_allclose(timing.travel, 1.0)
    assert np.min(timing.response) == 3.0
    assert isinstance(nw.timed(RING(), nw.FixedTime(2.0), bandwidth=10**11).bandwidth, float)  # no int32 holds it


def test_slow_nodes_are_slow_in_all_rounds_of_a_run():
    net = nw.timed(RING(), nw.FixedTime(1.0), slowness=nw.ParetoTime(1.0, 1.0))
    one = nw.in_run(net, jax.random.key(1), 0)
    times = [np.asarray(one.at(jnp.int32(k), jax.random.key(k)).timing.compute) for k in range(3)]
    np.testing.assert_array_equal(times[0], times[2])
    np.testing.assert_array_equal(times[0], one.slow())
    assert not np.array_equal(times[0], nw.in_run(net, jax.random.key(2), 0).slow())


def test_the_first_that_respond_are_taken_and_all_have_answered():
    rate = 0.6
    net = nw.partial_communication(nw.timed(COMPLETE(), first=True), rate)
    graph = net.at(jnp.int32(0), KEY)
    response = np.asarray(graph.timing.response)
    count = int(np.ceil(rate * (M - 1) - 1e-4))
    np.testing.assert_array_equal(np.asarray(graph.mask).sum(axis=1), count)
    for i in range(M):
        taken = np.asarray(graph.mask)[i]
        assert response[i][taken].max() <= response[i][~taken].min(initial=np.inf)
    np.testing.assert_array_equal(graph.out_degree, M - 1)
    random = nw.partial_communication(nw.timed(COMPLETE()), rate).at(jnp.int32(0), KEY)
    assert int(random.out_degree.sum()) == M * count
    nw.check_graph(graph)


def clocks(result, net, rounds, grads, seed=0):
    """The nodes' clocks after every round, by a loop over nodes and neighbours."""
    key = jdfl.base.keys.typed_key(seed)
    bits = sum(result.totals.message_bits.values())
    keys = streams.Keys.of(key)
    here = nw.in_run(net, keys.network, bits)
    clock, told = np.zeros(M), []
    for k in range(rounds):
        graph = here.at(jnp.int32(k), keys.at_round(k).network)
        compute, travel = np.asarray(graph.timing.compute), np.asarray(graph.timing.travel)
        done = clock + grads * compute
        new = done.copy()
        for i, slot in np.argwhere(np.asarray(graph.mask)):
            new[i] = max(new[i], done[int(graph.senders[i, slot])] + travel[i, slot])
        clock = new
        told.append(clock)
    return np.array(told)


@pytest.mark.parametrize("lost", [False, True])
def test_clocks_are_those_of_a_loop_over_nodes_also_after_a_checkpoint(lost, tmp_path):
    slow, method, problem = nw.ParetoTime(), jdfl.DPSGD(lr=0.05), regression(M, 4)
    net = nw.timed(RING(), nw.ParetoTime(), latency=nw.ExponentialTime(0.3), bandwidth=1e3, slowness=slow)
    net = nw.link_loss(net, 0.3) if lost else net
    result = jdfl.run(method, problem, net, steps=12)
    expected = clocks(result, net, 12, 1)
    np.testing.assert_allclose(result.clock, expected[-1], rtol=1e-5)
    np.testing.assert_allclose(result.history["network_seconds"][1:], expected.mean(axis=1), rtol=1e-5)
    np.testing.assert_allclose(result.history["network_seconds_last"][1:], expected.max(axis=1), rtol=1e-5)
    jdfl.run(method, problem, net, steps=5, callbacks=[jdfl.Checkpoints(tmp_path / "kept")])
    before = jdfl.read_checkpoint(tmp_path / "kept", method, problem, net)
    rest = jdfl.run(method, problem, net, steps=12, resume=before)
    for name in ("clock", "clock_rest", "params"):
        np.testing.assert_array_equal(getattr(rest, name), getattr(result, name))
    assert rest.history.equals(result.history)


def test_time_passes_only_for_who_computes_or_waits():
    fixed = nw.timed(COMPLETE(), nw.FixedTime(1.0), latency=nw.FixedTime(10.0))
    for method, steps, seconds in (
        (jdfl.CEPS(s=2, periods=(4, 4)), 9, 1 + 2 * 11),  # one gradient at the start; in rounds 4 and 8 also a message
        (jdfl.DFedAvgM(lr=0.01, local_steps=3), 4, 4 * (3 + 10)),
        (jdfl.LocalOnly(lr=0.01), 4, 4),
    ):
        np.testing.assert_allclose(jdfl.run(method, regression(M, 4), fixed, steps=steps).clock, seconds)


@pytest.mark.parametrize("together", [False, True], ids=["each waits for its neighbours", "all wait for all"])
@pytest.mark.optimized
def test_clocks_do_not_drift(together):
    """How far clocks are from where 10,000 rounds of fixed times lead; floats alone are off by a hundredth."""
    net, start = nw.timed(RING(), nw.FixedTime(0.1), latency=nw.FixedTime(0.03)), jnp.full(M, jnp.float32(2**20))
    graph = nw.in_run(nw.synchronised(net, 1) if together else net, KEY, 0).at(jnp.int32(0), KEY)
    ones, waits = jnp.ones(M, jnp.int32), jnp.ones_like(graph.mask)
    one = lambda _, clock: nw.advanced(graph, clock, ones, waits)  # noqa: E731
    whole, rest = jax.jit(lambda clock: jax.lax.fori_loop(0, 10_000, one, clock))((start, jnp.zeros(M)))
    added = np.asarray(whole, np.float64) + np.asarray(rest) - 2**20
    expected = 10_000 * (np.float64(np.float32(0.1)) + np.float64(np.float32(0.03)))
    assert np.max(np.abs(added / expected - 1)) < 1e-6


@pytest.mark.optimized
def test_four_million_additions_are_exact():
    """Against exact arithmetic, side by side, in one piece or two; floats alone are 3.9 % too low for 0.1 s."""
    count, more = 4_000_000, jnp.asarray([0.1, 0.3, 1e-3, 7.7], jnp.float32)

    def after(clock, more, rounds):
        return jax.lax.scan(lambda clock, _: (added(clock, more), None), clock, None, length=rounds)[0]

    everywhere = jax.jit(jax.vmap(after, in_axes=(0, 0, None)), static_argnums=2)
    start = jnp.zeros_like(more), jnp.zeros_like(more)
    whole = everywhere(start, more, count)
    pieces = everywhere(everywhere(start, more, count // 4), more, count - count // 4)
    for i, one in enumerate(np.asarray(more).tolist()):
        exact = count * Fraction(one)
        total = sum(Fraction(float(part[i])) for part in whole)
        assert abs(total - exact) <= exact * Fraction(2) ** -44
        assert abs(Fraction(float(whole[0][i])) - exact) <= exact * Fraction(2) ** -24
    np.testing.assert_array_equal(whole, pieces)
