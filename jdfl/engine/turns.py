"""What the loop over rounds does otherwise on a GPU, whose memory is the limit: rounds of a turn, data in rows."""

from typing import Any

import jax
from jax import Array
from jax.experimental.layout import Layout, with_layout_constraint

from jdfl.base.backend import backend
from jdfl.problems import Problem


def in_rows(problem: Problem) -> Problem:
    """The problem with its arrays as they lie in memory: for a GPU the compiler would make a transposed copy of all."""
    if backend() != "gpu":
        return problem

    def constrained(x: Array) -> Array:
        return with_layout_constraint(x, Layout(tuple(range(x.ndim)))) if x.ndim > 2 else x

    return jax.tree.map(constrained, problem)


def rounds_per_turn(state: Any) -> int:
    """How many rounds one turn of the compiled loop over rounds has at most.

    A round reads the rows of neighbours while it writes new ones, so the compiler copies the state in every turn. The
    second of two rounds writes where the first one read: on a GPU, whose memory is the limit, and for a state of one
    array, which needs no more memory for it.
    """
    return 2 if backend() == "gpu" and len(jax.tree.leaves(state)) == 1 else 1
