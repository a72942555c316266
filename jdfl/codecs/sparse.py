"""Codecs of some entries: those of largest magnitude, with their positions, or those at random positions.

S. U. Stich, J.-B. Cordonnier, M. Jaggi: Sparsified SGD with Memory, 2018, which compares top-k with random-k; the
encodings of positions and values are this library's.
"""

from itertools import accumulate
from math import sqrt
from typing import Annotated, ClassVar, Literal

import jax
import jax.numpy as jnp
from jax import Array

from jdfl.arrays import ops
from jdfl.arrays.ops import largest
from jdfl.base import struct
from jdfl.base.settings import As, Bound, Count
from jdfl.codecs.base import Codec, Wire
from jdfl.codecs.packing import Index, Part, check_size, floats, levels, share_of, subset
from jdfl.codecs.quantised import rounded, rounding

_LEVELS = {"int8": 127, "int4": 7}  # largest level; levels are symmetric about zero
MOST_INT4 = 2**16  # entries that may share one scale of 7 levels


@struct.dataclass
class Sparse(Codec):
    """The largest entries: their positions and values (top-k).

    A message has the `s` largest entries, as positions and values; vectors with s nonzeros lose only what `value`
    rounds.

    The size may be given as a fraction `share` of n instead: ceil(share n) entries, at least one. With neither, a
    message holds the known number of nonzeros of the vectors. With `leaves` the share is sent of every leaf of a model,
    as in Sparse(share=0.05, leaves=problem.leaves), so that none is left out because its entries are small.

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
    index: Index = struct.field(pytree_node=False, default="plain")
    """How positions are written: plain numbers, or the number of their subset, which is shortest."""
    share: Annotated[float, Bound("(0, 1]")] | None = struct.field(pytree_node=False, default=None)
    """Fraction of the entries in a message, instead of s."""
    leaves: Annotated[tuple[Count, ...] | None, As(tuple[int, ...] | None)] = struct.field(
        pytree_node=False, default=None
    )
    """Sizes of the consecutive parts of a vector that send their shares one by one; None: one part."""

    def contraction(self, n: int, sparsity: int) -> float:
        """(s / n) (1 - q), where q ||x||^2 bounds the squared rounding error of the entries that are sent.

        The s largest of n squares hold at least the fraction s / n of their sum. (S. U. Stich, J.-B. Cordonnier, M.
        Jaggi, "Sparsified SGD with memory", 2018.) With leaves s / n is that of the leaf with the least.

        For floats q is `rounding`. For levels, let most = 127 or 7 and M the largest magnitude, which is exact. The
        error of each other entry is at most min(|x_j|, M / (2 most)).
        Let B be the sum of the squares of that: B <= r M^2 with r = (s - 1) / (2 most)^2, and the squares sum to at
        least M^2 + B, so q = r / (1 + r). It is attained with s = n by x = (M, M / (2 most), M / (2 most), ...).
        """
        s, least = self.size(n, sparsity), min(sent / size for _, size, sent in self._parts(n, sparsity))
        if self.value not in _LEVELS:
            return least * (1 - rounding(self.value, s))
        return least / (1 + (s - 1) / (2 * _LEVELS[self.value]) ** 2)

    def check(self, n: int, m: int, sparsity: int) -> None:
        """Raise ValueError for s outside [1, n], share outside (0, 1], both, wrong leaves, and too many for int4."""
        check_size(n, self.share, s=self.s)
        if self.leaves is not None and (self.share is None or sum(self.leaves) != n):
            raise ValueError(
                f"Expected a share and leaves whose sizes add up to the {n} entries that are sent, got share = "
                f"{self.share!r} and leaves = {self.leaves!r} (sum {sum(self.leaves)}). Give the leaves of the model "
                "that is trained, as in Sparse(share=0.05, leaves=problem.leaves)."
            )
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
        if self.leaves is not None:
            return sum(sent for *_, sent in self._parts(n, sparsity))
        size = share_of(n, self.share) if self.share is not None else sparsity if self.s is None else self.s
        if size is None:
            raise ValueError("Expected s or share, got s = None and share = None, with sparsity = None. Give one.")
        return size

    def _parts(self, n: int, sparsity: int | None) -> list[tuple[int, int, int]]:
        """The first place of every leaf, its size and the number of entries that are sent of it."""
        if self.leaves is None:
            return [(0, n, self.size(n, sparsity))]
        ends = accumulate(self.leaves)
        return [(end - size, size, share_of(size, self.share)) for end, size in zip(ends, self.leaves)]

    @property
    def direct(self) -> bool:
        """Whether `arrived` is implemented: for floats, which need no scale."""
        return self.value not in _LEVELS

    def arrived(self, key: Array, x: Array, wire: Wire) -> Array:
        """The decoded vectors x [b, n] of a wire, the same bits without messages; nothing depends on the keys.

        It need not list positions, which takes ten times as long as finding which entries are sent.
        """
        parts = self._parts(wire.n, wire.sparsity)
        kept = [ops.top_s(x[:, first : first + size], sent) for first, size, sent in parts]
        return rounded(jnp.concatenate(kept, axis=1), self.value)

    def encode(self, key: Array, x: Array, wire: Wire) -> tuple[Array, ...]:
        """Positions [b, s] int32, ascending, and values [b, s] of the largest entries; with levels also scales."""
        parts = self._parts(wire.n, wire.sparsity)
        places = [largest(x[:, first : first + size], sent).place + first for first, size, sent in parts]
        index = jnp.sort(jnp.concatenate(places, axis=1), axis=1)
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
        places = subset(n, s, self.index)
        if self.value not in _LEVELS:
            return places, floats(s, dtype=self.value)
        most = _LEVELS[self.value]
        return places, levels(s, most, 2 * most + 2), floats(size="scale")


@struct.dataclass
class RandomK(Codec):
    """Entries at random positions, which both ends draw from the same key; give k or share.

    `k` entries (or ceil(share n)) at positions drawn uniformly for every message; the others are decoded as zero.

    Sender and receiver draw the positions from the same key, so they cost no bits. With `scaled` the receiver
    multiplies by n / k: E C(x) = x, with variance (n / k - 1) ||x||^2. Without it, an entry is either exact or zero,
    which is what methods that compress differences need.

    A vector with an entry that is not finite is decoded as NaN, whatever positions were drawn.
    """

    kind: ClassVar[str] = "random-k"
    k: Count | None = struct.field(pytree_node=False, default=None)
    """Entries in a message."""
    share: Annotated[float, Bound("(0, 1]")] | None = struct.field(pytree_node=False, default=None)
    """Fraction of the entries in a message, instead of k."""
    scaled: bool = struct.field(pytree_node=False, default=False)
    """The receiver multiplies by n / k, which makes the codec unbiased."""
    value: Literal["float32", "float16", "bfloat16"] = struct.field(pytree_node=False, default="float32")
    """Type of the values."""
    direct = True

    @property
    def unbiased(self) -> bool:
        """True if scaled: a position is drawn with probability k / n. False for short floats, which are rounded."""
        return self.scaled and rounding(self.value, 1) == 0

    def contraction(self, n: int, sparsity: int) -> float | None:
        """(k / n) (1 - q), q = `rounding`: every entry is kept with probability k / n, the others are lost.

        If scaled, an entry loses (n / k - 1)^2 x_j^2 where it is drawn and x_j^2 otherwise, n / k - 1 on average, and
        rounding adds at most q n / k, with the worst signs: delta = 1 - (sqrt(n / k - 1) + sqrt(q n / k))^2. It is None
        where that is not positive, in particular for k <= n / 2.
        """
        k, q = self._size(n), rounding(self.value, n)
        delta = 1 - (sqrt(n / k - 1) + sqrt(q * n / k)) ** 2 if self.scaled else k / n * (1 - q)
        return delta if delta > 0 else None

    def check(self, n: int, m: int, sparsity: int) -> None:
        """Raise ValueError for k outside [1, n], share outside (0, 1], both and neither."""
        if self.k is None and self.share is None:
            raise ValueError("Expected k or share, got k = None and share = None. Give one, such as share = 0.1.")
        check_size(n, self.share, k=self.k)

    def _size(self, n: int) -> int:
        return share_of(n, self.share) if self.k is None else self.k

    def _places(self, key: Array, n: int) -> Array:
        """The positions [b, k] of the messages with keys [b], ascending."""
        return jnp.sort(largest(_lots(key, n), self._size(n)).place, axis=1)

    def arrived(self, key: Array, x: Array, wire: Wire) -> Array:
        """The decoded vectors x [b, n] of a wire, the same bits without messages: positions need not be listed."""
        value = rounded(jnp.where(_sound(x), x, jnp.nan), self.value)
        value = value * (x.shape[1] / self._size(x.shape[1])) if self.scaled else value
        lots = _lots(key, x.shape[1])
        return jnp.where(ops.top_s(lots, self._size(x.shape[1])) > 0, value, jnp.zeros_like(value))

    def encode(self, key: Array, x: Array, wire: Wire) -> Array:
        """The values [b, k] at the positions from the keys."""
        value = jnp.take_along_axis(x, self._places(key, x.shape[1]), axis=1)
        return rounded(jnp.where(_sound(x), value, jnp.nan), self.value)

    def decode(self, key: Array, payload: Array, wire: Wire) -> Array:
        """The values `payload` [b, k] at their positions, zero elsewhere [b, n]; times n / k if scaled."""
        value = payload * (wire.n / self._size(wire.n)) if self.scaled else payload
        lane = jnp.arange(value.shape[0])[:, None]
        return jnp.zeros((value.shape[0], wire.n), value.dtype).at[lane, self._places(key, wire.n)].set(value)

    def layout(self, n: int, sparsity: int | None) -> Part:
        """The values only: 32 k or 16 k bits."""
        return floats(self._size(n), dtype=self.value)


def _lots(key: Array, n: int) -> Array:
    """A number > 0 for every position [b, n] int32; the largest are drawn, and on a rare tie the lower position."""
    bits = jax.vmap(lambda one: jax.random.bits(one, (n,), jnp.uint32))(key) >> 1
    return jnp.maximum(bits.astype(jnp.int32), 1)


def _sound(x: Array) -> Array:
    """Which of the vectors x [b, n] are finite [b, 1]."""
    return jnp.all(jnp.isfinite(x), axis=1, keepdims=True)
