"""Laplace noise of another size in every release: against closed forms, sums, cells of a grid, dp-accounting."""

import itertools
import math
from functools import reduce

import numpy as np
import pytest
import scipy

from jdfl.privacy import (
    LaplaceEvent,
    LaplaceSchedule,
    Sampled,
    epsilon,
    epsilon_pure,
    epsilon_rdp,
    gaussian_epsilon,
    laplace,
    most_releases,
)
from tests.privacy.numeric import delta_of, pair, together

CENTRES = (0.5, 0.5, -0.5)  # of numeric.pair


def spread(least, most, count, seed=0):
    """Multipliers drawn log-uniformly: all different."""
    draw = np.random.default_rng(seed)
    return LaplaceSchedule(tuple(np.exp(draw.uniform(math.log(least), math.log(most), count)).tolist()))


# ---------------------------------------------------------------- the event


def test_a_schedule_is_a_value():
    one, other = LaplaceSchedule((0.5, 2.0)), LaplaceSchedule((0.5, 2.0))
    assert one == other
    assert hash(one) == hash(other)
    assert one != LaplaceSchedule((2.0, 0.5))
    assert (one.kind, one.noise_multiplier) == ("laplace", 0.5)
    assert len(repr(spread(0.1, 1.0, 1000))) < 100


@pytest.mark.parametrize(
    ("multipliers", "words"),
    [((), "at least one"), ((1.0, 0.0), r"multipliers\[1\] = 0.0"), ((math.nan,), "nan"), ((math.inf,), "inf")],
    ids=["none", "zero", "nan", "inf"],
)
def test_a_schedule_without_noise_is_refused(multipliers, words):
    with pytest.raises(ValueError, match=words):
        LaplaceSchedule(multipliers)


def test_more_releases_than_are_scheduled_are_refused():
    event = LaplaceSchedule((1.0, 2.0))
    for call in (lambda k: epsilon(event, k, 1e-5), lambda k: epsilon_rdp(event, k, 1e-5), lambda k: _pure(event, k)):
        call(2)
        with pytest.raises(
            ValueError, match="at most the 2 releases that the noise is scheduled for, got releases = 3"
        ):
            call(3)


def test_samples_are_refused():
    with pytest.raises(ValueError, match="sampled = None with noise that follows a schedule"):
        epsilon(LaplaceSchedule((1.0,)), 1, 1e-5, sampled=Sampled("subset", 1, 2))


# ---------------------------------------------------------------- totals


def _pure(event, releases):
    found = epsilon_pure(event, releases)
    assert found is not None
    return found


def _rdp(event, releases, delta):
    found = epsilon_rdp(event, releases, delta)
    assert found is not None
    return found


@pytest.mark.parametrize("delta", [1e-12, 1e-5, 0.1])
@pytest.mark.parametrize(("z", "releases"), [(0.2, 1), (1.0, 30), (40.0, 600), (3e-4, 7), (2.0, 720)])
def test_equal_noise_is_the_event_of_one_noise(z, releases, delta):
    event = LaplaceSchedule((z,) * (releases + 1))
    assert epsilon(event, releases, delta) == pytest.approx(epsilon(LaplaceEvent(z), releases, delta), rel=1e-9)
    assert _pure(event, releases) == pytest.approx(releases / z, rel=1e-12)
    assert epsilon(event, 0, delta) == _rdp(event, 0, delta) == _pure(event, 0) == 0.0


@pytest.mark.parametrize("delta", [1e-6, 1e-3, 0.1])
@pytest.mark.parametrize("noise", [(0.7, 2.0), (2.0, 2.5), (0.3, 1.0)], ids=["far", "near", "little"])
def test_two_different_releases_agree_with_cells(noise, delta):
    both = together(*(pair("laplace", z, 1.0, CENTRES, 1500) for z in noise))
    event = LaplaceSchedule(noise)
    for bound in (epsilon, _rdp):
        assert delta_of(both, bound(event, 2, delta)) <= delta
    assert delta_of(both, 0.995 * epsilon(event, 2, delta) - 1e-3) > delta


@pytest.mark.parametrize("noise", [(0.5, 3.0, 20.0, 3.0), (0.01, 0.02), (30.0, 50.0, 80.0) * 100], ids=len)
def test_rdp_is_dp_accounting_s_at_a_better_order(noise):
    import dp_accounting
    from dp_accounting.rdp import RdpAccountant

    theirs = RdpAccountant(neighboring_relation=dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE)
    for z in noise:
        theirs.compose(dp_accounting.LaplaceDpEvent(z))
    found = _rdp(LaplaceSchedule(noise), len(noise), 1e-5)
    assert 0.9 * theirs.get_epsilon(1e-5) < found <= theirs.get_epsilon(1e-5)
    assert epsilon(LaplaceSchedule(noise), len(noise), 1e-5) <= found


@pytest.mark.parametrize("z", [0.3, 1.0, 2.5, 7.0, 40.0, 150.0])
def test_the_order_of_rdp_is_the_best_of_all(z):
    count, delta, orders = 200, 1e-5, 1 + np.geomspace(1e-4, 1e7, 40_001)
    less, a = orders - 1, 1 / z
    one = np.logaddexp(np.log(orders) + less * a, np.log(less) - orders * a) - np.log(2 * orders - 1)
    bounds = count * one / less + np.log(less / orders) - np.log(orders * delta) / less
    assert _rdp(LaplaceEvent(z), count, delta) == pytest.approx(bounds.min(), rel=1e-6)


@pytest.mark.parametrize("later", [0.5, 50.0], ids=["less", "more"])
def test_releases_are_the_first_ones(later):
    event, alone = LaplaceSchedule((5.0,) * 10 + (later,) * 10), LaplaceEvent(5.0)
    assert epsilon(event, 10, 1e-5) == pytest.approx(epsilon(alone, 10, 1e-5), rel=1e-9)
    assert _rdp(event, 10, 1e-5) == pytest.approx(_rdp(alone, 10, 1e-5), rel=1e-9)
    assert _pure(event, 10) == _pure(alone, 10)


def test_thousands_of_releases_agree_with_dp_accounting():
    from dp_accounting.pld import privacy_loss_distribution as pld

    theirs = pld.from_laplace_mechanism(90.0, value_discretization_interval=1e-4).self_compose(2700)
    assert epsilon(LaplaceEvent(90.0), 2700, 1e-5) == pytest.approx(theirs.get_epsilon_for_delta(1e-5), rel=2e-3)


def test_the_order_of_releases_does_not_matter():
    event = spread(0.5, 50.0, 100)
    for other in (event.multipliers[::-1], tuple(sorted(event.multipliers))):
        turned = LaplaceSchedule(other)
        assert epsilon(turned, 100, 1e-5) == epsilon(event, 100, 1e-5)
        assert _rdp(turned, 100, 1e-5) == _rdp(event, 100, 1e-5)
        assert _pure(turned, 100) == _pure(event, 100)


@pytest.mark.parametrize("event", [spread(3.0, 30.0, 90), spread(3e-4, 2.0, 90)], ids=["much", "little"])
def test_every_release_costs(event):
    for total in (epsilon, _rdp, lambda event, k, _: _pure(event, k)):
        found = [total(event, k, 1e-5) for k in (0, 1, 2, 5, 20, 64, 65, 90)]
        assert found[0] == 0.0
        assert all(a < b for a, b in itertools.pairwise(found))
    assert epsilon(event, 90, 1e-9) > epsilon(event, 90, 1e-3)


@pytest.mark.parametrize(("least", "most", "rel"), [(5.0, 50.0, 0.03), (0.3, 1e4, 0.03)], ids=["decade", "far"])
def test_rounding_to_few_sizes_is_sound_and_little(least, most, rel):
    """The lower bound: dp-accounting's optimistic distributions of all sizes as they are."""
    from dp_accounting.pld import privacy_loss_distribution as pld

    event = spread(least, most, 150)
    found = epsilon(event, 150, 1e-5)
    step = 1e-3
    parts = [
        pld.from_laplace_mechanism(
            z, pessimistic_estimate=False, use_connect_dots=False, value_discretization_interval=step
        )
        for z in event.multipliers
    ]
    low = reduce(lambda one, other: one.compose(other), parts).get_epsilon_for_delta(1e-5)
    assert low < found < (1 + rel) * (low + 150 * step / 2)


@pytest.mark.parametrize(
    ("event", "more"), [(spread(3e-4, 2.0, 1000), 0.03), (spread(1.0, 1.001, 500, 1), 1e-5)], ids=["far", "near"]
)
def test_sizes_are_rounded_up_to_few_of_them(event, more):
    exact = 1 / np.asarray(event.multipliers)
    rounded = laplace.rounded(event)
    assert np.all(rounded >= exact)
    assert set(rounded) <= set(exact)
    assert 20 < len(set(rounded)) <= 64
    assert rounded.sum() < exact.sum() * (1 + more)
    few = LaplaceSchedule(event.multipliers[:64])
    np.testing.assert_array_equal(laplace.rounded(few), 1 / np.asarray(few.multipliers))


@pytest.mark.parametrize("size", [1e-3, 1.5, 1e200], ids=str)
def test_sizes_that_differ_by_rounding_alone_are_few(size):
    event = LaplaceSchedule(tuple((size * (1 + np.finfo(float).eps * np.arange(300))).tolist()))
    rounded = laplace.rounded(event)
    assert len(set(rounded)) <= 64 < len(set(event.multipliers))
    np.testing.assert_allclose(rounded, 1 / size, rtol=1e-12)
    assert np.all(rounded >= 1 / np.asarray(event.multipliers))


@pytest.mark.parametrize("delta", [1e-9, 1e-5, 1e-2])
@pytest.mark.parametrize("releases", [1, 20, 720])
def test_large_losses_are_added_up_as_well(releases, delta):
    """A release that is far from its neighbour falls short of its pure epsilon by 0 or 2 Exp(1), evenly."""
    draw = np.random.default_rng(3)
    event = LaplaceSchedule(tuple(draw.uniform(3e-4, 5e-4, releases).tolist()))
    x = np.concatenate([[0.0], np.geomspace(1e-6, 2 * releases + 40, 4000)])
    chances = scipy.stats.binom.pmf(np.arange(releases + 1), releases, 0.5)
    at_most = chances[0] + sum(
        c * scipy.stats.gamma(j, scale=2).cdf(x) for j, c in enumerate(chances) if j and c > 1e-16
    )
    # At epsilon = the sum - x, delta is the mean of 1 - e^-(x - short) where the sum falls short by less than x: it is
    # the integral of e^-(x - r) P(short <= r) over r < x.
    deltas, middle = np.zeros_like(x), (at_most[1:] + at_most[:-1]) / 2
    for i, step in enumerate(np.diff(x)):
        deltas[i + 1] = deltas[i] * math.exp(-step) + middle[i] * -math.expm1(-step)
    saved = float(np.interp(delta, deltas, x))
    found = _pure(event, releases) - epsilon(event, releases, delta)
    assert 0 <= found <= saved * (1 + 1e-3) + 1e-9 * _pure(event, releases)
    if releases > 1:
        assert found > 0.75 * saved


def test_a_million_releases_take_no_time():
    """By distributions up to there, by RDP beyond."""
    below, above = (epsilon(LaplaceEvent(1000.0), k, 1e-5) for k in (10**6, 10**6 + 1))
    assert 4.3 < below < above < 1.1 * below
    assert above == laplace.renyi_epsilon(LaplaceEvent(1000.0), 10**6 + 1, 1e-5)


# ---------------------------------------------------------------- the other way round


@pytest.mark.parametrize("loss", [0.01, 0.003])
def test_very_many_small_losses_are_nearly_normal(loss):
    """By the central limit theorem, with the mean loss loss - 1 + e^-loss; a grid too coarse for them adds more."""
    mu = math.sqrt(2 * 100_000 * (loss - 1 + math.exp(-loss)))
    assert epsilon(LaplaceEvent(1 / loss), 100_000, 1e-6) == pytest.approx(gaussian_epsilon(mu, 1e-6), rel=1e-3)


def test_the_number_of_releases_is_the_last_that_fits():
    event = spread(10.0, 100.0, 60)
    found = most_releases(event, 1.0, 1e-5)
    assert 1 < found < 60
    assert epsilon(event, found, 1e-5) <= 1.0 < epsilon(event, found + 1, 1e-5)


@pytest.mark.parametrize("length", [1, 2, 3, 7])
def test_no_more_releases_fit_than_are_scheduled(length):
    event = LaplaceSchedule((50.0,) * length)
    assert most_releases(event, 100.0, 1e-5) == length
    assert most_releases(event, 100.0, 1e-5, most=2) == min(2, length)
    assert most_releases(event, 1e-3, 1e-5) == 0
