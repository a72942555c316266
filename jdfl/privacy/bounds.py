"""Proven upper bounds on epsilon: sampled Gaussian noise, replaced records in samples, and Laplace noise.

Gaussian noise, Poisson samples, add-remove (`upper_bound`). A step's pair is P = (1 - r) N(0, z^2) + r N(1, z^2) and
Q = N(0, z^2), or the two exchanged; epsilon is the larger. With L the privacy loss log(dP / dQ) under P and Y the sum
of the losses of T steps, delta(e) = E max(0, 1 - e^(e - Y)).

- Given all other steps, that is an increasing function of a step's loss and a convex one of e^(-L). So delta increases
  when the mass of L in a grid cell is moved to the two ends of the cell in such a way that the mean of e^(-L), which is
  Q(cell) / P(cell), is preserved (Jensen's inequality).
- Losses above the grid count as infinite; losses below the grid are moved to its lower end.
- The sum's distribution is the discrete Fourier transform of the tilted masses p(l) e^(theta l) / M(theta), with
  M(theta) = E e^(theta L) and theta the order of the Chernoff bound at the answer: the rounding errors of a transform
  are then small relative to delta. Mass that wraps around lands in some cell, so it only adds; mass that belongs above
  the last cell is at most M(theta)^T e^(-theta top), and is added.
- Rounding errors of the transform are bounded in the l2 norm (N. Higham: Accuracy and Stability of Numerical
  Algorithms, 2002, Theorem 24.2) and added; those of distribution functions are a relative 1e-9 of masses, which is
  added to the mass at the upper ends and, once for each step, to delta.

A. Koskela, J. Jälkö, A. Honkela: Computing Tight Differential Privacy Guarantees Using FFT, 2020, use the transform;
V. Doroshenko et al.: Connect the Dots, 2022, the ends of cells. The tests compare this bound with a lower bound on the
same grids, in which all mass of a cell is moved to its lower end.

Samples, replace-one (`divergence`). With r the probability that the record is in the sample, mu_0 the law of a release
without it, mu_1 and mu_1' those with the record and with its replacement, neighbours release M = (1 - r) mu_0 + r mu_1
and M' = (1 - r) mu_0 + r mu_1'. For t = e^eps >= 1, alpha = 1 + (t - 1) / r and beta = t / alpha, which is at most 1,

    M - t M' = r [mu_1 - alpha ((1 - beta) mu_0 + beta mu_1')],

so their hockey-stick divergence is r H_alpha(mu_1, (1 - beta) mu_0 + beta mu_1') (advanced joint convexity: B.
Balle, G. Barthe, M. Gaboardi: Privacy Amplification by Subsampling, 2018, Theorem 2), and by joint convexity at most

    r [(1 - beta) H_alpha(mu_1, mu_0) + beta H_alpha(mu_1, mu_1')].

The laws are mixtures over the rest of the sample, to which joint convexity applies once more. The multiplier z is in
units of the replace-one sensitivity Delta, so H_alpha(mu_1, mu_1') is at most that of a shift by Delta, of mu = 1 / z
for Gaussian noise. With Poisson sampling the rest of the sample does not depend on the record, and a sum of clipped
contributions divided by a fixed number changes by at most Delta / 2 when one is omitted: H_alpha(mu_1, mu_0) is that
of a shift by Delta / 2. With samples of a fixed size another record takes its place, the shift may be Delta, and both
terms are the same: r H_alpha(Delta) (Y. Zhu, J. Dong, Y.-X. Wang: Optimal Accounting of Differential Privacy via
Characteristic Function, 2022, Theorem 11).

Since the relation is symmetric, delta(-eps) = 1 - e^-eps + e^-eps delta(eps). Hockey-stick divergences of laws are
convex in t, so a measure whose divergence is at least this at the points of a grid, and linear in t between them,
dominates; such measures compose. That measure is dp-accounting's "connect the dots"; negative masses are set to 0,
which only adds.

How loose this is: mu_0 at 0 with mu_1 and mu_1' at -1/2 and 1/2, the antipodal pair, is a pair of neighbours with a
smaller epsilon (at delta = 1e-6, z = .6, r = .001 and 1,000 samples, .21 where the bound gives .51). We know of no
worse pair of neighbours, but it is not proven that none exists; the gap between the two is how loose the bound may be.

Laplace noise, whether scales are equal or not (`laplace_epsilons`). A release of multiplier z has a privacy loss of at
most a = 1 / z, its pure epsilon, and at order e^x, |x| <= a, the divergence 1 - e^((x - a) / 2). The total is the
smallest of three valid bounds:

- the sum of all a;
- Renyi differential privacy, whose divergence at every order has a closed form (I. Mironov: Renyi Differential Privacy,
  2017, Table II) and composes exactly, at the best order, converted to epsilon by C. Canonne, G. Kamath, T. Steinke:
  The Discrete Gaussian for Differential Privacy, 2020, Proposition 12;
- privacy loss distributions on one grid, composed by dp-accounting, of at most 64 different a, to which the others are
  rounded up. They are not computed where the Renyi bound is above 300, since their grid would be huge or coarse, nor
  for more than a million releases.

Axes: n cells, k their ends (one more), w cells of the transform; g different noise scales, k releases.
"""

import math
from dataclasses import dataclass
from functools import lru_cache, reduce
from typing import Any, Literal

import numpy as np
import scipy  # whose parts are imported when they are used
from scipy.special import log_ndtr, logsumexp, ndtr, ndtri

from jdfl.privacy.analytic import bisected
from jdfl.privacy.mechanisms import LaplaceEvent, LaplaceSchedule

_NEGLIGIBLE = 1e-6  # of delta: truncated tails
_RESOLVED = 1e-4  # of epsilon: intended looseness of the upper bound
_MOST_SAMPLED = 2**18  # cells
_SHIFTS = 2.0 ** np.arange(-4, 4)  # factors on the order at which Chernoff bounds are tried
_ROUNDING = 1e-9  # relative, of masses: upper bound on the errors of `_log_mass` and of exponentials of its results
_TRANSFORM = 8 * float(np.finfo(float).eps)  # relative error of a transform over the logarithm of its length

_MOST_SCALES = 64
_MOST_COMPOSED = 300.0  # above it distributions are not composed: e^epsilon would soon overflow
_MOST_RELEASES = 10**6  # above it rounding errors accumulate
_AT_ONCE = 1000
_MOST_LAPLACE = 2**17  # cells
_ORDERS = np.geomspace(1e-4, 1e7, 67)  # minus one
Sizes = tuple[np.ndarray, np.ndarray]  # distinct pure epsilons [g] of a release, and the number of releases with each
Laplacian = LaplaceEvent | LaplaceSchedule


@dataclass(frozen=True)
class _Pair:
    """One direction: P is the mixture (`removed`), or P is the normal law that it is compared with."""

    z: float
    rate: float
    removed: bool

    def span(self, tail: float) -> tuple[float, float]:
        """An interval of losses that holds all but a mass of at most 2 `tail` under P; `tail` >= 1e-300."""
        reach = self.z * -float(ndtri(tail))
        ends = [self._loss(x) for x in (-reach, 1 + reach)]
        return min(ends), max(ends)

    def _loss(self, x: float) -> float:
        mixed = float(np.logaddexp(math.log1p(-self.rate), math.log(self.rate) + (2 * x - 1) / (2 * self.z**2)))
        return mixed if self.removed else -mixed

    def log_masses(self, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The logarithms of P and Q [n + 2] of the cells between these losses [k]; the outer cells are unbounded."""
        mixed = ends if self.removed else -ends[::-1]
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = mixed + np.log1p(-np.exp(math.log1p(-self.rate) - mixed)) - math.log(self.rate)
        x = np.where(mixed > math.log1p(-self.rate), 0.5 + self.z**2 * ratio, -np.inf)
        x = np.concatenate([[-np.inf], x, [np.inf]])
        out, inside = _log_mass(x / self.z), _log_mass((x - 1) / self.z)
        mixture = np.logaddexp(math.log1p(-self.rate) + out, math.log(self.rate) + inside)
        return (mixture, out) if self.removed else (out[::-1], mixture[::-1])


def _log_mass(x: np.ndarray) -> np.ndarray:
    """The logarithms [n] of the standard normal masses between increasing points [n + 1]."""
    a, b = x[:-1], x[1:]
    right = a + b > 0  # there, the mirror image is exact
    a, b = np.where(right, -b, a), np.where(right, -a, b)
    with np.errstate(divide="ignore", invalid="ignore"):
        top = log_ndtr(b)
        return np.where(b > a, top + np.log(-np.expm1(np.minimum(log_ndtr(a) - top, 0.0))), -np.inf)


def upper_bound(multiplier: float, rate: float, steps: int, delta: float) -> float:
    """An upper bound on the epsilon at `delta` of Poisson-sampled Gaussian releases under add-remove.

    It holds for that relation and Poisson sampling only, and takes less than a second.
    """
    return max(_above(_Pair(multiplier, rate, removed), steps, delta) for removed in (True, False))


def _above(pair: _Pair, steps: int, delta: float) -> float:
    """The bound of one direction; any order, grid and window give valid bounds, and these give tight ones."""
    bottom, top = pair.span(max(_NEGLIGIBLE * delta / steps, 1e-300))
    ends = np.linspace(bottom, top, 4001)
    masses = pair.log_masses(ends)[0][:-1]  # each cell's mass at its upper end

    def log_m(order: float) -> float:
        return steps * float(logsumexp(masses + order * ends))

    def chernoff(log_order: float) -> float:
        return (log_m(math.exp(log_order)) - math.log(delta)) / math.exp(log_order)

    span = math.log(1e-2 / (top - bottom)), math.log(1e5 / (top - bottom))
    found = scipy.optimize.minimize_scalar(chernoff, bounds=span, method="bounded")
    order, about = math.exp(float(found.x)), float(found.fun)
    if about <= 0:
        return 0.0
    here, shifts = log_m(order), order * _SHIFTS
    highest = min((log_m(order + s) - here - math.log(_NEGLIGIBLE)) / s for s in shifts)
    lowest = max((here - log_m(order - s) + math.log(_NEGLIGIBLE)) / s for s in shifts)
    window = min(max(lowest, steps * bottom), 0.5 * about), max(min(highest, steps * top), about)
    step = min(math.sqrt(8 * _RESOLVED * about / (steps * order * (1 + order))), (top - bottom) / 1000)
    longest = max(top - bottom, window[1] - window[0])
    step = max(min(step, about / 1000), longest / _MOST_SAMPLED)
    at = np.arange(math.floor(bottom / step), math.ceil(top / step) + 1)  # upper ends of cells, in steps
    log_p, log_q = pair.log_masses(step * at)
    # P - e^(lower end) Q >= 0; this part of P goes to the upper end.
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(log_p[:-1] > -np.inf, step * (at - 1) + log_q[:-1] - log_p[:-1], 0.0)[1:]
        share = np.clip((-np.expm1(np.minimum(ratio, 0.0)) + _ROUNDING * step) / -math.expm1(-step), 0.0, 1.0)
        up = np.insert(log_p[1:-1] + np.log(share), 0, log_p[0])
        up = np.logaddexp(up, np.append(log_p[1:-1] + np.log1p(-share), -np.inf))
    total, grown = _Sum(up, at, step, steps, order, window), math.exp(_ROUNDING * steps)
    infinite = steps * math.exp(log_p[-1])

    def short(epsilon: float) -> bool:
        return grown * (total.delta(epsilon) + infinite) > delta

    low, high = total.ends
    if not short(low):
        return low
    return math.inf if short(high) else bisected(short, low, high, relative=1e-7)[1]


class _Sum:
    """The tilted distribution of the sum of losses with the given masses at multiples of a step."""

    def __init__(
        self, log_mass: np.ndarray, at: np.ndarray, step: float, steps: int, order: float, window: tuple[float, float]
    ) -> None:
        last = math.ceil(window[1] / step)
        size = 1 << (last - math.floor(window[0] / step) + 2).bit_length()
        tilted = log_mass + order * step * at
        log_m = float(logsumexp(tilted))
        folded = np.bincount((at - at[0]) % size, np.exp(tilted - log_m), size)
        found = np.fft.irfft(np.fft.rfft(folded) ** steps, size)
        places = np.arange(last - size + 1, last + 1)
        self.log_m, self.order, self.y = steps * log_m, order, step * places
        self.mass = np.maximum(found[(places - steps * int(at[0])) % size], 0.0)
        self.error = math.sqrt(size) * (steps + 1) * _TRANSFORM * math.log2(size) * float(np.linalg.norm(folded))
        bottom, top = float(self.y[0]), float(self.y[-1])
        self.ends = max(0.0, bottom), max(0.0, top)
        self.beyond = 0.0  # Chernoff's bound of the mass above the window
        if places[-1] < steps * at[-1]:
            orders = order + np.array([0.0, *(order * _SHIFTS)])
            over = min(steps * float(logsumexp(log_mass + other * step * at)) - other * top for other in orders)
            self.beyond = math.exp(min(over, 0.0))

    def delta(self, epsilon: float) -> float:
        """An upper bound on delta, without infinite losses."""
        start = int(np.searchsorted(self.y, epsilon, side="right"))
        y = self.y[start:]
        weight = np.exp(np.minimum(self.log_m - self.order * y, 700.0)) * -np.expm1(epsilon - y)
        largest = math.exp(min(self.log_m - self.order * epsilon, 700.0))  # weight of a tilted mass
        return float(self.mass[start:] @ weight) + largest * self.error + self.beyond


def divergence(
    kind: Literal["gaussian", "laplace"], z: float, rate: float, epsilon: np.ndarray, *, poisson: bool
) -> np.ndarray:
    """Upper bound on delta at every epsilon for one sample under replace-one, in the shape of `epsilon`."""
    log_alpha = np.log(np.expm1(epsilon) + rate) - math.log(rate)

    def shifted(shift: float) -> np.ndarray:
        """The divergence at orders alpha between noise of scale 1 and the same noise shifted."""
        if kind == "gaussian":
            p, q = ndtr(shift / 2 - log_alpha / shift), ndtr(-shift / 2 - log_alpha / shift)
            return np.maximum(p - np.exp(log_alpha) * q, 0.0)
        return np.maximum(-np.expm1((log_alpha - shift) / 2), 0.0)

    replaced = shifted(1 / z)
    if poisson:
        beta = np.minimum(np.exp(epsilon - log_alpha), 1.0)
        replaced = (1 - beta) * shifted(0.5 / z) + beta * replaced
    return np.clip(rate * replaced, 0.0, 1.0)


def replaced_losses(
    kind: Literal["gaussian", "laplace"], z: float, rate: float, grid: float, top: int, *, poisson: bool
) -> Any:
    """One sample under replace-one as dp-accounting's privacy loss distribution, which dominates the true one."""
    from dp_accounting.pld import pld_pmf, privacy_loss_distribution

    eps = grid * np.arange(top + 1)
    delta = np.minimum.accumulate(divergence(kind, z, rate, eps, poisson=poisson))
    below = -np.expm1(-eps[:0:-1]) + np.exp(-eps[:0:-1]) * delta[:0:-1]  # at -top grid, ..., -grid
    both = np.minimum.accumulate(np.clip(np.concatenate([below, delta]), 0.0, 1.0))
    found = pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(grid, -top, top, both)
    return privacy_loss_distribution.PrivacyLossDistribution(found)


def pure_epsilon(event: Laplacian, releases: int) -> float:
    """The sum of the pure epsilons of the first releases."""
    if isinstance(event, LaplaceSchedule):
        return math.fsum(1 / z for z in event.multipliers[:releases])
    return releases / event.noise_multiplier


def laplace_epsilons(pld: Any, event: Laplacian, releases: int, delta: float) -> dict[str, float]:
    """Upper bounds on epsilon at `delta` of the first `releases` >= 1, by name; PLD only where it is the smallest.

    `pld` is dp-accounting's module `privacy_loss_distribution`.
    """
    sizes = _sizes(event, releases)
    found = {
        "RDP": laplace_renyi(event, releases, delta),
        "the sum of pure epsilons": pure_epsilon(event, releases),
    }
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
    if len(kinds) > _MOST_SCALES:
        width = np.sqrt(np.maximum(np.diff(kinds**2 / (2 + kinds)), 0.0) * counts[:-1])  # negative only by rounding
        along = np.concatenate([[0.0], np.cumsum(width)])
        group = np.minimum((along * _MOST_SCALES / (along[-1] or 1.0)).astype(int), _MOST_SCALES - 1)
        last = np.searchsorted(group, group, side="right") - 1  # the largest of the group
        kinds = kinds[last]
    found = kinds[which]
    found.flags.writeable = False
    return found


def _sizes(event: Laplacian, releases: int) -> Sizes:
    if isinstance(event, LaplaceSchedule):
        return np.unique(1 / np.asarray(event.multipliers[:releases]), return_counts=True)
    return np.array([1 / event.noise_multiplier]), np.array([releases])


def laplace_renyi(event: Laplacian, releases: int, delta: float) -> float:
    """The epsilon at `delta` of the first releases, by Renyi differential privacy at the best order."""
    a, count = _sizes(event, releases)

    def at(less: float) -> float:
        """The bound at the order 1 + less; the bound at any order holds."""
        order = 1 + less
        both = np.logaddexp(math.log(order) + less * a, math.log(less) - order * a) - math.log(2 * order - 1)
        return float(count @ both) / less + math.log(less / order) - (math.log(order) + math.log(delta)) / less

    found = [at(less) for less in _ORDERS]
    best = int(np.argmin(found))
    ends = np.log(_ORDERS[[max(best - 1, 0), min(best + 1, len(_ORDERS) - 1)]])
    finer = scipy.optimize.minimize_scalar(
        lambda x: at(math.exp(x)), bounds=tuple(ends), method="bounded", options={"xatol": 1e-4}
    )
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
    while float(count @ np.minimum(a, step)) * step > 1e-2 * scale and loose + 10 * scale < _MOST_LAPLACE * step:
        step /= 2
    return step
