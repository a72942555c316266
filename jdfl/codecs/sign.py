"""The signs of all entries and their mean magnitude."""

from typing import Any, ClassVar, NamedTuple

import jax.numpy as jnp
from jax import Array

from jdfl.base import struct
from jdfl.codecs.base import Codec, Wire
from jdfl.codecs.packing import Floats, Signs


class Message(NamedTuple):
    """What the sign codec sends."""

    scale: Any  # [b] float32: ||x||_1 / n
    positive: Any  # [b, n] bool: x_j >= 0


@struct.dataclass
class Sign(Codec):
    """The signs of all entries and their mean magnitude.

    Scaled signs: every entry arrives as +||x||_1 / n or -||x||_1 / n, for n + 32 bits.

    (S. P. Karimireddy, Q. Rebjock, S. U. Stich, M. Jaggi, "Error feedback fixes SignSGD and other gradient compression
    schemes", 2019.) A zero counts as positive; the zero vector arrives as zero.
    """

    kind: ClassVar[str] = "sign"
    free = True

    def contraction(self, n: int, sparsity: int) -> float:
        """1 / n, attained by vectors with one nonzero; of a vector x it is ||x||_1^2 / (n ||x||^2), 2 / pi if Gaussian.

        With c = ||x||_1 / n the error is ||x||^2 - 2 c ||x||_1 + n c^2 = ||x||^2 - ||x||_1^2 / n, and ||x||_1 >= ||x||.
        """
        return 1 / n

    def encode(self, key: Array, x: Array, wire: Wire) -> Message:
        """Mean magnitudes and signs of x [b, n]."""
        return Message(jnp.sum(jnp.abs(x) / x.shape[1], axis=1).astype(jnp.float32), x >= 0)

    def decode(self, key: Array, payload: Message, wire: Wire) -> Array:
        """The mean magnitude with the signs [b, n] float32."""
        return jnp.where(payload.positive, 1.0, -1.0).astype(jnp.float32) * payload.scale[:, None]

    def layout(self, n: int, sparsity: int | None) -> Message:
        """32 bits of scale, and a sign for each entry."""
        return Message(Floats((), size="scale"), Signs((n,)))
