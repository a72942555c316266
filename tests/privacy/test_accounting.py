"""Releases that look at all records: against closed forms, sums, and dp-accounting called directly."""

import itertools
import math

import pytest
from dp_accounting.pld.privacy_loss_distribution import from_gaussian_mechanism

from jdfl.privacy import GaussianEvent, LaplaceEvent, epsilon, epsilon_pure, epsilon_rdp, gaussian_epsilon
from jdfl.privacy.accounting import Adjacency
from tests.refused import each_refused, refused

ADJACENCIES: list[Adjacency] = ["replace-one", "add-remove"]
GRID = [  # noise, releases, delta: epsilons from below .003 to 100 and more
    (0.2, 2, 1e-5),
    (0.7, 3, 1e-12),
    (30.0, 1, 1e-5),
    (4000.0, 50, 1e-6),
    (1 / 20, 1, 1e-5),
    (1.0, 3, 1e-15),
    (1.0, 3, 1e-20),
    (1.0, 3, 1e-200),
]


@pytest.mark.parametrize("case", GRID, ids=str)
def test_gaussian_releases_agree_with_the_closed_form(case):
    z, releases, delta = case
    exact = gaussian_epsilon(math.sqrt(releases) / z, delta)
    if releases > 1 and delta > 1e-13:  # of dp-accounting, from above
        composed = from_gaussian_mechanism(z, value_discretization_interval=1e-4 / z).self_compose(releases)
        assert exact <= composed.get_epsilon_for_delta(delta) <= exact * (1 + 1e-3)
    for adjacency in ADJACENCIES:  # dp-accounting would double the sensitivity under one of them
        found = epsilon(GaussianEvent(z), releases, delta, adjacency=adjacency)
        assert found == pytest.approx(exact, rel=1e-12)


def test_rdp_is_dp_accounting_s_and_the_looser_opinion():
    import dp_accounting
    from dp_accounting.rdp import RdpAccountant

    theirs = RdpAccountant().compose(dp_accounting.GaussianDpEvent(4.0), 30).get_epsilon(1e-5)
    for event, adjacency in itertools.product((GaussianEvent(4.0), LaplaceEvent(20.0)), ADJACENCIES):
        tight, loose = (f(event, 30, 1e-5, adjacency=adjacency) for f in (epsilon, epsilon_rdp))
        assert tight is not None
        assert loose is not None
        assert tight < loose < 1.5 * tight
        assert isinstance(event, LaplaceEvent) or loose == pytest.approx(theirs)


def test_pure_epsilons_add_up_and_laplace_releases_agree_with_closed_forms():
    for z, releases in [(1.0, 10), (100.0, 400), (0.1, 3), (0.001, 2), (1e4, 10**5), (3.0, 0)]:
        assert epsilon_pure(LaplaceEvent(z), releases) == releases / z
        assert epsilon(LaplaceEvent(z), releases, 1e-5) <= releases / z
        assert epsilon_pure(GaussianEvent(z), releases) is None
    assert epsilon(LaplaceEvent(1.0), 3, 1e-200) <= 3.0
    for z, delta in itertools.product([1e-3, 0.1, 1.0, 30.0], [1e-9, 1e-5, 1e-2]):
        exact = max(0.0, 1 / z + 2 * math.log1p(-delta))  # delta = 1 - exp((epsilon - 1 / z) / 2)
        assert exact <= epsilon(LaplaceEvent(z), 1, delta) <= exact * (1 + 1e-4)
    assert epsilon(LaplaceEvent(100.0), 10_000, 1e-5) == pytest.approx(gaussian_epsilon(1.0, 1e-5), rel=0.01)


def test_what_makes_no_sense_is_refused():
    wrong = {"releases": -1}, {"releases": 1.5}, {"delta": 0.0}, {"delta": 1.0}, {"adjacency": "both"}
    for door in (epsilon, epsilon_rdp):
        each_refused(door, *wrong, event=GaussianEvent(1.0), releases=1, delta=1e-5)
    with refused(noise_multiplier=0.0):
        epsilon(GaussianEvent(0.0), 1, 1e-5)
