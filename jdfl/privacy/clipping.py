"""Clipping in l1, l2 and linf, or of every entry, and what it bounds.

A vector is shortened, its direction kept: x min(1, clip / ||x||). So the norm in which it is clipped need not be the
one that a mechanism's noise goes by; `stretch` says what is lost between them. "entries" cuts every entry off at +-clip
instead, which bounds what "linf" bounds, and turns the vector.
"""

import math
from typing import Literal

import jax.numpy as jnp
from jax import Array

from jdfl.arrays.ops import length
from jdfl.base import checks
from jdfl.base.arguments import checked
from jdfl.privacy.mechanisms import Norm

Clip = Literal["l1", "l2", "linf", "entries"]


def factor(lengths: Array, clip: Array | float) -> Array:
    """What vectors are multiplied by, [...], to be no longer than a clip; 0 for a length that is not finite.

    A length too large for its type is not known, so that nothing but 0 bounds what such a vector contributes. Factors
    too small for all of their digits are 0, too: rounded up they would not bound.

    Args:
        lengths: The vectors' lengths [...], from 0.
        clip: The most that they may be, clip [], above 0.
    """
    scale = jnp.minimum(1.0, clip / jnp.where(lengths > clip, lengths, clip))
    return jnp.where(jnp.isfinite(lengths) & (scale >= jnp.finfo(scale.dtype).tiny), scale, 0.0)


def clipped(x: Array, norm: Clip, clip: Array | float) -> Array:
    """The vectors x [..., n], each no longer than `clip` []; a vector with an entry that is not finite becomes 0.

    Noise by another norm needs `stretch`, too.

    Args:
        x: Vectors x [..., n].
        norm: In which length is measured, "l1", "l2" or "linf": a vector that is too long is scaled down, its direction
            kept. "entries" cuts every entry off at +-clip instead, which turns the vector.
        clip: The most that a vector, or an entry, may be, clip [], above 0.
    """
    if norm == "entries":
        whole = jnp.all(jnp.isfinite(x), axis=-1, keepdims=True)
        return jnp.where(whole, jnp.clip(x, -clip, clip), 0.0)
    scale = factor(length(x, norm), clip)[..., None]
    return jnp.where(scale > 0, x, 0.0) * scale


@checked
def stretch(clipped_in: Clip, measured_in: Norm, n: int) -> float:
    """The most that a vector [n] of length 1 in the norm `clipped_in` may measure in the norm `measured_in`.

    A sensitivity is the clip times this factor where noise goes by another norm: sqrt(n) for a clip in l2 and Laplace
    noise, n for one in linf or of entries, 1 for equal norms.

    Args:
        clipped_in: The norm of the clip: "l1", "l2", "linf" or "entries".
        measured_in: The norm of the noise, `Mechanism.norm`.
        n: The number of entries, at least 1; ValueError otherwise.
    """
    checks.whole(1, n=n)
    inverse = {"l1": 1.0, "l2": 0.5, "linf": 0.0, "entries": 0.0}  # 1 / p; ||x||_q <= n^(1/q - 1/p) ||x||_p for q < p
    return math.pow(n, max(0.0, inverse[measured_in] - inverse[clipped_in]))
