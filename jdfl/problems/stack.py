"""From one array per node to arrays of all nodes: padding on the host, curvature on the device.

Axes: m nodes, q examples per node (padded with weight 0), p features.
"""

from collections.abc import Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import DTypeLike

from jdfl import checks, ops

EIGEN_STEPS = 40  # size of the Krylov space: six digits or more on Gaussian matrices, whose spectrum ends without a gap
_BATCH, _NUMBERS = 4, 2**16  # nodes worked on at once: so many, or more where their data are smaller than that


def floating(dtype: DTypeLike) -> np.dtype:
    """`dtype` as a numpy type; ValueError unless it is a floating type that JAX is set up to keep."""
    try:
        asked = np.dtype(dtype)
    except (TypeError, ValueError):
        checks.refuse("dtype float32 or float64", "dtype", dtype)
    if asked not in (np.dtype(np.float32), np.dtype(np.float64)):
        raise ValueError(f"Expected dtype float32 or float64, got dtype = {asked.name!r}.")
    if asked == np.float64 and not jax.config.jax_enable_x64:  # pyright: ignore[reportAttributeAccessIssue]
        raise ValueError("Expected dtype = 'float32', got 'float64'. Set jax_enable_x64 to use 64 bits.")
    return asked


def stack(
    parts: Sequence[tuple[np.ndarray, ...]], dtypes: tuple[np.dtype, ...], *, rows: int | None = None
) -> tuple[tuple[np.ndarray, ...], np.ndarray]:
    """Pad every node's arrays with zeros to `rows` (default: the longest) and stack them.

    `parts[i]` holds node i's arrays, all with the same number of examples on their first axis; `dtypes` gives the
    type of each stacked array, the first one also that of the weights. Returns the stacked arrays [m, q, ...] and
    the weights [m, q], 1 for an example and 0 for padding. ValueError for a node without examples, for arrays of one
    node that disagree on their length, and for nodes that disagree on the shape of an example.
    """
    if not parts:
        raise ValueError("Expected the data of at least one node, got none.")
    for i, part in enumerate(parts):
        for array in part:
            checks.real(f"See node {i}.", data=array)
    held = [tuple(np.asarray(array) for array in part) for part in parts]
    for i, part in enumerate(held):
        if len(part) != len(dtypes):
            raise ValueError(f"Expected {len(dtypes)} arrays per node, got {len(part)} at node {i}.")
        if any(array.ndim == 0 or len(array) != len(part[0]) for array in part):
            raise ValueError(f"Expected equally many examples, got arrays of shapes {_shapes(part)} at node {i}.")
        if len(part[0]) == 0:
            raise ValueError(f"Expected at least one example at every node, got none at node {i}.")
        if any(array.shape[1:] != first.shape[1:] for array, first in zip(part, held[0])):
            raise ValueError(f"Expected examples as at node 0, {_shapes(held[0])}, got {_shapes(part)} at node {i}.")
    q = max(len(part[0]) for part in held)
    if rows is not None and rows < q:
        raise ValueError(f"Expected rows >= {q}, the largest number of examples of a node, got rows = {rows}.")
    q = q if rows is None else rows
    stacked = tuple(np.zeros((len(held), q, *a.shape[1:]), dtype) for a, dtype in zip(held[0], dtypes))
    weight = np.zeros((len(held), q), dtypes[0])
    for i, part in enumerate(held):
        for target, array in zip(stacked, part):
            target[i, : len(array)] = array
        weight[i, : len(part[0])] = 1
    return stacked, weight


def krylov(steps: int, q: int, p: int) -> int:
    """How many steps of Lanczos' method a Gram matrix of q examples with p features takes: its rank and one more."""
    return min(steps, min(q, p) + 1)


def _shapes(part: tuple[np.ndarray, ...]) -> str:
    return ", ".join(str(array.shape) for array in part)


@partial(jax.jit, static_argnames=("steps", "batch"))
def gram_eigenvalues(features: Array, weight: Array, steps: int = EIGEN_STEPS, batch: int | None = None) -> Array:
    """lambda_max(A_i^T diag(weight_i) A_i) / sum_t weight[i,t] of every node [m], A_i = features[i] of [m, q, p].

    Lanczos from a random start through the products A x and A^T y: the matrix A^T A is never formed.
    """
    q, p = features.shape[1:]
    steps, batch = krylov(steps, q, p), batch or max(_BATCH, _NUMBERS // (q * p))
    start = jax.random.normal(jax.random.key(0), features.shape[-1:], features.dtype)

    def one(node: tuple[Array, Array]) -> Array:
        A, c = node

        def gram(x: Array) -> Array:
            return jnp.dot(c * jnp.dot(A, x, precision=ops.HIGHEST), A, precision=ops.HIGHEST)

        return ops.largest_eigenvalue(gram, start, steps) / jnp.sum(c)

    return lax.map(one, (features, weight), batch_size=batch)
