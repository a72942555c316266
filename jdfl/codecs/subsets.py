"""Which s of n places: plain indices, or the number of the subset among all of its size. Host only.

The subsets {i_1 < ... < i_s} of {0, ..., n-1}, ordered by their largest element first, are numbered by
sum_k C(i_k, k) (the combinatorial number system), so that ceil(log2 C(n, s)) bits name one: the shortest code of equal
length. (T. M. Cover, "Enumerative source encoding", IEEE Trans. Inf. Theory, 1973.)
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import ceil, comb
from typing import Any, Literal

import numpy as np

from jdfl.base import checks
from jdfl.codecs import packing

Index = Literal["plain", "enumerative"]
_subsets = lru_cache(maxsize=256)(comb)


def check_size(n: int, share: float | None, **count: int | None) -> None:
    """ValueError unless the number of places, given as a count or as a share of n, makes sense; either may be None."""
    ((name, size),) = count.items()
    if size is not None and share is not None:
        raise ValueError(f"Expected {name} or share, not both, got {name} = {size!r} and share = {share!r}. Drop one.")
    if size is not None:
        checks.whole(1, n, "A message cannot hold more entries than the vector has.", **count)


def size(n: int, share: Any) -> int:
    """ceil(share n), one at least, with 0.07 * 100 = 7 and not 8."""
    return max(1, ceil(round(float(share) * n, 6)))


@dataclass(frozen=True)
class Subset(packing.Part):
    """Ascending places int32, as s numbers of ceil(log2 n) bits or one of ceil(log2 C(n, s)).

    Args:
        n: Of how many places.
        index: Whether every place is written, or the number of the subset.
    """

    n: int
    index: Index

    @property
    def bits(self) -> int:
        """S ceil(log2 n), or ceil(log2 C(n, s))."""
        (s,) = self.shape
        return s * self._width if self.index == "plain" else (_subsets(self.n, s) - 1).bit_length()

    def write(self, value: np.ndarray) -> np.ndarray:
        """The places or their number; ValueError unless they are whole numbers 0 .. n-1, ascending, none twice."""
        self._check(value)
        if self.index == "plain":
            return packing.from_integers(value, self._width)
        return packing.from_large(rank(value.tolist(), self.n), self.bits)

    def read(self, bits: np.ndarray) -> np.ndarray:
        """The places; ValueError for bits that name no subset."""
        (s,) = self.shape
        if self.index == "plain":
            places = packing.to_integers(bits, self._width)
            self._check(places)
            return places.astype(np.int32)
        number = packing.to_large(bits)
        if number >= _subsets(self.n, s):
            raise ValueError(f"Expected a subset's number below C({self.n}, {s}), got a larger one. {packing.DAMAGED}")
        return np.array(unrank(number, self.n, s), np.int32)

    @property
    def _width(self) -> int:
        return max(1, (self.n - 1).bit_length())

    def _check(self, places: np.ndarray) -> None:
        if not np.issubdtype(places.dtype, np.integer):
            raise ValueError(f"Expected whole numbers as indices, got {places.dtype}.")
        outside = np.flatnonzero((places < 0) | (places >= self.n))
        if outside.size:
            at = outside[0]
            raise ValueError(
                f"Expected indices from 0 to {self.n - 1}, got {places[at]} at place {at}. {packing.DAMAGED}"
            )
        falling = np.flatnonzero(np.diff(places) <= 0)
        if falling.size:
            one, next = places[falling[0] : falling[0] + 2]
            raise ValueError(f"Expected ascending indices, none twice, got {one} before {next}. {packing.DAMAGED}")


def rank(places: list[int], n: int) -> int:
    """The number of a subset, 0 .. C(n, s) - 1."""
    members = set(places)
    return sum(value for _, value in _members(n, len(places), lambda place, _: place in members))


def unrank(number: int, n: int, s: int) -> list[int]:
    """The subset behind `rank`."""

    def chosen(place: int, value: int) -> bool:
        nonlocal number
        fits = value <= number
        number -= value * fits
        return fits

    return [place for place, _ in _members(n, s, chosen)][::-1]


def _members(n: int, s: int, chosen: Callable[[int, int], bool]) -> Iterator[tuple[int, int]]:
    """The places i_k that are `chosen`, the largest first, with C(i_k, k), from s on down; n steps, whatever s.

    C(place, k) is updated by small factors throughout.
    """
    value = comb(n - 1, s)
    for place in range(n - 1, -1, -1):
        if s and chosen(place, value):
            yield place, value
            value, s = value * s // max(place, 1), s - 1
        else:
            value = value * (place - s) // max(place, 1)
