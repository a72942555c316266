"""Runs whose nodes send different numbers of signs: parameters, bytes and clocks, against loops over nodes."""

from dataclasses import replace

import jax
import numpy as np
import pytest

import jdfl
from jdfl import network as nw
from tests.algorithms.test_ceps import BASE, S, compare
from tests.algorithms.test_ceps import M as NODES
from tests.reference.ceps import one_bit
from tests.toy import regression

M, N = 6, 20
SIGNS = (40, 36, 44, 40, 36, 30)
PERIOD = np.array([2, 3, 4, 2, 1, 3], np.int32)
ENDS = pytest.mark.parametrize("phi", ["sender", "receiver"])
pytestmark = pytest.mark.filterwarnings("ignore")


def ceps(**fields):
    given = {"s": 3, "rate": 1.0, "sigma_rule": "safe", "period": PERIOD, "codec": jdfl.OneBit(d=SIGNS)}
    return jdfl.CEPS(**given | fields)


def heard(network):
    """Whom every node hears."""
    return [[int(j) for j in one[mask]] for one, mask in zip(network.graph.senders, np.asarray(network.graph.mask))]


@ENDS
def test_parameters_agree_with_the_papers_loop(phi):
    signs = (60, 48, 75, 60, 33, 90, 61)

    def send(prepared, j, x, i=None, own=None):
        node = j if i is None else i
        phi = np.asarray(prepared.prepared.wire.drawn.phi.matrix[node])[:, : signs[node]].T
        return one_bit(x, phi, S, exact=True, cap=12)

    assert len(signs) == NODES
    compare(BASE.replace(codec=jdfl.OneBit(d=signs), phi=phi), send=send)


@ENDS
def test_bytes_are_those_of_a_count_over_links(phi):
    problem, network, steps = regression(M, N), nw.erdos_renyi(M, 0.6, seed=3), 13
    result = jdfl.run(ceps(phi=phi), problem, network, steps=steps)
    bits = 0
    for k in range(1, steps):
        for i, senders in enumerate(heard(network)):
            for j in senders if k % PERIOD[i] == 0 else ():
                bits += SIGNS[j if phi == "sender" else i] + 64
    assert result.totals.bits == bits
    assert result.totals.bytes == bits / 8
    assert result.history["bytes"].iloc[-1] == bits / 8
    assert result.totals.message_bits == {f"model of {d + 64} bits": d + 64 for d in set(SIGNS)}


@ENDS
def test_all_answers_count_where_the_first_are_taken(phi):
    problem, network = regression(M, N), nw.timed(nw.complete(M), first=True)
    result = jdfl.run(ceps(phi=phi, rate=0.4, period=np.full(M, 2, np.int32)), problem, network, steps=7)
    assert result.totals.bits == 3 * (M - 1) * sum(d + 64 for d in SIGNS)


def test_equal_numbers_are_one_number():
    problem, network = regression(M, N), nw.timed(nw.ring(M), bandwidth=100.0)
    each, one = (jdfl.run(ceps(codec=jdfl.OneBit(d=d)), problem, network, steps=13) for d in ((40,) * M, 40))
    np.testing.assert_array_equal(each.params, one.params)
    np.testing.assert_array_equal(each.clock, one.clock)
    assert each.totals == one.totals
    assert each.published_bytes == one.published_bytes
    assert each.history.equals(one.history)


def test_the_papers_volume_has_the_mean_of_the_nodes():
    problem, network = regression(M, N), nw.ring(M)
    uneven, low, high = (
        jdfl.run(ceps(codec=jdfl.OneBit(d=d)), problem, network, steps=5).published_bytes
        for d in ((30, 40) * 3, 30, 40)
    )
    assert uneven == pytest.approx((low + high) / 2)


@ENDS
def test_a_message_takes_the_time_of_its_own_size(phi):
    problem, graph, steps, bandwidth = regression(M, N), nw.erdos_renyi(M, 0.6, seed=3), 13, 10.0
    network = nw.timed(graph, nw.FixedTime(2.0), latency=nw.FixedTime(0.5), bandwidth=bandwidth)
    result = jdfl.run(ceps(phi=phi), problem, network, steps=steps)
    clock = np.full(M, 2.0)  # the gradient at the start
    for k in range(1, steps):
        done = clock + 2.0 * (k % PERIOD == 0)
        new = done.copy()
        for i, senders in enumerate(heard(graph)):
            for j in senders if k % PERIOD[i] == 0 else ():
                size = SIGNS[j if phi == "sender" else i] + 64
                new[i] = max(new[i], done[j] + 0.5 + size / bandwidth)
        clock = new
    np.testing.assert_allclose(result.clock, clock, rtol=1e-5)


METHODS = {
    "D-PSGD": (jdfl.DPSGD(lr=0.01), lambda degree: degree),
    "DFedAvgM": (jdfl.DFedAvgM(lr=0.01, local_steps=2), lambda degree: degree),
    "IHT-D-PSGD": (jdfl.IHT(lr=0.01, s=3), lambda degree: degree),
    "FedAvg": (jdfl.FedAvg(lr=0.01), lambda degree: 0 * degree + 1),
}


@pytest.mark.parametrize("name", METHODS)
def test_other_methods_send_messages_of_the_senders_sizes(name):
    algorithm, messages = METHODS[name]
    network = nw.erdos_renyi(M, 0.6, seed=3)
    algorithm = replace(algorithm, codec=jdfl.OneBit(d=SIGNS, s=3))
    result = jdfl.run(algorithm, regression(M, N), network, steps=4)
    degree = np.bincount(np.concatenate(heard(network)).astype(int), minlength=M)
    each = 4 * len(algorithm.channels) * messages(degree) * (np.array(SIGNS) + 64)
    assert result.totals.bits == each.sum()


def test_runs_go_on_and_sweep_with_numbers_of_their_own():
    problem, network = regression(M, N), nw.ring(M)
    whole, part = (jdfl.run(ceps(), problem, network, steps=steps) for steps in (12, 6))
    rest = jdfl.run(ceps(), problem, network, steps=12, resume=part)
    np.testing.assert_array_equal(whole.params, rest.params)
    assert rest.totals == whole.totals
    other = ceps(codec=jdfl.OneBit(d=SIGNS[::-1]))
    with pytest.raises(ValueError, match="resume"):
        jdfl.run(other, problem, network, steps=12, resume=part)
    lanes = jdfl.repeat(ceps(), problem, network, keys=[0, 5], steps=12)
    assert lanes[0].totals == whole.totals


def test_another_number_of_nodes_is_refused():
    with pytest.raises(ValueError, match=r"codec\.d|d of shape \(7\), got \(6,\)"):
        jdfl.run(ceps(period=None), regression(7, N), nw.ring(7), steps=2)


def test_delayed_messages_keep_their_sizes():
    network = nw.delays(nw.complete(M), 2)
    result = jdfl.run(ceps(period=np.full(M, 2, np.int32)), regression(M, N), network, steps=7)
    assert result.totals.bits == 3 * (M - 1) * sum(d + 64 for d in SIGNS)
    assert jax.tree.all(jax.tree.map(lambda leaf: bool(np.isfinite(leaf).all()), result.params))
