"""A vector as a matrix of low rank: the range of random combinations of its columns, and the coordinates there.

T. Vogels, S. P. Karimireddy, M. Jaggi, "PowerSGD: Practical low-rank gradient compression for distributed
optimization", 2019; N. Halko, P. G. Martinsson, J. A. Tropp, "Finding structure with randomness", 2011.

Axes: x [n] is M [a, b], padded with zeros; r is the rank. (Messages that are processed together add an axis in front of
these.)
"""

from math import isqrt
from typing import ClassVar

import jax
import jax.numpy as jnp
from jax import Array

from jdfl.arrays import ops
from jdfl.base import checks, struct
from jdfl.base.settings import Count
from jdfl.codecs.base import Codec, Wire
from jdfl.codecs.packing import Part, floats


@struct.dataclass
class LowRank(Codec):
    """The vector as a matrix of low rank, as in PowerSGD.

    P = orth(M Q) and W = M^T P with a Gaussian Q [b, r] from the message's key; (a + b) r floats are sent, and P W^T is
    decoded.

    P P^T is a projection: the norm of the result is at most that of x, and it is exact where M has rank r or less. orth
    uses Householder reflections, which give orthonormal columns for every matrix, including the zero matrix (W is zero
    then). PowerSGD continues from the last message's W instead of a new Q; here no message depends on another.

    `height` is a; None: the integer part of sqrt(n). b = ceil(n / a). A message is shorter than the vector as long as r
    < n / (a + b), about sqrt(n) / 2.
    """

    kind: ClassVar[str] = "low-rank"
    rank: Count = struct.field(pytree_node=False, default=1)
    """Rank of the decoded matrix."""
    height: Count | None = struct.field(pytree_node=False, default=None)
    """Rows of the matrix; None: about the square root of the number of parameters."""

    def contraction(self, n: int, sparsity: int) -> float:
        """Return r / min(a, b), attained where all singular values of M are equal.

        M = U S V^T with k <= min(a, b) singular values s_j > 0, G = V^T Q is Gaussian [k, r], and P P^T projects on U
        times the range of S G. Of ||M||^2 = sum s_j^2 the sum p_j s_j^2 is kept, p_j in [0, 1] being the squared norm
        of the projection of the j-th axis on that range, the leverage of row j of S G. Leverages sum to min(r, k), grow
        with their own s_j and fall with all others, and the rows of G are exchangeable: so E p_i <= E p_j wherever s_i
        <= s_j, and by Chebyshev's sum inequality sum E p_j s_j^2 >= (min(r, k) / k) sum s_j^2.
        """
        return self.rank / min(self._shape(n))

    def check(self, n: int, m: int, sparsity: int) -> None:
        """Raise ValueError for a height outside [1, n], and a rank outside [1, min(a, b)]."""
        if self.height is not None:
            checks.integer(1, n, "It is the number of rows of the matrix that holds the vector.", height=self.height)
        a, b = self._shape(n)
        checks.integer(1, min(a, b), f"The {n} entries form a matrix of {a} by {b}.", rank=self.rank)

    def _shape(self, n: int) -> tuple[int, int]:
        a = isqrt(n) if self.height is None else self.height
        return a, -(-n // a)

    def encode(self, key: Array, x: Array, wire: Wire) -> tuple[Array, Array]:
        """P [messages, a, r] and W [messages, b, r] float32 of the vectors x [messages, n]."""
        a, b = self._shape(x.shape[1])
        M = jnp.pad(x, ((0, 0), (0, a * b - x.shape[1]))).reshape(-1, a, b)
        Q = jax.vmap(lambda one: jax.random.normal(one, (b, self.rank), jnp.float32))(key).astype(x.dtype)
        P = jnp.linalg.qr(jnp.matmul(M, Q, precision=ops.HIGHEST))[0]
        W = jnp.matmul(M.mT, P, precision=ops.HIGHEST)
        return P.astype(jnp.float32), W.astype(jnp.float32)

    def decode(self, key: Array, payload: tuple[Array, Array], wire: Wire) -> Array:
        """P W^T of the payload ([messages, a, r], [messages, b, r]) as vectors [messages, n] float32."""
        P, W = payload
        M = jnp.matmul(P, W.mT, precision=ops.HIGHEST)
        return M.reshape(M.shape[0], -1)[:, : wire.n]

    def layout(self, n: int, sparsity: int | None) -> tuple[Part, Part]:
        """32 (a + b) r bits: P row by row, then W."""
        a, b = self._shape(n)
        return floats(a, self.rank), floats(b, self.rank)
