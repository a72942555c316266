"""Releases that look at a random sample each: against integrals for pairs of neighbouring data sets."""

import itertools
import math

import pytest
import scipy

from jdfl.privacy import GaussianEvent, LaplaceEvent, Sampled, epsilon, epsilon_pure, epsilon_rdp
from tests.privacy.numeric import LAWS, delta_of, pair, together
from tests.refused import each_refused, refused

EVENTS = {"gaussian": GaussianEvent, "laplace": LaplaceEvent}
ROUNDING = 1 + 1e-9  # of sums of a million numbers
# Where a sample puts the mean of a release without the record, with it, and with what replaces it: within 1.
FAR = [(-0.5, 0.5, -0.5), (-0.5, -0.5, 0.5), (0.0, -0.5, 0.5), (0.5, -0.5, 0.0)]


def subset(rate, records=1000, looks=1):
    return Sampled("subset", round(rate * records), records, looks)


def exact_bound(kind, z, rate, eps):
    """Of (1 - r) N(0) + r N(1) from N(0) at e^eps, by integration."""
    law = LAWS[kind]

    def above(x):
        return max(rate * law.pdf(x, 1, z) - (math.expm1(eps) + rate) * law.pdf(x, 0, z), 0.0)

    knots = [-1, 0, 0.25, 0.5, 0.75, 1, 1.5, 2, 3, 5, 9, 20, 60]
    ratio = math.log((math.expm1(eps) + rate) / rate)
    knots = sorted({*knots, 0.5 + z**2 * ratio if kind == "gaussian" else 0.5 + z * ratio / 2})
    return sum(scipy.integrate.quad(above, a, b, epsabs=1e-17, epsrel=1e-9)[0] for a, b in itertools.pairwise(knots))


@pytest.mark.parametrize(
    ("kind", "z", "rate", "delta"),
    [("gaussian", 2.0, 0.5, 1e-9), ("laplace", 0.5, 0.1, 1e-9), ("laplace", 2.0, 0.9, 1e-4)],
)
def test_one_release_meets_the_bound_and_no_more(kind, z, rate, delta):
    eps = epsilon(EVENTS[kind](z), 1, delta, sampled=subset(rate))
    assert exact_bound(kind, z, rate, eps) <= delta * (1 + 1e-7)
    assert exact_bound(kind, z, rate, 0.999 * eps) > delta
    assert epsilon(EVENTS[kind](z), 1, delta, sampled=Sampled("poisson", round(rate * 1000), 1000)) <= eps


@pytest.mark.parametrize(("kind", "z", "rate", "delta"), [("gaussian", 0.7, 0.1, 1e-4), ("laplace", 1.0, 0.1, 1e-4)])
def test_no_two_pairs_of_neighbours_exceed_two_releases(kind, z, rate, delta):
    """Also different pairs one after the other, as an adaptive algorithm would meet them."""
    eps = epsilon(EVENTS[kind](z), 2, delta, sampled=subset(rate))
    pairs = [pair(kind, z, rate, c, 401) for c in [*FAR, (-0.5, 0.5, 0.0)]]
    found = [delta_of(together(one, two), eps) for one, two in itertools.combinations_with_replacement(pairs, 2)]
    assert 0.3 * delta < max(found) <= delta * ROUNDING


@pytest.mark.parametrize(("kind", "z", "near"), [("gaussian", 1.0, 0.9), ("laplace", 1.5, 0.1)])
def test_no_pair_of_neighbours_exceeds_two_looks_at_one_sample(kind, z, near):
    rate, delta = 0.2, 1e-4
    eps = epsilon(EVENTS[kind](z), 2, delta, sampled=subset(rate, looks=2))
    found = [delta_of(pair(kind, z, rate, c, 401, looks=2), eps) for c in FAR]
    assert near * delta < max(found) <= delta * ROUNDING
    assert eps > epsilon(EVENTS[kind](z), 2, delta, sampled=subset(rate))  # a sample of its own each is less
    assert eps < epsilon(EVENTS[kind](z), 2, delta)


@pytest.mark.parametrize("kind", EVENTS)
def test_a_sample_of_everything_is_everything(kind):
    event = EVENTS[kind](1.3)
    for looks, releases in [(1, 3), (2, 1), (2, 7), (5, 4)]:
        every = Sampled("subset", 50, 50, looks)
        found, plain = epsilon(event, releases, 1e-5, sampled=every), epsilon(event, releases, 1e-5)
        assert plain * (1 - 1e-3) <= found <= plain
        assert epsilon_pure(event, releases, sampled=every) == epsilon_pure(event, releases)


def test_poisson_under_add_remove_is_what_dp_accounting_says():
    import dp_accounting
    from dp_accounting.pld import PLDAccountant

    z, rate, releases = 3.0, 0.5, 20
    sampled = Sampled("poisson", round(rate * 1000), 1000)
    found = epsilon(GaussianEvent(z), releases, 1e-5, sampled=sampled, adjacency="add-remove")
    event = dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(z))
    accountant = PLDAccountant(dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE, 1e-3)
    assert found == pytest.approx(accountant.compose(event, releases).get_epsilon(1e-5), rel=2e-3)
    rdp = epsilon_rdp(GaussianEvent(z), releases, 1e-5, sampled=sampled, adjacency="add-remove")
    assert rdp is not None
    assert found < rdp < 1.6 * found


def test_replacing_costs_more_than_removing_and_looks_that_were_not_taken_cost_nothing():
    """A record's contribution is at most half of what replacing it changes."""
    sampled = Sampled("poisson", 50, 1000)
    replaced = epsilon(GaussianEvent(1.0), 100, 1e-5, sampled=sampled)
    removed = epsilon(GaussianEvent(2.0), 100, 1e-5, sampled=sampled, adjacency="add-remove")
    subsets, rdp = (f(GaussianEvent(1.0), 100, 1e-5, sampled=subset(0.05)) for f in (epsilon, epsilon_rdp))
    assert removed < replaced < subsets < rdp
    assert epsilon_rdp(GaussianEvent(1.0), 100, 1e-5, sampled=sampled) is None  # there is no such bound
    sampled, event = subset(0.1, looks=4), LaplaceEvent(2.0)
    assert epsilon(event, 1, 1e-6, sampled=sampled) == epsilon(event, 1, 1e-6, sampled=subset(0.1))
    assert epsilon_pure(event, 1, sampled=sampled) == epsilon_pure(event, 1, sampled=subset(0.1))
    assert epsilon(event, 0, 1e-6, sampled=sampled) == epsilon_pure(event, 0, sampled=sampled) == 0.0
    for z in (1e-3, 1e-6):
        found = epsilon_pure(LaplaceEvent(z), 1, sampled=subset(0.1))
        assert found == pytest.approx(1 / z + math.log(0.1), rel=1e-9)


def test_samples_that_make_no_sense_are_refused():
    def door(**sample):
        epsilon_rdp(GaussianEvent(1.0), 1, 1e-5, sampled=Sampled(**sample))
        return epsilon(GaussianEvent(1.0), 1, 1e-5, sampled=Sampled(**sample))

    wrong = {"batch": 0}, {"batch": 11}, {"looks": 0}, {"kind": "some"}
    each_refused(door, *wrong, kind="subset", batch=1, records=10)
    with refused("adjacency"):
        epsilon(GaussianEvent(1.0), 1, 1e-5, sampled=Sampled("subset", 1, 10), adjacency="add-remove")
