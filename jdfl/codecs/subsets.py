"""Subsets of s of n positions: plain indices, or the number of the subset among all of its size. Host only.

The subsets {i_1 < ... < i_s} of {0, ..., n-1}, ordered by their largest element first, are numbered by
sum_k C(i_k, k) (the combinatorial number system), so ceil(log2 C(n, s)) bits identify one: the shortest code of equal
length. (T. M. Cover, "Enumerative source encoding", IEEE Trans. Inf. Theory, 1973.)
"""

from collections.abc import Callable, Iterator
from functools import lru_cache
from math import ceil, comb
from typing import Any, Literal

import numpy as np

from jdfl.base import checks
from jdfl.codecs import packing

Index = Literal["plain", "enumerative"]
_subsets = lru_cache(maxsize=256)(comb)


def check_size(n: int, share: float | None, **count: int | None) -> None:
    """Raise ValueError unless the size, as a count or as a share of n, is valid; either may be None."""
    ((name, size),) = count.items()
    if size is not None and share is not None:
        raise ValueError(f"Expected {name} or share, not both, got {name} = {size!r} and share = {share!r}. Drop one.")
    if size is not None:
        checks.whole(1, n, "A message cannot hold more entries than the vector has.", **count)


def size(n: int, share: Any) -> int:
    """ceil(share n), at least one, with 0.07 * 100 = 7 and not 8."""
    return max(1, ceil(round(float(share) * n, 6)))


def subset(n: int, s: int, index: Index) -> packing.Part:
    """The s positions [s] int32 of a subset of n, ascending: s ceil(log2 n) bits, or the number of the subset."""
    width, plain = max(1, (n - 1).bit_length()), index == "plain"
    size = s * width if plain else (_subsets(n, s) - 1).bit_length()

    def checked(places: np.ndarray) -> np.ndarray:
        if not np.issubdtype(places.dtype, np.integer):
            raise ValueError(f"Expected whole numbers as indices, got {places.dtype}.")
        outside = np.flatnonzero((places < 0) | (places >= n))
        if outside.size:
            at = outside[0]
            raise ValueError(f"Expected indices from 0 to {n - 1}, got {places[at]} at place {at}. {packing.DAMAGED}")
        falling = np.flatnonzero(np.diff(places) <= 0)
        if falling.size:
            one, other = places[falling[0] : falling[0] + 2]
            raise ValueError(f"Expected ascending indices, none twice, got {one} before {other}. {packing.DAMAGED}")
        return places

    def write(value: np.ndarray) -> np.ndarray:
        places = checked(value)
        return packing.from_integers(places, width) if plain else packing.from_large(rank(places.tolist(), n), size)

    def read(bits: np.ndarray) -> np.ndarray:
        if plain:
            return checked(packing.to_integers(bits, width)).astype(np.int32)
        number = packing.to_large(bits)
        if number >= _subsets(n, s):
            raise ValueError(f"Expected a subset's number below C({n}, {s}), got a larger one. {packing.DAMAGED}")
        return np.array(unrank(number, n, s), np.int32)

    return packing.Part((s,), size, write, read)


def rank(places: list[int], n: int) -> int:
    """The number of a subset, 0 .. C(n, s) - 1."""
    members = set(places)
    return sum(value for _, value in _members(n, len(places), lambda place, _: place in members))


def unrank(number: int, n: int, s: int) -> list[int]:
    """The subset given to `rank`."""

    def chosen(place: int, value: int) -> bool:
        nonlocal number
        fits = value <= number
        number -= value * fits
        return fits

    return [place for place, _ in _members(n, s, chosen)][::-1]


def _members(n: int, s: int, chosen: Callable[[int, int], bool]) -> Iterator[tuple[int, int]]:
    """The positions i_k that are `chosen`, the largest first, with C(i_k, k), from s down; n steps for every s."""
    value = comb(n - 1, s)
    for place in range(n - 1, -1, -1):
        if s and chosen(place, value):
            yield place, value
            value, s = value * s // max(place, 1), s - 1
        else:
            value = value * (place - s) // max(place, 1)
