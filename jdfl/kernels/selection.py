"""P_s in registers: every row is read once, its s largest entries are found by bisection, and it is written once.

One program per row, which it holds in registers, so that passes over it move nothing. The order of the entries is that
of `jdfl.arrays.projection`, bit for bit. For float32 and rows of up to `WIDEST` entries.

Axes: n entries of a row, N >= n a power of two.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from jdfl.kernels import PREFIX, form, pallas, width, with_derivatives

WIDEST = 4096
_WARP = 1024  # entries of a row that one warp of 32 threads holds, 32 registers each
_NORMAL, _INFINITE = 1 << 23, 0x7F800000  # the smallest key of a normal number, and that of infinity


def fits(x: Array) -> bool:
    """Whether the code that is traced may use the kernel for these rows x [m, n]."""
    return form() is not None and x.dtype == jnp.float32 and x.size > 0 and x.shape[-1] <= WIDEST


def top_s(x: Array, s: int, plain: Callable[[Array], Array]) -> Array:
    """The rows x [m, n] with all but the s largest entries of each set to zero."""
    return with_derivatives(jax.vmap(partial(_row, s=s)), plain)(x)


def _row(x: Array, s: int) -> Array:
    modules, (n,) = pallas(), x.shape
    whole = modules.common.BlockSpec((width(n),), lambda: (0,))
    call = modules.common.pallas_call(
        partial(_program, n=n, s=s, triton=modules.triton),
        jax.ShapeDtypeStruct((n,), x.dtype),
        in_specs=[whole],
        out_specs=whole,
        interpret=form() == "interpreted",
        compiler_params=modules.triton.CompilerParams(num_warps=max(1, width(n) // _WARP), num_stages=1),
        name=f"{PREFIX}top_s",
    )
    return call(x)


def _program(x_ref: Any, found_ref: Any, *, n: int, s: int, triton: Any) -> None:
    place = jnp.arange(x_ref.shape[0], dtype=jnp.int32)
    real = place < n
    x = triton.load(x_ref, mask=real, other=0.0)
    bits = lax.bitcast_convert_type(x, jnp.int32) & 0x7FFFFFFF
    key = jnp.where(bits < _NORMAL, 0, jnp.minimum(bits, _INFINITE + 1))  # beyond the row: zeros, the last of all

    def halved(here: tuple[Array, ...]) -> tuple[Array, ...]:
        low, high, n_low, n_high = here
        cut = low + ((high - low) >> 1)
        count = _count(key >= cut)
        enough = count >= s
        return (
            jnp.where(enough, cut, low),
            jnp.where(enough, high, cut),
            jnp.where(enough, count, n_low),
            jnp.where(enough, n_high, count),
        )

    # n_low >= s > n_high entries have keys of at least low, and of at least high.
    start = jnp.int32(0), jnp.max(key) + 1, jnp.int32(n), jnp.int32(0)
    low, high, n_low, n_high = lax.while_loop(lambda at: (at[2] != s) & (at[1] - at[0] > 1), halved, start)
    equal = (key >= low) & (key < high)

    def nearer(here: tuple[Array, Array]) -> tuple[Array, Array]:
        before, last = here
        cut = before + ((last - before) >> 1)
        enough = _count(equal & (place <= cut)) >= s - n_high
        return jnp.where(enough, before, cut), jnp.where(enough, cut, last)

    # Of equal entries the first are kept, up to a last place: that of the row's end where all of them are wanted.
    end = jnp.int32(n - 1)
    _, last = lax.while_loop(lambda at: at[1] - at[0] > 1, nearer, (jnp.where(n_low == s, end - 1, -1), end))
    kept = (key >= high) | (equal & (place <= last))
    triton.store(found_ref, jnp.where(kept, x, 0.0), mask=real)


def _count(flags: Array) -> Array:
    return jnp.sum(flags.astype(jnp.int32))
