"""The signs of all entries and their mean magnitude."""

from typing import ClassVar

import jax.numpy as jnp
from jax import Array

from jdfl.base import struct
from jdfl.codecs.base import Codec, Wire
from jdfl.codecs.packing import Part, floats, signs


@struct.dataclass
class Sign(Codec):
    """The signs of all entries and their mean magnitude.

    Scaled signs: every entry is decoded as +||x||_1 / n or -||x||_1 / n, for n + 32 bits.

    (S. P. Karimireddy, Q. Rebjock, S. U. Stich, M. Jaggi, "Error feedback fixes SignSGD and other gradient compression
    schemes", 2019.) A zero counts as positive; the zero vector is decoded as zero.
    """

    kind: ClassVar[str] = "sign"
    free = True

    def contraction(self, n: int, sparsity: int) -> float:
        """1 / n, attained by vectors with one nonzero; for one x it is ||x||_1^2 / (n ||x||^2), 2 / pi if Gaussian.

        With c = ||x||_1 / n the error is ||x||^2 - 2 c ||x||_1 + n c^2 = ||x||^2 - ||x||_1^2 / n, and ||x||_1 >= ||x||.
        """
        return 1 / n

    def encode(self, key: Array, x: Array, wire: Wire) -> tuple[Array, Array]:
        """The scales ||x||_1 / n [b] float32, and x >= 0 [b, n] bool."""
        return jnp.sum(jnp.abs(x) / x.shape[1], axis=1).astype(jnp.float32), x >= 0

    def decode(self, key: Array, payload: tuple[Array, Array], wire: Wire) -> Array:
        """The scale with the signs [b, n] float32, of the payload ([b], [b, n])."""
        scale, positive = payload
        return jnp.where(positive, 1.0, -1.0).astype(jnp.float32) * scale[:, None]

    def layout(self, n: int, sparsity: int | None) -> tuple[Part, Part]:
        """32 bits of scale, and a sign for each entry."""
        return floats(size="scale"), signs(n)
