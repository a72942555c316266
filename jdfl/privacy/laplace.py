"""Composition of releases with Laplace noise, whether their scales are equal or not.

A release of multiplier z has a privacy loss of at most a = 1 / z, its pure epsilon, and at order e^x, |x| <= a, the
divergence 1 - e^((x - a) / 2). The total is the smallest of three valid bounds:

- the sum of all a;
- Renyi differential privacy, whose divergence at every order has a closed form (I. Mironov: Renyi Differential Privacy,
  2017, Table II) and composes exactly, at the best order, converted to epsilon by C. Canonne, G. Kamath, T. Steinke:
  The Discrete Gaussian for Differential Privacy, 2020, Proposition 12;
- privacy loss distributions on one grid, composed by dp-accounting, of at most 64 different a, to which the others are
  rounded up. They are not computed where the Renyi bound is above 300, since their grid would be huge or coarse, nor
  for more than a million releases.

Axes: g different noise scales, k releases.
"""

import math
from functools import lru_cache, reduce
from typing import Any

import numpy as np
from scipy.optimize import minimize_scalar

from jdfl.privacy.mechanisms import LaplaceEvent, LaplaceSchedule

_MOST_SIZES = 64
_MOST_COMPOSED = 300.0  # above it distributions are not composed: e^epsilon would soon overflow
_MOST_RELEASES = 10**6  # above it rounding errors accumulate
_AT_ONCE = 1000
_MOST_CELLS = 2**17
_ORDERS = np.geomspace(1e-4, 1e7, 67)  # minus one
Sizes = tuple[np.ndarray, np.ndarray]  # distinct pure epsilons [g] of a release, and the number of releases with each


def pure_epsilon(event: LaplaceEvent | LaplaceSchedule, releases: int) -> float:
    """The sum of the pure epsilons of the first releases."""
    if isinstance(event, LaplaceSchedule):
        return math.fsum(1 / z for z in event.multipliers[:releases])
    return releases / event.noise_multiplier


def renyi_epsilon(event: LaplaceEvent | LaplaceSchedule, releases: int, delta: float) -> float:
    """The epsilon at `delta` of the first releases, by Renyi differential privacy at the best order."""
    return _renyi(_sizes(event, releases), delta)


def epsilons(pld: Any, event: LaplaceEvent | LaplaceSchedule, releases: int, delta: float) -> dict[str, float]:
    """Upper bounds on epsilon at `delta` of the first `releases` >= 1, by name; PLD only where it is the smallest.

    `pld` is dp-accounting's module `privacy_loss_distribution`.
    """
    sizes = _sizes(event, releases)
    found = {"RDP": _renyi(sizes, delta), "the sum of pure epsilons": pure_epsilon(event, releases)}
    if found["RDP"] > _MOST_COMPOSED or releases > _MOST_RELEASES:
        return found
    if isinstance(event, LaplaceSchedule):
        sizes = np.unique(rounded(event)[:releases], return_counts=True)
    step = _grid(sizes, found["RDP"])
    parts = (_times(pld.from_laplace_mechanism(1 / a, value_discretization_interval=step), n) for a, n in zip(*sizes))
    composed = float(reduce(lambda one, other: one.compose(other), parts).get_epsilon_for_delta(delta))
    return {"PLD": composed, **found} if composed < min(found.values()) else found


@lru_cache(maxsize=64)
def rounded(schedule: LaplaceSchedule) -> np.ndarray:
    """The pure epsilons [k] of all releases, with at most 64 distinct values: others are rounded up to one of them.

    They do not depend on how many of the releases are made. Neighbouring sizes are grouped so that their mean losses,
    of about a^2 / (2 + a), grow little in total: in the limit of many sizes the groups are of equal width in the
    integral of the square root of that loss's density.
    """
    exact = 1 / np.asarray(schedule.multipliers)
    kinds, which, counts = np.unique(exact, return_inverse=True, return_counts=True)
    if len(kinds) > _MOST_SIZES:
        width = np.sqrt(np.maximum(np.diff(kinds**2 / (2 + kinds)), 0.0) * counts[:-1])  # negative only by rounding
        along = np.concatenate([[0.0], np.cumsum(width)])
        group = np.minimum((along * _MOST_SIZES / (along[-1] or 1.0)).astype(int), _MOST_SIZES - 1)
        last = np.searchsorted(group, group, side="right") - 1  # the largest of the group
        kinds = kinds[last]
    found = kinds[which]
    found.flags.writeable = False
    return found


def _sizes(event: LaplaceEvent | LaplaceSchedule, releases: int) -> Sizes:
    """All scales, not rounded."""
    if isinstance(event, LaplaceSchedule):
        return np.unique(1 / np.asarray(event.multipliers[:releases]), return_counts=True)
    return np.array([1 / event.noise_multiplier]), np.array([releases])


def _renyi(sizes: Sizes, delta: float) -> float:
    a, count = sizes

    def at(less: float) -> float:
        """The bound at the order 1 + less; the bound at any order holds."""
        order = 1 + less
        both = np.logaddexp(math.log(order) + less * a, math.log(less) - order * a) - math.log(2 * order - 1)
        return float(count @ both) / less + math.log(less / order) - (math.log(order) + math.log(delta)) / less

    found = [at(less) for less in _ORDERS]
    best = int(np.argmin(found))
    ends = np.log(_ORDERS[[max(best - 1, 0), min(best + 1, len(_ORDERS) - 1)]])
    finer = minimize_scalar(lambda x: at(math.exp(x)), bounds=tuple(ends), method="bounded", options={"xatol": 1e-4})
    return max(0.0, min(found[best], float(finer.fun)))


def _times(one: Any, count: int) -> Any:
    """A distribution composed with itself; dp-accounting's tail bounds for very many at once are loose."""
    if count <= _AT_ONCE:
        return one if count == 1 else one.self_compose(int(count))
    whole, rest = divmod(count, _AT_ONCE)
    many = _times(one.self_compose(_AT_ONCE), whole)
    return many.compose(_times(one, rest)) if rest else many


def resolved(scale: float) -> float:
    """A grid step that resolves losses of this size."""
    return min(1e-2, max(1e-7, scale / 2000))


def _grid(sizes: Sizes, loose: float) -> float:
    """A grid step that resolves all losses and adds little by rounding."""
    a, count = sizes
    scale = math.sqrt(float(count @ a**2))
    step = resolved(scale)
    while float(count @ np.minimum(a, step)) * step > 1e-2 * scale and loose + 10 * scale < _MOST_CELLS * step:
        step /= 2
    return step
