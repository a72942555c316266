"""A proven upper bound on epsilon for Poisson-sampled Gaussian noise under add-remove, by numerical integration.

A step's pair is P = (1 - r) N(0, z^2) + r N(1, z^2) and Q = N(0, z^2), or the two exchanged; epsilon is the larger.
With L the privacy loss log(dP / dQ) under P and Y the sum of the losses of T steps, delta(e) = E max(0, 1 - e^(e -
Y)).

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

Axes: n cells, k their ends (one more), w cells of the transform.
"""

import math
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import log_ndtr, logsumexp, ndtri

from jdfl.privacy.analytic import bisected

_NEGLIGIBLE = 1e-6  # of delta: truncated tails
_RESOLVED = 1e-4  # of epsilon: intended looseness of the upper bound
_MOST_CELLS = 2**18
_SHIFTS = 2.0 ** np.arange(-4, 4)  # factors on the order at which Chernoff bounds are tried
_ROUNDING = 1e-9  # relative, of masses: upper bound on the errors of `_log_mass` and of exponentials of its results
_TRANSFORM = 8 * float(np.finfo(float).eps)  # relative error of a transform over the logarithm of its length


@dataclass(frozen=True)
class _Pair:
    """One direction: P is the mixture (`removed`), or P is the normal law that it is compared with."""

    z: float
    rate: float
    removed: bool

    def span(self, tail: float) -> tuple[float, float]:
        """An interval of losses that holds all but a mass of at most 2 `tail` under P; `tail` >= 1e-300."""
        reach = self.z * -float(ndtri(tail))
        ends = [self.loss(x) for x in (-reach, 1 + reach)]
        return min(ends), max(ends)

    def loss(self, x: float) -> float:
        """The loss at a point."""
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


def upper_bound(multiplier: float, rate: float, steps: int, delta: float) -> float:
    """An upper bound on the epsilon at `delta` of Poisson-sampled Gaussian releases under add-remove.

    It holds for that relation and Poisson sampling only, and takes less than a second.
    """
    plans = [_plan(_Pair(multiplier, rate, removed), steps, delta) for removed in (True, False)]
    return max((_above(plan) for plan in plans if plan), default=0.0)


@dataclass(frozen=True)
class _Plan:
    """What to integrate: any order, grid and window give valid bounds; these give tight ones."""

    pair: _Pair
    steps: int
    delta: float
    about: float  # epsilon, by Chernoff's bound
    order: float
    losses: tuple[float, float]  # of one step
    window: tuple[float, float]  # of the sum

    def range(self) -> float:
        """The length of the grid."""
        return max(self.losses[1] - self.losses[0], self.window[1] - self.window[0])


def _plan(pair: _Pair, steps: int, delta: float) -> _Plan | None:
    """None where epsilon = 0 by Chernoff's bound."""
    bottom, top = pair.span(max(_NEGLIGIBLE * delta / steps, 1e-300))
    ends = np.linspace(bottom, top, 4001)
    masses = pair.log_masses(ends)[0][:-1]  # each cell's mass at its upper end

    def log_m(order: float) -> float:
        return steps * float(logsumexp(masses + order * ends))

    def chernoff(log_order: float) -> float:
        return (log_m(math.exp(log_order)) - math.log(delta)) / math.exp(log_order)

    span = math.log(1e-2 / (top - bottom)), math.log(1e5 / (top - bottom))
    found = minimize_scalar(chernoff, bounds=span, method="bounded")
    order, about = math.exp(float(found.x)), float(found.fun)
    if about <= 0:
        return None
    here, shifts = log_m(order), order * _SHIFTS
    highest = min((log_m(order + s) - here - math.log(_NEGLIGIBLE)) / s for s in shifts)
    lowest = max((here - log_m(order - s) + math.log(_NEGLIGIBLE)) / s for s in shifts)
    window = min(max(lowest, steps * bottom), 0.5 * about), max(min(highest, steps * top), about)
    return _Plan(pair, steps, delta, about, order, (bottom, top), window)


def _above(plan: _Plan) -> float:
    order, whole = plan.order, plan.losses[1] - plan.losses[0]
    step = min(math.sqrt(8 * _RESOLVED * plan.about / (plan.steps * order * (1 + order))), whole / 1000)
    step = max(min(step, plan.about / 1000), plan.range() / _MOST_CELLS)
    at, log_p, log_q = _cells(plan, step)
    # P - e^(lower end) Q >= 0; this part of P goes to the upper end.
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(log_p > -np.inf, step * (at - 1) + log_q - log_p, 0.0)[1:-1]
        share = np.clip((-np.expm1(np.minimum(ratio, 0.0)) + _ROUNDING * step) / -math.expm1(-step), 0.0, 1.0)
        up = np.insert(log_p[1:-1] + np.log(share), 0, log_p[0])
        up = np.logaddexp(up, np.append(log_p[1:-1] + np.log1p(-share), -np.inf))
    total, grown = _Sum(plan, up, at[:-1], step), math.exp(_ROUNDING * plan.steps)
    infinite = plan.steps * math.exp(log_p[-1])

    def short(epsilon: float) -> bool:
        return grown * (total.above(epsilon) + infinite) > plan.delta

    low, high = total.ends
    if not short(low):
        return low
    return math.inf if short(high) else bisected(short, low, high, relative=1e-7)[1]


def _cells(plan: _Plan, step: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The upper ends of all cells [k + 1] in steps (the last has none), and the logarithms of P and Q."""
    at = np.arange(math.floor(plan.losses[0] / step), math.ceil(plan.losses[1] / step) + 1)
    return np.append(at, at[-1] + 1), *plan.pair.log_masses(step * at)


class _Sum:
    """The tilted distribution of the sum of losses with the given masses at multiples of a step."""

    def __init__(self, plan: _Plan, log_mass: np.ndarray, at: np.ndarray, step: float) -> None:
        steps, order, last = plan.steps, plan.order, math.ceil(plan.window[1] / step)
        size = 1 << (last - math.floor(plan.window[0] / step) + 2).bit_length()
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

    def above(self, epsilon: float) -> float:
        """An upper bound on delta, without infinite losses."""
        return self.inside(epsilon) + self.most(epsilon) * self.error + self.beyond

    def most(self, epsilon: float) -> float:
        """The largest weight of a tilted mass."""
        return math.exp(min(self.log_m - self.order * epsilon, 700.0))

    def inside(self, epsilon: float) -> float:
        """The contribution to delta of the masses in the window."""
        start = int(np.searchsorted(self.y, epsilon, side="right"))
        y = self.y[start:]
        weight = np.exp(np.minimum(self.log_m - self.order * y, 700.0)) * -np.expm1(epsilon - y)
        return float(self.mass[start:] @ weight)


def _log_mass(x: np.ndarray) -> np.ndarray:
    """The logarithms [n] of the standard normal masses between increasing points [n + 1]."""
    a, b = x[:-1], x[1:]
    right = a + b > 0  # there, the mirror image is exact
    a, b = np.where(right, -b, a), np.where(right, -a, b)
    with np.errstate(divide="ignore", invalid="ignore"):
        top = log_ndtr(b)
        return np.where(b > a, top + np.log(-np.expm1(np.minimum(log_ndtr(a) - top, 0.0))), -np.inf)
