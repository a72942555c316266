"""The s entries of largest magnitude: their positions and values, as floats or as levels of one scale.

Top-k: S. U. Stich, J.-B. Cordonnier, M. Jaggi: Sparsified SGD with Memory, 2018; the encodings of positions and values
are this library's.
"""

from typing import Annotated, ClassVar, Literal

import jax.numpy as jnp
from jax import Array

from jdfl.arrays import ops
from jdfl.arrays.nonzeros import largest
from jdfl.base import struct
from jdfl.base.settings import Bound, Count
from jdfl.codecs import subsets
from jdfl.codecs.base import Codec, Wire
from jdfl.codecs.dense import rounded, rounding
from jdfl.codecs.packing import Part, floats
from jdfl.codecs.radix import levels

_LEVELS = {"int8": 127, "int4": 7}  # largest level; levels are symmetric about zero
MOST_INT4 = 2**16  # entries that may share one scale of 7 levels


@struct.dataclass
class Sparse(Codec):
    """The largest entries: their positions and values (top-k).

    A message has the `s` largest entries, as positions and values; vectors with s nonzeros lose only what `value`
    rounds.

    The size may be given as a fraction `share` of n instead: ceil(share n) entries, at least one. With neither, a
    message holds the known number of nonzeros of the vectors.

    Integers are multiples of max |x| / 127 (or / 7), which is sent as a float32: the error of an entry is at most half
    of that. `index` selects how positions are written: ceil(log2 n) bits each, or together as the number of their
    subset, ceil(log2 C(n, s)) bits, the fewest possible with a code of fixed length.
    """

    kind: ClassVar[str] = "sparse"
    s: Count | None = struct.field(pytree_node=False, default=None)
    """Entries in a message; None: by share, or the nonzeros of the algorithm."""
    value: Literal["float32", "float16", "bfloat16", "int8", "int4"] = struct.field(
        pytree_node=False, default="float32"
    )
    """Type of the values; integers are levels of one scale."""
    index: subsets.Index = struct.field(pytree_node=False, default="plain")
    """How positions are written: plain numbers, or the number of their subset, which is shortest."""
    share: Annotated[float, Bound("(0, 1]")] | None = struct.field(pytree_node=False, default=None)
    """Fraction of the entries in a message, instead of s."""

    def contraction(self, n: int, sparsity: int) -> float:
        """(s / n) (1 - q), where q ||x||^2 bounds the squared rounding error of the entries that are sent.

        The s largest of n squares hold at least the fraction s / n of their sum. (S. U. Stich, J.-B. Cordonnier, M.
        Jaggi, "Sparsified SGD with memory", 2018.) For floats q is `dense.rounding`. For levels, let most = 127 or 7
        and M the largest magnitude, which is exact. The error of each other entry is at most min(|x_j|, M / (2 most)).
        Let B be the sum of the squares of that: B <= r M^2 with r = (s - 1) / (2 most)^2, and the squares sum to at
        least M^2 + B, so q = r / (1 + r). It is attained with s = n by x = (M, M / (2 most), M / (2 most), ...).
        """
        s = self.size(n, sparsity)
        if self.value not in _LEVELS:
            return s / n * (1 - rounding(self.value, s))
        return s / n / (1 + (s - 1) / (2 * _LEVELS[self.value]) ** 2)

    def check(self, n: int, m: int, sparsity: int) -> None:
        """Raise ValueError for s outside [1, n], share outside (0, 1], both, and int4 for too many entries."""
        subsets.check_size(n, self.share, s=self.s)
        if self.s is None and self.share is None and sparsity >= n > 1:
            raise ValueError(
                f"Expected a size for Sparse, got s = None and share = None for vectors of n = {n} entries, "
                "none known to be zero: it would send all of them and their positions, more than Dense(). "
                "Give s or share, as in Sparse(share=0.1)."
            )
        size = self.size(n, sparsity)
        if self.value == "int4" and size > MOST_INT4:
            raise ValueError(
                f"Expected s <= {MOST_INT4} with value = 'int4', got s = {size}: these entries would share the 7 "
                "levels of one scale. Use value = 'int8'."
            )

    def size(self, n: int, sparsity: int | None = None) -> int:
        """How many entries a message holds.

        Args:
            n: Entries of a vector.
            sparsity: Nonzeros that vectors are known to have, for `Sparse()`; None: unknown.

        Raises:
            ValueError: Where neither the settings nor `sparsity` determine it.
        """
        size = subsets.size(n, self.share) if self.share is not None else sparsity if self.s is None else self.s
        if size is None:
            raise ValueError("Expected s or share, got s = None and share = None, with sparsity = None. Give one.")
        return size

    @property
    def direct(self) -> bool:
        """Whether `arrived` is implemented: for floats, which need no scale."""
        return self.value not in _LEVELS

    def arrived(self, key: Array, x: Array, wire: Wire) -> Array:
        """The decoded vectors x [b, n] of a wire, the same bits without messages; nothing depends on the keys.

        It need not list positions, which takes ten times as long as finding which entries are sent.
        """
        return rounded(ops.top_s(x, self.size(wire.n, wire.sparsity)), self.value)

    def encode(self, key: Array, x: Array, wire: Wire) -> tuple[Array, ...]:
        """Positions [b, s] int32, ascending, and values [b, s] of the largest entries; with levels also scales."""
        s = self.size(wire.n, wire.sparsity)
        index = jnp.sort(largest(x, s).place, axis=1)
        value = jnp.take_along_axis(x, index, axis=1)
        if self.value not in _LEVELS:
            return index, rounded(value, self.value)
        scale = (jnp.max(jnp.abs(value), axis=1) / _LEVELS[self.value]).astype(jnp.float32)
        unit = scale.astype(x.dtype)[:, None]
        level = jnp.where(unit > 0, jnp.round(value / jnp.where(unit > 0, unit, 1.0)), 0.0)
        most = _LEVELS[self.value]  # with a scale rounded down to float32 the largest entry would overflow
        return index, jnp.clip(level, -most, most).astype(jnp.int8), scale

    def decode(self, key: Array, payload: tuple[Array, ...], wire: Wire) -> Array:
        """The payload ([b, s] positions, [b, s] values) as vectors, zero elsewhere [b, n]; levels give float32."""
        index, value, *scale = payload
        if scale:
            value = value.astype(jnp.float32) * scale[0][:, None]
        lane = jnp.arange(index.shape[0])[:, None]
        return jnp.zeros((index.shape[0], wire.n), value.dtype).at[lane, index].set(value)

    def layout(self, n: int, sparsity: int | None) -> tuple[Part, ...]:
        """Positions, s values, and 32 bits of scale for integers."""
        s = self.size(n, sparsity)
        places = subsets.subset(n, s, self.index)
        if self.value not in _LEVELS:
            return places, floats(s, dtype=self.value)
        most = _LEVELS[self.value]
        return places, levels(s, most, 2 * most + 2), floats(size="scale")
