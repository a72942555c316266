"""What ends a run that has gone wrong: the first number that is not finite, or too large, and whose it is.

Axes: m nodes, k numbers of a node.
"""

from functools import reduce
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jdfl import nodes
from jdfl.base import Algorithm

NOWHERE = -1


def first_bad(algorithm: Algorithm, state: Any, largest: Array | None) -> Array:
    """The first node [] with a number in its rows of the state that is not finite, or a too large one, or NOWHERE."""
    w = getattr(algorithm, "held", algorithm.params)(state)  # [m, k], with all that is large in the parameters
    rows = [w, *(leaf for leaf in jax.tree.leaves(state) if leaf is not w and _floats(leaf, w.shape[0]))]
    bad = ~jnp.isfinite(reduce(jnp.add, (_finite(leaf, w.dtype) for leaf in rows)))
    if largest is not None:
        bad = bad | (jnp.max(jnp.abs(w), axis=1) > largest)
    return nodes.lowest(bad, NOWHERE)


def what_is_bad(state: Any, node: int, m: int, largest: Any) -> str:
    """Which of a node's numbers end its run, in words (on the host)."""
    if state is None:
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
    """Whether a leaf of a state holds something of every node."""
    return leaf.ndim > 0 and leaf.shape[0] == m


def _floats(leaf: Array, m: int) -> bool:
    return has_rows(leaf, m) and jnp.issubdtype(leaf.dtype, jnp.floating)


def _finite(rows: Array, dtype: Any) -> Array:
    """0 [m] where a row is finite, else NaN, in one pass."""
    return jnp.sum(rows * 0, axis=tuple(range(1, rows.ndim))).astype(dtype)
