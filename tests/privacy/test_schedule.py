"""Laplace noise of another size in every release: against closed forms, sums, cells of a grid, dp-accounting."""

import math
from functools import reduce

import numpy as np
import pytest

from jdfl.privacy import (
    LaplaceEvent,
    LaplaceSchedule,
    Sampled,
    bounds,
    epsilon,
    epsilon_pure,
    epsilon_rdp,
    gaussian_epsilon,
    most_releases,
)
from tests.privacy.numeric import delta_of, pair, together
from tests.refused import each_refused, refused

CENTRES = (0.5, 0.5, -0.5)  # of numeric.pair


def spread(least, most, count, seed=0):
    """Multipliers drawn log-uniformly: all different."""
    draw = np.random.default_rng(seed)
    return LaplaceSchedule(tuple(np.exp(draw.uniform(math.log(least), math.log(most), count)).tolist()))


def test_a_schedule_is_a_value_with_noise_in_every_release_and_no_more_are_refused():
    one = LaplaceSchedule((0.5, 2.0))
    assert {one} == {LaplaceSchedule((0.5, 2.0))} != {LaplaceSchedule((2.0, 0.5))}
    assert (one.kind, one.noise_multiplier) == ("laplace", 0.5)
    for multipliers in ((), (1.0, 0.0), (math.nan,), (math.inf,)):
        with refused("multipliers"):
            LaplaceSchedule(multipliers)
    event = LaplaceSchedule((1.0, 2.0))
    for door in (epsilon, epsilon_rdp):
        each_refused(door, {"releases": 3}, {"sampled": Sampled("subset", 1, 2)}, event=event, releases=2, delta=1e-5)
    each_refused(epsilon_pure, {"releases": 3}, event=event)


def _rdp(event, releases, delta):
    found = epsilon_rdp(event, releases, delta)
    assert found is not None
    return found


@pytest.mark.parametrize(("z", "releases"), [(0.2, 1), (40.0, 600), (3e-4, 7), (2.0, 720)])
def test_equal_noise_is_the_event_of_one_noise_whatever_is_scheduled_later(z, releases):
    event = LaplaceSchedule((*(z,) * releases, z / 10, 10 * z))
    for delta in (1e-12, 0.1):
        assert epsilon(event, releases, delta) == pytest.approx(epsilon(LaplaceEvent(z), releases, delta), rel=1e-9)
        assert _rdp(event, releases, delta) == pytest.approx(_rdp(LaplaceEvent(z), releases, delta), rel=1e-9)
        assert epsilon(event, 0, delta) == _rdp(event, 0, delta) == epsilon_pure(event, 0) == 0.0
    assert epsilon_pure(event, releases) == pytest.approx(releases / z, rel=1e-12)


@pytest.mark.parametrize("noise", [(0.7, 2.0), (2.0, 2.5), (0.3, 1.0)], ids=["far", "near", "little"])
def test_two_different_releases_agree_with_cells(noise):
    both = together(*(pair("laplace", z, 1.0, CENTRES, 1500) for z in noise))
    event = LaplaceSchedule(noise)
    for delta in (1e-6, 0.1):
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


@pytest.mark.parametrize(("least", "most"), [(5.0, 50.0), (0.3, 1e4)], ids=["decade", "far"])
def test_rounding_to_few_sizes_is_sound_and_little(least, most):
    """The lower bound: dp-accounting's optimistic distributions of all sizes as they are."""
    from dp_accounting.pld import privacy_loss_distribution as pld

    event, step = spread(least, most, 150), 1e-3
    how = {"pessimistic_estimate": False, "use_connect_dots": False, "value_discretization_interval": step}
    parts = [pld.from_laplace_mechanism(z, **how) for z in event.multipliers]
    low = reduce(lambda one, other: one.compose(other), parts).get_epsilon_for_delta(1e-5)
    assert low < epsilon(event, 150, 1e-5) < 1.03 * (low + 150 * step / 2)


def test_sizes_are_rounded_up_to_few_of_them():
    rounding = LaplaceSchedule(tuple((1.5 * (1 + np.finfo(float).eps * np.arange(300))).tolist()))
    for event, more in [(spread(3e-4, 2.0, 1000), 0.03), (spread(1.0, 1.001, 500, 1), 1e-5), (rounding, 1e-12)]:
        exact = 1 / np.asarray(event.multipliers)
        rounded = bounds.rounded(event)
        assert np.all(rounded >= exact)
        assert len(set(rounded)) <= 64 < len(set(exact))
        assert rounded.sum() < exact.sum() * (1 + more)
    few = LaplaceSchedule(event.multipliers[:64])
    np.testing.assert_array_equal(bounds.rounded(few), 1 / np.asarray(few.multipliers))


def test_very_many_releases_are_nearly_normal_and_take_no_time():
    """By distributions up to a million, by RDP beyond; a grid too coarse for small losses would add more."""
    loss = 0.003
    mu = math.sqrt(2 * 100_000 * (loss - 1 + math.exp(-loss)))  # the mean loss is loss - 1 + e^-loss
    assert epsilon(LaplaceEvent(1 / loss), 100_000, 1e-6) == pytest.approx(gaussian_epsilon(mu, 1e-6), rel=1e-3)
    below, above = (epsilon(LaplaceEvent(1000.0), k, 1e-5) for k in (10**6, 10**6 + 1))
    assert 4.3 < below < above < 1.1 * below
    assert above == bounds.laplace_renyi(LaplaceEvent(1000.0), 10**6 + 1, 1e-5)


def test_no_more_releases_fit_than_are_scheduled():
    for length in (1, 3, 7):
        event = LaplaceSchedule((50.0,) * length)
        assert most_releases(event, 100.0, 1e-5) == length
        assert most_releases(event, 100.0, 1e-5, most=2) == min(2, length)
        assert most_releases(event, 1e-3, 1e-5) == 0
