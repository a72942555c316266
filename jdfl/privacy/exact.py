"""Gaussian noise that is exact to the last bit: whole numbers of a grid, drawn with whole numbers alone.

Noise in floating point lies on a grid that depends on what it is added to, so that the bits of one release may tell
two data sets apart whatever its epsilon (I. Mironov, "On significance of the least significant bits for differential
privacy", 2012). Here a vector is rounded to the multiples of gamma, discrete Gaussian noise on the whole numbers is
added (C. Canonne, G. Kamath, T. Steinke, "The discrete Gaussian for differential privacy", 2020), and only the sum,
a whole number, is turned into a float again.

The noise. N = N_1 + 32 N_2 + 32^2 N_3 + ..., every level an independent discrete Gaussian of standard deviation 64,
the last of 100. A level is one lookup in an alias table (A. Walker, 1977) of 2048 cells whose weights are whole numbers
that add up to 2^64, with the 64 random bits of one block of threefry.

The claim. By Poisson summation, N(x, s^2 - 4) followed by a discrete Gaussian of standard deviation 2 around what was
drawn is the discrete Gaussian of s around a whole number x, up to a factor 1 +- 4 exp(-8 pi^2): the exact mechanism is
a function of the continuous one with sqrt(1 - 4 / s^2) of its noise, so that every theorem about Gaussian noise holds
for it. In the same way the levels add up to one discrete Gaussian, up to a factor 1 +- 4 exp(-2 pi^2 t^2) with t = 2,
the product of a level's standard deviation and 32 times the next ones' by that of both. Three such factors change no
probability by more than one part in 2^100, which is counted with what the table cannot hold.

The table's weights are rounded to 2^-64 each: a number of a level differs from its distribution by `SLIP` in total
variation, which the accountant takes from delta (`Event.slip`).

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
from jdfl.base.keys import words
from jdfl.base.settings import As, Positive
from jdfl.privacy.flow import near, released
from jdfl.privacy.mechanisms import GaussianEvent, Norm, known

_CELLS, _STEP, LEVELS = 2048, 32, 4  # LEVELS: at most
_LOWER, _LAST = 64, 100  # standard deviations of a level, and of the last one
_SHARE = 2**64 // _CELLS  # of a cell; the last 53 of 64 bits are held against its threshold
_SMOOTH = 2  # standard deviation of what turns continuous noise into a discrete one
_COARSE = 0.01  # by how much noise may grow for the rounding to the grid, where a finer one is to be had
_MOST = 2**30  # whole numbers that are rounded to; larger ones are cut off, which brings no two vectors apart
SLIP = 2.0**-56
"""The most by which a number of one level differs in total variation from what it should be."""


class Table(NamedTuple):
    """Cells of an alias table: below the threshold a cell stands for itself, otherwise for another one."""

    high: np.ndarray  # [2048] uint32: the other cell in the first 11 bits, then 21 bits of the threshold
    low: np.ndarray  # [2048] uint32: the last 32 bits of the threshold


def weights(sd: int) -> tuple[list[int], float]:
    """Whole weights of -1024, ..., 1023 that add up to 2^64, and how far they are from a discrete Gaussian.

    Args:
        sd: Its standard deviation, at most 100: what lies beyond the table is below 2^-78.

    Returns:
        The weights, each the exact one rounded down or up, and a bound of the distance in total variation.
    """
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
        beyond = 2 * half[-1] * sd  # of the tails, by what they are next to the middle
        return found, float(off + beyond)


@cache
def table(sd: int) -> Table:
    """The alias table of a discrete Gaussian: every weight is met exactly."""
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
    """Whole numbers [n] int32 of a discrete Gaussian of a standard deviation."""
    # Fused with a lookup, XLA would compute the words one by one, and once more for each that is made of them.
    high, low = lax.optimization_barrier(words(key, (n,)))
    cells = table(sd)
    cell, rest = high >> 21, jnp.uint32(2**21 - 1)
    found = tuple(jnp.asarray(part).at[cell].get(mode="promise_in_bounds") for part in cells)
    # On a GPU what is found is better used where it is found: three levels take 2.4 times as long as normal numbers in
    # place of 4.3 (an H200), and the bits are the same.
    first, second = lax.optimization_barrier(found) if jax.default_backend() == "cpu" else found
    here, limit = high & rest, first & rest
    own = (here < limit) | ((here == limit) & (low < second))
    return jnp.where(own, cell, first >> 21).astype(jnp.int32) - _CELLS // 2


def discrete_gaussian(key: Array, n: int, levels: int) -> Array:
    """Whole numbers [n] int32 of a discrete Gaussian of standard deviation `spread(levels)`.

    Args:
        key: The key [] that all of them come from.
        n: How many.
        levels: From 1 to 4; each takes one block of threefry a number.
    """
    total = jnp.zeros((n,), jnp.int32)
    for place, own in enumerate(jax.random.split(key, levels)):
        total = total + _STEP**place * level(own, n, _LAST if place == levels - 1 else _LOWER)
    return total


def spread(levels: int) -> float:
    """The standard deviation of the noise of so many levels, in steps of the grid."""
    return math.hypot(*(_STEP**place * _LOWER for place in range(levels - 1)), _STEP ** (levels - 1) * _LAST)


@struct.dataclass
class ExactGaussian:
    """Gaussian noise on a grid, for an observer of every bit.

    A vector is rounded to multiples of a step gamma, and discrete Gaussian noise on the grid is added. It is worth what
    `Gaussian` with the same multiplier is: the noise is larger by what rounding may add to the sensitivity, one part in
    a hundred or less, and delta pays for what a table of finite words cannot hold.

    C. Canonne, G. Kamath, T. Steinke, "The discrete Gaussian for differential privacy", 2020.
    """

    kind: ClassVar[str] = "exact-gaussian"
    multiplier: Annotated[Positive, As(float | None, known, None)] = struct.field(pytree_node=False)
    """Standard deviation of the noise by the l2 sensitivity; None: the least for a run's or comparison's epsilon."""
    norm: ClassVar[Norm] = "l2"
    exact: ClassVar[bool] = True

    def check(self) -> None:
        """Refuse a multiplier that is not one positive number: ValueError naming it."""
        settings(self)

    def levels(self, n: int) -> int:
        """How many levels of noise vectors of n entries need, so that rounding costs one part in a hundred at most.

        Raises ValueError where the finest grid costs more than that.
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
        """The vector x [n] on the grid, with noise.

        gamma = z D / (f - z sqrt(n)) for a multiplier z, a sensitivity D and noise of f steps: rounding both of two
        vectors moves them apart by gamma sqrt(n) at most. A sensitivity that is no number, or too small for steps of
        x's type, as 0 is, gives NaN.

        Args:
            key: The key [] that all noise comes from.
            x: The vector x [n], finite.
            sensitivity: The most that neighbouring data change x in l2, sensitivity [], as float arithmetic makes it
                and with one more rounding of every entry.
        """
        n = x.size
        levels = self.levels(n)
        gamma = jnp.asarray(sensitivity, x.dtype) * x.dtype.type(self.scale(n) / spread(levels))
        gamma = jnp.where(gamma >= jnp.finfo(x.dtype).tiny, gamma, jnp.nan)  # of which nothing is shown
        noisy = released(near(_rounded, x, gamma) + discrete_gaussian(key, n, levels).reshape(x.shape))
        return noisy.astype(x.dtype) * gamma

    def scale(self, n: int) -> float:
        """The standard deviation of noise on vectors of n entries by the sensitivity, with what the grid takes.

        It is above the multiplier by one part in a hundred at most, and what `add` draws with.
        """
        levels = self.levels(n)
        step = self.multiplier / (_fine(levels) - self.multiplier * math.sqrt(n))
        return float(spread(levels) * step * (1 + 2.0**-20))

    def event(self) -> GaussianEvent:
        """One release of this noise, for accounting, as for continuous noise; `slip` says what delta has to pay."""
        return GaussianEvent(float(self.multiplier))

    def slip(self, n: int) -> float:
        """How far a release of n numbers is in total variation from a function of the continuous mechanism."""
        return n * self.levels(n) * SLIP


def _rounded(x: Array, gamma: Array) -> Array:
    """The nearest whole numbers [n] int32 of steps gamma []."""
    return jnp.clip(jnp.round(x / gamma), -_MOST, _MOST).astype(jnp.int32)


def _fine(levels: int) -> float:
    """The standard deviation in steps of the continuous noise whose function the discrete one is."""
    return math.sqrt(spread(levels) ** 2 - _SMOOTH**2)
