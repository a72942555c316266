"""A round in one kernel: every row is mixed with its neighbours' and moved by a function of itself and one example.

One program per node. It reads the rows of the neighbours, its own, and the example, and writes the new row, where XLA's
form reads its own row and the example twice: the move needs their product first. What the move is, with its clipping
and noise, is the caller's. For float32, rows of up to `WIDEST` numbers, and arrays whose entries 32 bits can count.

Axes: m nodes, n parameters, d slots of the table of neighbours, q examples of a node, N >= n a power of two.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from jdfl.kernels import PREFIX, form, pallas, width

WIDEST = 4096
_COUNTED = 2**31  # entries
_WARP = 512  # numbers of a row that one warp of 32 threads holds, 16 registers for each of some arrays


def fits(*arrays: Array) -> bool:
    """Whether the code that is traced may use the kernel for these rows x [m, n] and features A [m, q, n]."""
    return form() is not None and all(
        x.dtype == jnp.float32 and x.shape[-1] <= WIDEST and x.size < _COUNTED for x in arrays
    )


def mixed_and_moved(
    x: Array,
    table: tuple[Array, Array, Array],
    A: Array,
    place: Array,
    rest: tuple[Array, ...],
    move: Callable[..., Array],
) -> Array:
    """The rows own_i x_i + sum_k weight_ik x_{senders_ik} + move(x_i, A[i, place_i], place_i, *rest_i) [m, n]."""
    modules, (m, n) = pallas(), x.shape
    senders, weight, own = table
    block = modules.common.BlockSpec
    rows, row = block((m, width(n)), lambda i: (0, 0)), block((None, width(n)), lambda i: (i, 0))

    def of_node(numbers: Array) -> Any:
        if numbers.ndim == 1:
            return block((1,), (lambda i: (i,)) if len(numbers) == m else (lambda i: (0,)))
        return block((None, *numbers.shape[1:]), lambda i: (i, *[0] * (numbers.ndim - 1)))

    given = senders, weight.astype(x.dtype), own.astype(x.dtype)
    features = block((None, A.shape[1], width(n)), lambda i: (i, 0, 0))
    call = modules.common.pallas_call(
        partial(_program, n=n, move=move, modules=modules),
        jax.ShapeDtypeStruct((m, n), x.dtype),
        grid=(m,),
        in_specs=[rows, row, *map(of_node, given), features, *map(of_node, (place, *rest))],
        out_specs=row,
        interpret=form() == "interpreted",
        compiler_params=modules.triton.CompilerParams(num_warps=max(1, width(n) // _WARP), num_stages=1),
        name=f"{PREFIX}one_round",
    )
    return call(x, x, *given, A, place, *rest)


def _program(
    x_ref: Any,
    row_ref: Any,
    senders_ref: Any,
    weight_ref: Any,
    own_ref: Any,
    A_ref: Any,
    place_ref: Any,
    *refs: Any,
    n: int,
    move: Callable[..., Any],
    modules: Any,
) -> None:
    *rest, new_ref = refs
    real = jnp.arange(row_ref.shape[0]) < n
    of_row = partial(modules.triton.load, mask=real, other=0.0)
    place = place_ref[0]
    row, example = of_row(row_ref), of_row(A_ref.at[place, :])

    def slot(k: Array, total: Array) -> Array:
        return total + weight_ref[k] * of_row(x_ref.at[senders_ref[k], :])

    heard = lax.fori_loop(0, senders_ref.shape[0], slot, jnp.zeros_like(row))
    moved = move(row, example, place, *rest)
    modules.triton.store(new_ref, own_ref[0] * row + heard + moved, mask=real)
