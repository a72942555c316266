"""Bits to bytes and back, on the host with numpy."""

import numpy as np


def join(*fields: np.ndarray) -> bytes:
    """Bit arrays one after another, filled with zeros to whole bytes (most significant bit first)."""
    return np.packbits(np.concatenate([np.asarray(field, dtype=np.uint8) for field in fields])).tobytes()


def split(data: bytes, *sizes: int) -> list[np.ndarray]:
    """The bit arrays behind `join`, given their sizes; ValueError when the message has another length."""
    total = sum(sizes)
    if len(data) != -(-total // 8):
        raise ValueError(f"Expected a message of {-(-total // 8)} bytes, got {len(data)}. It was packed otherwise.")
    bits = np.unpackbits(np.frombuffer(data, dtype=np.uint8))[:total]
    return np.split(bits, np.cumsum(sizes)[:-1])


def from_floats(values: np.ndarray, dtype: str) -> np.ndarray:
    """IEEE floats as bits, little-endian bytes."""
    raw = np.ascontiguousarray(values, dtype=np.dtype(dtype).newbyteorder("<"))
    return np.unpackbits(np.frombuffer(raw.tobytes(), dtype=np.uint8))


def to_floats(bits: np.ndarray, dtype: str) -> np.ndarray:
    """IEEE floats behind `from_floats`."""
    return np.frombuffer(np.packbits(bits).tobytes(), dtype=np.dtype(dtype).newbyteorder("<")).astype(dtype)


def from_integers(values: np.ndarray, width: int) -> np.ndarray:
    """Non-negative integers below 2**width as `width` bits each."""
    place = np.arange(width - 1, -1, -1)
    return ((np.asarray(values, dtype=np.int64)[:, None] >> place) & 1).astype(np.uint8).reshape(-1)


def to_integers(bits: np.ndarray, width: int) -> np.ndarray:
    """Integers behind `from_integers`, int32."""
    place = np.arange(width - 1, -1, -1)
    return (bits.reshape(-1, width).astype(np.int64) << place).sum(axis=1).astype(np.int32)
