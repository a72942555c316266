"""The whole vector, every entry as one float."""

from typing import Any, ClassVar, Literal

import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import Array, lax

from jdfl import checks
from jdfl.codecs import packing


@struct.dataclass
class Dense:
    """All n entries in `precision`; exact when the parameters have that type ("Perf" in the CEPS paper).

    An entry beyond the range of the wire's type (65,504 in float16) arrives as infinite.
    """

    precision: Literal["float32", "float64", "float16", "bfloat16"] = struct.field(pytree_node=False, default="float32")
    free: ClassVar[bool] = True

    @property
    def pairwise(self) -> bool:
        """All receivers get the same."""
        return False

    def lanes(self, n: int) -> int:
        """Everything is coded at once, whatever is asked for."""
        return 1

    def check(self, n: int, m: int, sparsity: int) -> None:
        """Refuse a precision that is not a float type of the wire format."""
        checks.literals(self)

    def prepare(self, key: Array, node: Array, n: int, sparsity: int, dtype: Any) -> "Dense":
        """Nothing is shared."""
        return self

    def rows(self, i: Array) -> "Dense":
        """The same for all nodes."""
        return self

    def encode(self, key: Array, x: Array) -> Array:
        """The vectors x [b, n] in the wire's precision; a receiver computes in the type it got."""
        return rounded(x, self.precision)

    def decode(self, key: Array, payload: Array, n: int, side: Array | None = None) -> Array:
        """The vectors as they came."""
        return payload

    def bits(self, n: int) -> int:
        """16 n, 32 n or 64 n."""
        return packing.width(self.precision) * n

    def pack(self, payload: Array, n: int) -> bytes:
        """N little-endian floats."""
        checks.shape((n,), "Pack one message at a time.", payload=payload)
        return packing.join(packing.from_floats(np.asarray(payload), self.precision))

    def unpack(self, data: bytes, n: int) -> np.ndarray:
        """The floats."""
        (floats,) = packing.split(data, self.bits(n))
        return packing.to_floats(floats, self.precision)


def rounded(x: Array, precision: str) -> Array:
    """The values of x in another floating type, in x's own."""
    # Without the barrier XLA takes the two conversions for none.
    return x if x.dtype == jnp.dtype(precision) else lax.optimization_barrier(x.astype(precision)).astype(x.dtype)
