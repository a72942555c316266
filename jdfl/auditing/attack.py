"""Distinguishing two samples by a linear score, and the lower bound on epsilon that this proves.

The score is linear discriminant analysis, fitted on the first part of each sample, half of it by default. All reported
numbers are measured on the rest, which is not used for fitting:

- mu: the distance between the two means in pooled standard deviations. For a Gaussian mechanism it estimates the mu of
  N(0, 1) against N(mu, 1) from below, since every score discards some information.
- The area under the curve (AUC): the probability that a run of the second world scores above one of the first.
- epsilon: a lower bound at the given confidence. With error rates a (first world taken for the second) and b (second
  for the first), (epsilon, delta)-differential privacy implies 1 - delta - b <= e^epsilon a and
  1 - delta - a <= e^epsilon b. Upper bounds on both rates are those of C. Clopper, E. Pearson: The Use of Confidence or
  Fiducial Limits Illustrated in the Case of the Binomial, 1934.

Everything here is NumPy on the host. Axes: N runs, p features.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import numpy as np
import scipy

from jdfl.base import checks
from jdfl.privacy.report import Plain, upper

_RIDGE = 1e-9  # of the mean variance; features are computed in float32, whose rounding is below it
_CAUTION = 50  # factor by which a threshold's bound may fail less often while thresholds are compared
_THRESHOLDS = 1000  # maximum number tried
Bound = Callable[[np.ndarray, np.ndarray], np.ndarray]  # what two error rates exclude


@dataclass(frozen=True, kw_only=True)
class Attack:
    """How well two samples were distinguished; every bound holds with the same confidence."""

    epsilon_lower: float
    epsilon_most: float  # the bound that a faultless attack with this number of runs would give
    mu_hat: float  # mu estimated from the scores
    mu_low: float  # lower end of its confidence interval
    mu_high: float  # upper end
    auc: float  # probability that a score of the second world is the larger one
    delta_lower: float | None = None  # lower bound on delta at the requested epsilon, if any


@dataclass(frozen=True, kw_only=True)
class Verdict(Plain):
    """What the results of all audits share: a lower bound on epsilon, compared with the accounted one."""

    algorithm: str
    epsilon_lower: float  # bound at `confidence`
    epsilon_accounted: float  # at `delta`
    delta: float
    confidence: float  # level of every bound
    seconds: float  # wall time

    @property
    def violated(self) -> bool:
        """Whether the bound is above the accounted epsilon: if sound, with probability at most 1 - `confidence`."""
        return self.epsilon_lower > self.epsilon_accounted

    @property
    def inconclusive(self) -> bool:
        """Whether nothing could have refuted the account."""
        return False

    @property
    def exit_status(self) -> int:
        """The exit status of `jdfl audit`: 0 not refuted, which is no proof, 3 refuted, 4 inconclusive."""
        return 3 if self.violated else 4 if self.inconclusive else 0

    def as_dict(self) -> dict[str, Any]:
        """The fields by name as plain data for JSON, and `violated`; numbers that are not finite become None."""
        return super().as_dict() | {"violated": self.violated}

    @property
    def _account(self) -> str:
        return f"({upper(self.epsilon_accounted)}, {self.delta:g})"

    @property
    def _shown(self) -> str:
        return f"epsilon >= {self.epsilon_lower:.4g} at {100 * self.confidence:g} % confidence"


def basis(claimed: bool) -> str:
    """What an accounted epsilon rests on, in words."""
    return "claimed" if claimed else "not claimed: what would follow if all assumptions held"


def above(mu_low: float, mu_accounted: float | None, more: str) -> list[str]:
    """A warning that mu is larger than accounted, where it is; `more` of what should be used."""
    if mu_accounted is None or mu_low <= mu_accounted:
        return []
    return [
        "warning: mu is above the accounted one, beyond what chance explains: look for an error, or use more " + more
    ]


def check_level(confidence: float) -> None:
    """Refuse a confidence outside (0, 1): ValueError."""
    checks.positive(confidence=confidence)
    if not confidence < 1:
        checks.refuse("confidence < 1", "confidence", confidence, "0.95 is usual.")


def attack(
    zero: np.ndarray,
    one: np.ndarray,
    *,
    delta: float,
    confidence: float = 0.95,
    epsilon: float | None = None,
    fitted: float = 0.5,
) -> Attack:
    """Attack the features of the runs of two worlds."""
    for name, sample in {"zero": zero, "one": one}.items():
        checks.shape((None, None), "They are the features of the runs.", **{name: sample})
        checks.integer(8, remedy="Half of each sample is used to fit, half to test.", **{f"runs_{name}": len(sample)})
        checks.finite("They are the features of the runs.", **{name: sample})
    part = int(len(zero) * fitted), int(len(one) * fitted)
    score = fit(zero[: part[0]], one[: part[1]])
    known = zero[: part[0]] @ score, one[: part[1]] @ score
    held = zero[part[0] :] @ score, one[part[1] :] @ score
    mu, low, high = separation(*held, confidence)
    sizes = len(held[0]), len(held[1])
    wrong = errors(*held, best_threshold(*known, partial(excluded_epsilons, delta=delta), confidence))
    shown = None
    if epsilon is not None:
        threshold = best_threshold(*known, partial(_excluded_deltas, epsilon=epsilon), confidence)
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

    The covariance is that of both samples about their common mean. Its inverse gives the same direction as the pooled
    covariance, and also works where the features of a world do not vary at all. Constant features get weight zero.
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
    """The distance between two means in pooled standard deviations, with a confidence interval.

    The interval is the normal approximation, with the variance 1 / n0 + 1 / n1 + mu^2 / (2 (n0 + n1)). Where scores do
    not vary within the worlds, the distance is infinite, or 0 if the worlds are identical.
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
    """The probability that a score of the second world is above one of the first; ties count half."""
    n0, n1 = len(zero), len(one)
    ranks = scipy.stats.rankdata(np.concatenate([zero, one]))[n0:].sum()
    return float((ranks - n1 * (n1 + 1) / 2) / (n0 * n1))


def errors(zero: np.ndarray, one: np.ndarray, threshold: float) -> tuple[int, int]:
    """The number of runs of the first world above the threshold, and of the second world not above it."""
    return int((zero > threshold).sum()), int((one <= threshold).sum())


def best_threshold(zero: np.ndarray, one: np.ndarray, bound: Bound, confidence: float) -> float:
    """The threshold with the largest bound on these scores."""
    confidence = 1 - (1 - confidence) / _CAUTION
    both = np.unique(np.concatenate([zero, one]))
    middles = (both[1:] + both[:-1]) / 2 if len(both) > 1 else both
    tried = middles[np.unique(np.linspace(0, len(middles) - 1, _THRESHOLDS).astype(int))]
    above = len(zero) - np.searchsorted(np.sort(zero), tried, side="right")
    below = np.searchsorted(np.sort(one), tried, side="right")
    return float(tried[np.argmax(bound(*_rates(above, below, len(zero), len(one), confidence)))])


def epsilon_bound(above: int, below: int, n0: int, n1: int, delta: float, confidence: float) -> float:
    """The epsilon >= 0 that these error counts exclude at this confidence, in both directions together."""
    return max(0.0, float(excluded_epsilons(*_rates(above, below, n0, n1, confidence), delta)))


def delta_bound(above: int, below: int, n0: int, n1: int, epsilon: float, confidence: float) -> float:
    """The delta >= 0 that these error counts exclude at this epsilon and confidence, in both directions together."""
    return max(0.0, float(_excluded_deltas(*_rates(above, below, n0, n1, confidence), epsilon)))


def _rates(above: Any, below: Any, n0: int, n1: int, confidence: float) -> tuple[np.ndarray, np.ndarray]:
    """Upper bounds on both rates; each gets half of the error that the confidence level allows, so that both hold."""
    level = 1 - (1 - confidence) / 2
    return most_likely(above, n0, level), most_likely(below, n1, level)


def _excluded_deltas(first: np.ndarray, second: np.ndarray, epsilon: float) -> np.ndarray:
    """The deltas at this epsilon that these rates exclude, in both directions together."""
    return np.maximum(1 - second - math.exp(epsilon) * first, 1 - first - math.exp(epsilon) * second)


def excluded_epsilons(first: np.ndarray, second: np.ndarray, delta: float) -> np.ndarray:
    """The epsilons at this delta that these rates exclude, in both directions together."""
    with np.errstate(divide="ignore"):
        one_way = np.log(np.maximum(1 - delta - second, 0)) - np.log(first)
        other_way = np.log(np.maximum(1 - delta - first, 0)) - np.log(second)
    return np.maximum(one_way, other_way)


def most_likely(errors: np.ndarray, runs: int, level: float) -> np.ndarray:
    """Clopper and Pearson's upper bound on a rate, which fails with probability at most 1 - level."""
    errors = np.asarray(errors)
    return np.where(errors < runs, scipy.stats.beta.ppf(level, errors + 1, np.maximum(runs - errors, 1)), 1.0)
