"""The accountant lies between bounds that share nothing with it, and the record of benchmarks says so everywhere."""

import pytest

from benchmarks.accountants import own_bounds, sampled_pairs
from benchmarks.common import read
from benchmarks.page import RESULTS
from jdfl.privacy import GaussianEvent, Sampled, epsilon

SAMPLED = {"little noise": (0.3, 0.01, 10), "half of all": (5.0, 0.5, 100)}
DELTA = 1e-5


@pytest.mark.parametrize("case", SAMPLED)
def test_samples_cost_what_rounded_losses_say(case):
    z, rate, releases = SAMPLED[case]

    def found(z):
        sampled = Sampled("poisson", round(1000 * rate), 1000)
        return epsilon(GaussianEvent(z), releases, DELTA, sampled=sampled, adjacency="add-remove")

    low, high = own_bounds(sampled_pairs("norm", z, rate, "add-remove"), releases, DELTA, found(z))
    assert low <= found(z) <= 1.01 * high
    assert high <= 1.01 * low
    assert found(1.01 * z) < low  # an accountant that takes noise for one hundredth more is found out


def test_the_record_says_that_no_bound_is_missed():
    rows = [one for one in read(RESULTS / "accountants.json").rows if one.goal]
    assert len({one.case for one in rows}) >= 20
    assert all(one.met for one in rows)
