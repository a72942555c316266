"""Conversion of messages to bytes and back, on the host with NumPy; bytes that cannot be a message are refused.

The parts of a message are written one after another: floats and single bits are here, levels and subsets in their own
files.
"""

from collections.abc import Callable
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


def to_large(bits: np.ndarray) -> int:
    """The integer given to `from_large`, from its bits [width]."""
    return int.from_bytes(np.packbits(bits).tobytes(), "big") >> -len(bits) % 8
