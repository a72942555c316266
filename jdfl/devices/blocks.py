"""Functions of rows, applied to blocks of rows that fit in a cache.

Intermediate results then need memory for one block only, and repeated passes over a row read it from the cache.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from jdfl.base.backend import backend

# Size of a block of a row-wise function's result: 2 MB of float32, which a cache holds; elsewhere memory is the limit.
_NUMBERS, _ELSEWHERE = {"cpu": 2**19}, 2**28


def in_blocks(function: Callable[..., Any], *rows: Any, numbers: int = 0) -> Any:
    """`function`, which maps every row of trees of arrays [m, ...] to a row of its result [m, ...], block by block.

    Two blocks or fewer are processed at once.
    """
    m = jax.tree.leaves(rows)[0].shape[0]
    made = jax.eval_shape(function, *rows)
    widest = max(x.size for x in jax.tree.leaves((rows, made))) // max(m, 1)
    widest = max(widest, numbers)
    size = max(1, _NUMBERS.get(backend(), _ELSEWHERE) // max(widest, 1))
    if m <= 2 * size:
        return function(*rows)

    def block(b: Array, whole: Any) -> Any:
        first = jnp.minimum(b * size, m - size)  # the last block repeats some rows
        part = function(*jax.tree.map(lambda x: lax.dynamic_slice_in_dim(x, first, size), rows))
        return jax.tree.map(lambda x, new: lax.dynamic_update_slice_in_dim(x, new, first, 0), whole, part)

    nothing = jax.tree.map(lambda x: lax.empty(x.shape, x.dtype), made)  # every row is written
    return lax.fori_loop(0, -(-m // size), block, nothing)


def at_once(rows: int, numbers: int, few: int = 1, parts: int = 18) -> int:
    """How many of some rows to process at a time, where each takes many passes.

    On a CPU a few, which stay in its cache; elsewhere a part of all, at least 256, as far as memory allows.
    """
    if backend() == "cpu":
        return min(rows, few)
    return max(1, min(rows, max(256, -(-rows // parts)), _ELSEWHERE // 4 // max(numbers, 1)))
