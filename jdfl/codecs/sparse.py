"""The s entries largest in magnitude: plain indices and float32 values."""

from dataclasses import replace
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import Array

from jdfl import checks, ops
from jdfl.codecs import packing


@struct.dataclass
class Sparse:
    """`s` pairs of an index (ceil(log2 n) bits) and a float32 value; exact for float32 vectors with s nonzeros."""

    s: int | None = struct.field(pytree_node=False, default=None)  # None: as many as the vectors are known to have
    free: ClassVar[bool] = False

    def check(self, n: int, m: int) -> None:
        """Refuse s outside [1, n]."""
        if self.s is not None:
            checks.whole(1, n, "A message cannot hold more entries than the vector has.", s=self.s)

    def prepare(self, key: Array, node: Array, n: int, sparsity: int, dtype: Any) -> "Sparse":
        """Take over the number of nonzeros."""
        return replace(self, s=sparsity if self.s is None else self.s)

    def _size(self) -> int:
        if self.s is None:
            raise ValueError("Sparse(s=None) does not know its size yet: give s, or call prepare(...) first.")
        return self.s

    def encode(self, key: Array, x: Array) -> tuple[Array, Array]:
        """Indices [s] int32, ascending, and values [s] rounded to float32."""
        index = jnp.sort(ops.support(x, self._size())[0])
        return index, x[index].astype(jnp.float32).astype(x.dtype)

    def decode(self, key: Array, payload: tuple[Array, Array], n: int) -> Array:
        """The entries in their places, zero elsewhere."""
        index, value = payload
        return jnp.zeros((n,), value.dtype).at[index].set(value)

    def bits(self, n: int) -> int:
        """S (32 + ceil(log2 n))."""
        return self._size() * (32 + index_width(n))

    def pack(self, payload: tuple[Array, Array], n: int) -> bytes:
        """All indices, then all values."""
        index, value = (np.asarray(part) for part in payload)
        return packing.join(packing.from_integers(index, index_width(n)), packing.from_floats(value, "float32"))

    def unpack(self, data: bytes, n: int) -> tuple[np.ndarray, np.ndarray]:
        """Indices and values."""
        index, value = packing.split(data, self._size() * index_width(n), self._size() * 32)
        return packing.to_integers(index, index_width(n)), packing.to_floats(value, "float32")


def index_width(n: int) -> int:
    """Bits of one plain index below n."""
    return max(1, (n - 1).bit_length())
