"""Sensing matrices Phi [d, n] whose entries have mean 0 and variance 1, as the products that codecs need.

    gaussian     entries N(0, 1), stored
    rademacher   entries +-1, redrawn from the seed for every block of messages
    hadamard     d rows of H D2 H D1 / sqrt(N): H the N x N Hadamard matrix of +-1, N >= n a power of two, D1 and D2
                 random signs; more than N rows come from several such matrices. Nothing is stored, and a product takes
                 N log N operations
    sparse       Gaussian entries, all but a fraction of them zero, stored

Axes: b messages side by side, n entries, d measurements, t entries of a support.
"""

from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
import scipy
from jax import Array

from jdfl.arrays import ops
from jdfl.base import struct

Ensemble = Literal["gaussian", "rademacher", "hadamard", "sparse"]


class Sensing:
    """The matrices Phi of b messages, or one for all of them."""

    def measure(self, x: Array) -> Array:
        """Phi x [b, d] for x [b, n]."""
        raise NotImplementedError

    def columns(self, T: Array) -> Array:
        """Phi_T^T [b, t, d] for supports T [b, t]; indices out of range are clipped."""
        raise NotImplementedError

    def combine(self, T: Array, x: Array) -> Array:
        """Phi_T x [b, d] for supports T [b, t] and values x [b, t]."""
        return jnp.einsum("bt,btd->bd", x, self.columns(T), precision=ops.HIGHEST)

    def adjoint(self, v: Array) -> Array:
        """Phi^T v [b, n] for v [b, d]."""
        raise NotImplementedError


@struct.dataclass
class Stored(Sensing):
    """Phi^T of every message, for which Phi_T is a gather of rows."""

    matrix: Array = struct.field(per_node=True)  # [b, n, d]

    def measure(self, x: Array) -> Array:
        return jnp.einsum("bn,bnd->bd", x, self.matrix, precision=ops.HIGHEST)

    def columns(self, T: Array) -> Array:
        return self.matrix[jnp.arange(T.shape[0])[:, None], T]

    def adjoint(self, v: Array) -> Array:
        return jnp.einsum("bnd,bd->bn", self.matrix, v, precision=ops.HIGHEST)


@struct.dataclass
class Shared(Sensing):
    """One Phi^T for all messages, for which products are matrix products."""

    matrix: Array  # [n, d]

    def measure(self, x: Array) -> Array:
        return jnp.dot(x, self.matrix, precision=ops.HIGHEST)

    def columns(self, T: Array) -> Array:
        return self.matrix[T]

    def adjoint(self, v: Array) -> Array:
        return jnp.dot(v, self.matrix.T, precision=ops.HIGHEST)


@struct.dataclass
class Hadamard(Sensing):
    """The rows `row` of H D2 H D1 / sqrt(N), one pair D1, D2 per message and per N rows.

    Two columns of H have a third as their product, (-1)^(r.k) (-1)^(k.j) = (-1)^((r xor j).k), so that the entry (r, j)
    is D1[j] (H D2)[r xor j] / sqrt(N): columns are gathered from one transform of D2.
    """

    first: Array = struct.field(per_node=True)  # [b, blocks, N] of +-1: D1
    second: Array = struct.field(per_node=True)  # [b, blocks, N] of +-1: D2
    spectrum: Array = struct.field(per_node=True)  # [b, blocks N] H D2 / sqrt(N)
    row: Array  # [d] int32 in 0 .. blocks N - 1
    n: int = struct.field(pytree_node=False)

    def measure(self, x: Array) -> Array:
        b, _, N = self.first.shape
        wide = jnp.pad(x, ((0, 0), (0, N - self.n)))
        z = transform(transform(wide[:, None] * self.first) * self.second) / np.sqrt(N)
        return z.reshape(b, -1)[:, self.row]

    def columns(self, T: Array) -> Array:
        lane, row, place = jnp.arange(T.shape[0])[:, None, None], self.row[None, None, :], T[:, :, None]
        return self.first[lane, row // self.first.shape[-1], place] * self.spectrum[lane, row ^ place]

    def adjoint(self, v: Array) -> Array:
        b, blocks, N = self.first.shape
        z = jnp.zeros((b, blocks * N), v.dtype).at[:, self.row].set(v).reshape(b, blocks, N)
        z = transform(transform(z) * self.second) * self.first
        return jnp.sum(z, axis=1)[:, : self.n] / np.sqrt(N)


def double_hadamard(signs: Array, row: Array, n: int) -> Hadamard:
    """The matrices for D1 and D2 as signs [b, 2, blocks, N] and rows [d], on vectors with n <= N entries."""
    spectrum = transform(signs[:, 1]) / np.sqrt(signs.shape[-1])
    return Hadamard(signs[:, 0], signs[:, 1], spectrum.reshape(signs.shape[0], -1), row, n)


def transform(x: Array) -> Array:
    """H x for the last axis of x [..., N], N a power of two: as products with Hadamard matrices of at most 64 rows."""
    N = x.shape[-1]
    bits = N.bit_length() - 1
    factors = max(1, -(-bits // 6))
    sizes = [2 ** ((bits + place) // factors) for place in range(factors)]
    y = x.reshape(-1, *sizes)
    for _ in sizes:  # every product moves the axis it used to the end, so all are used once
        y = jnp.tensordot(
            y, jnp.asarray(scipy.linalg.hadamard(y.shape[1]), x.dtype), axes=((1,), (0,)), precision=ops.HIGHEST
        )
    return y.reshape(x.shape)


def signs(key: Array, shape: tuple[int, ...], dtype: jnp.dtype) -> Array:
    """Random signs +-1 of that shape, 32 from every random word."""
    size = int(np.prod(shape))
    words = jax.random.bits(key, (-(-size // 32),), jnp.uint32)
    bit = (words[:, None] >> jnp.arange(32, dtype=jnp.uint32)[None, :]) & 1
    return (1 - 2 * bit.astype(jnp.int32)).astype(dtype).reshape(-1)[:size].reshape(shape)


def hadamard_rows(key: Array, n: int, d: int) -> Array:
    """Which d rows of the stacked transforms are used [d]; at most N of each, drawn at random."""
    N = hadamard_size(n)
    blocks = -(-d // N)
    keys = jax.random.split(key, blocks)
    order = jax.vmap(lambda one: jax.random.permutation(one, N))(keys) + N * jnp.arange(blocks)[:, None]
    return order.T.reshape(-1)[:d].astype(jnp.int32)


def hadamard_size(n: int) -> int:
    """The power of two N >= n."""
    return 1 << max(1, (n - 1).bit_length())
