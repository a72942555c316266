"""Accounting the other way round: the noise for a target, and the releases that a target allows."""

import math
from collections.abc import Callable
from typing import Literal

from jdfl import checks
from jdfl.arguments import checked
from jdfl.privacy import accounting
from jdfl.privacy.accounting import Adjacency, Sampled, check_releases
from jdfl.privacy.analytic import check_target
from jdfl.privacy.mechanisms import Event, GaussianEvent, LaplaceEvent, LaplaceSchedule


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

    `kind` is that of the noise. `accounting.epsilon` of the result is at most the target, and above it by less than
    1e-4 less noise. Raises ValueError for targets that make no sense.
    """
    checks.one_of(("gaussian", "laplace"), kind=kind)
    check_target(epsilon, delta)
    checks.whole(1, releases=releases)
    if not 1e-100 <= epsilon <= 1e100:
        checks.refuse("epsilon from 1e-100 to 1e100", "epsilon", epsilon)
    make = GaussianEvent if kind == "gaussian" else LaplaceEvent

    def bounded(log_multiplier: float, *, quick: bool) -> bool:
        event = make(math.exp(log_multiplier))
        if accounting.quick_epsilon(event, releases, delta, sampled, adjacency) <= epsilon:
            return True
        return not quick and accounting.epsilon(event, releases, delta, sampled=sampled, adjacency=adjacency) <= epsilon

    check_releases(make(1.0), releases, sampled, adjacency)
    low = high = math.log(releases) / 2 - math.log(epsilon)
    step = 1.0
    while not bounded(high, quick=True):
        low, high, step = high, high + step, 2 * step
    low, high = _narrowed(lambda x: bounded(x, quick=True), low, high, 1.0)
    return math.exp(_narrowed(lambda x: bounded(x, quick=False), high, high, 2e-5)[1])


def _narrowed(enough: Callable[[float], bool], low: float, high: float, step: float) -> tuple[float, float]:
    """The end of what is enough, between two numbers; `low` == `high`: below `high`, by so much at first."""
    while low == high or enough(low):
        high, low, step = min(high, low), low - step, 2 * step
    while high - low > 2e-5:
        middle = (low + high) / 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return low, high


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
    """How many releases together stay within (epsilon, delta); at most `most`, and as many as a schedule is for."""
    check_releases(event, 1, sampled, adjacency)
    check_target(epsilon, delta)
    if isinstance(event, LaplaceSchedule):
        most = min(most, len(event.multipliers))

    def fits(releases: int) -> bool:
        return accounting.epsilon(event, releases, delta, sampled=sampled, adjacency=adjacency) <= epsilon

    def quick(releases: int) -> bool:
        return accounting.quick_epsilon(event, releases, delta, sampled, adjacency) <= epsilon

    return _last(fits, _last(quick, 0, most), most)


def _last(fits: Callable[[int], bool], low: int, most: int) -> int:
    """The last number up to `most` that fits, from one that does."""
    step = 1
    while low < most and fits(min(low + step, most)):
        low, step = min(low + step, most), 2 * step
    high = min(low + step, most + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low
