"""Accounting the other way round: the noise for a target, and the releases that a target allows."""

import math
from bisect import bisect_left
from collections.abc import Callable
from typing import Literal

from jdfl.base import checks
from jdfl.base.arguments import checked
from jdfl.privacy.accounting import Adjacency, Sampled, check_releases, quick_epsilon, scheduled
from jdfl.privacy.accounting import epsilon as total
from jdfl.privacy.analytic import bisected, check_target
from jdfl.privacy.mechanisms import Event, GaussianEvent, LaplaceEvent


@checked
def noise_multiplier(
    kind: Literal["gaussian", "laplace"],
    epsilon: float,
    delta: float,
    releases: int,
    *,
    sampled: Sampled | None = None,
    adjacency: Adjacency = "replace-one",
) -> float:
    """The least noise, in units of the sensitivity, with which so many releases are (epsilon, delta)-DP together.

    `accounting.epsilon` of the result is at most the target, and above it by less than 1e-4 less noise.

    Args:
        kind: That of the noise: "gaussian", for an l2 sensitivity, or "laplace", for an l1 sensitivity.
        epsilon: What all releases together may spend, from 1e-100 to 1e100.
        delta: The chance that the epsilon may fail, in (0, 1).
        releases: How many there are, at least 1, all with the same noise.
        sampled: How every release draws the records that it looks at; None: it looks at all.
        adjacency: The relation that the sensitivity and epsilon are of: "replace-one" or "add-remove".

    Raises:
        ValueError: For targets that make no sense, and for subsets under add-remove.
    """
    checks.one_of(("gaussian", "laplace"), kind=kind)
    check_target(epsilon, delta)
    checks.whole(1, releases=releases)
    if not 1e-100 <= epsilon <= 1e100:
        checks.refuse("epsilon from 1e-100 to 1e100", "epsilon", epsilon)
    make = GaussianEvent if kind == "gaussian" else LaplaceEvent

    def quick(x: float) -> bool:  # of the multiplier's logarithm
        return quick_epsilon(make(math.exp(x)), releases, delta, sampled, adjacency) <= epsilon

    def enough(x: float) -> bool:
        event = make(math.exp(x))
        return quick(x) or total(event, releases, delta, sampled=sampled, adjacency=adjacency) <= epsilon

    check_releases(make(1.0), releases, sampled, adjacency)
    high = least_enough(quick, math.log(releases) / 2 - math.log(epsilon), 1.0)
    return math.exp(least_enough(enough, high))


def least_enough(enough: Callable[[float], bool], guess: float, step: float = 2e-5) -> float:
    """The least number that is enough, and less than 2e-5 above it, as all larger ones are.

    Args:
        enough: Whether a number is.
        guess: Where the search begins.
        step: How far from it is looked first.
    """
    low, high, further = guess, guess, step
    while not enough(high):
        low, high, further = high, high + further, 2 * further
    while low == high or enough(low):
        high, low, step = min(high, low), low - step, 2 * step
    return bisected(lambda x: not enough(x), low, high, absolute=2e-5)[1]


@checked
def most_releases(
    event: Event,
    epsilon: float,
    delta: float,
    *,
    sampled: Sampled | None = None,
    adjacency: Adjacency = "replace-one",
    most: int = 2**30,
) -> int:
    """How many releases together stay within (epsilon, delta); 0 means that not even one does.

    `jdfl.privacy.epsilon` of so many releases is at most the target.

    Args:
        event: One release, or a schedule of them, of which there are no more than it is long.
        epsilon: What all releases together may spend, above 0.
        delta: The chance that the epsilon may fail, in (0, 1).
        sampled: How every release draws the records that it looks at; None: it looks at all.
        adjacency: The relation that the event's multiplier and epsilon are of: "replace-one" or "add-remove".
        most: Where the search ends: the result is this number where even more releases would do.

    Raises:
        ValueError: For targets that make no sense, and for events that cannot be accounted for.
    """
    check_releases(event, 1, sampled, adjacency)
    check_target(epsilon, delta)
    if (planned := scheduled(event)) is not None:
        most = min(most, planned)

    def quick(releases: int) -> bool:
        return quick_epsilon(event, releases, delta, sampled, adjacency) <= epsilon

    def fits(releases: int) -> bool:
        return total(event, releases, delta, sampled=sampled, adjacency=adjacency) <= epsilon

    return _last(fits, _last(quick, 0, most), most)


def _last(fits: Callable[[int], bool], low: int, most: int) -> int:
    """The last number up to `most` that fits, from one that does."""
    step = 1
    while low < most and fits(min(low + step, most)):
        low, step = min(low + step, most), 2 * step
    return low + bisect_left(range(low + 1, min(low + step, most + 1)), True, key=lambda releases: not fits(releases))
