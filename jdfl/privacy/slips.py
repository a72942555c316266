"""The delta lost to releases whose probabilities differ slightly from their event's: exact noise from tables."""

import math
from collections.abc import Callable
from dataclasses import replace

from jdfl.privacy.exact import LEVELS
from jdfl.privacy.mechanisms import Event, GaussianEvent


def room(event: Event, releases: int, delta: float, epsilon: float) -> float:
    """The delta available to the noise at an epsilon, such that with the slips of all releases `delta` holds.

    ValueError where nothing is left. More noise than the event's may slip four times as much (`exact.LEVELS`).
    """
    most = replace(event, slip=LEVELS * event.slip) if isinstance(event, GaussianEvent) else event
    if (left := left_after_slips(most, releases, delta, epsilon)) > 0:
        return left
    raise ValueError(
        f"Expected an epsilon below {epsilon:g} for {releases} releases of exact noise at delta = {delta:g}: the error "
        "of its tables would use delta up. Use a smaller epsilon, a larger delta, or Gaussian."
    )


def left_after_slips(event: Event, releases: int, delta: float, bound: float) -> float:
    """What is left of delta after the slips of the releases, at an epsilon up to `bound` + ln 2.

    A release whose probabilities differ by t in total variation has delta + (1 + e^epsilon) t in place of delta.
    """
    slip = getattr(event, "slip", 0.0)
    return delta - 2 * (1 + math.exp(min(bound, 700.0))) * releases * slip if slip else delta


def paid(
    bounds: Callable[[Event, float], dict[str, float]], event: Event, releases: int, delta: float
) -> dict[str, float]:
    """The results of `bounds` for an event and a delta, after subtracting from delta the slips of its releases."""
    if not isinstance(event, GaussianEvent) or not event.slip:
        return bounds(event, delta)
    exact = replace(event, slip=0.0)
    without = bounds(exact, delta)
    least = min(without.values())
    left = left_after_slips(event, releases, delta, least)
    if left <= 0:
        return dict.fromkeys(without, math.inf)
    return {name: one if one <= least + math.log(2) else math.inf for name, one in bounds(exact, left).items()}
