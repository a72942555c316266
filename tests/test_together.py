"""Nodes over several GPUs that are not there: what they need of each other, and planted faults in what they exchange.

Programs need the compiler, `pip install 'jdfl[cuda]'`, in an environment of its own.
"""

import numpy as np
import pytest

import jdfl
from benchmarks import shared
from tests.test_roofline import needs, python

MEASURED = """
from benchmarks import aot, hlo, methods, shared, together
aot.environment()
{planted}
found = together.counted(methods.{method}, {size}, shared.{kind})
print(found.ratio, found.round.cost.bytes)
"""
REAL = "aot.Size(8 * shared.FEW, 100, 1)"  # the lists of a network as it is
ALL_ROWS = "from jdfl.engine import placement; placement.halo = lambda *_: None"
FORMED = (
    "from jdfl.network import graph as g; g._sum_of_neighbours = "
    "lambda graph, x, cheap: g.gather_sum(graph.senders, graph.weight, graph.gathered(x), cheap=cheap)"
)
DEAF = "hlo.exchange = lambda one, operands: None"


def measured(method, size, kind, planted=""):
    out = python("-c", MEASURED.format(planted=planted, method=method, size=size, kind=kind))
    return tuple(map(float, out.splitlines()[-1].split()))


def needed_by_hand(network, devices):
    """For every device, the rows of others that its nodes receive, counted link by link."""
    m = network.m
    held, rows = -(-m // devices), [set() for _ in range(devices)]
    senders, mask = np.asarray(network.graph.senders), np.asarray(network.graph.mask)
    for node in range(m):
        for slot in range(senders.shape[1]):
            sender = int(senders[node, slot])
            if mask[node, slot] and sender // held != node // held:
                rows[node // held].add(sender)
    return [len(one) for one in rows]


@pytest.mark.parametrize(
    "make",
    [
        lambda: shared.RING.make(104, False),
        lambda: shared.RANDOM.make(104, False),
        lambda: jdfl.network.barabasi_albert(103, 3, format="padded"),  # eight devices do not divide them
    ],
)
def test_rows_that_are_needed_are_those_of_links_between_devices(make):
    network = make()
    senders, mask = np.asarray(network.graph.senders), np.asarray(network.graph.mask)
    assert shared.remote(senders, mask, 8) == needed_by_hand(network, 8)


def test_lists_hold_what_is_needed():
    for kind in shared.KINDS:
        found = shared.lists(kind, 8, shared.FEW)
        assert found.needed == max(needed_by_hand(kind.make(8 * shared.FEW, False), 8))
        assert found.needed <= sum(found.hops) <= 1.1 * found.needed


def test_lists_of_many_nodes_follow_from_those_of_few():
    assert shared.scaled(shared.RING, 8, 12_500_000) == shared.Lists((4, 4), 8)
    found, held = shared.scaled(shared.RANDOM, 8, 1_000_000), 1_000_000
    expected = (1 - (7 / 8) ** 8) * 7 * held  # a node has a neighbour on a device with this probability
    assert found.needed == pytest.approx(expected, rel=0.02)
    assert sum(found.hops) == pytest.approx(expected, rel=0.02)
    assert shared.scaled(shared.RANDOM, 8, shared.FEW) == shared.lists(shared.RANDOM, 8, shared.FEW)


@pytest.mark.slow
@pytest.mark.timeout(600)
@needs("h100")
@pytest.mark.parametrize("kind", ["RING", "RANDOM"])
@pytest.mark.parametrize("method", ["PLAIN", "NOISY"])
def test_devices_exchange_the_halo_and_no_more(method, kind):
    ratio, _ = measured(method, REAL, kind)
    assert 1 <= ratio <= 1.1


@pytest.mark.slow
@pytest.mark.timeout(600)
@needs("h100")
@pytest.mark.parametrize("kind", ["RING", "RANDOM"])
def test_rows_sent_to_all_are_seen(kind):
    """Planted: every device gathers the rows of all nodes."""
    ratio, _ = measured("PLAIN", REAL, kind, ALL_ROWS)
    assert ratio > 1.1


@pytest.mark.slow
@pytest.mark.timeout(600)
@needs("h100")
def test_exchanges_that_are_not_counted_are_seen():
    """Planted: a parser to which collective operations are kernels like others."""
    with pytest.raises(AssertionError, match="counted 0 of them"):
        measured("PLAIN", REAL, "RING", DEAF)


@pytest.mark.slow
@pytest.mark.timeout(600)
@needs("h100")
@pytest.mark.parametrize("kind", ["RING", "RANDOM"])
def test_received_rows_that_are_copied_are_seen(kind):
    """Planted: rows of all devices are brought together in one array before they are summed."""
    whole, copied = (measured("PLAIN", "methods.MOST", kind, planted)[1] for planted in ("", FORMED))
    assert copied > 1.1 * whole
