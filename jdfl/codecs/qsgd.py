"""QSGD: every entry rounded at random to one of a few levels of the vector's norm.

D. Alistarh, D. Grubic, J. Li, R. Tomioka, M. Vojnovic, "QSGD: Communication-efficient SGD via gradient quantization and
encoding", 2017: with t_j = s |x_j| / ||x||,

    Q(x)_j = ||x|| sign(x_j) l_j / s,   l_j = floor(t_j) + 1 with probability t_j - floor(t_j), else floor(t_j).

Axes: b messages, n parameters.
"""

from math import sqrt
from typing import Annotated, ClassVar, Literal

import jax
import jax.numpy as jnp
from jax import Array

from jdfl.arrays import ops
from jdfl.base import struct
from jdfl.base.settings import Bound
from jdfl.codecs.base import Codec, Wire
from jdfl.codecs.packing import Part, floats
from jdfl.codecs.radix import levels

MOST_LEVELS = 2**15 - 1  # signed levels are int16


@struct.dataclass
class QSGD(Codec):
    """All entries, rounded at random to a few levels of the vector's norm.

    All n entries as multiples -levels .. levels of norm / levels, rounded at random so that E C(x) = x.

    `norm` is the l2 norm of x, as in the paper, or "max", its largest magnitude, which has a smaller error unless one
    entry dominates the norm. With `scaled` the receiver divides by 1 + `omega(n)`, and a message is never worse than
    none (Koloskova et al. 2019, as for `Codec.contraction`).

    The rounding uses the sender's own random bits: receivers need no key. The paper's code has variable length. This
    one packs the levels, digits of base 2 levels + 1, into words (see `jdfl.codecs.radix`): for levels = 1, 2 or 4 that
    is a fifth less than whole bits for each, and hardly more than log2(2 levels + 1) bits.
    """

    kind: ClassVar[str] = "qsgd"
    levels: Annotated[int, Bound(f"[1, {MOST_LEVELS}]")] = struct.field(pytree_node=False, default=16)
    """Number of positive levels."""
    scaled: bool = struct.field(pytree_node=False, default=False)
    """The receiver divides by 1 + omega, so that no message is worse than none; otherwise the codec is unbiased."""
    norm: Literal["l2", "max"] = struct.field(pytree_node=False, default="l2")
    """The unit of the levels: the norm of the vector, or its largest magnitude."""

    @property
    def unbiased(self) -> bool:
        """E l_j = t_j; True unless scaled."""
        return not self.scaled

    def omega(self, n: int) -> float:
        """The variance used by `scaled`: min(n / s^2, sqrt(n) / s), Lemma 3.1 of the paper; `variance` for max.

        It is the published constant, which is not the smallest.
        """
        return min(n / self.levels**2, sqrt(n) / self.levels) if self.norm == "l2" else self.variance(n)

    def variance(self, n: int) -> float:
        """An omega with E ||Q(x) - x||^2 <= omega ||x||^2 for all x [n], unscaled: the smallest, or for l2 close to it.

        An entry contributes f(t_j) = p (1 - p), p = t_j - floor(t_j), in units of (norm / s)^2, and |x_j|^2 is t_j^2.
        l2: sum t_j^2 = s^2. f(t) <= t - t^2 and f <= 1/4, so f is at most g(t^2) with g(u) = sqrt(u) - u up to u = 1/4
            and 1/4 beyond, which is concave: the mean of f is at most g(s^2 / n), and omega = n g(s^2 / n) / s^2, that
            is sqrt(n) / s - 1 for 4 s^2 <= n (attained by equal entries), and n / (4 s^2) otherwise.
        max: one t_j is s and contributes nothing. The ratio sum f(t_j) / (s^2 + sum t_j^2) is largest where the other n
            - 1 are equal, and below 1: with a = (n - 1) / s^2 at t = 1 / (1 + sqrt(1 + a)), where it is (sqrt(1 + a) -
            1) / 2.
        """
        s = self.levels
        if self.norm == "max":
            return (sqrt(1 + (n - 1) / s**2) - 1) / 2
        return sqrt(n) / s - 1 if 4 * s**2 <= n else n / (4 * s**2)

    def contraction(self, n: int, sparsity: int) -> float | None:
        """1 - v, or None where the variance v is 1 or more. Scaled by c = 1 / (1 + omega): 2 c - c^2 (1 + v) >= c.

        For E ||c Q(x) - x||^2 = c^2 E ||Q(x) - x||^2 + (1 - c)^2 ||x||^2, and v <= omega.
        """
        v, c = self.variance(n), 1 / (1 + self.omega(n))
        delta = 2 * c - c**2 * (1 + v) if self.scaled else 1 - v
        return delta if delta > 0 else None

    def encode(self, key: Array, x: Array, wire: Wire) -> tuple[Array, Array]:
        """Norms [b] float32 and levels [b, n] int8 or int16; the norm of a vector that is not finite is not finite."""
        size = largest = jnp.max(jnp.abs(x), axis=1)
        if self.norm == "l2":  # in units of the largest entry, because squares may leave the range of the type
            size = largest * ops.length(x / jnp.where(largest > 0, largest, 1.0)[:, None], "l2")
        size = size.astype(jnp.float32)
        usable = (size > 0) & jnp.isfinite(size)
        unit = jnp.where(usable, size, 1.0).astype(x.dtype)[:, None]
        t = jnp.where(usable[:, None], jnp.minimum(jnp.abs(x) / unit * self.levels, self.levels), 0.0)
        coin = jax.vmap(lambda one: jax.random.uniform(one, x.shape[1:], jnp.float32))(key).astype(x.dtype)
        level = jnp.floor(t) + (coin < t - jnp.floor(t)).astype(x.dtype)
        return size, (jnp.sign(x) * level).astype(jnp.int8 if self.levels <= 127 else jnp.int16)

    def decode(self, key: Array, payload: tuple[Array, Array], wire: Wire) -> Array:
        """The multiples [b, n] float32 of the payload ([b] norms, [b, n] levels)."""
        step = 1 / (self.levels * (1 + self.omega(wire.n) if self.scaled else 1))
        norm, level = payload
        return level.astype(jnp.float32) * (norm * step)[:, None]

    def layout(self, n: int, sparsity: int | None) -> tuple[Part, Part]:
        """32 bits of norm, and about n log2(2 levels + 1)."""
        return floats(size="norm"), levels(n, self.levels, 2 * self.levels + 1)
