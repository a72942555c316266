"""A tree of parameters as one vector, and back.

Axes: n parameters.
"""

import math
from collections.abc import Hashable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.tree_util import keystr, tree_flatten_with_path

from jdfl.base import checks
from jdfl.problems.containers import array_of

_ARRAYS = "Give a tree of arrays of floating-point numbers, such as a dict, an nnx.State or an equinox module."


@dataclass(frozen=True, repr=False)
class Packing:
    """Where every array of a tree of parameters lies in a vector w [n]; shared arrays come first.

    Values are equal where the trees have the same structure, shapes and types, so that equal problems share one
    compiled program.
    """

    structure: Any  # of the tree, all leaves counted
    paths: tuple[str, ...]  # of the arrays, in the order of w
    places: tuple[int, ...]  # of the arrays among the leaves, in the order of w
    shapes: tuple[tuple[int, ...], ...]
    kinds: tuple[str, ...]  # the type that an array has in the tree, or "" for that of w
    constants: tuple[tuple[int, Any], ...]  # leaves that are no arrays, such as activation functions

    def __repr__(self) -> str:
        """A few words, since JAX prints it in messages about structures."""
        return f"Packing(n={self.n})"

    @property
    def n(self) -> int:
        """The number of parameters."""
        return sum(map(math.prod, self.shapes))

    def flatten(self, leaves: list[Any], kind: np.dtype) -> np.ndarray:
        """The vector [n] of all leaves of a tree, on the host."""
        return np.concatenate([np.asarray(leaves[place], kind).ravel() for place in self.places])

    def unflatten(self, w: Array) -> Any:
        """The tree of w [..., n], whose arrays keep the leading axes of w."""
        parts = lax.split(w, [math.prod(shape) for shape in self.shapes], w.ndim - 1)
        leaves: list[Any] = [None] * self.structure.num_leaves
        for place, constant in self.constants:
            leaves[place] = constant
        for place, part, shape, kind in zip(self.places, parts, self.shapes, self.kinds):
            leaves[place] = part.reshape(*w.shape[:-1], *shape).astype(kind or w.dtype)
        return jax.tree.unflatten(self.structure, leaves)


def packed(params: Any, shared: tuple[str, ...] | None, kind: np.dtype) -> tuple[Packing, np.ndarray, int | None]:
    """How a tree of parameters is laid out, its vector [n], and the number of shared parameters.

    Args:
        params: The tree. Its arrays are the parameters; functions, text and truth values stay as they are.
        shared: Patterns of the paths of the parameters that are common to all nodes; None: all.
        kind: Type of the vector.

    Raises ValueError for a tree without arrays, with arrays of whole or complex numbers, or with numbers that are not
    finite.
    """
    try:
        found, structure = tree_flatten_with_path(params)
        hash(structure)
    except (TypeError, ValueError) as error:
        checks.refuse("params to be a tree that can be hashed", "params", params, f"{_ARRAYS} {checks.said(error)}")
    leaves = [leaf for _, leaf in found]
    arrays: dict[str, tuple[int, Any]] = {}
    constants: list[tuple[int, Any]] = []
    for place, (path, leaf) in enumerate(found):
        where = keystr(path, simple=True, separator=".").removesuffix(".value") or "params"
        if checks.is_a(leaf, str | bool) or (callable(leaf) and not hasattr(leaf, "dtype")):
            if not checks.is_a(leaf, Hashable):
                checks.refuse("leaves of params that can be hashed", f"params at {where}", leaf, _ARRAYS)
            constants.append((place, leaf))
            continue
        leaves[place] = _parameter(where, leaf, kind)
        arrays[where if where not in arrays else f"{where}.{place}"] = place, leaves[place]
    if not arrays:
        checks.refuse("params with at least one array", "params", params, _ARRAYS)
    first = _shared(tuple(arrays), shared)
    order = (*first, *(path for path in arrays if path not in first))
    known = tuple(arrays[path] for path in order)
    packing = Packing(
        structure,
        order,
        tuple(place for place, _ in known),
        tuple(leaf.shape for _, leaf in known),
        tuple(leaf.dtype.name if leaf.dtype.itemsize < 4 else "" for _, leaf in known),
        tuple(constants),
    )
    count = sum(arrays[path][1].size for path in first)
    return packing, packing.flatten(leaves, kind), None if count == packing.n else count


def _parameter(where: str, leaf: Any, kind: np.dtype) -> Any:
    """A leaf as an array of floating-point numbers."""
    named = f"params at {where}" if where != "params" else "params"
    if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.extended):
        raise ValueError(
            f"Expected arrays of parameters in params, got a random key at {where}. Leave random state out, for "
            "example with nnx.split(model, nnx.Param, ...)."
        )
    array = array_of(named, leaf, _ARRAYS)
    if jnp.issubdtype(array.dtype, jnp.complexfloating):
        raise ValueError(
            f"Expected real parameters in params, got {array.dtype} at {where}. Give real and imaginary parts as "
            "separate arrays."
        )
    if not jnp.issubdtype(array.dtype, jnp.floating):
        raise ValueError(
            f"Expected floating-point parameters in params, got {array.dtype} at {where}. Convert it with "
            "astype(float), or leave what is not trained out of params."
        )
    if array.size == 0:
        raise ValueError(f"Expected params with entries, got shape {array.shape} at {where}. Leave empty arrays out.")
    wide = array.astype(np.float64)
    if not np.isfinite(wide.astype(kind)).all():
        raise ValueError(
            f"Expected finite parameters in params, got {wide.ravel()[~np.isfinite(wide.astype(kind)).ravel()][0]} at "
            f"{where}. Start from finite values."
        )
    return array


def _shared(paths: tuple[str, ...], patterns: tuple[str, ...] | None) -> tuple[str, ...]:
    """The paths that fit one of the patterns, in their order; all of them where there are no patterns."""
    if patterns is None:
        return paths
    if not checks.is_a(patterns, tuple | list) or not all(checks.is_a(one, str) for one in patterns):
        checks.refuse("shared to be a tuple of patterns", "shared", patterns, 'For example shared=("encoder.*",).')
    for pattern in patterns:
        if not any(fnmatchcase(path, pattern) for path in paths):
            checks.refuse("shared to fit names of parameters", "shared", pattern, f"They are {', '.join(paths)[:300]}.")
    first = tuple(path for path in paths if any(fnmatchcase(path, pattern) for pattern in patterns))
    if not first:
        checks.refuse("shared to choose at least one parameter", "shared", patterns, "None shares all.")
    return first
