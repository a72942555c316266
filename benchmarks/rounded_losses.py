"""Lower and upper bounds of epsilon from rounded privacy losses: a table of probabilities and one transform.

A release is a number with law P, or Q under the neighbouring data, and its loss is log(dP / dQ), which is monotone in
it. The probabilities of its cells on a fine grid under P come from distribution functions. Every cell's loss is rounded
up to a multiple of a step, or down, and T of them are added by a discrete Fourier transform, without tilting and
without preserving any mean: the two bounds are about T steps apart. The mass outside the window of the sum is bounded
by Chernoff's bound, and added to delta or subtracted from it. It shares nothing with `jdfl.privacy.bounds` or
dp-accounting.

Axes: k edges of cells.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from scipy import stats
from scipy.special import logsumexp

_CELLS = 2**20  # per release
_MOST = 2**24  # of the sum
_ROUNDING = 1e-3  # of delta, to either side, for floating-point errors
_OUTSIDE = 1e-5  # of delta: tails that are cut off
_ORDERS = np.geomspace(1e-2, 1e4, 100)  # of Chernoff's bounds
_BLOCKS = 20_000  # of losses, for these

Mixture = Sequence[tuple[float, float]]  # probabilities and centres


@dataclass(frozen=True)
class Pair:
    """A release under two neighbouring datasets: noise of scale z around randomly chosen centres."""

    kind: Literal["norm", "laplace"]
    z: float
    p: Mixture
    q: Mixture

    def losses(self, tail: float) -> tuple[np.ndarray, np.ndarray]:
        """The losses at the edges of cells [k], and the cells' probabilities under P [k + 1]; the outer are unbounded.

        `tail` is the probability of noise beyond the grid.
        """
        law: Any = getattr(stats, self.kind)
        centres, reach = [centre for _, centre in (*self.p, *self.q)], self.z * float(law.isf(tail))
        x = np.linspace(min(centres) - reach, max(centres) + reach, _CELLS)
        log_p, log_q = (
            logsumexp([math.log(chance) + law.logpdf(x, centre, self.z) for chance, centre in one if chance], axis=0)
            for one in (self.p, self.q)
        )
        below = sum(chance * law.cdf(x, centre, self.z) for chance, centre in self.p)
        above = sum(chance * law.sf(x, centre, self.z) for chance, centre in self.p)
        left, right = np.diff(below, prepend=0.0, append=1.0), -np.diff(above, prepend=1.0, append=0.0)
        return log_p - log_q, np.where(np.arange(_CELLS + 1) < _CELLS // 2, left, right)


def bracket(pair: Pair, releases: int, delta: float, about: float, width: float = 5e-3) -> tuple[float, float]:
    """Lower and upper bounds of the epsilon at `delta` of a number of releases, of P against Q.

    Args:
        pair: One release.
        releases: The number of releases.
        delta: The probability that the epsilon may fail.
        about: An approximate epsilon, which determines only the step: the bounds hold for any value.
        width: The largest difference between the bounds, in units of `about`, as far as memory allows.
    """
    losses, chances = pair.losses(max(_OUTSIDE * delta / releases, 1e-300))
    step = max(width * about / (2 * releases), float(np.ptp(losses)) / _MOST)
    while (found := _bounds(losses, chances, releases, delta, step)) is None:
        step *= 2
    return found


def _bounds(
    losses: np.ndarray, chances: np.ndarray, releases: int, delta: float, step: float
) -> tuple[float, float] | None:
    """Both bounds with this step; None where the window of the sum would be too large."""
    found: list[float] = []
    ends = np.sort(np.stack([losses[:-1], losses[1:]]), axis=0) / step
    outer = np.argsort([losses[0], losses[-1]])  # which of the outer cells has the smallest losses
    lost, gained = chances[[0, -1]][outer]
    for upper in (False, True):
        at = (np.ceil(ends[1]) if upper else np.floor(ends[0])).astype(np.int64)
        first = int(at.min())
        mass = np.bincount(at - first, chances[1:-1])
        if upper:
            mass[0] += lost  # lower losses count as the lowest
        infinite = releases * float(gained) if upper else 0.0
        places = first + np.arange(len(mass))
        window = _window(places * step, mass, releases, _OUTSIDE * delta)
        bottom, size = math.floor(window[0] / step), math.ceil((window[1] - window[0]) / step) + 2
        if size > _MOST:
            return None
        size = 1 << (size - 1).bit_length()
        folded = np.bincount((places - first) % size, mass, size)
        total = np.fft.irfft(np.fft.rfft(folded) ** releases, size)
        y = np.arange(bottom, bottom + size)
        total = np.maximum(total[(y - releases * first) % size], 0.0)
        outside = 2 * _OUTSIDE * delta
        limit = delta * (1 - _ROUNDING) - infinite - outside if upper else delta * (1 + _ROUNDING) + outside
        found.append(_epsilon(y * step, total, limit))
    return found[0], found[1]


def _window(y: np.ndarray, mass: np.ndarray, releases: int, outside: float) -> tuple[float, float]:
    """An interval for the sum of losses, except with probability `outside` on either side; from blocks of losses."""
    starts = np.unique(np.linspace(0, len(y), _BLOCKS, endpoint=False).astype(int))
    least, most = y[starts], y[np.append(starts[1:], len(y)) - 1]
    with np.errstate(divide="ignore"):
        log_mass = np.log(np.add.reduceat(mass, starts))
    low, high = releases * float(y[0]), releases * float(y[-1])
    for order in _ORDERS / max(float(np.ptp(y)), 1e-9):
        up, down = (releases * float(logsumexp(log_mass + one)) for one in (order * most, -order * least))
        high, low = min(high, (up - math.log(outside)) / order), max(low, (math.log(outside) - down) / order)
    return low, high


def _epsilon(y: np.ndarray, mass: np.ndarray, delta: float) -> float:
    """The epsilon at which this distribution of the sum has the given `delta`."""

    def delta_at(epsilon: float) -> float:
        start = int(np.searchsorted(y, epsilon, side="right"))
        return float(mass[start:] @ -np.expm1(epsilon - y[start:]))

    low, high = 0.0, max(float(y[-1]), 0.0)
    if delta <= 0:
        return math.inf
    if delta_at(low) <= delta:
        return 0.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if delta_at(middle) > delta else (low, middle)
    return (low + high) / 2
