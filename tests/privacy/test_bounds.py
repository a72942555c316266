"""All bounds of sampled releases, each against integrals that use none of them; and that the least is taken."""

import itertools
import math

import numpy as np
import pytest

from jdfl.privacy import GaussianEvent, LaplaceEvent, Sampled, epsilon, epsilons, gaussian_epsilon, numerical, replaced
from jdfl.privacy.analytic import participating_epsilon
from tests.privacy.numeric import bracket, cells, delta_of, pair, together

ROUNDING = 1 + 1e-9


def poisson(rate):
    return Sampled("poisson", round(1000 * rate), 1000)


def test_little_noise_is_accounted_for_as_what_it_is():
    z, rate, steps = 0.19, 0.01, 10
    low, high = bracket(z, rate, steps, 1e-5)
    found = epsilons(GaussianEvent(z), steps, 1e-5, sampled=poisson(rate), adjacency="add-remove")
    total = epsilon(GaussianEvent(z), steps, 1e-5, sampled=poisson(rate), adjacency="add-remove")
    assert 41.23 <= low <= total <= high * ROUNDING <= 41.24
    assert total == min(found.values())
    assert found["RDP"] > 1.2 * total
    assert found["all records"] > 4 * total
    assert participating_epsilon(z, rate, steps, 1e-5) >= low  # who knows the samples knows more


@pytest.mark.parametrize(
    ("event", "releases", "options", "name"),
    [
        (GaussianEvent(1.0), 5, {}, "PLD"),
        (GaussianEvent(0.02), 3, {}, "closed form"),
        (GaussianEvent(0.02), 3, {"sampled": poisson(0.001)}, "participations"),
        (GaussianEvent(0.02), 3, {"sampled": poisson(0.001), "adjacency": "add-remove"}, "numerical integration"),
        (LaplaceEvent(1e-2), 400, {}, "RDP"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_least_bound_is_used_and_named(event, releases, options, name):
    found = epsilons(event, releases, 1e-5, **options)
    assert min(found, key=found.__getitem__) == name
    assert epsilon(event, releases, 1e-5, **options) == found[name]


def exact_delta(z, rate, eps):
    """Of one sample under add-remove, the larger of both directions, by sums over fine cells."""
    out, inside = (cells("gaussian", z, centre, 400_001) for centre in (0.0, 1.0))
    mixed = (1 - rate) * out + rate * inside
    return max(delta_of((mixed, out), eps), delta_of((out, mixed), eps))


@pytest.mark.parametrize(("z", "rate", "delta"), [(0.3, 0.01, 1e-8), (1.0, 0.1, 1e-3), (2.0, 0.9, 1e-8)])
def test_the_bracket_holds_one_sample(z, rate, delta):
    low, high = bracket(z, rate, 1, delta)
    assert exact_delta(z, rate, high) <= delta * ROUNDING
    assert exact_delta(z, rate, 0.999 * high) > delta
    assert 0.99 * high <= low <= high


def test_the_bracket_holds_two_samples():
    z, rate, delta = 0.8, 0.3, 1e-4
    high = numerical.upper_bound(z, rate, 2, delta)
    one = pair("gaussian", z, rate, (0.0, 1.0, 0.0), 1501)
    removed, added = together(one, one), together(one[::-1], one[::-1])
    assert 0.98 * delta < max(delta_of(removed, high), delta_of(added, high)) <= delta * ROUNDING


def test_samples_of_everything_are_the_closed_form():
    for (z, steps), delta in itertools.product([(2.0, 1), (10.0, 40), (0.5, 3)], [1e-5, 1e-100]):
        exact = gaussian_epsilon(math.sqrt(steps) / z, delta)
        assert numerical.upper_bound(z, 1 - 1e-13, steps, delta) == pytest.approx(exact, rel=1e-3)
        assert participating_epsilon(z, 1.0, steps, delta) == pytest.approx(exact, rel=1e-4)


def without_losses_above_the_grid(patch):
    whole = numerical._Pair.log_masses

    def planted(self, ends):
        return [np.append(one[:-1], -np.inf) for one in whole(self, ends)]

    patch.setattr(numerical._Pair, "log_masses", planted)


def without_sums_above_the_window(patch):
    patch.setattr(numerical._Sum, "above", lambda self, e: self.inside(e) + self.most(e) * self.error)


@pytest.mark.parametrize(("z", "rate"), [(1.0, 0.1), (2.0, 0.9)])
def test_tails_that_are_cut_off_count(z, rate, monkeypatch):
    """With a large part of the tails cut off the upper bound holds if that is counted, and fails if it is not."""
    low, _ = bracket(z, rate, 1, 1e-3)
    monkeypatch.setattr(numerical, "_NEGLIGIBLE", 0.3)
    assert numerical.upper_bound(z, rate, 1, 1e-3) >= low
    without_losses_above_the_grid(monkeypatch)
    without_sums_above_the_window(monkeypatch)
    assert numerical.upper_bound(z, rate, 1, 1e-3) < low


def test_the_numerical_bound_moves_the_right_way():
    def total(z=1.0, rate=0.05, steps=20, delta=1e-5):
        return numerical.upper_bound(z, rate, steps, delta)

    middle = total()
    assert total(z=4.0) < middle < total(z=0.4)
    assert total(rate=1e-3) < middle < total(rate=0.5)
    assert total(steps=1) < middle < total(steps=200)
    assert total(delta=1e-2) < middle < total(delta=1e-9)


def test_replacing_a_record_of_a_poisson_sample():
    """Above what the antipodal pair gives, and far below what subsets do."""
    found = epsilon(GaussianEvent(1.0), 100, 1e-5, sampled=poisson(0.01))
    assert found == pytest.approx(0.451, abs=1e-3)
    assert 0.344 < found < 0.6 * epsilon(GaussianEvent(1.0), 100, 1e-5, sampled=Sampled("subset", 10, 1000))


@pytest.mark.parametrize(
    ("kind", "z", "rate"),
    [("gaussian", 0.4, 0.1), ("gaussian", 3.0, 0.6), ("gaussian", 1.0, 1e-3), ("laplace", 0.7, 0.1)],
)
def test_no_pair_of_contributions_exceeds_the_profile(kind, z, rate):
    """Contributions on a line: antipodal, one of them nothing, and others."""
    largest = (0.5 + 6 * z) / z**2 if kind == "gaussian" else 1 / z
    eps = np.linspace(0, 0.9 * math.log1p(rate * math.expm1(largest)), 15)
    bound = replaced.divergence(kind, z, rate, eps, poisson=True)
    near = 0.0
    for a, b in [(0.5, -0.5), (0.5, 0.0), (0.0, 0.5), (0.5, 0.3), (0.2, -0.5), (0.5, -0.3)]:
        both = pair(kind, z, rate, (0.0, a, b), 40_001)
        for e, most in zip(eps, bound):
            found = delta_of(both, float(e))
            assert found <= most * (1 + 1e-7) + 1e-15
            near = max(near, found / most)
    assert near > 0.95  # at epsilon = 0
    assert np.all(bound <= replaced.divergence(kind, z, rate, eps, poisson=False))


@pytest.mark.parametrize("angle", [0.5, 1.5, 2.5])
def test_no_pair_of_contributions_in_a_plane_exceeds_the_profile(angle):
    rate, z = 0.2, 0.7
    first = [cells("gaussian", z, centre, 401) for centre in (0.0, 0.5, 0.5 * math.cos(angle))]
    second = [cells("gaussian", z, centre, 401) for centre in (0.0, 0.0, 0.5 * math.sin(angle))]
    c, a, b = (np.outer(f, s).ravel() for f, s in zip(first, second))
    both = (1 - rate) * c + rate * a, (1 - rate) * c + rate * b
    eps = np.linspace(0, 3, 15)
    for e, most in zip(eps, replaced.divergence("gaussian", z, rate, eps, poisson=True)):
        assert delta_of(both, float(e)) <= most * (1 + 1e-7) + 1e-12
