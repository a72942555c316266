"""Releases that look at a random sample each: against integrals for pairs of neighbouring data sets."""

import itertools
import math

import numpy as np
import pytest
import scipy

from jdfl.privacy import GaussianEvent, LaplaceEvent, Sampled, epsilon, epsilon_pure, epsilon_rdp
from tests.privacy.numeric import LAWS, cells, delta_of, pair, together

EVENTS = {"gaussian": GaussianEvent, "laplace": LaplaceEvent}
KINDS = list(EVENTS)
ROUNDING = 1 + 1e-9  # of sums of a million numbers
# Where a sample puts the mean of a release without the record, with it, and with what replaces it: within 1.
CENTRES = [c for c in itertools.product((-0.5, 0.0, 0.5), repeat=3) if c[1] != c[2]]


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


@pytest.mark.parametrize("delta", [1e-9, 1e-4])
@pytest.mark.parametrize("rate", [0.1, 0.9])
@pytest.mark.parametrize(
    ("kind", "z"), [("gaussian", 0.2), ("gaussian", 0.5), ("gaussian", 2.0), ("laplace", 0.5), ("laplace", 2.0)]
)
def test_one_release_meets_the_bound_and_no_more(kind, z, rate, delta):
    eps = epsilon(EVENTS[kind](z), 1, delta, sampled=subset(rate))
    if eps == 0:
        assert exact_bound(kind, z, rate, 0.0) <= delta
    else:
        assert exact_bound(kind, z, rate, eps) <= delta * (1 + 1e-7)
        assert exact_bound(kind, z, rate, 0.999 * eps) > delta
    assert epsilon(EVENTS[kind](z), 1, delta, sampled=Sampled("poisson", round(rate * 1000), 1000)) <= eps


@pytest.mark.parametrize("delta", [1e-5, 1e-3])
@pytest.mark.parametrize("rate", [0.1, 0.5])
@pytest.mark.parametrize(("kind", "z"), [("gaussian", 0.6), ("gaussian", 2.0), ("laplace", 0.6)])
def test_no_pair_of_neighbours_exceeds_one_release(kind, z, rate, delta):
    eps = epsilon(EVENTS[kind](z), 1, delta, sampled=subset(rate))
    pairs = [pair(kind, z, rate, c, 20_001) for c in CENTRES]
    assert max(delta_of(one, eps) for one in pairs) <= delta * ROUNDING
    assert max(delta_of(one, 0.998 * eps) for one in pairs) > delta  # some pair attains it


@pytest.mark.parametrize("corner", [(0.5, math.sqrt(3) / 2), (0.5, 0.3), (-0.5, 0.4)], ids=["equal", "flat", "far"])
def test_changes_need_not_lie_on_a_line(corner):
    """Without the record the mean is 0, with it (1, 0) or, replaced, at `corner`."""
    rate, z, delta = 0.3, 0.8, 1e-4
    first = [cells("gaussian", z, centre, 801) for centre in (0.0, 1.0, corner[0])]
    second = [cells("gaussian", z, centre, 801) for centre in (0.0, 0.0, corner[1])]
    c, a, b = (np.outer(f, s).ravel() for f, s in zip(first, second))
    scale = max(1.0, math.dist((1, 0), corner))  # the change, in units of which the noise is counted
    eps = epsilon(GaussianEvent(z / scale), 1, delta, sampled=subset(rate))
    for one, other in ((a, b), (b, a)):
        assert delta_of(((1 - rate) * c + rate * one, (1 - rate) * c + rate * other), eps) <= delta * ROUNDING


@pytest.mark.parametrize("delta", [1e-4, 1e-2])
@pytest.mark.parametrize("rate", [0.1, 0.5])
@pytest.mark.parametrize(("kind", "z"), [("gaussian", 0.7), ("gaussian", 1.5), ("laplace", 1.0)])
def test_no_two_pairs_of_neighbours_exceed_two_releases(kind, z, rate, delta):
    """Also different pairs one after the other, as an adaptive algorithm would meet them."""
    eps = epsilon(EVENTS[kind](z), 2, delta, sampled=subset(rate))
    triples = [(-0.5, 0.5, -0.5), (-0.5, -0.5, 0.5), (0.0, -0.5, 0.5), (0.5, -0.5, 0.0), (-0.5, 0.5, 0.0)]
    pairs = [pair(kind, z, rate, c, 401) for c in triples]
    found = [delta_of(together(one, two), eps) for one, two in itertools.combinations_with_replacement(pairs, 2)]
    assert max(found) <= delta * ROUNDING
    assert max(found) > 0.3 * delta  # the bound is near


@pytest.mark.parametrize("delta", [1e-4, 1e-2])
@pytest.mark.parametrize(("kind", "z"), [("gaussian", 1.0), ("laplace", 1.5)])
def test_no_pair_of_neighbours_exceeds_two_looks_at_one_sample(kind, z, delta):
    rate = 0.2
    eps = epsilon(EVENTS[kind](z), 2, delta, sampled=subset(rate, looks=2))
    triples = [(-0.5, 0.5, -0.5), (-0.5, -0.5, 0.5), (0.0, -0.5, 0.5), (0.5, -0.5, 0.0)]
    found = [delta_of(pair(kind, z, rate, c, 401, looks=2), eps) for c in triples]
    assert max(found) <= delta * ROUNDING
    assert max(found) > (0.9 if kind == "gaussian" else 0.1) * delta
    assert eps > epsilon(EVENTS[kind](z), 2, delta, sampled=subset(rate))  # a sample of its own each is less
    assert eps < epsilon(EVENTS[kind](z), 2, delta)


@pytest.mark.parametrize("releases", [1, 3, 4, 7])
@pytest.mark.parametrize("looks", [1, 2, 5])
@pytest.mark.parametrize("kind", KINDS)
def test_a_sample_of_everything_is_everything(kind, looks, releases):
    event, every = EVENTS[kind](1.3), Sampled("subset", 50, 50, looks)
    assert epsilon(event, releases, 1e-5, sampled=every) == pytest.approx(epsilon(event, releases, 1e-5), rel=1e-3)
    assert epsilon(event, releases, 1e-5, sampled=every) <= epsilon(event, releases, 1e-5)
    assert epsilon_pure(event, releases, sampled=every) == epsilon_pure(event, releases)


@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("z", [0.1, 0.5, 3.0])
def test_sampling_never_makes_it_worse(z, kind, adjacency):
    event = EVENTS[kind](z)
    for rate, looks, releases in ((0.2, 1, 50), (0.8, 3, 4), (0.8, 3, 50)):
        sampled = Sampled("poisson", round(rate * 100), 100, looks)
        with_it = epsilon(event, releases, 1e-5, sampled=sampled, adjacency=adjacency)
        assert with_it <= epsilon(event, releases, 1e-5, adjacency=adjacency)
        if kind == "laplace":
            pure, sum_of_all = epsilon_pure(event, releases, sampled=sampled), epsilon_pure(event, releases)
            assert pure is not None
            assert sum_of_all is not None
            assert with_it <= pure
            assert pure <= sum_of_all


def test_totals_rise_with_releases_and_rate_and_fall_with_noise():
    def total(z=1.0, releases=20, rate=0.1, delta=1e-5):
        return epsilon(GaussianEvent(z), releases, delta, sampled=subset(rate))

    for totals in (
        [total(releases=k) for k in (0, 1, 2, 50, 200)],
        [total(rate=r) for r in (0.05, 0.2, 0.9)],
        [total(z=z) for z in (8.0, 1.0, 0.3, 0.21, 0.19)],
        [total(delta=d) for d in (1e-2, 1e-5, 1e-9, 1e-12)],
    ):
        assert all(a < b for a, b in itertools.pairwise(totals))


@pytest.mark.parametrize(("z", "rate", "releases"), [(1.0, 0.1, 50), (0.7, 0.02, 300), (3.0, 0.5, 20)])
def test_poisson_under_add_remove_is_what_dp_accounting_says(z, rate, releases):
    import dp_accounting
    from dp_accounting.pld import PLDAccountant

    sampled = Sampled("poisson", round(rate * 1000), 1000)
    found = epsilon(GaussianEvent(z), releases, 1e-5, sampled=sampled, adjacency="add-remove")
    event = dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(z))
    accountant = PLDAccountant(dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE, 1e-3)
    assert found == pytest.approx(accountant.compose(event, releases).get_epsilon(1e-5), rel=2e-3)
    rdp = epsilon_rdp(GaussianEvent(z), releases, 1e-5, sampled=sampled, adjacency="add-remove")
    assert rdp is not None
    assert found < rdp < 1.6 * found


@pytest.mark.parametrize(("z", "rate"), [(1.0, 0.05), (2.0, 0.3)])
def test_replacing_with_twice_the_sensitivity_costs_more_than_removing(z, rate):
    """A record's contribution is at most half of what replacing it changes."""
    sampled = Sampled("poisson", round(rate * 1000), 1000)
    replaced = epsilon(GaussianEvent(z), 100, 1e-5, sampled=sampled)
    removed = epsilon(GaussianEvent(2 * z), 100, 1e-5, sampled=sampled, adjacency="add-remove")
    assert removed < replaced < epsilon(GaussianEvent(z), 100, 1e-5, sampled=subset(rate))


def test_subsets_have_a_second_opinion_and_poisson_has_none():
    event = GaussianEvent(2.0)
    found, rdp = (f(event, 40, 1e-5, sampled=subset(0.05)) for f in (epsilon, epsilon_rdp))
    assert found is not None
    assert rdp is not None
    assert found < rdp
    assert epsilon_rdp(event, 40, 1e-5, sampled=Sampled("poisson", 50, 1000)) is None


def test_a_few_releases_are_not_charged_for_looks_that_were_not_taken():
    sampled = subset(0.1, looks=4)
    event = LaplaceEvent(2.0)
    assert epsilon(event, 1, 1e-6, sampled=sampled) == epsilon(event, 1, 1e-6, sampled=subset(0.1))
    assert epsilon_pure(event, 1, sampled=sampled) == epsilon_pure(event, 1, sampled=subset(0.1))
    assert epsilon(event, 0, 1e-6, sampled=sampled) == epsilon_pure(event, 0, sampled=sampled) == 0.0


@pytest.mark.parametrize("z", [1e-3, 1e-6])
def test_pure_epsilons_of_very_little_noise_do_not_overflow(z):
    found = epsilon_pure(LaplaceEvent(z), 1, sampled=subset(0.1))
    assert found == pytest.approx(1 / z + math.log(0.1), rel=1e-9)


@pytest.mark.parametrize(
    ("sampled", "adjacency", "words"),
    [
        (Sampled("subset", 0, 10), "replace-one", "batch = 0"),
        (Sampled("subset", 11, 10), "replace-one", "batch = 11"),
        (Sampled("subset", 1, 10, looks=0), "replace-one", "looks = 0"),
        (Sampled("some", 1, 10), "replace-one", "kind = 'some'"),  # pyright: ignore[reportArgumentType]
        (Sampled("subset", 1, 10), "add-remove", "Poisson"),
    ],
    ids=["empty", "more", "looks", "kind", "adjacency"],
)
def test_samples_that_make_no_sense_are_refused(sampled, adjacency, words):
    for call in (epsilon, epsilon_rdp):
        with pytest.raises(ValueError, match=words):
            call(GaussianEvent(1.0), 1, 1e-5, sampled=sampled, adjacency=adjacency)
