"""The whole vector, every entry as one float."""

from typing import Any, ClassVar, Literal

import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import Array

from jdfl import checks
from jdfl.codecs import packing


@struct.dataclass
class Dense:
    """All n entries in `precision`; exact when the parameters have that type ("Perf" in the CEPS paper)."""

    precision: Literal["float32", "float64"] = struct.field(pytree_node=False, default="float32")
    free: ClassVar[bool] = True

    def check(self, n: int, m: int) -> None:
        """Refuse a precision that is not a float type of the wire format."""
        checks.literals(self)

    def prepare(self, key: Array, node: Array, n: int, sparsity: int, dtype: Any) -> "Dense":
        """Nothing is shared."""
        return self

    def encode(self, key: Array, x: Array) -> Array:
        """The vector x [n] in the wire's precision; a receiver computes in the type it got."""
        return x if x.dtype == jnp.dtype(self.precision) else x.astype(self.precision).astype(x.dtype)

    def decode(self, key: Array, payload: Array, n: int) -> Array:
        """The vector as it came."""
        return payload

    def bits(self, n: int) -> int:
        """32 n or 64 n."""
        return 8 * np.dtype(self.precision).itemsize * n

    def pack(self, payload: Array, n: int) -> bytes:
        """N little-endian floats."""
        return packing.join(packing.from_floats(np.asarray(payload), self.precision))

    def unpack(self, data: bytes, n: int) -> np.ndarray:
        """The floats."""
        (floats,) = packing.split(data, self.bits(n))
        return packing.to_floats(floats, self.precision)
