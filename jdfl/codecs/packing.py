"""Bits to bytes and back, on the host with numpy; what cannot be a message is refused.

The parts of a message are written one after another: floats and single bits are here, levels and subsets in files of
their own.
"""

from dataclasses import dataclass
from math import prod

import jax.numpy as jnp
import numpy as np

DAMAGED = "The message is damaged, or was packed by another codec or for another n."


@dataclass(frozen=True)
class Part:
    """How one array of a message is written.

    Args:
        shape: Shape of the array.
    """

    shape: tuple[int, ...]

    @property
    def bits(self) -> int:
        """How many bits it takes."""
        raise NotImplementedError

    def write(self, value: np.ndarray) -> np.ndarray:
        """The bits [bits] of the array `value` [shape], as numbers 0 and 1; ValueError if that is no such array."""
        raise NotImplementedError

    def read(self, bits: np.ndarray) -> np.ndarray:
        """The array [shape] behind bits [bits]; ValueError if they stand for none."""
        raise NotImplementedError


@dataclass(frozen=True)
class Signs(Part):
    """One bit each, such as whether an entry is positive."""

    @property
    def bits(self) -> int:
        """As many as there are signs."""
        return prod(self.shape)

    def write(self, value: np.ndarray) -> np.ndarray:
        """Truth values as 0 and 1."""
        return value.astype(np.uint8).reshape(-1)

    def read(self, bits: np.ndarray) -> np.ndarray:
        """Truth values."""
        return bits.astype(bool).reshape(self.shape)


@dataclass(frozen=True)
class Floats(Part):
    """Finite floats, little-endian, row by row.

    Args:
        dtype: The type of each: IEEE's, or bfloat16.
        size: What they are called where they may not be negative, such as "norm".
    """

    dtype: str = "float32"
    size: str = ""

    @property
    def bits(self) -> int:
        """Those of all floats."""
        return 8 * jnp.dtype(self.dtype).itemsize * prod(self.shape)

    def write(self, value: np.ndarray) -> np.ndarray:
        """Their bits; ValueError if they are not finite."""
        floats = self._finite(np.ascontiguousarray(value, jnp.dtype(self.dtype)).reshape(-1))
        raw = floats.view(f"u{floats.itemsize}").astype(f"<u{floats.itemsize}")
        return np.unpackbits(np.frombuffer(raw.tobytes(), np.uint8))

    def read(self, bits: np.ndarray) -> np.ndarray:
        """The floats; ValueError if they are not finite, or sizes that are negative."""
        size = jnp.dtype(self.dtype).itemsize
        raw = np.frombuffer(np.packbits(bits).tobytes(), f"<u{size}").astype(f"u{size}")
        floats = self._finite(raw.view(jnp.dtype(self.dtype)))
        if self.size and (floats < 0).any():
            raise ValueError(f"Expected a {self.size} >= 0 in a message, got {floats.min()}. {DAMAGED}")
        return floats.reshape(self.shape)[()]

    def _finite(self, floats: np.ndarray) -> np.ndarray:
        bad = np.flatnonzero(~np.isfinite(floats.astype(np.float64)))
        if bad.size:
            raise ValueError(f"Expected finite numbers in a message, got {floats[bad[0]]} at place {bad[0]}. {DAMAGED}")
        return floats


def join(*fields: np.ndarray) -> bytes:
    """Bit arrays one after another, filled with zeros to whole bytes (most significant bit first)."""
    return np.packbits(np.concatenate(fields)).tobytes()


def split(data: bytes, *sizes: int) -> list[np.ndarray]:
    """The bit arrays behind `join`, given their sizes; ValueError for another length or a filling that is not zero."""
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
    """The integers [k] int64 behind `from_integers`, given bits [k width]."""
    place = np.arange(width - 1, -1, -1)
    return (bits.reshape(-1, width).astype(np.int64) << place).sum(axis=1)


def from_large(value: int, width: int) -> np.ndarray:
    """One non-negative integer of any size as bits [width]."""
    raw = (value << -width % 8).to_bytes(-(-width // 8), "big")
    return np.unpackbits(np.frombuffer(raw, np.uint8), count=width)


def to_large(bits: np.ndarray) -> int:
    """The integer behind `from_large`, given its bits [width]."""
    return int.from_bytes(np.packbits(bits).tobytes(), "big") >> -len(bits) % 8
