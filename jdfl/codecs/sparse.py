"""The s entries largest in magnitude: which they are, and their values, as floats or as levels of one scale.

Top-k: S. U. Stich, J.-B. Cordonnier, M. Jaggi: Sparsified SGD with Memory, 2018; the ways to write places and values
are this library's.
"""

from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jdfl.arrays import ops
from jdfl.base import checks, struct
from jdfl.base.settings import Bound, Count
from jdfl.codecs import packing, subsets
from jdfl.codecs.dense import rounded, rounding

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
    """The largest entries: their places and their values.

    Top-k: the `s` largest entries, as places and values; vectors with s nonzeros lose only what `value` rounds.

    The size may be given as a `share` of n instead: ceil(share n) entries, one at least. With neither, a message holds
    as many as the vectors are known to have.

    Integers are multiples of max |x| / 127 (or / 7), which goes along as a float32: an entry is off by half of that at
    most. `index` says how places are written: ceil(log2 n) bits each, or together as the number of their subset,
    ceil(log2 C(n, s)) bits, the fewest that any code of fixed length can do with.
    """

    kind: ClassVar[str] = "sparse"
    s: Count | None = struct.field(pytree_node=False, default=None)
    """Entries in a message; None: by share, or the nonzeros of the algorithm."""
    value: Literal["float32", "float16", "bfloat16", "int8", "int4"] = struct.field(
        pytree_node=False, default="float32"
    )
    """Type of the values; integers are levels of one scale."""
    index: subsets.Index = struct.field(pytree_node=False, default="plain")
    """How places are written: plain numbers, or the number of their subset, which is shortest."""
    share: Annotated[float, Bound("(0, 1]")] | None = struct.field(pytree_node=False, default=None)
    """Share of the entries that is in a message, instead of s."""
    free: ClassVar[bool] = False

    @property
    def pairwise(self) -> bool:
        """All receivers get the same."""
        return False

    @property
    def unbiased(self) -> bool:
        """Small entries never arrive."""
        return False

    def contraction(self, n: int, sparsity: int) -> float:
        """(s / n) (1 - q), where q ||x||^2 bounds what rounding the entries that are sent may cost.

        The s largest of n squares hold a share s / n of their sum at least. (S. U. Stich, J.-B. Cordonnier, M. Jaggi,
        "Sparsified SGD with memory", 2018.) For floats q is `dense.rounding`. Levels: with most = 127 or 7
        and M the largest magnitude, which arrives exactly, each of the others is off by min(|x_j|, M / (2 most)) at
        most. Let B be the sum of the squares of that: B <= r M^2 with r = (s - 1) / (2 most)^2, and the squares sum to
        M^2 + B at least, so q = r / (1 + r). Attained with s = n by x = (M, M / (2 most), M / (2 most), ...).
        """
        s = self.size(n, sparsity)
        if self.value not in _LEVELS:
            return s / n * (1 - rounding(self.value, s))
        return s / n / (1 + (s - 1) / (2 * _LEVELS[self.value]) ** 2)

    def lanes(self, n: int) -> int:
        """Messages are small."""
        return 16

    def check(self, n: int, m: int, sparsity: int) -> None:
        """Refuse s outside [1, n], share outside (0, 1], both, and int4 for more entries than one scale can serve."""
        subsets.check_size(n, self.share, s=self.s)
        if self.s is None and self.share is None and sparsity >= n > 1:
            raise ValueError(
                f"Expected a size for Sparse, got s = None and share = None for vectors of n = {n} entries "
                "none of which is known to be zero: it would send all of them and their places, more than Dense(). "
                "Give s or share, as in Sparse(share=0.1)."
            )
        size = self.size(n, sparsity)
        if self.value == "int4" and size > MOST_INT4:
            raise ValueError(
                f"Expected s <= {MOST_INT4} with value = 'int4', got s = {size}: that many entries would share the "
                "7 levels of one scale. Use value = 'int8'."
            )

    def prepare(self, key: Array, node: Array, n: int, sparsity: int, dtype: Any) -> "Sparse":
        """Take over the number of nonzeros."""
        return replace(self, s=self.size(n, sparsity), share=None)

    def rows(self, i: Array) -> "Sparse":
        """The same for all nodes."""
        return self

    def size(self, n: int, sparsity: int | None = None) -> int:
        """How many entries of n a message holds; ValueError where that is not known.

        `sparsity` is the number of nonzeros that vectors are known to have, for `Sparse()`.
        """
        size = subsets.size(n, self.share) if self.share is not None else sparsity if self.s is None else self.s
        if size is None:
            raise ValueError("Sparse() does not know its size yet: give s or share, or call prepare(...) first.")
        return size

    @property
    def direct(self) -> bool:
        """Whether `arrived` is there: for floats, which no scale goes along with."""
        return self.value not in _LEVELS

    def arrived(self, key: Array, x: Array) -> Array:
        """What is decoded of the vectors x [b, n], bit for bit, without messages; nothing depends on the keys.

        Places need not be told apart for it, which takes ten times as long as finding which entries are sent.
        """
        return rounded(ops.top_s(x, self.size(x.shape[1])), self.value)

    def encode(self, key: Array, x: Array) -> Message:
        """Places and values of the largest entries of x [b, n]."""
        s = self.size(x.shape[1])
        index = jnp.sort(jax.vmap(lambda one: ops.support(one, s)[0])(x), axis=1)
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
        s = self.size(n)
        each = {"int8": 8, "int4": 4}.get(self.value) or packing.width(self.value)
        return subsets.bits(n, s, self.index), s * each, 32 if self.value in _LEVELS else 0

    def bits(self, n: int) -> int:
        """Places, s values, and 32 bits of scale for integers."""
        return sum(self._sizes(n))

    def pack(self, payload: Message, n: int) -> bytes:
        """All places, then all values, then the scale."""
        checks.shape((self.size(n),), "Pack one message at a time.", index=payload.index, value=payload.value)
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
        index = subsets.unpack(places, n, self.size(n), self.index)
        if self.value not in _LEVELS:
            return Message(index, packing.to_floats(values, self.value), None)  # pyright: ignore[reportArgumentType]
        most = _LEVELS[self.value]
        level = packing.to_integers(values, 8 if most > 7 else 4) - most - 1
        _check_levels(level, most)
        return Message(index, level.astype(np.int8), packing.to_scale(rest))  # pyright: ignore[reportArgumentType]


def _check_levels(level: np.ndarray, most: int) -> None:
    bad = np.flatnonzero(np.abs(level.astype(np.int64)) > most)
    if bad.size:
        raise ValueError(f"Expected levels from {-most} to {most}, got {level[bad[0]]}. {packing.DAMAGED}")
