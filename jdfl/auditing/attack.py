"""Telling two samples apart by a linear score, and what that proves about epsilon.

The score is linear discriminant analysis, fitted on a first part of either sample, half of it unless told. All that is
reported is measured on the rest, which had no part in the fit:

- mu: the distance of the two means in units of the pooled standard deviation. For a Gaussian mechanism it estimates
  from below the mu of N(0, 1) against N(mu, 1), because any score throws something away.
- The area under the curve (AUC): the chance that a run of the second world scores above one of the first.
- epsilon: a lower bound at the given confidence. With rates a (first world taken for second) and b (second for first),
  (epsilon, delta)-differential privacy says 1 - delta - b <= e^epsilon a and 1 - delta - a <= e^epsilon b. Upper bounds
  of both rates by C. Clopper, E. Pearson: The Use of Confidence or Fiducial Limits Illustrated in the Case of the
  Binomial, 1934.

Everything here is numpy on the host. Axes: N runs, p features.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import numpy as np
import scipy

from jdfl.base import checks

_RIDGE = 1e-9  # of the mean variance; features are computed in float32, whose rounding is below it
_CAUTION = 50  # that much less often a threshold's bound may be wrong when thresholds are compared
_THRESHOLDS = 1000  # most that are tried
Bound = Callable[[np.ndarray, np.ndarray], np.ndarray]  # of what two rates exclude


@dataclass(frozen=True, kw_only=True)
class Attack:
    """How well two samples were told apart; every bound holds with the same confidence."""

    epsilon_lower: float
    epsilon_most: float  # the bound that a faultless attack on so many runs would give
    mu_hat: float  # mu as the scores have it
    mu_low: float  # lower end of the interval that has it
    mu_high: float  # and the upper one
    auc: float  # chance that a score of the second world is the larger one
    delta_lower: float | None = None  # bound of delta at an epsilon that was asked for


def attack(
    zero: np.ndarray,
    one: np.ndarray,
    *,
    delta: float,
    confidence: float = 0.95,
    epsilon: float | None = None,
    fitted: float = 0.5,
) -> Attack:
    """The attack on features of the runs of two worlds.

    Args:
        zero: Features zero [N, p] of the first world, of at least 8 runs.
        one: Features one [N, p] of the second world, of at least 8 runs.
        delta: That of the epsilon which is bounded from below, in (0, 1).
        confidence: With which every bound holds, in (0, 1).
        epsilon: An epsilon at which delta is bounded from below, too, by a threshold of its own; None: it is not.
        fitted: The share of the runs that the score is fitted on, in (0, 1); the bounds are of the others.

    Raises:
        ValueError: For too few runs and for features that are not finite.
    """
    for name, sample in {"zero": zero, "one": one}.items():
        checks.shape((None, None), "See the features of the runs.", **{name: sample})
        checks.whole(
            8, remedy="Half of either sample is fitted to, half is judged by.", **{f"runs_{name}": len(sample)}
        )
        checks.finite("See the features of the runs.", **{name: sample})
    part = int(len(zero) * fitted), int(len(one) * fitted)
    score = fit(zero[: part[0]], one[: part[1]])
    known = zero[: part[0]] @ score, one[: part[1]] @ score
    held = zero[part[0] :] @ score, one[part[1] :] @ score
    mu, low, high = separation(*held, confidence)
    sizes = len(held[0]), len(held[1])
    wrong = errors(*held, best_threshold(*known, partial(excluded_epsilons, delta=delta), confidence))
    shown = None
    if epsilon is not None:
        threshold = best_threshold(*known, partial(excluded_deltas, epsilon=epsilon), confidence)
        shown = delta_bound(*errors(*held, threshold), *sizes, epsilon, confidence)
    return Attack(
        epsilon_lower=epsilon_bound(*wrong, *sizes, delta, confidence),
        epsilon_most=epsilon_bound(0, 0, *sizes, delta, confidence),
        mu_hat=mu,
        mu_low=low,
        mu_high=high,
        auc=area(*held),
        delta_lower=shown,
    )


def fit(zero: np.ndarray, one: np.ndarray) -> np.ndarray:
    """The weights [p] of linear discriminant analysis on standardised features.

    The covariance is that of both samples about their common mean: its inverse gives the same direction as the pooled
    one, and also where the features of a world do not vary at all. A feature that never varies weighs nothing.
    """
    both = np.concatenate([zero, one])
    scale = both.std(axis=0)
    still = scale <= 1e-12 * np.abs(both).max(axis=0)
    inverse = np.where(still, 0.0, 1 / np.where(still, 1.0, scale))
    standard = (both - both.mean(axis=0)) * inverse
    gap = standard[len(zero) :].mean(axis=0) - standard[: len(zero)].mean(axis=0)
    covariance = standard.T @ standard / len(both)
    return inverse * cast(np.ndarray, np.linalg.solve(covariance + _RIDGE * np.eye(len(gap)), gap))


def separation(zero: np.ndarray, one: np.ndarray, confidence: float) -> tuple[float, float, float]:
    """The distance of two means in pooled standard deviations, and an interval around it.

    The interval is the normal approximation, with the variance 1 / n0 + 1 / n1 + mu^2 / (2 (n0 + n1)). Where scores do
    not vary within the worlds, the distance is infinite, or 0 if the worlds are alike.

    Args:
        zero: Scores zero [n0] of the first world.
        one: Scores one [n1] of the second world.
        confidence: That of the interval, in (0, 1).

    Returns:
        The distance, and the lower and the upper end of the interval.
    """
    n0, n1 = len(zero), len(one)
    gap = float(one.mean() - zero.mean())
    pooled = math.sqrt((n0 * zero.var() + n1 * one.var()) / (n0 + n1 - 2))
    if pooled <= 1e-12 * abs(gap) or pooled == 0:
        mu = 0.0 if gap == 0 else math.copysign(math.inf, gap)
        return mu, mu, mu
    mu = gap / pooled
    width = float(scipy.stats.norm.ppf(0.5 + confidence / 2)) * math.sqrt(1 / n0 + 1 / n1 + mu**2 / (2 * (n0 + n1)))
    return mu, mu - width, mu + width


def area(zero: np.ndarray, one: np.ndarray) -> float:
    """The chance that a score of the second world is above one of the first; equal ones count half."""
    n0, n1 = len(zero), len(one)
    ranks = scipy.stats.rankdata(np.concatenate([zero, one]))[n0:].sum()
    return float((ranks - n1 * (n1 + 1) / 2) / (n0 * n1))


def errors(zero: np.ndarray, one: np.ndarray, threshold: float) -> tuple[int, int]:
    """How many of the first world score above the threshold, and how many of the second do not."""
    return int((zero > threshold).sum()), int((one <= threshold).sum())


def best_threshold(zero: np.ndarray, one: np.ndarray, bound: Bound, confidence: float) -> float:
    """The threshold with the largest bound on these scores.

    Args:
        zero: Scores zero [n0] of the first world, which should be below.
        one: Scores one [n1] of the second world, which should be above.
        bound: Gives what upper bounds of the two rates exclude, such as `excluded_epsilons` at a delta.
        confidence: That of the bound to come. Thresholds are compared at a higher one, which is less taken in by a
            threshold that few scores happen to be beyond.
    """
    confidence = 1 - (1 - confidence) / _CAUTION
    both = np.unique(np.concatenate([zero, one]))
    middles = (both[1:] + both[:-1]) / 2 if len(both) > 1 else both
    tried = middles[np.unique(np.linspace(0, len(middles) - 1, _THRESHOLDS).astype(int))]
    above = len(zero) - np.searchsorted(np.sort(zero), tried, side="right")
    below = np.searchsorted(np.sort(one), tried, side="right")
    return float(tried[np.argmax(bound(*_rates(above, below, len(zero), len(one), confidence)))])


def epsilon_bound(above: int, below: int, n0: int, n1: int, delta: float, confidence: float) -> float:
    """The epsilon >= 0 that so many errors exclude at this confidence, both ways together.

    Args:
        above: Runs of the first world that were taken for the second.
        below: Runs of the second world that were taken for the first.
        n0: All runs of the first world.
        n1: All runs of the second world.
        delta: That of the epsilon, in [0, 1).
        confidence: With which both rates together are below their upper bounds, in (0, 1).
    """
    return max(0.0, float(excluded_epsilons(*_rates(above, below, n0, n1, confidence), delta)))


def delta_bound(above: int, below: int, n0: int, n1: int, epsilon: float, confidence: float) -> float:
    """The delta >= 0 that so many errors exclude at this epsilon and confidence, both ways together.

    Args:
        above: Runs of the first world that were taken for the second.
        below: Runs of the second world that were taken for the first.
        n0: All runs of the first world.
        n1: All runs of the second world.
        epsilon: At which delta is bounded, from 0.
        confidence: With which both rates together are below their upper bounds, in (0, 1).
    """
    return max(0.0, float(excluded_deltas(*_rates(above, below, n0, n1, confidence), epsilon)))


def _rates(above: Any, below: Any, n0: int, n1: int, confidence: float) -> tuple[np.ndarray, np.ndarray]:
    """Upper bounds of both rates; either is exceeded with half of what confidence leaves, so that both hold."""
    level = 1 - (1 - confidence) / 2
    return most_likely(above, n0, level), most_likely(below, n1, level)


def excluded_deltas(first: np.ndarray, second: np.ndarray, epsilon: float) -> np.ndarray:
    """The deltas at this epsilon that such rates exclude, both ways together."""
    return np.maximum(1 - second - math.exp(epsilon) * first, 1 - first - math.exp(epsilon) * second)


def excluded_epsilons(first: np.ndarray, second: np.ndarray, delta: float) -> np.ndarray:
    """The epsilons at this delta that such rates exclude, both ways together."""
    with np.errstate(divide="ignore"):
        one_way = np.log(np.maximum(1 - delta - second, 0)) - np.log(first)
        other_way = np.log(np.maximum(1 - delta - first, 0)) - np.log(second)
    return np.maximum(one_way, other_way)


def most_likely(errors: np.ndarray, runs: int, level: float) -> np.ndarray:
    """Clopper and Pearson's upper bound of a rate, which it exceeds with chance 1 - level at most."""
    errors = np.asarray(errors)
    return np.where(errors < runs, scipy.stats.beta.ppf(level, errors + 1, np.maximum(runs - errors, 1)), 1.0)
