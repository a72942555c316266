"""Runs whose nodes send different numbers of signs: bytes, clocks and counts, against loops over nodes."""

import numpy as np
import pytest

import jdfl
from jdfl import network as nw
from jdfl.algorithms.ceps_paper import paper_volume
from tests.toy import regression

M, N = 6, 20
SIGNS = (40, 36, 44, 40, 36, 30)
PERIOD = np.array([2, 3, 4, 2, 1, 3], np.int32)
pytestmark = pytest.mark.filterwarnings("ignore")


def ceps(**fields):
    given = {"s": 3, "rate": 1.0, "sigma_rule": "safe", "period": PERIOD, "codec": jdfl.OneBit(d=SIGNS)}
    return jdfl.CEPS(**given | fields)


def heard(network):
    """Whom every node hears."""
    return [[int(j) for j in one[mask]] for one, mask in zip(network.graph.senders, np.asarray(network.graph.mask))]


@pytest.mark.rotated(2)
@pytest.mark.parametrize("phi", ["sender", "receiver"])
def test_bytes_clocks_and_rounds_are_those_of_a_loop_over_links(phi):
    problem, graph, steps, bandwidth = regression(M, N), nw.erdos_renyi(M, 0.6, seed=3), 13, 10.0
    network = nw.timed(graph, nw.FixedTime(2.0), latency=nw.FixedTime(0.5), bandwidth=bandwidth)
    result = jdfl.run(ceps(phi=phi), problem, network, steps=steps, metrics=[])
    bits, clock = 0, np.full(M, 2.0)  # the gradient at the start
    for k in range(1, steps):
        done = clock + 2.0 * (k % PERIOD == 0)
        new = done.copy()
        for i, senders in enumerate(heard(graph)):
            for j in senders if k % PERIOD[i] == 0 else ():
                size = SIGNS[j if phi == "sender" else i] + 64
                bits += size
                new[i] = max(new[i], done[j] + 0.5 + size / bandwidth)
        clock = new
    np.testing.assert_allclose(result.clock, clock, rtol=1e-5)
    assert result.totals.bits == bits
    assert result.history["bytes"].iloc[-1] == result.totals.bytes == bits / 8
    assert result.totals.message_bits == {f"model of {d + 64} bits": d + 64 for d in set(SIGNS)}
    np.testing.assert_array_equal(result.communication_rounds, 12 // PERIOD)
    volumes = [paper_volume(steps, m=M, n=N, rate=1.0, period=PERIOD.mean(), d=d) for d in SIGNS]
    assert result.published_bytes == pytest.approx(np.mean(volumes))


def test_all_answers_count_where_the_first_are_taken():
    algorithm = ceps(period=np.full(M, 2, np.int32), rate=0.4)
    result = jdfl.run(algorithm, regression(M, N), nw.timed(nw.complete(M), first=True), steps=7, metrics=[])
    assert result.totals.bits == 3 * (M - 1) * sum(d + 64 for d in SIGNS)


def test_other_methods_send_messages_of_the_senders_sizes():
    network, algorithm = nw.erdos_renyi(M, 0.6, seed=3), jdfl.DPSGD(lr=0.01, codec=jdfl.OneBit(d=SIGNS, s=3))
    result = jdfl.run(algorithm, regression(M, N), network, steps=4, metrics=[])
    degree = np.bincount(np.concatenate(heard(network)).astype(int), minlength=M)
    assert result.totals.bits == 4 * np.sum(degree * (np.array(SIGNS) + 64))
