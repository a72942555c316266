"""The shared work of the comparison with other packages, and that they agree where they are installed."""

from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks import peers
from tests.later import Later
from tests.refused import refused

TINY = Later(peers.work_of, m=8, q=7, n=5, degree=4)


def by_formula(work, order, rounds):
    """x [m, n] of D-PSGD from zero, node by node in float64, without jdfl but for the weights."""
    A, b, W = (array.astype(np.float64) for array in (work.A, work.b, work.W))
    m, q, n = A.shape
    x = np.zeros((m, n))
    for _ in range(rounds):
        step = np.stack([work.lr * A[i].T @ (A[i] @ x[i] - b[i]) / q for i in range(m)])
        x = W @ x - step if order == "combine-then-adapt" else W @ (x - step)
    return x


class ByFormula:
    """A peer that counts its rounds; `wrong` is added to what it finds."""

    def __init__(self, A, b, W, lr, order="combine-then-adapt", wrong=0.0):
        self.work, self.order, self.wrong, self.done = peers.Work(A, b, TINY().network, lr), order, wrong, 0

    def advance(self, rounds):
        self.done += rounds

    def parameters(self):
        return by_formula(self.work, self.order, self.done) + self.wrong


def test_jdfl_follows_the_formula_in_either_order_and_goes_on():
    W = TINY().W
    np.testing.assert_allclose(W.sum(axis=0), 1, atol=1e-6)
    np.testing.assert_allclose(W, np.where(W.T != 0, 1 / 5, 0), atol=1e-6)  # a mean over a node and its neighbours
    ends = []
    for order in ("combine-then-adapt", "adapt-then-combine"):
        work = TINY().jdfl(order, 10)
        for rounds in (10, 20):
            np.testing.assert_allclose(work(), by_formula(TINY(), order, rounds), atol=1e-6)
        ends.append(by_formula(TINY(), order, 20))
    assert peers.apart(*ends) > 100 * peers.TOLERANCE


def test_figures_hold_a_peer_against_its_own_order():
    peer = peers.Peer("formula", "none", "combine-then-adapt", "<= 1e9", "numpy", "")
    module = SimpleNamespace(SAME={"formula": ByFormula}, OTHER={"another method": ByFormula})
    rows = {one.measure: one for one in peers.figures(TINY(), {peer: module}, rounds=1, repeats=1)}  # pyright: ignore[reportArgumentType]
    assert rows["formula: difference after 20 rounds"].met
    held = [one for measure, one in rows.items() if " / jdfl, combine-then-adapt" in measure]
    assert [one.goal for one in held] == ["<= 1e9", ""]  # another method has no goal
    for fault in ({"wrong": 1e-3}, {"wrong": np.nan}, {"order": "adapt-then-combine"}):
        at_work = ByFormula(TINY().A, TINY().b, TINY().W, TINY().lr, **fault)
        with refused("peer"):
            peers.check("peer", at_work, TINY(), "combine-then-adapt")


@pytest.mark.filterwarnings("ignore")  # of packages that are not ours
@pytest.mark.parametrize("peer", peers.PEERS, ids=lambda peer: peer.package)
def test_peers_agree(peer):
    module = pytest.importorskip(peer.module, exc_type=ImportError)
    work = TINY()
    for name, make in module.SAME.items():
        at_work = make(work.A, work.b, work.W, work.lr)
        assert peers.check(name, at_work, work, peer.order).met
        at_work.advance(7)  # from where it is
        np.testing.assert_allclose(at_work.parameters(), by_formula(work, peer.order, 27), atol=1e-6)
