"""Levels of a scale as digits, and digits of any base as bits. Host only.

One number for n digits needs the fewest bits, ceil(n log2 base), but a time that grows with n^2. Digits are therefore
gathered in words that fit 63 bits, of the length that wastes least: less than two per cent in every base below 2^16.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from jdfl.codecs import packing

WIDEST = 63  # bits of a word: int64 holds it


@lru_cache(maxsize=64)
def word(base: int) -> tuple[int, int]:
    """Digits of a word and its bits: of all words that are short enough, the one with the fewest bits per digit."""
    sizes = [(digits, (base**digits - 1).bit_length()) for digits in range(1, WIDEST + 1)]
    return min((size for size in sizes if size[1] <= WIDEST), key=lambda size: size[1] / size[0])


@dataclass(frozen=True)
class Levels(packing.Part):
    """Whole numbers -most .. most, int8 or int16, as digits in words, lowest first; the last word may be shorter.

    Args:
        most: The largest level.
        base: Of the digits, 2 most + 1 at least; a power of two gives every level bits of its own.
    """

    most: int
    base: int

    @property
    def bits(self) -> int:
        """About n log2(base) for n levels."""
        (n,), (size, width) = self.shape, word(self.base)
        return n // size * width + (self.base ** (n % size) - 1).bit_length()

    def write(self, value: np.ndarray) -> np.ndarray:
        """Words of digits; ValueError for numbers that are no levels."""
        size, width = word(self.base)
        digits = self._levels(value.astype(np.int64)) + self._zero
        words = np.pad(digits, (0, -len(digits) % size)).reshape(-1, size) @ self._powers
        bits, whole = packing.from_integers(words, width), len(digits) // size * width
        return np.concatenate([bits[:whole], bits[len(bits) - (self.bits - whole) :]])  # a shorter word begins with 0

    def read(self, bits: np.ndarray) -> np.ndarray:
        """The levels; ValueError for words and numbers that are none."""
        (n,), (size, width) = self.shape, word(self.base)
        words = packing.to_integers(np.insert(bits, n // size * width, np.zeros(-len(bits) % width)), width)
        digits = (words[:, None] // self._powers % self.base).reshape(-1)
        if (words >= self.base**size).any() or digits[n:].any():
            raise ValueError(f"Expected words below {self.base}^{size}, got {words.max()}. {packing.DAMAGED}")
        return self._levels(digits[:n] - self._zero).astype(np.int8 if self.most <= 127 else np.int16)

    @property
    def _zero(self) -> int:
        """The digit of level 0: the largest level has the largest digit."""
        return self.base - 1 - self.most

    @property
    def _powers(self) -> np.ndarray:
        return np.array([self.base**place for place in range(word(self.base)[0])], np.int64)

    def _levels(self, level: np.ndarray) -> np.ndarray:
        bad = np.flatnonzero(np.abs(level) > self.most)
        if bad.size:
            most = self.most
            raise ValueError(f"Expected levels from {-most} to {most}, got {level[bad[0]]}. {packing.DAMAGED}")
        return level
