"""Accounting the other way round: the noise for a target, and the releases that a target allows."""

import math
from typing import Literal

from jdfl import checks
from jdfl.privacy import accounting
from jdfl.privacy.accounting import Adjacency, Sampled, check_releases
from jdfl.privacy.analytic import check_target
from jdfl.privacy.mechanisms import Event, GaussianEvent, LaplaceEvent, LaplaceSchedule


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

    `kind` is that of the noise. `accounting.epsilon` of the result is at most the target, and above it by less than
    1e-4 less noise. Raises ValueError for targets that make no sense.
    """
    checks.one_of(("gaussian", "laplace"), kind=kind)
    check_target(epsilon, delta)
    checks.whole(1, releases=releases)
    make = GaussianEvent if kind == "gaussian" else LaplaceEvent

    def enough(log_multiplier: float) -> bool:
        event = make(math.exp(log_multiplier))
        return accounting.epsilon(event, releases, delta, sampled=sampled, adjacency=adjacency) <= epsilon

    check_releases(make(1.0), releases, sampled, adjacency)
    low = high = math.log(math.sqrt(releases) / epsilon)
    step = 1.0
    while not enough(high):
        low, high, step = high, high + step, 2 * step
    step = 1.0
    while low == high or enough(low):
        high, low, step = min(high, low), low - step, 2 * step
    while high - low > 1e-5:
        middle = (low + high) / 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return math.exp(high)


def most_releases(
    event: Event,
    epsilon: float,
    delta: float,
    *,
    sampled: Sampled | None = None,
    adjacency: Adjacency = "replace-one",
    most: int = 2**30,
) -> int:
    """How many releases together stay within (epsilon, delta); at most `most`, and as many as a schedule is for."""
    check_releases(event, 1, sampled, adjacency)
    check_target(epsilon, delta)
    if isinstance(event, LaplaceSchedule):
        most = min(most, len(event.multipliers))

    def fits(releases: int) -> bool:
        return accounting.epsilon(event, releases, delta, sampled=sampled, adjacency=adjacency) <= epsilon

    if not fits(1):
        return 0
    low, high = 1, min(2, most)
    while fits(high):
        if high >= most:
            return most
        low, high = high, min(2 * high, most)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low
