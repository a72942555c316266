"""Calibration: the noise for a target (epsilon, delta), and the number of releases that a target allows."""

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
    """The smallest noise, in units of the sensitivity, with which `releases` releases are (epsilon, delta)-DP together.

    `accounting.epsilon` of the result is at most the target; a relative 1e-4 less noise would exceed it.

    Args:
        kind: The noise: "gaussian", for an l2 sensitivity, or "laplace", for an l1 sensitivity.
        epsilon: The privacy budget of all releases together, from 1e-100 to 1e100.
        delta: The probability that the epsilon may fail, in (0, 1).
        releases: Their number, at least 1, all with the same noise.
        sampled: How each release samples the records that it uses; None: it uses all of them.
        adjacency: The relation for sensitivity and epsilon: "replace-one" or "add-remove".

    Raises:
        ValueError: For invalid targets, and for subsets under add-remove.
    """
    checks.one_of(("gaussian", "laplace"), kind=kind)
    check_target(epsilon, delta)
    checks.whole(1, releases=releases)
    if not 1e-100 <= epsilon <= 1e100:
        checks.refuse("epsilon from 1e-100 to 1e100", "epsilon", epsilon)
    make = GaussianEvent if kind == "gaussian" else LaplaceEvent

    def quick(x: float) -> bool:  # x is the logarithm of the multiplier
        return quick_epsilon(make(math.exp(x)), releases, delta, sampled, adjacency) <= epsilon

    def enough(x: float) -> bool:
        event = make(math.exp(x))
        return quick(x) or total(event, releases, delta, sampled=sampled, adjacency=adjacency) <= epsilon

    check_releases(make(1.0), releases, sampled, adjacency)
    high = least_enough(quick, math.log(releases) / 2 - math.log(epsilon), 1.0)
    return math.exp(least_enough(enough, high))


def least_enough(enough: Callable[[float], bool], guess: float, step: float = 2e-5) -> float:
    """The smallest number that is enough, to within 2e-5 from above; all larger numbers are enough too."""
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
    """The largest number of releases that together stay within (epsilon, delta); 0 if a single one exceeds it.

    `jdfl.privacy.epsilon` of this number of releases is at most the target.

    Args:
        event: One release, or a schedule of releases, whose length limits the result.
        epsilon: The privacy budget of all releases together, above 0.
        delta: The probability that the epsilon may fail, in (0, 1).
        sampled: How each release samples the records that it uses; None: it uses all of them.
        adjacency: The relation for the event's multiplier and epsilon: "replace-one" or "add-remove".
        most: Upper limit of the search; the result is this number where even more releases would fit.

    Raises:
        ValueError: For invalid targets, and for events that cannot be accounted for.
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
    """The largest number up to `most` that fits, starting from one that does."""
    step = 1
    while low < most and fits(min(low + step, most)):
        low, step = min(low + step, most), 2 * step
    return low + bisect_left(range(low + 1, min(low + step, most + 1)), True, key=lambda releases: not fits(releases))
