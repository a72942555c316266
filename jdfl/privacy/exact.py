"""Gaussian noise that is exact to the last bit: integers on a grid, drawn with integer arithmetic only.

Floating-point noise lies on a grid that depends on the value it is added to, so the bits of one release may distinguish
two datasets whatever its epsilon (I. Mironov, "On significance of the least significant bits for differential privacy",
2012). Here a vector is rounded to multiples of gamma, discrete Gaussian noise on the integers is added (C. Canonne,
G. Kamath, T. Steinke, "The discrete Gaussian for differential privacy", 2020), and only the sum, an integer, is
converted back to a float.

The noise. N = N_1 + 32 N_2 + 32^2 N_3 + ..., where every level is an independent discrete Gaussian of standard
deviation 64, and the last of 100. A level is one lookup in an alias table (A. Walker, 1977) of 2048 cells whose integer
weights add up to 2^64, with the 64 random bits of one block of threefry.

The claim. By Poisson summation, N(x, s^2 - 4) followed by a discrete Gaussian of standard deviation 2 around the draw
is the discrete Gaussian of s around an integer x, up to a factor 1 +- 4 exp(-8 pi^2). The exact mechanism is therefore
a function of the continuous one with sqrt(1 - 4 / s^2) of its noise, so every theorem about Gaussian noise applies to
it. Likewise the levels add up to one discrete Gaussian, up to a factor 1 +- 4 exp(-2 pi^2 t^2) with t = 2: the product
of a level's standard deviation and 32 times that of the next ones, divided by that of both together. Three such factors
change no probability by more than one part in 2^100, which is counted together with the error of the table.

The table's weights are rounded to 2^-64 each: one level differs from its distribution by `SLIP` in total variation,
which the accountant subtracts from delta (`Event.slip`).

Axes: n numbers of a vector.
"""

import math
from decimal import Decimal, localcontext
from functools import cache
from typing import Annotated, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jdfl.base import struct
from jdfl.base.arguments import settings
from jdfl.base.backend import backend
from jdfl.base.keys import words
from jdfl.base.settings import As, Positive
from jdfl.privacy.mechanisms import GaussianEvent, Norm, known

_CELLS, _STEP, LEVELS = 2048, 32, 4  # LEVELS: the maximum
_LOWER, _LAST = 64, 100  # standard deviations of a level, and of the last one
_SHARE = 2**64 // _CELLS  # of a cell; the last 53 of 64 bits are compared with its threshold
_SMOOTH = 2  # standard deviation of the noise that turns continuous into discrete noise
_COARSE = 0.01  # relative increase of the noise allowed for rounding to the grid, where a finer grid exists
_MOST = 2**30  # largest integer rounded to; larger values are clipped, which moves no two vectors apart
SLIP = 2.0**-56
"""The largest total-variation distance of one level from its exact distribution."""


class Table(NamedTuple):
    """An alias table: below its threshold a cell stands for itself, otherwise for another one."""

    high: np.ndarray  # [2048] uint32: the other cell in the first 11 bits, then 21 bits of the threshold
    low: np.ndarray  # [2048] uint32: the last 32 bits of the threshold


def weights(sd: int) -> tuple[list[int], float]:
    """Integer weights of -1024, ..., 1023 that add up to 2^64, and their distance from a discrete Gaussian."""
    with localcontext() as context:
        context.prec = 60
        half = [(-(Decimal(i) ** 2) / (2 * Decimal(sd) ** 2)).exp() for i in range(_CELLS // 2 + 1)]
        whole = [half[abs(i)] for i in range(-_CELLS // 2, _CELLS // 2)]
        total = sum(whole, Decimal(0))
        exact = [2**64 * one / total for one in whole]
        found = [int(one) for one in exact]
        missing = 2**64 - sum(found)
        for i in sorted(range(_CELLS), key=lambda i: found[i] - exact[i])[:missing]:
            found[i] += 1
        off = sum((abs(one - other) for one, other in zip(found, exact)), Decimal(0)) / 2 / 2**64
        beyond = 2 * half[-1] * sd  # bound on the tails, relative to the centre
        return found, float(off + beyond)


@cache
def table(sd: int) -> Table:
    """The alias table of a discrete Gaussian, which realises every weight exactly."""
    left, alias = weights(sd)[0], list(range(_CELLS))
    threshold = [0] * _CELLS
    small = [i for i, weight in enumerate(left) if weight < _SHARE]
    large = [i for i, weight in enumerate(left) if weight >= _SHARE]
    while small:
        i, other = small.pop(), large[-1]
        threshold[i], alias[i] = left[i], other
        left[other] -= _SHARE - left[i]
        if left[other] < _SHARE:
            small.append(large.pop())
    packed = [(cell << 53) + limit for cell, limit in zip(alias, threshold)]
    return Table(*(np.array([word >> shift & 0xFFFFFFFF for word in packed], np.uint32) for shift in (32, 0)))


def level(key: Array, n: int, sd: int) -> Array:
    """Integers [n] int32 from a discrete Gaussian of the given standard deviation."""
    # Fused with a lookup, XLA would compute the words one by one, and again for each number derived from them.
    high, low = lax.optimization_barrier(words(key, (n,)))
    cells = table(sd)
    cell, rest = high >> 21, jnp.uint32(2**21 - 1)
    found = tuple(jnp.asarray(part).at[cell].get(mode="promise_in_bounds") for part in cells)
    # On a GPU the lookup is better fused: three levels take 2.4 times as long as normal numbers instead of 4.3 (on an
    # H200), and the bits are the same.
    first, second = lax.optimization_barrier(found) if backend() == "cpu" else found
    here, limit = high & rest, first & rest
    own = (here < limit) | ((here == limit) & (low < second))
    return jnp.where(own, cell, first >> 21).astype(jnp.int32) - _CELLS // 2


def discrete_gaussian(key: Array, n: int, levels: int) -> Array:
    """Integers [n] int32 from a discrete Gaussian of standard deviation `spread(levels)`."""
    total = jnp.zeros((n,), jnp.int32)
    for place, own in enumerate(jax.random.split(key, levels)):
        total = total + _STEP**place * level(own, n, _LAST if place == levels - 1 else _LOWER)
    return total


def spread(levels: int) -> float:
    """The standard deviation, in grid steps, of noise with this number of levels."""
    return math.hypot(*(_STEP**place * _LOWER for place in range(levels - 1)), _STEP ** (levels - 1) * _LAST)


@struct.dataclass
class ExactGaussian:
    """Exact Gaussian noise on a grid, with a guarantee even for an observer of every bit.

    A vector is rounded to multiples of a step gamma, and discrete Gaussian noise on the grid is added. Its guarantee is
    that of `Gaussian` with the same multiplier: the noise is larger by what rounding may add to the sensitivity, at
    most one part in a hundred, and delta includes the error of a table of finite words.

    C. Canonne, G. Kamath, T. Steinke, "The discrete Gaussian for differential privacy", 2020.
    """

    kind: ClassVar[str] = "exact-gaussian"
    multiplier: Annotated[Positive, As(float | None, known, None)] = struct.field(pytree_node=False)
    """Standard deviation of the noise / l2 sensitivity; None: calibrated to the epsilon of a run or comparison."""
    norm: ClassVar[Norm] = "l2"
    exact: ClassVar[bool] = True

    def check(self) -> None:
        """Refuse a multiplier that is not a single positive number: ValueError naming it."""
        settings(self)

    def levels(self, n: int) -> int:
        """The number of levels that vectors of n entries need so that rounding costs at most one part in a hundred.

        Raises ValueError where even the finest grid costs more than that.
        """
        wanted = self.multiplier * math.sqrt(n) / _COARSE
        for levels in range(1, LEVELS + 1):
            if _fine(levels) >= wanted:
                return levels
        most = (_COARSE * _fine(LEVELS) / self.multiplier) ** 2
        raise ValueError(
            f"Expected at most {most:.3g} entries of a vector with multiplier = {self.multiplier:g}, got n = {n}. The "
            f"finest grid of exact noise has {spread(LEVELS):.3g} steps to a standard deviation; use less noise, or "
            "Gaussian."
        )

    def add(self, key: Array, x: Array, sensitivity: Array | float) -> Array:
        """The vector x [n], finite, rounded to the grid, plus noise that is drawn from the `key` [].

        gamma = z D / (f - z sqrt(n)) for a multiplier z, a `sensitivity` D [] and noise of f steps: rounding moves two
        vectors apart by at most gamma sqrt(n). D is the largest l2 change of x between neighbouring datasets, as
        computed in floating point, including one more rounding of every entry. A D that is NaN, or too small for steps
        in x's type, gives NaN.
        """
        n = x.size
        levels = self.levels(n)
        gamma = jnp.asarray(sensitivity, x.dtype) * x.dtype.type(self.scale(n) / spread(levels))
        gamma = jnp.where(gamma >= jnp.finfo(x.dtype).tiny, gamma, jnp.nan)  # NaN releases nothing
        noisy = _rounded(x, gamma) + discrete_gaussian(key, n, levels).reshape(x.shape)
        return noisy.astype(x.dtype) * gamma

    def scale(self, n: int) -> float:
        """The standard deviation of the noise that `add` uses on vectors of n entries, over the sensitivity."""
        levels = self.levels(n)
        step = self.multiplier / (_fine(levels) - self.multiplier * math.sqrt(n))
        return float(spread(levels) * step * (1 + 2.0**-20))

    def event(self) -> GaussianEvent:
        """One release of this noise, for accounting as continuous noise; `slip` gives its cost in delta."""
        return GaussianEvent(float(self.multiplier))

    def slip(self, n: int) -> float:
        """The total-variation distance of a release of n numbers from a function of the continuous mechanism."""
        return n * self.levels(n) * SLIP


def _rounded(x: Array, gamma: Array) -> Array:
    return jnp.clip(jnp.round(x / gamma), -_MOST, _MOST).astype(jnp.int32)


def _fine(levels: int) -> float:
    """The standard deviation, in steps, of the continuous noise from which the discrete one can be derived."""
    return math.sqrt(spread(levels) ** 2 - _SMOOTH**2)
