"""The signs of all entries and their mean magnitude."""

from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jax import Array

from jdfl.base import checks, struct
from jdfl.codecs import packing


@struct.dataclass
class Message:
    """What the sign codec sends."""

    positive: Array  # [b, n] bool: x_j >= 0
    scale: Array  # [b] float32: ||x||_1 / n


@struct.dataclass
class Sign:
    """The signs of all entries and their mean magnitude.

    Scaled signs: every entry arrives as +||x||_1 / n or -||x||_1 / n, for n + 32 bits.

    (S. P. Karimireddy, Q. Rebjock, S. U. Stich, M. Jaggi, "Error feedback fixes SignSGD and other gradient compression
    schemes", 2019.) A zero counts as positive; the zero vector arrives as zero.
    """

    kind: ClassVar[str] = "sign"
    free: ClassVar[bool] = True

    @property
    def pairwise(self) -> bool:
        """All receivers get the same."""
        return False

    @property
    def unbiased(self) -> bool:
        """Magnitudes are evened out."""
        return False

    def contraction(self, n: int, sparsity: int) -> float:
        """1 / n, attained by vectors with one nonzero; of a vector x it is ||x||_1^2 / (n ||x||^2), 2 / pi if Gaussian.

        With c = ||x||_1 / n the error is ||x||^2 - 2 c ||x||_1 + n c^2 = ||x||^2 - ||x||_1^2 / n, and ||x||_1 >= ||x||.
        """
        return 1 / n

    def lanes(self, n: int) -> int:
        """Everything is coded at once, whatever is asked for."""
        return 1

    def check(self, n: int, m: int, sparsity: int) -> None:
        """There is nothing to refuse."""

    def prepare(self, key: Array, node: Array, n: int, sparsity: int, dtype: Any) -> "Sign":
        """Nothing is shared."""
        return self

    def rows(self, i: Array) -> "Sign":
        """The same for all nodes."""
        return self

    def encode(self, key: Array, x: Array) -> Message:
        """Signs and mean magnitudes."""
        return Message(x >= 0, jnp.sum(jnp.abs(x) / x.shape[1], axis=1).astype(jnp.float32))

    def decode(self, key: Array, payload: Message, n: int, side: Array | None = None) -> Array:
        """The mean magnitude with the signs [b, n] float32."""
        return jnp.where(payload.positive, 1.0, -1.0).astype(jnp.float32) * payload.scale[:, None]

    def bits(self, n: int) -> int:
        """A sign for each entry, and 32 bits of scale."""
        return n + 32

    def pack(self, payload: Message, n: int) -> bytes:
        """The scale, then the signs."""
        checks.shape((n,), "Pack one message at a time.", positive=payload.positive)
        scale = packing.from_floats(np.asarray(payload.scale)[None], "float32")
        return packing.join(scale, np.asarray(payload.positive))

    def unpack(self, data: bytes, n: int) -> Message:
        """Signs and scale."""
        scale, signs = packing.split(data, 32, n)
        return Message(signs.astype(bool), packing.to_scale(scale))  # pyright: ignore[reportArgumentType]
