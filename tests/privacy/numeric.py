"""Hockey-stick divergences of releases that were rounded to the cells of a fine grid, without any accountant.

And a proven lower bound beside `jdfl.privacy.numerical`, whose grids and sums it shares: loss falls to the lower ends
of cells, that above the grid is absent, and errors are subtracted.

Rounding is post-processing, so that these divergences are below those of the releases, by very little.
Axes: x cells; a release is a number, whose law is a mixture over a record being in the sample or not.
"""

import math
from collections.abc import Sequence

import numpy as np
import scipy
from scipy.special import logsumexp

from jdfl.privacy import numerical
from jdfl.privacy.analytic import bisected
from tests.later import Named

LAWS = Named({"gaussian": lambda: scipy.stats.norm, "laplace": lambda: scipy.stats.laplace})
Pair = tuple[np.ndarray, np.ndarray]  # chances of the cells, under two neighbouring data sets


def cells(kind: str, z: float, centre: float, count: int) -> np.ndarray:
    """Chances [x] of the cells under noise of scale z around a centre in [-1, 1]; the outer cells have no end."""
    reach = 1 + z * float(LAWS[kind].isf(1e-12))
    edges = np.linspace(-reach, reach, count - 1)
    below, above = LAWS[kind].cdf(edges, centre, z), LAWS[kind].sf(edges, centre, z)
    left = np.diff(below, prepend=0.0, append=1.0)
    right = -np.diff(above, prepend=1.0, append=0.0)
    return np.where(np.arange(count) < count // 2, left, right)


def pair(kind: str, z: float, rate: float, centres: Sequence[float], count: int, looks: int = 1) -> Pair:
    """A release that is around c, or with chance `rate` around a or, for the neighbour, around b; centres (c, a, b).

    With looks = 2 two releases from one sample, as one list [x * x].
    """
    c, a, b = (cells(kind, z, centre, count) for centre in centres)
    if looks == 2:
        c, a, b = (np.outer(one, one).ravel() for one in (c, a, b))
    return (1 - rate) * c + rate * a, (1 - rate) * c + rate * b


def together(one: Pair, two: Pair) -> Pair:
    """Two releases from two samples, or two entries of one."""
    return np.outer(one[0], two[0]).ravel(), np.outer(one[1], two[1]).ravel()


def delta_of(both: Pair, epsilon: float) -> float:
    """The least delta at which the first is within (epsilon, delta) of the second."""
    return float(np.sum(np.maximum(both[0] - np.exp(epsilon) * both[1], 0.0)))


def bracket(z: float, rate: float, steps: int, delta: float) -> tuple[float, float]:
    """Bounds from below and from above of epsilon, between which that of the dominating pair lies; takes seconds."""
    plans = [numerical._plan(numerical._Pair(z, rate, removed), steps, delta) for removed in (True, False)]
    below = max((lower_bound(plan) for plan in plans if plan), default=0.0)
    return below, numerical.upper_bound(z, rate, steps, delta)


def lower_bound(plan: numerical._Plan) -> float:
    """The largest epsilon that is found to have a larger delta than the plan's; the bound need not fall everywhere."""
    step = max(1e-4 * plan.about / plan.steps, plan.range() / numerical._MOST_CELLS)
    at, log_p, _ = numerical._cells(plan, step)
    log_mass, at = log_p[1:-1], at[:-2]
    total, grown = numerical._Sum(plan, log_mass, at, step), math.exp(numerical._ROUNDING * plan.steps)
    outside = wrapped(plan, total, log_mass, at, step)

    def exceeds(epsilon: float) -> bool:
        error = total.most(epsilon) * (total.error + outside)
        return (total.inside(epsilon) - error) / grown > plan.delta

    grid = np.linspace(*total.ends, 65)
    over = [i for i, epsilon in enumerate(grid) if exceeds(float(epsilon))]
    if not over:
        return 0.0
    return bisected(exceeds, float(grid[over[-1]]), float(grid[min(over[-1] + 1, 64)]), relative=1e-7)[0]


def wrapped(plan: numerical._Plan, total: numerical._Sum, log_mass: np.ndarray, at: np.ndarray, step: float) -> float:
    """Chernoff's bound of the mass that a transform wraps around into its window, under the tilted law."""
    steps, order, shifts = plan.steps, plan.order, plan.order * numerical._SHIFTS
    bottom, top = float(total.y[0]), float(total.y[-1])

    def log_m(other: float) -> float:
        return steps * float(logsumexp(log_mass + other * step * at))

    over = min(log_m(order + s) - (order + s) * top for s in (0.0, *shifts)) + order * top - total.log_m
    under = min(log_m(order - s) + s * bottom for s in shifts) - total.log_m
    above = 0.0 if round(top / step) >= steps * at[-1] else math.exp(min(over, 0.0))
    return above + (0.0 if round(bottom / step) <= steps * at[0] else math.exp(min(under, 0.0)))
