"""The divergence check: the first number that is not finite or is too large, and the node that it belongs to.

Axes: m nodes, k numbers of a node.
"""

from collections.abc import Sequence
from functools import reduce
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jdfl.algorithms.program import Program

NOWHERE = -1
Watched = Literal["nothing", "parameters", "state"]  # the values whose divergence may end a run, from the fewest to all


def least(watched: Sequence[Watched]) -> Watched:
    """The strictest of the checks of several runs that are made side by side."""
    order: tuple[Watched, ...] = get_args(Watched)
    return min(watched, key=order.index)


def bad_nodes(program: Program, state: Any, largest: Array | None, watched: Watched) -> Array | None:
    """The nodes [m] with a number not finite, or a too large parameter, in what is `watched`; None: that is nothing.

    Only honest nodes are checked.
    """
    if watched == "nothing":
        return None
    if watched == "state":
        w = program.held(state)  # [m, k], with all that is large in the parameters
        rows = [w, *(leaf for leaf in jax.tree.leaves(state) if leaf is not w and _floats(leaf, w.shape[0]))]
    else:
        rows = [w := program.params(state)]
    bad = ~jnp.isfinite(reduce(jnp.add, (_finite(leaf, w.dtype) for leaf in rows)))
    if largest is not None:
        bad = bad | (jnp.max(jnp.abs(w), axis=1) > largest)
    attackers = program.algorithm.attackers
    return bad.at[jnp.asarray(attackers, jnp.int32)].set(False) if attackers else bad


def what_is_bad(state: Any, node: int, m: int, largest: Any, watched: Watched) -> str:
    """The numbers of a node that end the run, in words (on the host)."""
    if state is None or (watched == "parameters" and largest is None):
        return "a number that is not finite"
    fields = [
        jax.tree_util.keystr(path, simple=True, separator=".") or "its parameters"
        for path, leaf in jax.tree_util.tree_leaves_with_path(state)
        if _floats(leaf, m) and not np.isfinite(np.asarray(leaf[node], np.float64)).all()
    ]
    if fields or largest is None:
        return f"a number that is not finite in {' and '.join(fields) or 'its parameters'}"
    return f"a parameter of size above {float(largest):g}"


def has_rows(leaf: Array, m: int) -> bool:
    """Whether a leaf of a state has a row for every node."""
    return leaf.ndim > 0 and leaf.shape[0] == m


def _floats(leaf: Array, m: int) -> bool:
    return has_rows(leaf, m) and jnp.issubdtype(leaf.dtype, jnp.floating)


def _finite(rows: Array, dtype: Any) -> Array:
    """0 [m] where a row is finite, else NaN, in one pass."""
    return jnp.sum(rows * 0, axis=tuple(range(1, rows.ndim))).astype(dtype)
