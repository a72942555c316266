"""Weights of every round are checked before a run: of all graphs of a period, and of networks that a person defines."""

import re
from dataclasses import replace

import jax
import numpy as np
import pytest
import scipy.sparse as sp

import jdfl
from jdfl import network as nw
from jdfl.algorithms import REGISTRY
from jdfl.base import struct
from jdfl.engine import start
from jdfl.network.sequences import graphs_of
from tests.fuzz.calls import PROBLEM
from tests.later import Later
from tests.refused import refused

M = 4
RING = Later(nw.ring, M)


def heavier(graph):
    """The same graph with rows that do not sum to one."""
    return replace(graph, weight=graph.weight * 1.5)


def turns(bad: int | None, p: int = 6, other=heavier):
    """A period of rings, one of which is another graph."""
    return nw.periodic([nw.Static(other(RING().graph)) if i == bad else RING() for i in range(p)])


@struct.dataclass
class Own:
    """A person's network: one of several graphs in each round, by a rule of its own."""

    graphs: nw.Graph
    period: int = struct.field(pytree_node=False)

    @property
    def m(self):
        return self.graphs.senders.shape[1]

    def at(self, k, key):
        return jax.tree.map(lambda leaf: leaf[k % self.period], self.graphs)


def own(network):
    return Own(network.graphs, network.size)


WRAPPERS = [
    lambda network: network,
    lambda network: nw.bursty_loss(network, 0.1, 0.5),
    lambda network: nw.membership(network, joins=[0, 0, 9, 9]),
    lambda network: nw.synchronised(nw.link_loss(network, 0.1), 4),
]


@pytest.mark.parametrize("make", [lambda network: network, own], ids=["periodic", "a person's own"])
def test_a_bad_matrix_anywhere_in_a_period_is_refused_before_a_run(make):
    """With every = 4, round 3 of the synchronised one hides graph 3, which mixes in round 9."""
    fine, wrong = make(turns(None)), {bad: make(turns(bad)) for bad in (3, 5)}
    for wrap in WRAPPERS:
        nw.check_weights(wrap(fine), "D-PSGD")
        for bad, network in wrong.items():
            with refused("1.33333 in row 0", *([str(bad)] if network is wrap(network) else [])):
                nw.check_weights(wrap(network), "D-PSGD")
    with refused("1.33333 in row 0"):
        jdfl.run(jdfl.DPSGD(), PROBLEM(), make(turns(0)), steps=2)
    with refused("1.33333 in row 0"):
        nw.check_weights(nw.random_choice([RING(), nw.Static(heavier(RING().graph))]), "D-PSGD")


def test_of_ones_own_network_a_thousand_rounds_are_checked():
    late = own(turns(400, p=500))
    with refused("1.33333 in row 0", "round 400"):
        nw.check_weights(late, "D-PSGD")
    with refused("1.33333 in column 0", "round 400"):
        nw.check_weights(late, "SGP", columns=True)
    assert len(list(graphs_of(nw.synchronised(turns(None, p=5), 10_007), 1))) == 6  # which is no long check
    below = lambda graph: replace(graph, weight=graph.weight * 2, self_weight=graph.self_weight * 0 - 1 / 3)  # noqa: E731
    network = own(turns(7, p=8, other=below))  # its rows sum to one
    with refused("SGP", "-0.333333", "round 7"):
        nw.check_weights(network, "SGP", columns=True)
    nw.check_weights(network, "D-PSGD")  # which mixes on average


def lattice(m: int, a: float, b: float = 0.0):
    """W of a ring whose neighbours weigh a, and whose second neighbours weigh b; its eigenvalues are known."""
    i, ones = np.arange(m), np.ones(m)
    W = sp.csr_array((m, m))
    for step, weight in ((0, 1 - 2 * a - 2 * b), (1, a), (-1, a), (2, b), (-2, b)):
        W = W + sp.csr_array((weight * ones, (i, (i + step) % m)), shape=(m, m))
    angle = 2 * np.pi * np.arange(1, m) / m
    return W, float(np.max(np.abs(1 - 2 * a * (1 - np.cos(angle)) - 2 * b * (1 - np.cos(2 * angle)))))


def one_way(m: int, a: float):
    """W of a directed ring whose neighbour weighs -a."""
    W = sp.csr_array((1 + a) * np.eye(m) - a * np.roll(np.eye(m), 1, axis=1))
    return W, float(np.max(np.abs(1 + a - a * np.exp(2j * np.pi * np.arange(1, m) / m))))


EXPANDING = [(lattice, 0.8), (lattice, 0.5025), (one_way, 0.2)]


@pytest.mark.parametrize("m", [6, 301, 1000])
def test_weights_that_expand_are_refused_with_the_factor_at_any_size(m):
    for make, a in EXPANDING:
        W, radius = make(m, a)
        network = nw.from_matrix(W, connected=False)
        assert radius > 1.005
        for call in (lambda net=network: nw.check_weights(net, "D-PSGD"), lambda W=W: nw.from_matrix(W)):
            with refused("lowest weight") as error:
                call()
            (told,) = re.findall(r"(?:got|got \|lambda_2\| =) (\d[\d.]*)", str(error.value))
            assert radius - 0.003 < float(told) < radius + 1e-5
    W, radius = lattice(m, 0.3, -0.05)  # which contracts slowly
    assert radius < 1
    nw.check_weights(nw.from_matrix(W), "D-PSGD")


def held(W):
    """Networks by other ways than `from_matrix`, all with the same W."""
    graph = nw.from_matrix(W, connected=False).graph
    return [nw.Static(graph), nw.periodic([graph]), Own(jax.tree.map(lambda leaf: leaf[None], graph), 1)]


def test_no_method_that_mixes_takes_weights_that_expand():
    fixed, *others = held(lattice(M, 0.8)[0])
    for kind in REGISTRY.values():
        method = kind(**{name: 2 for name in ("s",) if name in kind.__dataclass_fields__})
        for network in [fixed, *others] if kind in (jdfl.DPSGD, jdfl.SGP) else [fixed]:
            if method.mixes:
                with pytest.raises(ValueError, match=r"2\.2|4\.84|weights >= 0|-0\.6"):
                    start.check_run(method, PROBLEM(), network, 2, 1, None)
            else:
                start.check_run(method, PROBLEM(), network, 2, 1, None)
