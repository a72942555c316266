"""Clipping in l1, l2 and linf norm, or of every entry, and the bounds it enforces.

A vector is scaled down, its direction kept: x min(1, clip / ||x||). The clipping norm need not be the norm of a
mechanism's noise; `stretch` converts between them. "entries" instead clips every entry to +-clip, which gives the same
bound as "linf" but changes the vector's direction.
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
    """The factors [...] that scale vectors with norms `lengths` [...] down to a `clip` [] > 0; 0 where one is infinite.

    Such a norm, or NaN, is unknown, so only 0 bounds the vector's contribution. Factors so small that they lose
    precision are 0, too, since rounded up they would not bound.
    """
    scale = jnp.minimum(1.0, clip / jnp.where(lengths > clip, lengths, clip))
    return jnp.where(jnp.isfinite(lengths) & (scale >= jnp.finfo(scale.dtype).tiny), scale, 0.0)


def clipped(x: Array, norm: Clip, clip: Array | float) -> Array:
    """The vectors x [..., n] clipped to a norm of at most `clip` [] > 0; a vector with a non-finite entry becomes 0.

    With the `norm` "l1", "l2" or "linf" a vector whose norm is too large is scaled down, its direction kept; "entries"
    clips every entry to +-clip instead. Noise calibrated in another norm also needs `stretch`.
    """
    if norm == "entries":
        whole = jnp.all(jnp.isfinite(x), axis=-1, keepdims=True)
        return jnp.where(whole, jnp.clip(x, -clip, clip), 0.0)
    scale = factor(length(x, norm), clip)[..., None]
    return jnp.where(scale > 0, x, 0.0) * scale


@checked
def stretch(clipped_in: Clip, measured_in: Norm, n: int) -> float:
    """The largest value in the norm `measured_in` of a vector [n], n >= 1, with norm 1 in `clipped_in`.

    The sensitivity is the clip times this factor where the noise uses another norm: sqrt(n) for an l2 clip and Laplace
    noise, n for a linf clip or entries, 1 for equal norms. Raises ValueError for n < 1.
    """
    checks.integer(1, 2**53, n=n)
    inverse = {"l1": 1.0, "l2": 0.5, "linf": 0.0, "entries": 0.0}  # 1 / p; ||x||_q <= n^(1/q - 1/p) ||x||_p for q < p
    return math.pow(n, max(0.0, inverse[measured_in] - inverse[clipped_in]))
