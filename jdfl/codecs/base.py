"""The base class of codecs: what a message contains, and how many bits it takes.

A codec holds settings only. What sender and receiver share beyond the settings is a `Wire`, prepared once per run:

    settings --prepare--> wire,   x --encode--> message --decode--> estimate of x,   message --pack--> bytes

Axes: m nodes, b messages that are processed together, n parameters.
"""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jdfl.arrays import ops
from jdfl.arrays.ops import Nonzeros, largest
from jdfl.base import checks, struct
from jdfl.base.backend import backend
from jdfl.base.struct import each_row as each_row
from jdfl.codecs import packing
from jdfl.devices.memory import at_once

_DIRECT_ROWS = 128  # vectors that are processed together where no messages are formed


class Codec:
    """How vectors are encoded into messages and decoded; the base class of codecs.

    Your own codec is a `jdfl.base.struct.dataclass` with its settings, `encode`, `decode` and `layout`; the size of a
    message and its bytes follow from these. Everything else has a default here. A run encodes and decodes, or computes
    what arrives (`direct`), and counts `bits`; `pack` and `unpack` produce the bytes that tests compare with it.
    Both ends have the same keys: common randomness from a seed costs no bits.

    In all methods n is the number of entries of a vector, `sparsity` how many may be nonzero (from 1 to n), and m the
    number of nodes. `key` [] belongs to a run and [b] to messages; both ends have it. `dtype` is the parameters' type,
    and node [m] are the global ids of the senders.

    Class variables, or properties where they depend on settings:
    `pairwise`: whether the decoded vector depends on the receiver.
    `unbiased`: whether E C(x) = x for every vector x, C(x) being the decoded vector, over the keys and up to the
    rounding of the receiver's arithmetic.
    `free`: whether encoding every row costs less than selecting the requested rows.
    `direct`: whether `arrived` is implemented.
    """

    pairwise = False
    unbiased = False
    free = False
    direct = False

    @property
    def groups(self) -> tuple[int, ...] | None:
        """Where messages of different nodes differ in size, the group of every node [m], from 0; None: they do not."""
        return None

    def of(self, group: int) -> "Codec":
        """The codec for the bytes of the messages of one group: with its `layout`, `bits`, `pack` and `unpack`.

        Args:
            group: One of the numbers in `groups`; without groups the codec itself is the result.
        """
        return self

    def check(self, n: int, m: int, sparsity: int) -> None:
        """Raise ValueError for settings that do not fit the vectors of a run."""

    def contraction(self, n: int, sparsity: int) -> float | None:
        """The contraction factor: the largest known delta in (0, 1] with E ||C(x) - x||^2 <= (1 - delta) ||x||^2.

        It holds for every x [n] whose largest magnitude is a normal number of the wire's float type; rounding in
        float32 arithmetic (about 1e-7 relative) is neglected. None where no delta is known: a message may be worse than
        no message. (Such compressors are called delta-contractive: A. Koloskova, S. U. Stich, M. Jaggi, "Decentralized
        stochastic optimization and gossip algorithms with compressed communication", 2019.) `sparsity` matters where it
        determines the size of a message, but x may be dense.
        """
        return None

    def lanes(self, wire: "Wire") -> int:
        """How many messages are decoded together for the best speed on this backend."""
        return 16 if backend() == "cpu" else 2**26 // wire.n

    def draw(self, key: Array, node: Array, n: int, dtype: Any) -> Any:
        """What both ends draw once per run: `Wire.drawn`; None where a message's key suffices.

        What is drawn for each of the senders belongs in a struct whose field says `per_node` (see `jdfl.base.struct`).
        """
        return None

    def prepare(self, key: Array, node: Array, n: int, sparsity: int, dtype: Any) -> "Wire":
        """The wire of some senders, prepared once per run."""
        return Wire(self, n, sparsity, jnp.dtype(dtype), self.draw(key, node, n, dtype))

    def encode(self, key: Array, x: Array, wire: "Wire") -> Any:
        """The messages for some vectors x [b, n]: a tree of arrays [b, ...].

        The `wire` is that of their b senders, in the order of the vectors.
        """
        raise NotImplementedError

    def decode(self, key: Array, payload: Any, wire: "Wire") -> Array:
        """The receivers' estimates [b, n] of the vectors given to `encode`.

        Args:
            key ([b]): Keys of the messages, the same as for `encode`.
            payload: The result of `encode`, leaves [b, ...].
            wire: The same wire; for a pairwise codec, with the receivers' own parameters as `side`.
        """
        raise NotImplementedError

    def arrived(self, key: Array, x: Array, wire: "Wire") -> Array:
        """`decode` of `encode` of x [b, n] with keys [b], as [b, n]: the same bits without forming messages, faster."""
        raise NotImplementedError

    def layout(self, n: int, sparsity: int | None) -> Any:
        """The layout of one message, with a `jdfl.codecs.packing.Part` in place of every array of the payload.

        Where `sparsity` is None, it is unknown.
        """
        raise NotImplementedError

    def bits(self, n: int, sparsity: int | None = None) -> int:
        """The size of one message in bits, the sum over its `layout`.

        `sparsity` may be None where the codec's own settings determine the size.
        """
        return sum(part.bits for part in jax.tree.leaves(self.layout(n, sparsity)))

    def pack(self, payload: Any, n: int, sparsity: int | None = None) -> bytes:
        """One message as ceil(bits / 8) bytes; ValueError for anything else (on the host).

        The `payload` is the result of `encode` for one vector, without the axis b; `sparsity` is as for `bits`.
        """
        fields: list[np.ndarray] = []
        for part, value in zip(jax.tree.leaves(self.layout(n, sparsity)), jax.tree.leaves(payload), strict=True):
            checks.shape(part.shape, "Pack one message at a time.", payload=value)
            fields.append(part.write(np.asarray(value)))
        return packing.join(*fields)

    def unpack(self, data: bytes, n: int, sparsity: int | None = None) -> Any:
        """The message that `pack` turned into the bytes `data`; ValueError where they cannot be one (on the host)."""
        parts, message = jax.tree.flatten(self.layout(n, sparsity))
        fields = packing.split(data, *(part.bits for part in parts))
        return message.unflatten(part.read(bits) for part, bits in zip(parts, fields))


@struct.dataclass
class Wire:
    """A codec with what both ends of its messages know in advance, for m senders or the senders of b messages."""

    codec: Codec
    n: int = struct.field(pytree_node=False)
    """Entries of a vector."""
    sparsity: int = struct.field(pytree_node=False)
    """How many of them may be nonzero."""
    dtype: Any = struct.field(pytree_node=False)
    """Type of the parameters."""
    drawn: Any = None
    """The result of `Codec.draw`."""
    side: Array | None = struct.field(per_node=True, default=None)
    """The receivers' own parameters [b, n], for pairwise decoders."""

    def rows(self, i: Array) -> "Wire":
        """The wire for the senders i [b]; ids out of range are clipped."""
        return each_row(lambda x: jnp.asarray(x)[i], self)


def round_trip(wire: Wire, key: Array, x: Array, side: Array | None = None) -> Array:
    """What receivers decode [b, n] from vectors that are each sent in one message.

    Args:
        wire: The wire of the b messages.
        key ([b]): Key of every message.
        x ([b, n]): The vectors.
        side ([b, n]): The receivers' own parameters, where the codec uses them; None: there are none.
    """
    payload = lax.optimization_barrier(wire.codec.encode(key, x, wire))  # only the message is passed on
    return wire.codec.decode(key, payload, replace(wire, side=side)).astype(x.dtype)


def transmit(
    wire: Wire, keys: Array, x: Array | Nonzeros, wanted: Array, lanes: int | None = None, onto: Array | None = None
) -> Any:
    """What receivers decode [m, n] from the rows that are wanted; each row is encoded once.

    `Nonzeros` are returned as `Nonzeros` of the same size, with the largest entries; a block has all n entries of a
    row.

    Args:
        wire: The wire of the m senders.
        keys ([m]): The senders' keys, one for each message.
        x ([m, n]): The rows that they send, an array or `Nonzeros`.
        wanted ([m]): Which rows are requested, bool; the others are zero in the result, or anything that costs nothing.
        lanes: Rows that are encoded together; None: chosen by the codec. Ignored where x is an array and the codec is
            `free` or `direct`.
        onto ([m, n]): Rows that both ends know: the differences of x from them are sent, and the result is what they
            are with the decoded differences added; rows that are not wanted stay as they are. None: x itself is sent.
    """
    m, codec = x.shape[0], wire.codec
    direct = codec.direct and not isinstance(x, Nonzeros)
    some = at_once(m, wire.n, _DIRECT_ROWS) if direct else lanes or min(codec.lanes(wire), at_once(m, wire.n, m))
    code = (lambda wire, key, x: wire.codec.arrived(key, x, wire)) if direct else round_trip
    if not isinstance(x, Nonzeros) and ((direct and m <= some) or (codec.free and not direct)):
        # Selecting rows would cost more.
        sent = x if onto is None else x - onto
        if direct:
            coded = ops.skipped_unless(jnp.any(wanted), code, jnp.zeros_like(sent), wire, keys, sent)
        else:
            coded = code(wire, keys, sent)
        return coded if onto is None else jnp.where(wanted[:, None], onto + coded, onto)

    def block(rows: Array, received: Any) -> Any:
        here = x[rows] if onto is None else x[rows] - received[rows]
        coded: Any = code(wire.rows(rows), keys[rows], here)
        coded = largest(coded, x.place.shape[1]) if isinstance(x, Nonzeros) else coded
        coded = coded if onto is None else received[rows] + coded
        return jax.tree.map(lambda all, some: all.at[rows].set(some, mode="drop"), received, coded)

    def zeros(x: Array) -> Array:  # of a constant the compiler would keep a copy, and copy that
        return jnp.broadcast_to(lax.optimization_barrier(jnp.zeros((), x.dtype)), x.shape)

    return ops.for_rows(wanted, some, block, jax.tree.map(zeros, x) if onto is None else onto)


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
    """Sums [m, n] over the rows that every node has chosen, decoded with its own row as side information.

    Every pair of nodes is encoded separately, with wire and key of the receiver or of the sender.

    Args:
        wire: The wire of the nodes that the keys belong to.
        keys ([m]): Keys of the receivers (`by_receiver`), or keys [g] of the senders.
        x ([m, n]): The receivers' own rows.
        heard ([g, n]): The rows that can be received.
        senders ([m, d]): Which of them are in the slots of every receiver.
        chosen ([m, d]): Which slots are summed over, bool.
        lanes: Pairs that are encoded together; None: chosen by the codec.
        by_receiver: Whether wire and keys belong to the receivers.
    """
    m, d = chosen.shape

    def pairs(rows: Array, total: Array) -> Array:
        i, j = rows // d, senders.reshape(-1)[rows]
        owner = jnp.minimum(i, m - 1) if by_receiver else j
        z = round_trip(wire.rows(owner), keys[owner], heard[j], x[jnp.minimum(i, m - 1)])
        return total.at[i].add(z, mode="drop")

    return ops.for_rows(chosen.reshape(-1), min(m, lanes or wire.codec.lanes(wire)), pairs, jnp.zeros_like(x))
