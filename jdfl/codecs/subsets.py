"""Which s of n places: plain indices, or the number of the subset among all of its size. Host only.

The subsets {i_1 < ... < i_s} of {0, ..., n-1}, ordered by their largest element first, are numbered by
sum_k C(i_k, k) (the combinatorial number system), so that ceil(log2 C(n, s)) bits name one: the shortest code of equal
length. (T. M. Cover, "Enumerative source encoding", IEEE Trans. Inf. Theory, 1973.)
"""

from functools import lru_cache
from math import ceil, comb
from typing import Any, Literal

import numpy as np

from jdfl.base import checks
from jdfl.codecs import packing

Index = Literal["plain", "enumerative"]


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


@lru_cache(maxsize=256)
def bits(n: int, s: int, index: Index) -> int:
    """The size of one subset: s ceil(log2 n), or ceil(log2 C(n, s))."""
    return s * _width(n) if index == "plain" else (comb(n, s) - 1).bit_length()


def pack(places: np.ndarray, n: int, index: Index) -> np.ndarray:
    """The bits of a subset given as ascending integers [s]; ValueError if they are no such."""
    check(places, n)
    size = bits(n, len(places), index)
    if index == "plain":
        return packing.from_integers(places, _width(n))
    return packing.from_large(rank(places.tolist(), n), size)


def unpack(data: np.ndarray, n: int, s: int, index: Index) -> np.ndarray:
    """The ascending integers [s] int32 behind `pack`; ValueError for bits that name no subset."""
    if index == "plain":
        places = packing.to_integers(data, _width(n))
        check(places, n)
        return places.astype(np.int32)
    number = packing.to_large(data)
    if number >= comb(n, s):
        raise ValueError(f"Expected a subset's number below C({n}, {s}), got a larger one. {packing.DAMAGED}")
    return np.array(unrank(number, n, s), np.int32)


def check(places: np.ndarray, n: int) -> None:
    """ValueError unless `places` are whole numbers in 0..n-1, ascending, none twice."""
    if not np.issubdtype(places.dtype, np.integer) or places.ndim != 1:
        raise ValueError(f"Expected a line of whole numbers as indices, got {places.dtype} of shape {places.shape}.")
    outside = np.flatnonzero((places < 0) | (places >= n))
    if outside.size:
        at = outside[0]
        raise ValueError(f"Expected indices from 0 to {n - 1}, got {places[at]} at place {at}. {packing.DAMAGED}")
    falling = np.flatnonzero(np.diff(places) <= 0)
    if falling.size:
        pair = places[falling[0] : falling[0] + 2].tolist()
        raise ValueError(f"Expected ascending indices, none twice, got {pair[0]} before {pair[1]}. {packing.DAMAGED}")


def rank(places: list[int], n: int) -> int:
    """The number of a subset, 0 .. C(n, s) - 1."""
    number, k = 0, len(places)
    value = comb(n - 1, k)  # C(place, k) throughout, updated by small factors: n steps, whatever s
    for place in range(n - 1, -1, -1):
        if k and places[k - 1] == place:
            number += value
            value, k = _divided(value * k, place), k - 1
        else:
            value = _divided(value * (place - k), place)
    return number


def unrank(number: int, n: int, s: int) -> list[int]:
    """The subset behind `rank`."""
    found: list[int] = []
    k = s
    value = comb(n - 1, k)
    for place in range(n - 1, -1, -1):
        if k and value <= number:
            found.append(place)
            number -= value
            value, k = _divided(value * k, place), k - 1
        else:
            value = _divided(value * (place - k), place)
    return found[::-1]


def _divided(value: int, place: int) -> int:
    return value // place if place else 0


def _width(n: int) -> int:
    """Bits of one plain index below n."""
    return max(1, (n - 1).bit_length())
