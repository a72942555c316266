"""What travels on a wire, and how many bits it costs.

A codec has settings alone. What both ends of its messages know besides is a `Wire`, which is prepared once for a run:

    settings --prepare--> wire,   x --encode--> message --decode--> what arrives,   message --pack--> bytes

Axes: m nodes, b messages that are worked on side by side, n parameters.
"""

import zlib
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jdfl.arrays import ops
from jdfl.arrays.nonzeros import Nonzeros, largest
from jdfl.base import checks, struct
from jdfl.base.struct import each_row as each_row
from jdfl.codecs import packing

_DIRECT_ROWS = 128  # vectors that are worked on together where no messages are formed


class Codec:
    """What travels on a wire.

    The base class of codecs: b vectors at once become messages, and these become what arrives.

    A codec of one's own is a `jdfl.base.struct.dataclass` with its settings, `encode`, `decode` and `layout`, from
    which the size of a message and its bytes follow. Everything else has a default here. A run encodes, decodes and
    counts `bits`; `pack` and `unpack` make the bytes that tests compare with them. Both ends hold the same keys: common
    randomness from a seed costs no bits.

    Class variables, or properties where settings decide:
    `pairwise`: whether what arrives depends on who receives it.
    `unbiased`: whether E C(x) = x for every vector x, C(x) being what arrives, over the keys and up to the rounding of
    the receiver's arithmetic.
    `free`: whether coding every row costs less than choosing the rows that are asked for.
    `direct`: whether there is `arrived`.
    """

    pairwise = False
    unbiased = False
    free = False
    direct = False

    def check(self, n: int, m: int, sparsity: int) -> None:
        """Raise ValueError if the settings make no sense for the vectors of a run.

        Args:
            n: Entries of a vector.
            m: The number of nodes.
            sparsity: How many entries of a vector may be nonzero, from 1 to n.
        """

    def contraction(self, n: int, sparsity: int) -> float | None:
        """The largest known delta in (0, 1] with E ||C(x) - x||^2 <= (1 - delta) ||x||^2 for every x [n].

        None where there is none: a message may be worse than no message. "Every" means vectors whose largest magnitude
        is a normal number of the wire's float type. Rounding in the arithmetic of float32 (a share of about 1e-7) is
        left out. (Such compressors are called delta-contractive: A. Koloskova, S. U. Stich, M. Jaggi, "Decentralized
        stochastic optimization and gossip algorithms with compressed communication", 2019.)

        Args:
            n: Entries of a vector.
            sparsity: What `check` gets; it counts where it decides the size of a message, but x may be dense.
        """
        return None

    def lanes(self, wire: "Wire") -> int:
        """How many messages are best decoded side by side on this backend."""
        return 16

    def draw(self, key: Array, node: Array, n: int, dtype: Any) -> Any:
        """What both ends draw once, for a whole run: `Wire.drawn`; None where a message's key is enough.

        Args:
            key ([]): Key of what is drawn, common to both ends.
            node ([m]): Global ids of the senders. What is drawn for every one of them lies in a struct whose field says
                `per_node` (see `jdfl.base.struct`).
            n: Entries of a vector.
            dtype: Type of the parameters.
        """
        return None

    def prepare(self, key: Array, node: Array, n: int, sparsity: int, dtype: Any) -> "Wire":
        """The wire of some senders, made once for a run.

        Args:
            key ([]): Key of what is drawn, common to both ends.
            node ([m]): Global ids of the senders.
            n: Entries of a vector.
            sparsity: How many of them may be nonzero.
            dtype: Type of the parameters.
        """
        return Wire(self, n, sparsity, jnp.dtype(dtype), self.draw(key, node, n, dtype))

    def encode(self, key: Array, x: Array, wire: "Wire") -> Any:
        """The messages for some vectors: a tree of arrays [b, ...].

        Args:
            key ([b]): Key of every message, which receivers have as well.
            x ([b, n]): The vectors.
            wire: The wire of their b senders, in the order of the vectors.
        """
        raise NotImplementedError

    def decode(self, key: Array, payload: Any, wire: "Wire") -> Array:
        """The receivers' estimates [b, n] of what `encode` was given.

        Args:
            key ([b]): Keys of the messages, those that they were encoded with.
            payload: What `encode` gave, leaves [b, ...].
            wire: The same wire; where the codec is pairwise, with the receivers' own parameters as `side`.
        """
        raise NotImplementedError

    def arrived(self, key: Array, x: Array, wire: "Wire") -> Array:
        """What `decode` makes [b, n] of `encode` of x [b, n], keys [b]: bit for bit, without messages, and faster."""
        raise NotImplementedError

    def layout(self, n: int, sparsity: int | None) -> Any:
        """One message, with a `jdfl.codecs.packing.Part` in the place of every array: how that one is written.

        Args:
            n: Entries of a vector.
            sparsity: How many of them may be nonzero; None: it is not known.
        """
        raise NotImplementedError

    def bits(self, n: int, sparsity: int | None = None) -> int:
        """The size of one message in bits, the sum over its `layout`.

        Args:
            n: Entries of the vector.
            sparsity: The number of its nonzeros, which decides the size where the codec's own settings do not; None
                where they do.
        """
        return sum(part.bits for part in jax.tree.leaves(self.layout(n, sparsity)))

    def pack(self, payload: Any, n: int, sparsity: int | None = None) -> bytes:
        """One message as real bytes, ceil(bits / 8) of them; ValueError if it is none (on the host).

        Args:
            payload: The message as `encode` gives it, of one vector: without the axis b.
            n: Entries of the vector.
            sparsity: As for `bits`.
        """
        fields: list[np.ndarray] = []
        for part, value in zip(jax.tree.leaves(self.layout(n, sparsity)), jax.tree.leaves(payload), strict=True):
            checks.shape(part.shape, "Pack one message at a time.", payload=value)
            fields.append(part.write(np.asarray(value)))
        return packing.join(*fields)

    def unpack(self, data: bytes, n: int, sparsity: int | None = None) -> Any:
        """The message behind `pack`; ValueError where the bytes cannot be one (on the host).

        Args:
            data: The bytes.
            n: Entries of the vector.
            sparsity: As for `bits`, the same as for `pack`.
        """
        parts, message = jax.tree.flatten(self.layout(n, sparsity))
        fields = packing.split(data, *(part.bits for part in parts))
        return message.unflatten(part.read(bits) for part, bits in zip(parts, fields))


@struct.dataclass
class Wire:
    """A codec, and what both ends of its messages know beforehand: of m senders, or of those of b messages."""

    codec: Codec
    n: int = struct.field(pytree_node=False)
    """Entries of a vector."""
    sparsity: int = struct.field(pytree_node=False)
    """How many of them may be nonzero."""
    dtype: Any = struct.field(pytree_node=False)
    """Type of the parameters."""
    drawn: Any = None
    """What `Codec.draw` gives."""
    side: Array | None = struct.field(per_node=True, default=None)
    """The receivers' own parameters [b, n], for decoders that are pairwise."""

    def rows(self, i: Array) -> "Wire":
        """The wire of the senders i [b] alone; ids out of range clip."""
        return each_row(lambda x: jnp.asarray(x)[i], self)


def round_trip(wire: Wire, key: Array, x: Array, side: Array | None = None) -> Array:
    """What receivers make [b, n] of some vectors, each sent in a message.

    Args:
        wire: The wire of the b messages.
        key ([b]): Key of every message.
        x ([b, n]): The vectors.
        side ([b, n]): The receivers' own parameters, where the codec uses them; None: it has none to start from.
    """
    payload = lax.optimization_barrier(wire.codec.encode(key, x, wire))  # nothing but the message goes across
    return wire.codec.decode(key, payload, replace(wire, side=side)).astype(x.dtype)


def transmit(wire: Wire, keys: Array, x: Array | Nonzeros, wanted: Array, lanes: int | None = None) -> Any:
    """What receivers make [m, n] of the rows that are wanted; each is coded once.

    Of `Nonzeros` come as many again, the largest; a block alone has all n entries of a row.

    Args:
        wire: The wire of the m senders.
        keys ([m]): The senders' keys, one for each message.
        x ([m, n]): The rows that they send, an array or `Nonzeros`.
        wanted ([m]): Which rows somebody wants, bool; the others are zero in the result, or whatever costs nothing.
        lanes: Rows that are coded side by side; None: as the codec says. Where x is an array, it counts for no codec
            that is `free` or `direct`.
    """
    m, codec, nothing = x.shape[0], wire.codec, jax.tree.map(jnp.zeros_like, x)
    direct = codec.direct and not isinstance(x, Nonzeros)
    if direct and m <= _DIRECT_ROWS:  # not worth a choice of rows
        return ops.skipped_unless(jnp.any(wanted), _arrived, nothing, wire, keys, x)
    if codec.free and not isinstance(x, Nonzeros):
        return round_trip(wire, keys, x)

    def block(rows: Array, received: Any) -> Any:
        coded: Any = (_arrived if direct else round_trip)(wire.rows(rows), keys[rows], x[rows])
        coded = largest(coded, x.place.shape[1]) if isinstance(x, Nonzeros) else coded
        return jax.tree.map(lambda all, some: all.at[rows].set(some, mode="drop"), received, coded)

    return ops.for_rows(wanted, _DIRECT_ROWS if direct else min(m, lanes or codec.lanes(wire)), block, nothing)


def _arrived(wire: Wire, key: Array, x: Array) -> Array:
    return wire.codec.arrived(key, x, wire)


def receive(
    wire: Wire,
    keys: Array,
    x: Array,
    heard: Array,
    senders: Array,
    chosen: Array,
    lanes: int | None = None,
    *,
    by_receiver: bool,
) -> Array:
    """Sums [m, n] over what every node makes of the rows that it has chosen, its own row at its side.

    Every pair of nodes is coded on its own, with wire and key of the receiver or of the sender.

    Args:
        wire: The wire of those to whom the keys belong.
        keys ([m]): Keys of the receivers (`by_receiver`), or keys [g] of the senders.
        x ([m, n]): The receivers' own rows.
        heard ([g, n]): The rows that can be heard.
        senders ([m, d]): Which of them are in the slots of every receiver.
        chosen ([m, d]): Which slots are summed over, bool.
        lanes: Pairs that are coded side by side; None: as the codec says.
        by_receiver: Whether wire and keys are those of the receivers.
    """
    m, d = chosen.shape

    def pairs(rows: Array, total: Array) -> Array:
        i, j = rows // d, senders.reshape(-1)[rows]
        owner = jnp.minimum(i, m - 1) if by_receiver else j
        z = round_trip(wire.rows(owner), keys[owner], heard[j], x[jnp.minimum(i, m - 1)])
        return total.at[i].add(z, mode="drop")

    return ops.for_rows(chosen.reshape(-1), min(m, lanes or wire.codec.lanes(wire)), pairs, jnp.zeros_like(x))


def seal(codec: Codec, payload: Any, n: int, sparsity: int | None = None) -> bytes:
    """`codec.pack(payload, n, sparsity)` with a checksum, for bytes that are stored or go over a wire that has none.

    `Codec.unpack` refuses what cannot be a message, but most changed bits give another one. These four bytes more, a
    CRC-32 in which the codec's kind and sizes and n count too, are in no count: links carry a checksum of their own.
    For the arguments see `Codec.pack`.
    """
    body = codec.pack(payload, n, sparsity)
    return body + _checksum(codec, body, n, sparsity)


def unseal(codec: Codec, data: bytes, n: int, sparsity: int | None = None) -> Any:
    """The message in `data`, which `seal` made; ValueError for changed or missing bytes, and for another codec or n.

    `sparsity` is as for `Codec.bits`.
    """
    body, tail = data[:-4], data[-4:]
    if tail != _checksum(codec, body, n, sparsity):
        raise ValueError(f"Expected a message with the checksum that it ends in, got another one. {packing.DAMAGED}")
    return codec.unpack(body, n, sparsity)


def _checksum(codec: Codec, body: bytes, n: int, sparsity: int | None) -> bytes:
    head = f"{type(codec).__name__} {codec.bits(n, sparsity)} {n} ".encode()
    return zlib.crc32(head + body).to_bytes(4, "little")
