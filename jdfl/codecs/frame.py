"""A packed message with a checksum, for bytes that are stored or go over a wire that has none.

`Codec.unpack` refuses what cannot be a message, but most changed bits give another message. A sealed one has four bytes
more, which no count includes: links carry a checksum of their own.
"""

import struct
import zlib
from typing import Any

from jdfl.codecs import packing
from jdfl.codecs.base import Codec


def seal(codec: Codec, payload: Any, n: int) -> bytes:
    """`codec.pack(payload, n)` and its CRC-32, in which the codec's kind and sizes and n count too."""
    body = codec.pack(payload, n)
    return body + struct.pack("<I", _checksum(codec, body, n))


def unseal(codec: Codec, data: bytes, n: int) -> Any:
    """The message in `data`, which `seal` made; ValueError for changed or missing bytes, and for another codec or n."""
    body, tail = data[:-4], data[-4:]
    if len(tail) < 4 or struct.unpack("<I", tail)[0] != _checksum(codec, body, n):
        raise ValueError(f"Expected a message with the checksum that it ends in, got another one. {packing.DAMAGED}")
    return codec.unpack(body, n)


def _checksum(codec: Codec, body: bytes, n: int) -> int:
    return zlib.crc32(f"{type(codec).__name__} {codec.bits(n)} {n} ".encode() + body)
