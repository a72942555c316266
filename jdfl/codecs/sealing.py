"""Messages with a checksum, for bytes that are stored or sent over an unchecked link."""

import zlib
from typing import Any

from jdfl.codecs import packing
from jdfl.codecs.base import Codec


def seal(codec: Codec, payload: Any, n: int, sparsity: int | None = None) -> bytes:
    """`codec.pack(payload, n, sparsity)` with a checksum, for bytes that are stored or sent over an unchecked link.

    `Codec.unpack` refuses bytes that cannot be a message, but most changed bits give another valid message. The four
    additional bytes are a CRC-32 that also covers the codec's kind and sizes and n. They are in no byte count, because
    links have their own checksums. For the arguments see `Codec.pack`.
    """
    body = codec.pack(payload, n, sparsity)
    return body + _checksum(codec, body, n, sparsity)


def unseal(codec: Codec, data: bytes, n: int, sparsity: int | None = None) -> Any:
    """The message in `data` from `seal`; ValueError for changed or missing bytes, and for another codec or n.

    `sparsity` is as for `Codec.bits`.
    """
    body, tail = data[:-4], data[-4:]
    if tail != _checksum(codec, body, n, sparsity):
        raise ValueError(f"Expected a message that matches its checksum, got a different checksum. {packing.DAMAGED}")
    return codec.unpack(body, n, sparsity)


def _checksum(codec: Codec, body: bytes, n: int, sparsity: int | None) -> bytes:
    head = f"{type(codec).__name__} {codec.bits(n, sparsity)} {n} ".encode()
    return zlib.crc32(head + body).to_bytes(4, "little")
