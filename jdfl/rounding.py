"""Numbers that do not depend on what XLA compiles together.

On a CPU that decides how results are rounded: a product may go into a sum unrounded (a fused multiply-add), and a sum
over a row is made in one order on its own and in another as part of something larger. What is compiled together differs
between one device and several, where rows are exchanged in between.

From jax 0.12 on, a loop over numbers fuses the last few, which do not fill a vector, in another way than the others,
and a product that goes into a sum is rounded differently by its place in the array. Only without fused multiply-adds
are the bits the same everywhere then: XLA_FLAGS="--xla_cpu_max_isa=AVX", set before JAX computes anything.
"""

from collections.abc import Callable
from functools import reduce
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.core import Tracer

_PARTS, _FEW = 8, 32  # that are added up at a time; so many numbers are, one by one


def rounded(x: Array) -> Array:
    """The same numbers; a product in x is rounded before it goes into a sum. XLA does not look through the choice."""
    return jnp.where(x == x, x, jnp.nan)


@jax.custom_jvp
def row_sum(x: Array) -> Array:
    """The sum [...] over the last axis of floats x [..., n], on a CPU in an order that n alone decides.

    A plain sum is made by other code, and in another order, the more rows there are. Here eighths are added up, then
    eighths of these, which takes no longer.
    """
    n = x.shape[-1]
    if n == 0 or jax.default_backend() != "cpu":
        return jnp.sum(x, axis=-1)
    x = rounded(x)
    while n > 1:
        width = -(-n // (n if n <= _FEW else _PARTS))
        parts = -(-n // width)
        x = jnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, parts * width - n)]) if parts * width > n else x
        pieces = [x[..., j * width : (j + 1) * width] for j in range(parts)]
        x, n = reduce(jnp.add, pieces), width
    return x[..., 0]


@row_sum.defjvp
def _row_sum_change(primals: tuple[Array], changes: tuple[Array]) -> tuple[Array, Array]:
    return row_sum(*primals), jnp.sum(changes[0], axis=-1)


def apart(function: Callable[..., Any], *operands: Any) -> Any:
    """`function` of the operands, compiled apart from what they come from and from what uses the result.

    By a condition that always holds, which XLA does not see. On other devices than a CPU a hint to the compiler.
    """
    if not any(isinstance(x, Tracer) for x in jax.tree.leaves(operands)):
        return function(*operands)  # nothing is compiled together
    if jax.default_backend() != "cpu":
        return lax.optimization_barrier(function(*lax.optimization_barrier(operands)))

    def nothing(*operands: Any) -> Any:
        return jax.tree.map(jnp.zeros_like, function(*operands))

    return lax.cond(lax.optimization_barrier(jnp.bool_(True)), function, nothing, *operands)
