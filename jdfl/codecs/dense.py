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

    All n entries in `precision`; exact when the parameters have that type ("Perf" in the CEPS paper).

    An entry beyond the range of the wire's type (65,504 in float16) arrives as infinite. Numbers below 6.1e-5 lose
    digits in float16, and below 3e-8 everything: methods that send smaller and smaller differences stall there.
    """

    kind: ClassVar[str] = "dense"
    precision: Literal["float32", "float64", "float16", "bfloat16"] = struct.field(pytree_node=False, default="float32")
    """Type of the floats."""
    free = True

    @property
    def unbiased(self) -> bool:
        """True for float32 and float64, which are taken for exact; shorter floats round to the nearest."""
        return rounding(self.precision, 1) == 0

    def contraction(self, n: int, sparsity: int) -> float:
        """1 for float32 and float64, 1 - 2^-16 for bfloat16, (1 - 2^-22) / (1 + (n - 1) / 2^22) for float16.

        See `rounding` for the proof.
        """
        return 1 - rounding(self.precision, n)

    def encode(self, key: Array, x: Array, wire: Wire) -> Array:
        """The vectors x [b, n] in the wire's precision; a receiver computes in the type it got."""
        return rounded(x, self.precision)

    def decode(self, key: Array, payload: Array, wire: Wire) -> Array:
        """The vectors as they came: `payload` [b, n]."""
        return payload

    def layout(self, n: int, sparsity: int | None) -> Part:
        """16 n, 32 n or 64 n bits."""
        return floats(n, dtype=self.precision)


def rounded(x: Array, precision: str) -> Array:
    """The values of x in another floating type, in x's own."""
    # Without the barrier XLA takes the two conversions for none.
    return x if x.dtype == jnp.dtype(precision) else lax.optimization_barrier(x.astype(precision)).astype(x.dtype)


def rounding(precision: str, n: int) -> float:
    """A bound of ||round(x) - x||^2 / ||x||^2 over the vectors x [n] whose largest magnitude is a normal number.

    A normal number is off by a share u at most, u = 2^-8 in bfloat16 and 2^-11 in float16, where smaller ones are off
    by min(|x_j|, 2^-25). The largest is 2^-14 at least; so if A is the sum of the squares of the normal entries and B
    what the others lose, then A >= 2^-28, B <= (n - 1) 2^-50, B is no more than their squares, and the ratio is at most
    (u^2 A + B) / (A + B), which falls with A and grows with B. bfloat16 has the range of float32, whose own smallest
    numbers are left out, and so are the 2^-48 that float64 parameters lose in float32.
    """
    if precision == "bfloat16":
        return 2.0**-16
    return 1 - (1 - 2.0**-22) / (1 + (n - 1) * 2.0**-22) if precision == "float16" else 0.0
