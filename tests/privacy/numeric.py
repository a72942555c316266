"""Hockey-stick divergences of releases that were rounded to the cells of a fine grid, without any accountant.

Rounding is post-processing, so that these divergences are below those of the releases, by very little.
Axes: x cells; a release is a number, whose law is a mixture over a record being in the sample or not.
"""

from collections.abc import Sequence

import numpy as np
import scipy

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
