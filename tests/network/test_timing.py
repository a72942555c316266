"""Simulated time: distributions, who is first to respond, and clocks as a small loop over nodes has them."""

from fractions import Fraction

import jax
import numpy as np
import pytest
import scipy

import jdfl
from jdfl import network as nw
from jdfl.base import streams
from jdfl.network.timing import added, advanced, check_traces
from tests.later import Later, Named
from tests.network.examples import graph_of_round, rounds
from tests.refused import refused
from tests.toy import regression

M = 6
KEY, ROUNDS = jax.random.key(5), 12
KEYS = Later(jax.random.split, KEY, ROUNDS)
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
    drawn = jax.jit(jax.vmap(times.draw))(jax.random.split(KEY, 4000))
    assert scipy.stats.kstest(np.asarray(drawn), law.cdf).pvalue > 1e-4


def of_run(net, bits=0):
    """The times of the rounds of a run."""
    return rounds(nw.in_run(net, KEY, bits), KEYS()).timing


def test_a_node_takes_the_times_of_its_trace_one_after_another():
    slow = [1.0, 2.0, 1.0, 1.0, 0.5, 1.0]
    for cycle, count in ((False, 5), (True, ROUNDS)):
        compute = of_run(nw.timed(RING(), nw.time_trace(MEASURED, cycle=cycle), slowness=slow)).compute
        for k in range(count):
            np.testing.assert_array_equal(compute[k], np.float32(MEASURED[:, k % 5]) * np.float32(slow))


def test_a_run_that_needs_more_times_than_a_trace_has_is_refused():
    method, problem, edges = jdfl.DPSGD(lr=0.01), regression(M), nw.from_edges([], M, connected=False)
    alone = nw.outages(nw.timed(edges, TRACE()), 0.1, 0.5)
    check_traces(alone, 5)
    with refused("6 times", "cycle"):
        jdfl.run(method, problem, alone, steps=6)
    check_traces(nw.timed(edges, nw.time_trace(MEASURED, cycle=True)), 6)


def test_a_response_is_computing_latency_and_the_bits_and_slow_nodes_are_slow_in_all_rounds():
    slow = [1.0, 1.0, 4.0, 1.0, 1.0, 1.0]
    net = nw.timed(RING(), nw.FixedTime(2.0), latency=nw.FixedTime(0.5), bandwidth=100.0, slowness=slow)
    timing = of_run(net, 50)
    np.testing.assert_allclose(timing.compute[0], 2 * np.array(slow))
    np.testing.assert_allclose(timing.travel, 1.0)
    assert np.min(timing.response) == 3.0
    assert isinstance(nw.timed(RING(), nw.FixedTime(2.0), bandwidth=10**11).bandwidth, float)  # no int32 holds it
    net = nw.timed(RING(), nw.FixedTime(1.0), slowness=nw.ParetoTime(1.0, 1.0))
    one, other = (rounds(nw.in_run(net, jax.random.key(run), 0), KEYS()).timing.compute for run in (1, 2))
    np.testing.assert_array_equal(one, np.broadcast_to(one[0], one.shape))
    assert np.ptp(one[0]) > 0
    assert not np.array_equal(one, other)


def test_the_first_that_respond_are_taken_and_all_have_answered():
    rate, complete = 0.6, nw.complete(M)
    first, random = (
        rounds(nw.partial_communication(nw.timed(complete, first=it), rate), KEYS()) for it in (True, False)
    )
    count = int(np.ceil(rate * (M - 1) - 1e-4))
    np.testing.assert_array_equal(first.mask.sum(axis=2), count)
    for response, taken in zip(first.timing.response.reshape(-1, M - 1), first.mask.reshape(-1, M - 1), strict=True):
        assert response[taken].max() <= response[~taken].min(initial=np.inf)
    np.testing.assert_array_equal(first.out_degree, M - 1)
    np.testing.assert_array_equal(random.out_degree.sum(axis=1), M * count)
    nw.check_graph(graph_of_round(first, 0))


def clocks(net, bits, seed=0):
    """The nodes' clocks after every round, by a loop over nodes and neighbours."""
    keys = streams.Keys.of(jdfl.base.keys.typed_key(seed))
    drawn = jax.jit(jax.vmap(lambda k: keys.at_round(k).network))(np.arange(ROUNDS))
    stacked = rounds(nw.in_run(net, keys.network, bits), drawn)
    clock, told = np.zeros(M), []
    for k in range(ROUNDS):
        graph = graph_of_round(stacked, k)
        done = clock + graph.timing.compute
        clock = done.copy()
        for i, slot in np.argwhere(graph.mask):
            clock[i] = max(clock[i], done[graph.senders[i, slot]] + graph.timing.travel[i, slot])
        told.append(clock)
    return np.array(told)


def test_clocks_are_those_of_a_loop_over_nodes_also_after_a_checkpoint(tmp_path):
    slow, method, problem = nw.ParetoTime(), jdfl.DPSGD(lr=0.05), regression(M, 4)
    net = nw.timed(RING(), nw.ParetoTime(), latency=nw.ExponentialTime(0.3), bandwidth=1e3, slowness=slow)
    net = nw.link_loss(net, 0.3)
    result = jdfl.run(method, problem, net, steps=ROUNDS)
    expected = clocks(net, sum(result.totals.message_bits.values()))
    np.testing.assert_allclose(result.clock, expected[-1], rtol=1e-5)
    np.testing.assert_allclose(result.history["network_seconds"][1:], expected.mean(axis=1), rtol=1e-5)
    np.testing.assert_allclose(result.history["network_seconds_last"][1:], expected.max(axis=1), rtol=1e-5)
    jdfl.run(method, problem, net, steps=5, callbacks=[jdfl.Checkpoints(tmp_path / "kept")])
    before = jdfl.read_checkpoint(tmp_path / "kept", method, problem, net)
    rest = jdfl.run(method, problem, net, steps=ROUNDS, resume=before)
    for name in ("clock", "clock_rest", "params"):
        np.testing.assert_array_equal(getattr(rest, name), getattr(result, name))
    assert rest.history.equals(result.history)


def test_time_passes_only_for_who_computes_or_waits():
    fixed = nw.timed(nw.complete(M), nw.FixedTime(1.0), latency=nw.FixedTime(10.0))
    for method, steps, seconds in (
        (jdfl.CEPS(s=2, periods=(4, 4)), 9, 1 + 2 * 11),  # one gradient at the start; in rounds 4 and 8 also a message
        (jdfl.DFedAvgM(lr=0.01, local_steps=3), 4, 4 * (3 + 10)),
    ):
        np.testing.assert_allclose(jdfl.run(method, regression(M, 4), fixed, steps=steps).clock, seconds)


@pytest.mark.parametrize("together", [False, True], ids=["each waits for its neighbours", "all wait for all"])
@pytest.mark.optimized
def test_clocks_do_not_drift(together):
    """How far clocks are from where 10,000 rounds of fixed times lead; floats alone are off by a hundredth."""
    net = nw.timed(RING(), nw.FixedTime(0.1), latency=nw.FixedTime(0.03))
    graph = graph_of_round(rounds(nw.in_run(nw.synchronised(net, 1) if together else net, KEY, 0), KEYS()), 0)
    one = lambda _, clock: advanced(graph, clock, np.ones(M, np.int32), np.ones_like(graph.mask))  # noqa: E731
    start = np.full(M, np.float32(2**20)), np.zeros(M, np.float32)
    whole, rest = jax.jit(lambda clock: jax.lax.fori_loop(0, 10_000, one, clock))(start)
    added = np.asarray(whole, np.float64) + np.asarray(rest) - 2**20
    expected = 10_000 * (np.float64(np.float32(0.1)) + np.float64(np.float32(0.03)))
    assert np.max(np.abs(added / expected - 1)) < 1e-6


@pytest.mark.optimized
def test_many_additions_are_exact():
    """Against exact arithmetic, side by side; floats alone are off by a thousandth."""
    count, more = 400_000, np.asarray([0.1, 0.3, 1e-3, 7.7], np.float32)
    after = jax.jit(lambda clock: jax.lax.fori_loop(0, count, lambda _, now: added(now, more), clock))
    whole, rest = (np.asarray(part) for part in after((np.zeros_like(more), np.zeros_like(more))))
    for i, one in enumerate(more.tolist()):
        exact = count * Fraction(one)
        assert abs(Fraction(float(whole[i])) + Fraction(float(rest[i])) - exact) <= exact * Fraction(2) ** -44
        assert abs(Fraction(float(whole[i])) - exact) <= exact * Fraction(2) ** -24
