"""Conversion of messages to bytes and back, on the host with NumPy; bytes that cannot be a message are refused.

The parts of a message are written one after another: single bits, floats, levels of a scale, subsets of positions.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import ceil, comb, prod
from typing import Any, Literal

import jax.numpy as jnp
import numpy as np

from jdfl.base import checks

Index = Literal["plain", "enumerative"]
WIDEST = 63  # bits of a word: int64 holds it
DAMAGED = "The message is damaged, or was packed by another codec or for another n."
_subsets = lru_cache(maxsize=256)(comb)


@dataclass(frozen=True)
class Part:
    """How one array of a message is written.

    Args:
        shape: Shape of the array.
        bits: How many bits it takes.
        write: The bits [bits], as numbers 0 and 1, of an array of that shape; ValueError for invalid values.
        read: The array for bits [bits]; ValueError for invalid bits.
    """

    shape: tuple[int, ...]
    bits: int
    write: Callable[[np.ndarray], np.ndarray]
    read: Callable[[np.ndarray], np.ndarray]


def signs(n: int, room: int | None = None) -> Part:
    """One bit each of n truth values, such as whether an entry is positive."""
    room = n if room is None else room

    def write(value: np.ndarray) -> np.ndarray:
        if value[n:].any():
            raise ValueError(f"Expected {n} signs in a message, got more. It is the message of another node.")
        return value[:n].astype(np.uint8)

    return Part((room,), n, write, lambda bits: np.pad(bits.astype(bool), (0, room - n)))


def floats(*shape: int, dtype: str = "float32", size: str = "") -> Part:
    """Finite floats, little-endian, row by row: IEEE formats, or bfloat16."""
    kind = jnp.dtype(dtype)
    word = f"u{kind.itemsize}"

    def finite(value: np.ndarray) -> np.ndarray:
        bad = np.flatnonzero(~np.isfinite(value.astype(np.float64)))
        if bad.size:
            raise ValueError(f"Expected finite numbers in a message, got {value[bad[0]]} at place {bad[0]}. {DAMAGED}")
        return value

    def write(value: np.ndarray) -> np.ndarray:
        raw = finite(np.ascontiguousarray(value, kind).reshape(-1)).view(word)
        return np.unpackbits(np.frombuffer(raw.astype(f"<{word}").tobytes(), np.uint8))

    def read(bits: np.ndarray) -> np.ndarray:
        raw = np.frombuffer(np.packbits(bits).tobytes(), f"<{word}")
        value = finite(raw.astype(word).view(kind))
        if size and (value < 0).any():
            raise ValueError(f"Expected a {size} >= 0 in a message, got {value.min()}. {DAMAGED}")
        return value.reshape(shape)[()]

    return Part(shape, 8 * kind.itemsize * prod(shape), write, read)


@lru_cache(maxsize=64)
def word(base: int) -> tuple[int, int]:
    """The digits of a word and its bits: among all words that fit, the one with the fewest bits per digit.

    One number for n digits needs the fewest bits, ceil(n log2 base), but time that grows with n^2. Words of at most 63
    bits waste less than two per cent in every base below 2^16.
    """
    sizes = [(digits, (base**digits - 1).bit_length()) for digits in range(1, WIDEST + 1)]
    return min((size for size in sizes if size[1] <= WIDEST), key=lambda size: size[1] / size[0])


def levels(n: int, most: int, base: int) -> Part:
    """Levels [n] int8 or int16, as digits in words, the lowest digit first; the last word may be shorter."""
    size, width = word(base)
    whole, rest = n // size * width, (base ** (n % size) - 1).bit_length()
    powers = np.array([base**place for place in range(size)], np.int64)
    zero = base - 1 - most  # the digit of level 0: the largest level has the largest digit

    def checked(level: np.ndarray) -> np.ndarray:
        bad = np.flatnonzero(np.abs(level) > most)
        if bad.size:
            raise ValueError(f"Expected levels from {-most} to {most}, got {level[bad[0]]}. {DAMAGED}")
        return level

    def write(value: np.ndarray) -> np.ndarray:
        digits = checked(value.astype(np.int64)) + zero
        words = np.pad(digits, (0, -n % size)).reshape(-1, size) @ powers
        bits = from_integers(words, width)
        return np.concatenate([bits[:whole], bits[len(bits) - rest :]])  # a shorter word begins with zeros

    def read(bits: np.ndarray) -> np.ndarray:
        words = to_integers(np.insert(bits, whole, np.zeros(-len(bits) % width)), width)
        digits = (words[:, None] // powers % base).reshape(-1)
        if (words >= base**size).any() or digits[n:].any():
            raise ValueError(f"Expected words below {base}^{size}, got {words.max()}. {DAMAGED}")
        return checked(digits[:n] - zero).astype(np.int8 if most <= 127 else np.int16)

    return Part((n,), whole + rest, write, read)


def check_size(n: int, share: float | None, **count: int | None) -> None:
    """Raise ValueError unless the size, as a count or as a share of n, is valid; either may be None."""
    ((name, size),) = count.items()
    if size is not None and share is not None:
        raise ValueError(f"Expected {name} or share, not both, got {name} = {size!r} and share = {share!r}. Drop one.")
    if size is not None:
        checks.integer(1, n, "A message cannot hold more entries than the vector has.", **count)


def share_of(n: int, share: Any) -> int:
    """ceil(share n), at least one, with 0.07 * 100 = 7 and not 8."""
    return max(1, ceil(round(float(share) * n, 6)))


def subset(n: int, s: int, index: Index) -> Part:
    """The s positions [s] int32 of a subset of n, ascending: s ceil(log2 n) bits, or the number of the subset.

    The subsets {i_1 < ... < i_s} of {0, ..., n-1}, ordered by their largest element first, are numbered by sum_k C(i_k,
    k) (the combinatorial number system), so ceil(log2 C(n, s)) bits identify one: the shortest code of equal length.
    (T. M. Cover, "Enumerative source encoding", IEEE Trans. Inf. Theory, 1973.)
    """
    width, plain = max(1, (n - 1).bit_length()), index == "plain"
    size = s * width if plain else (_subsets(n, s) - 1).bit_length()

    def checked(places: np.ndarray) -> np.ndarray:
        if not np.issubdtype(places.dtype, np.integer):
            raise ValueError(f"Expected whole numbers as indices, got {places.dtype}.")
        outside = np.flatnonzero((places < 0) | (places >= n))
        if outside.size:
            at = outside[0]
            raise ValueError(f"Expected indices from 0 to {n - 1}, got {places[at]} at place {at}. {DAMAGED}")
        falling = np.flatnonzero(np.diff(places) <= 0)
        if falling.size:
            one, other = places[falling[0] : falling[0] + 2]
            raise ValueError(f"Expected ascending indices, none twice, got {one} before {other}. {DAMAGED}")
        return places

    def write(value: np.ndarray) -> np.ndarray:
        places = checked(value)
        return from_integers(places, width) if plain else from_large(rank(places.tolist(), n), size)

    def read(bits: np.ndarray) -> np.ndarray:
        if plain:
            return checked(to_integers(bits, width)).astype(np.int32)
        number = int.from_bytes(np.packbits(bits).tobytes(), "big") >> -size % 8
        if number >= _subsets(n, s):
            raise ValueError(f"Expected a subset's number below C({n}, {s}), got a larger one. {DAMAGED}")
        return np.array(unrank(number, n, s), np.int32)

    return Part((s,), size, write, read)


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


def join(*fields: np.ndarray) -> bytes:
    """Bit arrays one after another, padded with zeros to whole bytes (most significant bit first)."""
    return np.packbits(np.concatenate(fields)).tobytes()


def split(data: bytes, *sizes: int) -> list[np.ndarray]:
    """The bit arrays given to `join`, by their sizes; ValueError for another length or nonzero padding."""
    total = sum(sizes)
    if len(data) != -(-total // 8):
        raise ValueError(f"Expected a message of {-(-total // 8)} bytes, got {len(data)}. {DAMAGED}")
    bits = np.unpackbits(np.frombuffer(data, np.uint8))
    if bits[total:].any():
        raise ValueError(f"Expected zeros after the {total} bits of a message, got {bits[total:].tolist()}. {DAMAGED}")
    return np.split(bits[:total], np.cumsum(sizes)[:-1])


def from_integers(values: np.ndarray, width: int) -> np.ndarray:
    """Integers 0 .. 2^width - 1, `values` [k], as `width` bits each, most significant first."""
    place = np.arange(width - 1, -1, -1)
    return ((np.asarray(values, np.int64)[:, None] >> place) & 1).astype(np.uint8).reshape(-1)


def to_integers(bits: np.ndarray, width: int) -> np.ndarray:
    """The integers [k] int64 given to `from_integers`, from bits [k width]."""
    place = np.arange(width - 1, -1, -1)
    return (bits.reshape(-1, width).astype(np.int64) << place).sum(axis=1)


def from_large(value: int, width: int) -> np.ndarray:
    """One non-negative integer of any size as bits [width]."""
    raw = (value << -width % 8).to_bytes(-(-width // 8), "big")
    return np.unpackbits(np.frombuffer(raw, np.uint8), count=width)
