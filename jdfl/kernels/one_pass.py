"""The gradient of least squares from one pass over a node's examples, where XLA's form reads them twice.

One program per node. It reads rows of A in blocks, and while a block is in registers, adds A^T (share * (A w - b)) of
its rows. For float32, up to `WIDEST` parameters, and all examples of a node, at least `FEWEST` and as they are stored.
XLA's form moves no more where there are one or two, as it is fused with what follows, and less for batches and for
blocks of nodes, which it gathers as it reads them.

Axes: q examples of a node, n parameters, r rows of a block, N >= n a power of two.
"""

from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from jdfl.kernels import PREFIX, form, pallas, width, with_derivatives

WIDEST, FEWEST = 4096, 4
_BLOCK = 4096  # numbers of A in registers, and as many sums, in each of 128 threads 32
_stored = jax.make_user_context(False)


def stored(all_of_it: bool) -> AbstractContextManager[None]:
    """A context for gradients of all data as it lies in memory; for others it changes nothing."""
    return _stored(True) if all_of_it and form() is not None else nullcontext()


def fits(*arrays: Array) -> bool:
    """Whether the code that is traced may use the kernel for w [n], A [q, n], b [q] and shares [q]."""
    if form() is None or not _stored.value or any(x.dtype != jnp.float32 for x in arrays):
        return False
    q, n = arrays[1].shape
    return q >= FEWEST and n <= WIDEST


def least_squares(w: Array, A: Array, b: Array, share: Array) -> Array:
    """The gradient [n] of sum_t share[t] (<a_t, w> - b_t)^2 / 2, of one node; `jax.vmap` gives each its program."""
    return with_derivatives(_node, _plain)(w, A, b, share)


def _plain(w: Array, A: Array, b: Array, share: Array) -> Array:
    residuals = jnp.dot(A, w, precision=lax.Precision.HIGHEST) - b
    return jnp.dot(share * residuals, A, precision=lax.Precision.HIGHEST)


def _node(w: Array, A: Array, b: Array, share: Array) -> Array:
    modules, (q, n) = pallas(), A.shape
    rows = max(1, min(_BLOCK // width(n), width(q)))
    whole = -(-q // rows) * rows
    wide, long = (modules.common.BlockSpec((size,), lambda: (0,)) for size in (width(n), whole))
    call = modules.common.pallas_call(
        partial(_program, q=q, n=n, rows=rows, modules=modules),
        jax.ShapeDtypeStruct((n,), w.dtype),
        in_specs=[wide, modules.common.BlockSpec((whole, width(n)), lambda: (0, 0)), long, long],
        out_specs=wide,
        interpret=form() == "interpreted",
        compiler_params=modules.triton.CompilerParams(num_warps=4, num_stages=1),
        name=f"{PREFIX}least_squares",
    )
    return call(w, A, b, share)


def _program(
    w_ref: Any, A_ref: Any, b_ref: Any, share_ref: Any, g_ref: Any, *, q: int, n: int, rows: int, modules: Any
) -> None:
    load = partial(modules.triton.load, other=0.0)
    real = jnp.arange(w_ref.shape[0]) < n
    w = load(w_ref, mask=real)

    def block(i: Array, sums: Array) -> Array:
        there = i * rows + jnp.arange(rows) < q
        here = modules.common.ds(i * rows, rows)
        A = load(A_ref.at[here, :], mask=there[:, None] & real[None, :])
        b, share = load(b_ref.at[here], mask=there), load(share_ref.at[here], mask=there)
        residuals = jnp.sum(A * w[None, :], axis=1) - b
        return sums + A * (share * residuals)[:, None]  # [r, N]

    sums = lax.fori_loop(0, -(-q // rows), block, jnp.zeros((rows, w_ref.shape[0]), w.dtype))
    modules.triton.store(g_ref, jnp.sum(sums, axis=0), mask=real)
