"""Levels of a scale as digits, and digits of any base as bits. Host only.

One number for n digits needs the fewest bits, ceil(n log2 base), but time that grows with n^2. Digits are therefore
grouped into words of at most 63 bits, with the length that wastes least: less than two per cent in every base below
2^16.
"""

from functools import lru_cache

import numpy as np

from jdfl.codecs import packing

WIDEST = 63  # bits of a word: int64 holds it


@lru_cache(maxsize=64)
def word(base: int) -> tuple[int, int]:
    """The digits of a word and its bits: among all words that fit, the one with the fewest bits per digit."""
    sizes = [(digits, (base**digits - 1).bit_length()) for digits in range(1, WIDEST + 1)]
    return min((size for size in sizes if size[1] <= WIDEST), key=lambda size: size[1] / size[0])


def levels(n: int, most: int, base: int) -> packing.Part:
    """Levels [n] int8 or int16, as digits in words, the lowest digit first; the last word may be shorter."""
    size, width = word(base)
    whole, rest = n // size * width, (base ** (n % size) - 1).bit_length()
    powers = np.array([base**place for place in range(size)], np.int64)
    zero = base - 1 - most  # the digit of level 0: the largest level has the largest digit

    def checked(level: np.ndarray) -> np.ndarray:
        bad = np.flatnonzero(np.abs(level) > most)
        if bad.size:
            raise ValueError(f"Expected levels from {-most} to {most}, got {level[bad[0]]}. {packing.DAMAGED}")
        return level

    def write(value: np.ndarray) -> np.ndarray:
        digits = checked(value.astype(np.int64)) + zero
        words = np.pad(digits, (0, -n % size)).reshape(-1, size) @ powers
        bits = packing.from_integers(words, width)
        return np.concatenate([bits[:whole], bits[len(bits) - rest :]])  # a shorter word begins with zeros

    def read(bits: np.ndarray) -> np.ndarray:
        words = packing.to_integers(np.insert(bits, whole, np.zeros(-len(bits) % width)), width)
        digits = (words[:, None] // powers % base).reshape(-1)
        if (words >= base**size).any() or digits[n:].any():
            raise ValueError(f"Expected words below {base}^{size}, got {words.max()}. {packing.DAMAGED}")
        return checked(digits[:n] - zero).astype(np.int8 if most <= 127 else np.int16)

    return packing.Part((n,), whole + rest, write, read)
