"""Weights of every round are checked before a run: those of all graphs of a period, however it is wrapped, and of
networks that a person defines."""

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
from jdfl.network import growth
from jdfl.network.sequences import graphs_of
from tests.fuzz.calls import PROBLEM
from tests.later import Later

M = 4
RING = Later(nw.ring, M)


def heavier(graph, factor=1.5):
    """The same graph with rows that do not sum to one."""
    return replace(graph, weight=graph.weight * factor)


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


WRAPPERS = {
    "as it is": lambda network: network,
    "loss": lambda network: nw.link_loss(network, 0.1),
    "bursts": lambda network: nw.bursty_loss(network, 0.1, 0.5),
    "participation": lambda network: nw.node_participation(network, 0.9),
    "outages": lambda network: nw.outages(network, 0.1, 0.5),
    "members": lambda network: nw.membership(network, joins=[0, 0, 9, 9]),
    "times": lambda network: nw.timed(network),
    "synchronised in its place": lambda network: nw.synchronised(network, 7),
    "synchronised loss": lambda network: nw.synchronised(nw.link_loss(network, 0.1), 4),
}


@pytest.mark.parametrize("kind", WRAPPERS)
@pytest.mark.parametrize("make", [lambda network: network, own], ids=["periodic", "a person's own"])
def test_a_bad_matrix_anywhere_in_a_period_is_refused_before_a_run(kind, make):
    """With every = 4, round 3 of the synchronised one hides graph 3, which mixes in round 9."""
    for bad in (0, 3, 5):
        network = WRAPPERS[kind](make(turns(bad)))
        with pytest.raises(ValueError, match=r"sum to 1, got 1\.33333 in row 0") as error:
            jdfl.run(jdfl.DPSGD(), PROBLEM(), network, steps=2)
        assert bad == 0 or str(bad) in str(error.value)
    nw.check_weights(WRAPPERS[kind](make(turns(None))), "D-PSGD")


def test_a_random_choice_is_checked_whole():
    with pytest.raises(ValueError, match=r"got 1\.33333 in row 0"):
        nw.check_weights(nw.random_choice([RING(), nw.Static(heavier(RING().graph))]), "D-PSGD")


def test_of_ones_own_network_a_thousand_rounds_are_checked():
    late = turns(400, p=500)
    with pytest.raises(ValueError, match=r"got 1\.33333 in row 0.*round 400"):
        nw.check_weights(own(late), "D-PSGD")
    with pytest.raises(ValueError, match=r"columns .*got 1\.33333 in column 0.*round 400"):
        nw.check_weights(own(late), "SGP", columns=True)


def test_negative_weights_of_a_late_round_are_seen():
    """Round 7 of 8 has rows that sum to one, and one weight below zero."""

    def negative(graph):
        return replace(graph, weight=graph.weight * 2, self_weight=graph.self_weight * 0 - 1 / 3)

    network = own(turns(7, p=8, other=negative))
    with pytest.raises(ValueError, match=r"weights >= 0 for SGP.*-0\.333333.*round 7"):
        nw.check_weights(network, "SGP", columns=True)
    nw.check_weights(network, "D-PSGD")  # which mixes on average


def test_a_long_period_of_synchronised_rounds_is_no_long_check():
    network = nw.synchronised(turns(None, p=5), 10_007)
    assert len(list(graphs_of(network, 1))) == 6


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
    i = np.arange(m)
    W = sp.csr_array((np.repeat([1 + a, -a], m), (np.tile(i, 2), np.r_[i, (i + 1) % m])), shape=(m, m))
    return W, float(np.max(np.abs(1 + a - a * np.exp(2j * np.pi * np.arange(1, m) / m))))


EXPANDING = {
    "far": lambda m: lattice(m, 0.8),
    "1.01": lambda m: lattice(m, 0.5025),
    "one way": lambda m: one_way(m, 0.2),
}


@pytest.mark.parametrize(("kind", "m"), [(kind, m) for kind in EXPANDING for m in (6, 301, 1000)])
def test_weights_that_expand_are_refused_with_the_factor_at_any_size(kind, m):
    W, radius = EXPANDING[kind](m)
    network = nw.from_matrix(W, connected=False)
    assert radius > 1.005
    for call in (lambda: nw.check_weights(network, "D-PSGD"), lambda: nw.from_matrix(W)):
        with pytest.raises(ValueError, match="lowest weight") as error:
            call()
        (told,) = re.findall(r"(?:got|got \|lambda_2\| =) (\d[\d.]*)", str(error.value))
        assert radius - 0.003 < float(told) < radius + 1e-5


@pytest.mark.parametrize("m", [5, 301, 1000, 3000])
def test_negative_weights_that_contract_slowly_are_taken(m):
    W, radius = lattice(m, 0.3, -0.05)
    assert radius < 1
    nw.check_weights(nw.from_matrix(W), "D-PSGD")


@pytest.mark.parametrize(
    ("kind", "symmetric"), [*((kind, False) for kind in (*EXPANDING, "slow")), ("far", True), ("slow", True)]
)
def test_the_number_of_products_is_bounded(kind, symmetric):
    W = lattice(2000, 0.3, -0.05)[0] if kind == "slow" else EXPANDING[kind](2000)[0]
    count = [0]

    def product(x):
        count[0] += 1
        return growth.centred(W @ x)

    growth.largest_modulus(product, 2000, symmetric=symmetric)
    assert count[0] <= (200 if symmetric else 450)


def test_agreement_by_weights_of_zero_and_more_is_a_matter_of_cycles():
    """A ring without own weights agrees if its length is odd: cycles of lengths 2 and m have no common divisor."""
    for m in (4, 5, 800, 801):
        W, _ = lattice(m, 0.5)
        if m % 2:
            nw.from_matrix(W)
        else:
            with pytest.raises(ValueError, match=r"\|lambda_2\| = 1: .*never vanish"):
                nw.from_matrix(W)


def held(W):
    """Networks by other ways than `from_matrix`, all with the same W."""
    graph = nw.from_matrix(W, connected=False).graph
    return [nw.Static(graph), nw.periodic([graph]), Own(jax.tree.map(lambda leaf: leaf[None], graph), 1)]


HELD = Later(lambda: held(lattice(M, 0.8)[0]))


@pytest.mark.parametrize("kind", REGISTRY)
def test_no_method_that_mixes_takes_weights_that_expand(kind):
    algorithm = REGISTRY[kind](**{name: 2 for name in ("s",) if name in REGISTRY[kind].__dataclass_fields__})
    for network in HELD():
        if not algorithm.mixes:
            if algorithm.needs.get("fixed") and not isinstance(network, nw.Static):
                continue  # refused for another reason
            jdfl.planned_releases(algorithm, PROBLEM(), network, steps=1)
            continue
        with pytest.raises(ValueError, match=r"2\.2|4\.84|weights >= 0|-0\.6"):
            jdfl.run(algorithm, PROBLEM(), network, steps=2)


def test_a_fixed_network_of_ones_own_is_judged_in_bounded_memory(monkeypatch):
    monkeypatch.setattr(growth, "_STORED", 0)
    calls = []
    monkeypatch.setattr(growth, "round_of", lambda network, k: calls.append(k) or network.at(k, None))
    W, radius = lattice(9, 0.8)
    found = growth.mean_growth(held(W)[2])
    np.testing.assert_allclose(found.most, radius**2, rtol=1e-4)
    assert len(calls) == growth._LEAST_DRAWN
