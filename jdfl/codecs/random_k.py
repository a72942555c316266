"""Random-k: entries at positions that both ends draw from the message's key.

S. U. Stich, J.-B. Cordonnier, M. Jaggi: Sparsified SGD with Memory, 2018, which compares it with top-k.
"""

from math import sqrt
from typing import Annotated, ClassVar, Literal

import jax
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
        """(k / n) (1 - q), q = `dense.rounding`: every entry is kept with probability k / n, the others are lost.

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
        subsets.check_size(n, self.share, k=self.k)

    def _size(self, n: int) -> int:
        return subsets.size(n, self.share) if self.k is None else self.k

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
