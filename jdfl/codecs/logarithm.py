"""The logarithm by which one-bit messages compress magnitudes, and the scale with which it is inverted.

Axes: b messages, n entries, s nonzeros.
"""

import jax.numpy as jnp
from jax import Array, lax


def logarithm(x: Array, gamma: Array) -> Array:
    """sign(x) log_gamma(1 + |x|) for x [b, n] and gamma [b] > 1."""
    return jnp.sign(x) * jnp.log1p(jnp.abs(x)) / jnp.log(gamma)[:, None]


def exact_scale(v: Array, norm: Array, gamma: Array) -> Array:
    """The t >= 0 [b] with ||gamma^(t v) - 1|| = norm for v [b, s] >= 0, by bisection (the left side grows with t)."""
    largest = jnp.max(v, axis=1)
    top = jnp.log1p(norm) / (jnp.log(gamma) * jnp.where(largest > 0, largest, 1.0))  # enough for the largest entry

    def halve(_: int, bracket: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = bracket
        middle = (low + high) / 2
        short = jnp.linalg.norm(jnp.expm1(v * (middle * jnp.log(gamma))[:, None]), axis=1) < norm
        return jnp.where(short, middle, low), jnp.where(short, high, middle)

    low, high = lax.fori_loop(0, 60 if v.dtype == jnp.float64 else 30, halve, (jnp.zeros_like(top), top))
    return (low + high) / 2
