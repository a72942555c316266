"""The comparisons with other packages: their shared work and tables, and that they agree where they are installed."""

import numpy as np
import pytest

from benchmarks import common, originals, page, peers
from tests.later import Later

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


def test_jdfl_follows_the_formula_in_either_order_and_goes_on():
    for order in ("combine-then-adapt", "adapt-then-combine"):
        work = TINY().jdfl(order, 10)
        for rounds in (10, 20):
            np.testing.assert_allclose(work(), by_formula(TINY(), order, rounds), atol=1e-6)


@pytest.mark.filterwarnings("ignore")  # of packages that are not ours
@pytest.mark.parametrize("peer", peers.PEERS, ids=lambda peer: peer.package)
def test_peers_agree(peer):
    module = pytest.importorskip(peer.module, exc_type=ImportError)
    for name, make in module.SAME.items():
        at_work = make(TINY().A, TINY().b, TINY().W, TINY().lr)
        assert peers.check(name, at_work, TINY(), peer.order).met


def test_every_original_was_compared_and_differs_where_the_table_says_so():
    table = common.read(page.RESULTS / "originals.json").rows
    for pair in originals.PAIRS:
        found = [one for one in table if one.case.startswith(f"{pair.name}, ") and one.unit == "relative"]
        assert [one.met for one in found] == ([None, True] if pair.why else [True]), pair.name
