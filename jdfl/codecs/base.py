"""What travels on a wire, and how many bits it costs.

Axes: m nodes, n parameters. A codec speaks of ONE vector; callers lift it over nodes.
"""

from typing import Any, ClassVar, Protocol, Self

import jax
import jax.numpy as jnp
from jax import Array

from jdfl import ops


class Codec(Protocol):
    """Encode and decode one vector, with the number of bits in between.

    A run encodes and decodes and counts `bits`; `pack` and `unpack` make the bytes that tests compare with them.
    Both ends hold the same `key` (common randomness from a seed costs no bits) and the same codec after `prepare`.
    """

    free: ClassVar[bool]  # coding every row costs less than choosing the rows that are asked for

    def check(self, n: int, m: int) -> None:
        """Raise ValueError if the settings make no sense for m nodes with vectors of n entries."""
        ...

    def prepare(self, key: Array, node: Array, n: int, sparsity: int, dtype: Any) -> Self:
        """Draw what sender and receiver share: every array field gains a leading node axis [m].

        `node` [m] holds the global ids, `sparsity` the number of nonzeros that the vectors are known to have.
        """
        ...

    def encode(self, key: Array, x: Array) -> Any:
        """The message for a vector x [n]: a pytree of arrays."""
        ...

    def decode(self, key: Array, payload: Any, n: int) -> Array:
        """The receiver's estimate [n] of the vector behind a message."""
        ...

    def bits(self, n: int) -> int:
        """The size of one message in bits."""
        ...

    def pack(self, payload: Any, n: int) -> bytes:
        """The message as real bytes, ceil(bits(n) / 8) of them (on the host)."""
        ...

    def unpack(self, data: bytes, n: int) -> Any:
        """The message behind `pack` (on the host)."""
        ...


def node_codec(codec: Codec, i: Array) -> Codec:
    """The codec of node i: row i of every array of a prepared codec; an out-of-range i clips."""
    return jax.tree.map(lambda leaf: leaf[i], codec)


def round_trip(codec: Codec, key: Array, x: Array) -> Array:
    """What a receiver makes of the vector x [n]."""
    return codec.decode(key, codec.encode(key, x), x.shape[0])


def transmit(codec: Codec, keys: Array, x: Array, wanted: Array, lanes: int) -> Array:
    """What receivers make of the rows of x [m, n] that are `wanted` [m]; each is coded once, `lanes` at a time.

    `keys` [m] are the senders' keys. Rows that nobody wants are zero, or whatever costs nothing.
    """

    def coded(i: Array) -> Array:
        return round_trip(node_codec(codec, i), keys[i], x[i])

    if codec.free:
        return jax.vmap(coded)(jnp.arange(x.shape[0]))

    def block(rows: Array, received: Array) -> Array:
        return received.at[rows].set(jax.vmap(coded)(rows), mode="drop")

    return ops.for_rows(wanted, lanes, block, jnp.zeros_like(x))


def receive(codec: Codec, keys: Array, x: Array, senders: Array, chosen: Array, lanes: int) -> Array:
    """Sums [m, n] of what node i makes of the rows x[senders[i, j]] over the chosen slots [m, d], by ITS codec.

    Every pair of nodes is coded on its own, `lanes` at a time; `keys` [m] are the receivers' keys.
    """
    m, d = chosen.shape

    def pairs(rows: Array, total: Array) -> Array:
        i, j = rows // d, senders.reshape(-1)[rows]
        z = jax.vmap(lambda i, j: round_trip(node_codec(codec, i), keys[i], x[j]))(jnp.minimum(i, m - 1), j)
        return total.at[i].add(z, mode="drop")

    return ops.for_rows(chosen.reshape(-1), lanes, pairs, jnp.zeros_like(x))
