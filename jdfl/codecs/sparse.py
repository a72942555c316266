"""The s entries largest in magnitude: which they are, and their values, as floats or as levels of one scale."""

from dataclasses import replace
from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import Array

from jdfl import checks, ops
from jdfl.codecs import packing, subsets
from jdfl.codecs.dense import rounded

_LEVELS = {"int8": 127, "int4": 7}  # largest level; levels are symmetric about zero
MOST_INT4 = 2**16  # entries that may share one scale of 7 levels


@struct.dataclass
class Message:
    """What a sparse codec sends."""

    index: Array  # [b, s] int32, ascending
    value: Array  # [b, s] floats as the wire has them, or int8 levels
    scale: Array | None  # [b] float32 values of level 1; None for floats


@struct.dataclass
class Sparse:
    """`s` places and as many values; vectors with s nonzeros lose only what `value` rounds.

    Integers are multiples of max |x| / 127 (or / 7), which goes along as a float32: an entry is off by half of that at
    most. `index` says how places are written: ceil(log2 n) bits each, or together as the number of their subset,
    ceil(log2 C(n, s)) bits, the fewest that any code of fixed length can do with.
    """

    s: int | None = struct.field(pytree_node=False, default=None)  # None: as many as the vectors are known to have
    value: Literal["float32", "float16", "bfloat16", "int8", "int4"] = struct.field(
        pytree_node=False, default="float32"
    )
    index: subsets.Index = struct.field(pytree_node=False, default="plain")
    free: ClassVar[bool] = False

    @property
    def pairwise(self) -> bool:
        """All receivers get the same."""
        return False

    def lanes(self, n: int) -> int:
        """Messages are small."""
        return 16

    def check(self, n: int, m: int, sparsity: int) -> None:
        """Refuse s outside [1, n], and int4 for more entries than one scale can serve."""
        if self.s is not None:
            checks.whole(1, n, "A message cannot hold more entries than the vector has.", s=self.s)
        checks.literals(self)
        size = sparsity if self.s is None else self.s
        if self.value == "int4" and size > MOST_INT4:
            raise ValueError(
                f"Expected s <= {MOST_INT4} with value = 'int4', got s = {size}: that many entries would share the "
                "7 levels of one scale. Use value = 'int8'."
            )

    def prepare(self, key: Array, node: Array, n: int, sparsity: int, dtype: Any) -> "Sparse":
        """Take over the number of nonzeros."""
        return replace(self, s=sparsity if self.s is None else self.s)

    def rows(self, i: Array) -> "Sparse":
        """The same for all nodes."""
        return self

    def _size(self) -> int:
        if self.s is None:
            raise ValueError("Sparse(s=None) does not know its size yet: give s, or call prepare(...) first.")
        return self.s

    def encode(self, key: Array, x: Array) -> Message:
        """Places and values of the largest entries of x [b, n]."""
        index = jnp.sort(jax.vmap(lambda one: ops.support(one, self._size())[0])(x), axis=1)
        value = jnp.take_along_axis(x, index, axis=1)
        if self.value not in _LEVELS:
            return Message(index, rounded(value, self.value), None)
        scale = (jnp.max(jnp.abs(value), axis=1) / _LEVELS[self.value]).astype(jnp.float32)
        unit = scale.astype(x.dtype)[:, None]
        level = jnp.where(unit > 0, jnp.round(value / jnp.where(unit > 0, unit, 1.0)), 0.0)
        most = _LEVELS[self.value]  # a scale rounded down to float32 would make the largest entry overshoot
        return Message(index, jnp.clip(level, -most, most).astype(jnp.int8), scale)

    def decode(self, key: Array, payload: Message, n: int, side: Array | None = None) -> Array:
        """The entries in their places, zero elsewhere [b, n]; levels give float32."""
        index, value = payload.index, payload.value
        if payload.scale is not None:
            value = value.astype(jnp.float32) * payload.scale[:, None]
        return jnp.zeros((index.shape[0], n), value.dtype).at[jnp.arange(index.shape[0])[:, None], index].set(value)

    def _sizes(self, n: int) -> tuple[int, int, int]:
        """Bits of places, values and scale."""
        s = self._size()
        each = {"int8": 8, "int4": 4}.get(self.value) or packing.width(self.value)
        return subsets.bits(n, s, self.index), s * each, 32 if self.value in _LEVELS else 0

    def bits(self, n: int) -> int:
        """Places, s values, and 32 bits of scale for integers."""
        return sum(self._sizes(n))

    def pack(self, payload: Message, n: int) -> bytes:
        """All places, then all values, then the scale."""
        checks.shape((self._size(),), "Pack one message at a time.", index=payload.index, value=payload.value)
        places = subsets.pack(np.asarray(payload.index), n, self.index)
        value = np.asarray(payload.value)
        if payload.scale is None:
            return packing.join(places, packing.from_floats(value, self.value))
        most = _LEVELS[self.value]
        _check_levels(value, most)
        offset = packing.from_integers(value.astype(np.int64) + most + 1, 8 if most > 7 else 4)
        return packing.join(places, offset, packing.from_floats(np.asarray(payload.scale)[None], "float32"))

    def unpack(self, data: bytes, n: int) -> Message:
        """Places, values and scale."""
        places, values, rest = packing.split(data, *self._sizes(n))
        index = subsets.unpack(places, n, self._size(), self.index)
        if self.value not in _LEVELS:
            return Message(index, packing.to_floats(values, self.value), None)  # pyright: ignore[reportArgumentType]
        most = _LEVELS[self.value]
        level = packing.to_integers(values, 8 if most > 7 else 4) - most - 1
        _check_levels(level, most)
        scale = packing.to_floats(rest, "float32")[0]
        if not scale >= 0:
            raise ValueError(f"Expected a scale >= 0 in a message, got {scale}. {packing.DAMAGED}")
        return Message(index, level.astype(np.int8), scale)  # pyright: ignore[reportArgumentType]


def _check_levels(level: np.ndarray, most: int) -> None:
    bad = np.flatnonzero(np.abs(level.astype(np.int64)) > most)
    if bad.size:
        raise ValueError(f"Expected levels from {-most} to {most}, got {level[bad[0]]}. {packing.DAMAGED}")
