"""Codecs of all entries, each rounded: to a float, to a level of the vector's norm, or to its sign.

Axes: b messages, n parameters.
"""

from math import sqrt
from typing import Annotated, ClassVar, Literal

import jax
import jax.numpy as jnp
from jax import Array, lax

from jdfl.arrays import ops
from jdfl.base import struct
from jdfl.base.settings import Bound
from jdfl.codecs.base import Codec, Wire
from jdfl.codecs.packing import Part, floats, levels, signs

MOST_LEVELS = 2**15 - 1  # signed levels are int16


@struct.dataclass
class Dense(Codec):
    """The whole vector, every entry as one float.

    All n entries in `precision`; exact if the parameters have that type ("Perf" in the CEPS paper).

    An entry beyond the range of the wire's type (65,504 in float16) is decoded as infinite. Numbers below 6.1e-5 lose
    digits in float16, and below 3e-8 everything: methods that send ever smaller differences stall there.
    """

    kind: ClassVar[str] = "dense"
    precision: Literal["float32", "float64", "float16", "bfloat16"] = struct.field(pytree_node=False, default="float32")
    """Type of the floats."""
    free = True

    @property
    def unbiased(self) -> bool:
        """True for float32 and float64, which are treated as exact; shorter floats round to the nearest."""
        return rounding(self.precision, 1) == 0

    def contraction(self, n: int, sparsity: int) -> float:
        """1 for float32 and float64, 1 - 2^-16 for bfloat16, (1 - 2^-22) / (1 + (n - 1) / 2^22) for float16.

        See `rounding` for the proof.
        """
        return 1 - rounding(self.precision, n)

    def encode(self, key: Array, x: Array, wire: Wire) -> Array:
        """The vectors x [b, n] in the wire's precision; receivers compute in the parameters' type."""
        return rounded(x, self.precision)

    def decode(self, key: Array, payload: Array, wire: Wire) -> Array:
        """The vectors as received: `payload` [b, n]."""
        return payload

    def layout(self, n: int, sparsity: int | None) -> Part:
        """16 n, 32 n or 64 n bits."""
        return floats(n, dtype=self.precision)


def rounded(x: Array, precision: str) -> Array:
    """The values of x rounded to another floating type, in x's own type."""
    # Without the barrier XLA removes the two conversions.
    return x if x.dtype == jnp.dtype(precision) else lax.optimization_barrier(x.astype(precision)).astype(x.dtype)


def rounding(precision: str, n: int) -> float:
    """A bound of ||round(x) - x||^2 / ||x||^2 over the vectors x [n] whose largest magnitude is a normal number.

    The relative error of a normal number is at most u, u = 2^-8 in bfloat16 and 2^-11 in float16, where the absolute
    error of smaller numbers is min(|x_j|, 2^-25). The largest is at least 2^-14. If A is the sum of the squares of the
    normal entries and B the squared error of the others, then A >= 2^-28, B <= (n - 1) 2^-50, and B is at most their
    sum of squares. The ratio is at most (u^2 A + B) / (A + B), which falls with A and grows with B. bfloat16 has the
    range of float32, whose subnormal numbers are neglected, as are the 2^-48 that float64 parameters lose in float32.
    """
    if precision == "bfloat16":
        return 2.0**-16
    return 1 - (1 - 2.0**-22) / (1 + (n - 1) * 2.0**-22) if precision == "float16" else 0.0


@struct.dataclass
class QSGD(Codec):
    """All entries, rounded at random to a few levels of the vector's norm.

    All n entries as multiples -levels .. levels of norm / levels, rounded at random so that E C(x) = x. With s = levels
    and t_j = s |x_j| / ||x||, entry j is ||x|| sign(x_j) l_j / s, where l_j is floor(t_j) + 1 with probability t_j -
    floor(t_j), else floor(t_j). (D. Alistarh, D. Grubic, J. Li, R. Tomioka, M. Vojnovic, "QSGD: Communication-efficient
    SGD via gradient quantization and encoding", 2017.)

    `norm` is the l2 norm of x, as in the paper, or "max", its largest magnitude, which has a smaller error unless one
    entry dominates the norm. With `scaled` the receiver divides by 1 + `omega(n)`, and a message is never worse than
    none (Koloskova et al. 2019, as for `Codec.contraction`).

    The rounding uses the sender's own random bits: receivers need no key. The paper's code has variable length. This
    one packs the levels, digits of base 2 levels + 1, into words (see `packing.levels`): for levels = 1, 2 or 4 that
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


@struct.dataclass
class Sign(Codec):
    """The signs of all entries and their mean magnitude.

    Scaled signs: every entry is decoded as +||x||_1 / n or -||x||_1 / n, for n + 32 bits.

    (S. P. Karimireddy, Q. Rebjock, S. U. Stich, M. Jaggi, "Error feedback fixes SignSGD and other gradient compression
    schemes", 2019.) A zero counts as positive; the zero vector is decoded as zero.
    """

    kind: ClassVar[str] = "sign"
    free = True

    def contraction(self, n: int, sparsity: int) -> float:
        """1 / n, attained by vectors with one nonzero; for one x it is ||x||_1^2 / (n ||x||^2), 2 / pi if Gaussian.

        With c = ||x||_1 / n the error is ||x||^2 - 2 c ||x||_1 + n c^2 = ||x||^2 - ||x||_1^2 / n, and ||x||_1 >= ||x||.
        """
        return 1 / n

    def encode(self, key: Array, x: Array, wire: Wire) -> tuple[Array, Array]:
        """The scales ||x||_1 / n [b] float32, and x >= 0 [b, n] bool."""
        return jnp.sum(jnp.abs(x) / x.shape[1], axis=1).astype(jnp.float32), x >= 0

    def decode(self, key: Array, payload: tuple[Array, Array], wire: Wire) -> Array:
        """The scale with the signs [b, n] float32, of the payload ([b], [b, n])."""
        scale, positive = payload
        return jnp.where(positive, 1.0, -1.0).astype(jnp.float32) * scale[:, None]

    def layout(self, n: int, sparsity: int | None) -> tuple[Part, Part]:
        """32 bits of scale, and a sign for each entry."""
        return floats(size="scale"), signs(n)
