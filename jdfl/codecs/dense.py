"""The whole vector, every entry as one float."""

from typing import ClassVar, Literal

import jax.numpy as jnp
from jax import Array, lax

from jdfl.base import struct
from jdfl.codecs.base import Codec, Wire
from jdfl.codecs.packing import Part, floats


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
