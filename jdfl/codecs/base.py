"""What travels on a wire, and how many bits it costs.

Axes: m nodes, b messages that are worked on side by side, n parameters.
"""

from collections.abc import Callable
from typing import Any, ClassVar, Protocol, Self

import jax
import jax.numpy as jnp
from jax import Array, lax

from jdfl.arrays import ops
from jdfl.arrays.nonzeros import Nonzeros, largest
from jdfl.devices import nodes

_DIRECT_ROWS = 128  # vectors that are worked on together where no messages are formed


class Codec(Protocol):
    """What travels on a wire.

    Encode and decode b vectors at once, with the number of bits in between.
    A run encodes and decodes and counts `bits`; `pack` and `unpack` make the bytes that tests compare with them.
    Both ends hold the same keys (common randomness from a seed costs no bits) and the same codec after `prepare`.
    A codec that has a true `direct` also has `arrived(key, x)`: what `decode` makes of `encode`, bit for bit, without a
    message, and faster.
    """

    free: ClassVar[bool]  # coding every row costs less than choosing the rows that are asked for

    @property
    def pairwise(self) -> bool:
        """Whether what arrives depends on who receives it."""
        ...

    @property
    def unbiased(self) -> bool:
        """Whether E C(x) = x for every vector x, over the keys and up to the rounding of the receiver's arithmetic.

        C(x) is what arrives of x, for `contraction` too.
        """
        ...

    def contraction(self, n: int, sparsity: int) -> float | None:
        """The largest known delta in (0, 1] with E ||C(x) - x||^2 <= (1 - delta) ||x||^2 for every x [n].

        None where there is none: a message may be worse than no message. `sparsity` is what `check` gets; it counts
        where it decides the size of a message, but x may be dense. "Every" means vectors whose largest magnitude is a
        normal number of the wire's float type. Rounding in the arithmetic of float32 (a share of about 1e-7) is left
        out. (Such compressors are called delta-contractive: A. Koloskova, S. U. Stich, M. Jaggi, "Decentralized
        stochastic optimization and gossip algorithms with compressed communication", 2019.)
        """
        ...

    def lanes(self, n: int) -> int:
        """How many messages are best decoded side by side on this backend."""
        ...

    def check(self, n: int, m: int, sparsity: int) -> None:
        """Raise ValueError if the settings make no sense for m nodes with vectors of n entries, `sparsity` nonzero."""
        ...

    def prepare(self, key: Array, node: Array, n: int, sparsity: int, dtype: Any) -> Self:
        """Draw what sender and receiver share.

        `node` [m] holds the global ids, `sparsity` the number of nonzeros that the vectors are known to have.
        """
        ...

    def rows(self, i: Array) -> Self:
        """A prepared codec's arrays for the nodes i [b] alone; ids out of range clip."""
        ...

    def encode(self, key: Array, x: Array) -> Any:
        """The messages for vectors x [b, n], keys [b]: a pytree of arrays [b, ...]."""
        ...

    def decode(self, key: Array, payload: Any, n: int, side: Array | None = None) -> Array:
        """The receivers' estimates [b, n]; `side` [b, n] is what each receiver has itself, if it is pairwise."""
        ...

    def bits(self, n: int) -> int:
        """The size of one message in bits."""
        ...

    def pack(self, payload: Any, n: int) -> bytes:
        """One message (no axis b) as real bytes, ceil(bits(n) / 8) of them; ValueError if it is none (on the host)."""
        ...

    def unpack(self, data: bytes, n: int) -> Any:
        """The message behind `pack`; ValueError where the bytes cannot be one (on the host)."""
        ...


def round_trip(codec: Codec, key: Array, x: Array, side: Array | None = None) -> Array:
    """What receivers make of the vectors x [b, n], keys [b], with side [b, n] of their own, where the codec uses it."""
    payload = lax.optimization_barrier(codec.encode(key, x))  # nothing but the message passes from one to the other
    return codec.decode(key, payload, x.shape[1], side).astype(x.dtype)


def transmit(codec: Codec, keys: Array, x: Array | Nonzeros, wanted: Array, lanes: int | None = None) -> Any:
    """What receivers make of the rows of x [m, n] that are `wanted` [m]; each is coded once, `lanes` at a time.

    `keys` [m] are the senders' keys. Rows that nobody wants are zero, or whatever costs nothing. Of `Nonzeros` come
    as many again, the largest.
    """
    m = x.shape[0]
    if isinstance(x, Nonzeros):
        return _few_nonzeros(codec, keys, x, wanted, min(m, lanes or codec.lanes(x.n)))
    if getattr(codec, "direct", False):
        return _directly(codec, keys, x, wanted)
    if codec.free:
        return round_trip(codec.rows(jnp.arange(m)), keys, x)

    def block(rows: Array, received: Array) -> Array:
        return received.at[rows].set(round_trip(codec.rows(rows), keys[rows], x[rows]), mode="drop")

    return ops.for_rows(wanted, min(m, lanes or codec.lanes(x.shape[1])), block, jnp.zeros_like(x))


def _few_nonzeros(codec: Codec, keys: Array, x: Nonzeros, wanted: Array, lanes: int) -> Nonzeros:
    """`transmit` of few nonzeros; a block alone has all n entries of a row."""

    def block(rows: Array, received: Nonzeros) -> Nonzeros:
        z = largest(round_trip(codec.rows(rows), keys[rows], x[rows]), x.place.shape[1])
        return jax.tree.map(lambda all, some: all.at[rows].set(some, mode="drop"), received, z)

    return ops.for_rows(wanted, lanes, block, jax.tree.map(jnp.zeros_like, x))


def _directly(codec: Any, keys: Array, x: Array, wanted: Array) -> Array:
    """`transmit` without messages; small networks are not worth a choice of rows."""
    if x.shape[0] <= _DIRECT_ROWS:
        asked = jnp.any(wanted)
        return ops.skipped_unless(asked, _arrived, jnp.zeros_like(x), codec, keys, x)

    def block(rows: Array, received: Array) -> Array:
        return received.at[rows].set(codec.arrived(keys[rows], x[rows]), mode="drop")

    return ops.for_rows(wanted, _DIRECT_ROWS, block, jnp.zeros_like(x))


def _arrived(codec: Any, keys: Array, x: Array) -> Array:
    return codec.arrived(keys, x)


def each_row(function: Callable[[Array], Array], codec: Codec) -> Codec:
    """The prepared codec with `function` of every array that has a row for every node."""
    return jax.tree.map(lambda x, row: function(x) if row else x, codec, nodes.with_rows(codec.rows))


def receive(
    codec: Codec,
    keys: Array,
    x: Array,
    heard: Array,
    senders: Array,
    chosen: Array,
    lanes: int | None = None,
    *,
    by_receiver: bool,
) -> Array:
    """Sums [m, n] of what node i makes of the rows heard[senders[i, j]] over the `chosen` [m, d], x[i] at its side.

    Every pair of nodes is coded on its own, `lanes` at a time, by codec and key of the receiver (`by_receiver`) or of
    the sender: `codec` and `keys` [m] or keys [g] belong to the rows of x, or to those of `heard` [g, n].
    """
    m, d = chosen.shape

    def pairs(rows: Array, total: Array) -> Array:
        i, j = rows // d, senders.reshape(-1)[rows]
        owner = jnp.minimum(i, m - 1) if by_receiver else j
        z = round_trip(codec.rows(owner), keys[owner], heard[j], x[jnp.minimum(i, m - 1)])
        return total.at[i].add(z, mode="drop")

    return ops.for_rows(chosen.reshape(-1), min(m, lanes or codec.lanes(x.shape[1])), pairs, jnp.zeros_like(x))
