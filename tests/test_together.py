"""Nodes over several GPUs that are not there: what they need of each other, and what they exchange.

Programs need the compiler, `pip install 'jdfl[cuda]'`, in an environment of its own.
"""

import numpy as np
import pytest

import jdfl
from benchmarks import shared
from tests.test_roofline import needs, python

MEASURED = """
from benchmarks import aot, methods, shared, together
aot.environment()
size = aot.Size(8 * shared.FEW, 100, 1)  # the lists of a network as it is
print(together.counted(methods.{method}, size, shared.{kind}).ratio)
"""


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


def test_lists_hold_what_links_between_devices_need():
    odd = jdfl.network.barabasi_albert(103, 3, format="padded")  # eight devices do not divide them
    for network in (odd, *(kind.make(104, False) for kind in (shared.RING, shared.RANDOM))):
        senders, mask = np.asarray(network.graph.senders), np.asarray(network.graph.mask)
        assert shared.remote(senders, mask, 8) == needed_by_hand(network, 8)
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
    assert 1 <= float(python("-c", MEASURED.format(method=method, kind=kind)).splitlines()[-1]) <= 1.1
