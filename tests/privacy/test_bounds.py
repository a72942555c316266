"""All bounds of sampled releases, each against integrals that use none of them; and that the least is taken."""

import itertools
import math

import numpy as np
import pytest

from benchmarks.accountants import own_bounds, sampled_pairs
from jdfl.privacy import GaussianEvent, LaplaceEvent, Sampled, bounds, epsilon, epsilons, gaussian_epsilon
from jdfl.privacy.analytic import participating_epsilon
from tests.privacy.numeric import cells, delta_of, pair

ROUNDING = 1 + 1e-9


def poisson(rate):
    return Sampled("poisson", round(1000 * rate), 1000)


def test_little_noise_is_accounted_for_as_what_it_is():
    z, rate, steps = 0.19, 0.01, 10
    high = bounds.upper_bound(z, rate, steps, 1e-5)
    found = epsilons(GaussianEvent(z), steps, 1e-5, sampled=poisson(rate), adjacency="add-remove")
    total = epsilon(GaussianEvent(z), steps, 1e-5, sampled=poisson(rate), adjacency="add-remove")
    assert 41.23 <= total <= high * ROUNDING <= 41.24
    assert total == min(found.values())
    assert found["RDP"] > 1.2 * total
    assert found["all records"] > 4 * total
    assert participating_epsilon(z, rate, steps, 1e-5) >= total  # who knows the samples knows more
    assert participating_epsilon(z, 0.5, 30_000, 1e-5) == math.inf
    assert participating_epsilon(1e3, rate, 1, 1e-2) == bounds.upper_bound(1e3, rate, 1, 1e-2) == 0  # delta is all


@pytest.mark.parametrize(("z", "rate", "steps"), [(0.3, 0.01, 10), (3.0, 0.5, 10)])
def test_samples_cost_what_rounded_losses_say(z, rate, steps):
    """Between bounds that share nothing with the accountant."""

    def found(z):
        return epsilon(GaussianEvent(z), steps, 1e-5, sampled=poisson(rate), adjacency="add-remove")

    low, high = own_bounds(sampled_pairs("norm", z, rate, "add-remove"), steps, 1e-5, found(z))
    assert low <= found(z) <= 1.01 * high
    assert high <= 1.01 * low
    assert found(1.01 * z) < low  # an accountant that takes noise for one hundredth more is found out


@pytest.mark.parametrize(
    ("event", "releases", "options", "name"),
    [
        (GaussianEvent(1.0), 5, {}, "closed form"),
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
def test_one_sample_costs_what_sums_over_cells_say(z, rate, delta):
    high = bounds.upper_bound(z, rate, 1, delta)
    assert exact_delta(z, rate, high) <= delta * ROUNDING
    assert exact_delta(z, rate, 0.999 * high) > delta


def test_samples_of_everything_are_the_closed_form():
    for (z, steps), delta in itertools.product([(2.0, 1), (10.0, 40), (0.5, 3)], [1e-5, 1e-100]):
        exact = gaussian_epsilon(math.sqrt(steps) / z, delta)
        assert bounds.upper_bound(z, 1 - 1e-13, steps, delta) == pytest.approx(exact, rel=1e-3)
        assert participating_epsilon(z, 1.0, steps, delta) == pytest.approx(exact, rel=1e-4)


def test_tails_that_are_cut_off_count(monkeypatch):
    """With a large part of the tails cut off the upper bound still holds."""
    monkeypatch.setattr(bounds, "_NEGLIGIBLE", 0.3)
    for z, rate in ((1.0, 0.1), (2.0, 0.9)):
        assert exact_delta(z, rate, bounds.upper_bound(z, rate, 1, 1e-3)) <= 1e-3 * ROUNDING


@pytest.mark.parametrize(("kind", "z", "rate"), [("gaussian", 0.4, 0.1), ("gaussian", 3.0, 0.6), ("laplace", 0.7, 0.1)])
def test_no_pair_of_contributions_exceeds_the_profile(kind, z, rate):
    """Contributions on a line: antipodal, one of them nothing, and others."""
    largest = (0.5 + 6 * z) / z**2 if kind == "gaussian" else 1 / z
    eps = np.linspace(0, 0.9 * math.log1p(rate * math.expm1(largest)), 15)
    bound = bounds.divergence(kind, z, rate, eps, poisson=True)
    near = 0.0
    for a, b in [(0.5, -0.5), (0.5, 0.0), (0.0, 0.5), (0.5, 0.3), (0.2, -0.5), (0.5, -0.3)]:
        both = pair(kind, z, rate, (0.0, a, b), 40_001)
        for e, most in zip(eps, bound):
            found = delta_of(both, float(e))
            assert found <= most * (1 + 1e-7) + 1e-15
            near = max(near, found / most)
    assert near > 0.95  # at epsilon = 0
    assert np.all(bound <= bounds.divergence(kind, z, rate, eps, poisson=False))
