"""Numbers that do not depend on what XLA compiles together.

On a CPU that decides how results are rounded: a product may go into a sum unrounded (a fused multiply-add), and a sum
over a row is made in one order on its own and in another as part of something larger. What is compiled together differs
between one device and several, where rows are exchanged in between.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.core import Tracer


def rounded(x: Array) -> Array:
    """The same numbers; a product in x is rounded before it goes into a sum. XLA does not look through the choice."""
    return jnp.where(x == x, x, jnp.nan)


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
