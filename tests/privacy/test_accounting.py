"""Releases that look at all records: against closed forms, sums, and dp-accounting called directly."""

import itertools
import math

import numpy as np
import pytest

import jdfl
from jdfl.privacy import GaussianEvent, LaplaceEvent, epsilon, epsilon_pure, epsilon_rdp, gaussian_epsilon
from jdfl.privacy.accounting import Adjacency

ADJACENCIES: list[Adjacency] = ["replace-one", "add-remove"]
GRID = [  # noise, releases, delta: epsilons from .003 to 60
    *itertools.product([0.7, 3.0, 30.0], [1, 3, 100], [1e-12, 1e-5, 0.1]),
    (1500.0, 1, 1e-6),
    (4000.0, 50, 1e-6),
    (0.2, 2, 1e-5),
]


def identity(case):
    return "-".join(f"{value:g}" for value in case)


@pytest.mark.parametrize("case", GRID, ids=identity)
def test_gaussian_releases_agree_with_the_closed_form(case):
    z, releases, delta = case
    exact = gaussian_epsilon(math.sqrt(releases) / z, delta)
    for adjacency in ADJACENCIES:
        found = epsilon(GaussianEvent(z), releases, delta, adjacency=adjacency)
        assert exact <= found <= exact * (1 + 1e-3)


def test_the_grid_reaches_from_small_to_large():
    exact = [gaussian_epsilon(math.sqrt(releases) / z, delta) for z, releases, delta in GRID]
    assert min(e for e in exact if e > 0) < 0.01
    assert max(exact) > 50


@pytest.mark.parametrize("mu", [19.99, 20.01, 100.0])
def test_there_is_no_jump_where_the_closed_form_takes_over(mu):
    assert epsilon(GaussianEvent(1 / mu), 1, 1e-5) == pytest.approx(gaussian_epsilon(mu, 1e-5), rel=1e-4)


@pytest.mark.parametrize("delta", [1e-15, 1e-20, 1e-30, 1e-200])
def test_tiny_deltas_have_finite_epsilons(delta):
    exact = gaussian_epsilon(math.sqrt(3.0), delta)
    assert exact <= epsilon(GaussianEvent(1.0), 3, delta) <= 1.001 * exact
    assert epsilon(LaplaceEvent(1.0), 3, delta) <= 3.0


def direct(accountant, relation, z, releases, delta):
    import dp_accounting

    event = dp_accounting.GaussianDpEvent(z)
    return accountant(neighboring_relation=relation).compose(event, releases).get_epsilon(delta)


@pytest.mark.parametrize("z", [2.0, 5.0])
def test_dp_accounting_doubles_the_sensitivity_in_one_of_its_accountants_only(z):
    """Which is why `epsilon` never passes REPLACE_ONE to the other."""
    from dp_accounting import NeighboringRelation, pld, rdp

    releases, delta, mu = 3, 1e-5, math.sqrt(3) / z
    once, twice = gaussian_epsilon(mu, delta), gaussian_epsilon(2 * mu, delta)
    assert direct(pld.PLDAccountant, NeighboringRelation.ADD_OR_REMOVE_ONE, z, releases, delta) == pytest.approx(
        once, rel=1e-4
    )
    assert direct(pld.PLDAccountant, NeighboringRelation.REPLACE_ONE, z, releases, delta) == pytest.approx(
        twice, rel=1e-4
    )
    relations = (NeighboringRelation.ADD_OR_REMOVE_ONE, NeighboringRelation.REPLACE_ONE)
    both = [direct(rdp.RdpAccountant, relation, z, releases, delta) for relation in relations]
    assert both[0] == both[1]
    assert once < both[0] < 1.2 * once < twice
    for adjacency in ADJACENCIES:
        assert epsilon(GaussianEvent(z), releases, delta, adjacency=adjacency) == pytest.approx(once, rel=1e-4)
        assert epsilon_rdp(GaussianEvent(z), releases, delta, adjacency=adjacency) == pytest.approx(both[0])


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("event", [GaussianEvent(4.0), LaplaceEvent(20.0)], ids=["gaussian", "laplace"])
def test_rdp_is_the_looser_opinion(event, adjacency):
    tight, loose = (f(event, 30, 1e-5, adjacency=adjacency) for f in (epsilon, epsilon_rdp))
    assert tight is not None
    assert loose is not None
    assert tight < loose < 1.5 * tight


@pytest.mark.parametrize(("z", "releases"), [(2.0, 1), (2.0, 3), (0.1, 7), (3.0, 0)])
def test_pure_epsilons_add_up(z, releases):
    assert epsilon_pure(LaplaceEvent(z), releases) == releases / z
    assert epsilon_pure(GaussianEvent(z), releases) is None


@pytest.mark.parametrize("delta", [1e-12, 1e-5, 1e-2])
@pytest.mark.parametrize(("z", "releases"), [(1.0, 10), (100.0, 400), (0.1, 3), (0.001, 2), (1e4, 10**5)])
def test_laplace_is_never_above_the_pure_sum(z, releases, delta):
    assert epsilon(LaplaceEvent(z), releases, delta) <= releases / z


@pytest.mark.parametrize("delta", [1e-9, 1e-5, 1e-2])
@pytest.mark.parametrize("z", [0.1, 1.0, 30.0])
def test_one_laplace_release_agrees_with_its_closed_form(z, delta):
    exact = max(0.0, 1 / z + 2 * math.log1p(-delta))  # delta = 1 - exp((epsilon - 1 / z) / 2)
    found = epsilon(LaplaceEvent(z), 1, delta)
    assert exact <= found <= exact * (1 + 1e-4)


def laplace_loss(shift, step):
    """Chances of the losses -shift, ..., shift in steps of `step` of a shifted Laplace release, rounded up."""
    losses = step * np.arange(-round(shift / step), round(shift / step) + 1)
    at_most = np.exp(-(shift - losses) / 2) / 2  # and the rest at `shift` itself
    at_most[-1] = 1.0
    return np.diff(at_most, prepend=0.0)


@pytest.mark.parametrize("total", [0.5, 3.0])
@pytest.mark.parametrize("split", [(0.5, 0.5), (0.9, 0.1), (0.7, 0.2, 0.1), (0.25,) * 4], ids=identity)
def test_a_change_of_one_entry_is_the_worst_for_laplace_noise(split, total):
    """Of changes of several entries with the same l1 norm; so one entry is what is accounted for."""
    step = total / 1000
    chances = np.ones(1)
    for share in split:
        chances = np.convolve(chances, laplace_loss(share * total, step))
    losses = step * (np.arange(len(chances)) - len(chances) // 2)
    gaps = []
    for eps in np.linspace(0, 0.99 * total, 40):
        several = np.sum(chances * np.maximum(0.0, -np.expm1(eps - losses)))
        one = -math.expm1((eps - total) / 2)
        rounded = -math.expm1((eps - len(split) * step - total) / 2)  # losses were rounded up by so much together
        assert several <= rounded
        gaps.append(1 - several / one)
    assert max(gaps) > 0.05


def test_many_small_laplace_releases_are_nearly_gaussian():
    found = epsilon(LaplaceEvent(100.0), 10_000, 1e-5)
    assert found == pytest.approx(gaussian_epsilon(1.0, 1e-5), rel=0.01)


@pytest.mark.parametrize("event", [GaussianEvent(5.0), LaplaceEvent(5.0)], ids=["gaussian", "laplace"])
def test_more_releases_cost_more_and_more_noise_less(event):
    totals = [epsilon(event, releases, 1e-5) for releases in (0, 1, 2, 5, 20, 100)]
    assert totals[0] == 0.0
    assert all(a < b for a, b in itertools.pairwise(totals))
    noise = [epsilon(type(event)(z), 20, 1e-5) for z in (0.5, 1.0, 2.0, 8.0, 64.0)]
    assert all(a > b for a, b in itertools.pairwise(noise))
    deltas = [epsilon(event, 20, delta) for delta in (1e-12, 1e-6, 1e-2, 0.3)]
    assert all(a > b for a, b in itertools.pairwise(deltas))


def test_what_a_paper_calls_two_is_thirteen():
    event = jdfl.classical_gaussian(2.0, 0.5).event()  # by the textbook formula at delta = 1 / 2
    assert epsilon(event, 3, 1e-5) == pytest.approx(13.6, abs=0.05)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: epsilon(GaussianEvent(0.0), 1, 1e-5), "noise_multiplier = 0.0"),
        (lambda: epsilon(GaussianEvent(1.0), -1, 1e-5), "releases = -1"),
        (lambda: epsilon(GaussianEvent(1.0), 1.5, 1e-5), "releases = 1.5"),  # pyright: ignore[reportArgumentType]
        (lambda: epsilon(GaussianEvent(1.0), 1, 0.0), "delta = 0.0"),
        (lambda: epsilon_rdp(GaussianEvent(1.0), 1, 1.0), "delta = 1.0"),
        (lambda: epsilon(GaussianEvent(1.0), 1, 1e-5, adjacency="both"), "adjacency = 'both'"),  # pyright: ignore
    ],
    ids=["noise", "releases", "fraction", "zero", "one", "adjacency"],
)
def test_what_makes_no_sense_is_refused(call, words):
    with pytest.raises(ValueError, match=words):
        call()
