"""What the loop over rounds does otherwise on accelerators, where memory limits it: rounds of a turn, data in rows."""

from typing import Any

import jax
from jax import Array
from jax.experimental.layout import Format, Layout, with_layout_constraint

from jdfl.base.backend import backend
from jdfl.problems import Problem

_LANES = 128  # of a TPU


def in_rows(problem: Problem) -> Problem:
    """The problem with its arrays as they lie in memory: for a GPU the compiler would make a transposed copy of all."""
    if backend() != "gpu":
        return problem

    def constrained(x: Array) -> Array:
        return with_layout_constraint(x, Layout(tuple(range(x.ndim)))) if x.ndim > 2 else x

    return jax.tree.map(constrained, problem)


def put_in_rows(problem: Problem) -> Problem:
    """The problem with its data [m, q, n] row by row in a TPU's memory; where that is so already, the same arrays.

    A TPU has another order of its own, from which the compiler would make a copy in every round. Rows are filled up to
    a multiple of 128 numbers there: data for which that takes half as much again stays as it is.
    """
    if backend() != "tpu":
        return problem

    def put(x: Any) -> Any:
        if x.ndim != 3 or -(-x.shape[-1] // _LANES) * _LANES > 1.5 * x.shape[-1]:
            return x
        rows = Format(Layout((0, 1, 2)), x.sharding)
        if isinstance(x, jax.ShapeDtypeStruct):
            return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=rows)
        return jax.device_put(x, rows)

    return jax.tree.map(put, problem)


def rounds_per_turn(state: Any) -> int:
    """How many rounds one turn of the compiled loop over rounds has at most.

    A round reads the rows of neighbours while it writes new ones, so the compiler copies the state in every turn. The
    second of two rounds writes where the first one read: on a GPU, whose memory is the limit, and for a state of one
    array, which needs no more memory for it.
    """
    return 2 if backend() == "gpu" and len(jax.tree.leaves(state)) == 1 else 1
