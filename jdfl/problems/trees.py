"""Examples in trees of arrays: ragged lists padded, stacked trees checked, types settled. Host only.

Axes: m nodes, q examples per node (padded with weight 0), N examples without an axis of nodes.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.tree_util import keystr, tree_leaves_with_path

from jdfl.base import checks
from jdfl.base.names import aligned, labelled, labels_of
from jdfl.problems.containers import array_of
from jdfl.problems.ragged import Blocks, blocks_of, is_ragged, stored
from jdfl.problems.stack import floats_fit

_STACK = (
    "A list has one entry for every node; put the arrays of all nodes into a tuple or a dict, with leaves [nodes, "
    "examples, ...]."
)
_ARRAYS = "Give NumPy, JAX or torch arrays of numbers."


def of_nodes(
    data: Any, weight: Any, nodes: int | None, split: Callable[[int, int], list[np.ndarray]], kind: np.dtype
) -> tuple[Any, np.ndarray, Blocks | None]:
    """The examples of all nodes in a tree with leaves [m, q, ...], perhaps ragged, and their weights [m, q].

    The arguments are those of `from_loss`.
    """
    if nodes is not None:
        tree, total = _examples("data", data, kind)
        if nodes > total:
            raise ValueError(
                f"Expected nodes = {total} at most, the number of examples in data, got nodes = {nodes}. Use fewer "
                "nodes or more examples."
            )
        own = np.ones(total, kind) if weight is None else weights_of("weight", weight, (total,), kind, data)
        index = split(total, nodes)
        return _padded([take(tree, one) for one in index], [own[one] for one in index], kind)
    if checks.is_a(data, list):
        if not data:
            checks.refuse("data of at least one node", "data", data, _STACK)
        parts = [_examples(f"data[{i}]", part, kind, data[0]) for i, part in enumerate(data)]
        first = _shape(parts[0][0])
        for i, (tree, _) in enumerate(parts):
            if _shape(tree) != first:
                raise ValueError(
                    f"Expected data[{i}] with examples like those of data[0], {first}, got {_shape(tree)}. {_STACK}"
                )
        if weight is not None and not (checks.is_a(weight, list | tuple) and len(weight) == len(parts)):
            checks.refuse(f"weight to be a list of {len(parts)} arrays, as data is", "weight", weight, "None: all 1.")
        own = [
            np.ones(size, kind) if weight is None else weights_of(f"weight[{i}]", weight[i], (size,), kind, data[i])
            for i, (_, size) in enumerate(parts)
        ]
        return _padded([tree for tree, _ in parts], own, kind)
    wanted, remedy = "[nodes, examples, ...]", "With nodes=..., leaves are [examples, ...]."
    tree, (m, q) = _arrays("data", data, kind, 2, wanted, remedy)
    own = np.ones((m, q), kind) if weight is None else weights_of("weight", weight, (m, q), kind, data)
    _check_total(list(own))
    return tree, own, None


def of_test(test: Any, stacked: Any, kind: np.dtype, data: Any) -> Any:
    """The test examples in a tree with leaves [N, ...], which has to fit the examples of the nodes."""
    tree, _ = _examples("test", test, kind, data[0] if checks.is_a(data, list) else data)
    if jax.tree.structure(tree) != jax.tree.structure(stacked, is_leaf=is_ragged):
        raise ValueError(
            f"Expected test with the structure of data, {_shape(stacked)}, got {_shape(tree)}. Give a tree of the same "
            "kind, without the axis of nodes."
        )
    for (path, leaf), one in zip(tree_leaves_with_path(tree), jax.tree.leaves(stacked, is_leaf=is_ragged)):
        if leaf.shape[1:] != one.shape[2:] or leaf.dtype.kind != one.dtype.kind:
            raise ValueError(
                f"Expected test{keystr(path)} with examples of shape {one.shape[2:]} and type {one.dtype}, as in data, "
                f"got {leaf.shape[1:]} and {leaf.dtype}. Prepare both in the same way."
            )
    return jax.tree.map(lambda leaf, one: leaf.astype(one.dtype), tree, stacked)


def check_classes(examples: Any, test: Any, classes: int) -> None:
    """Refuse examples, leaves [N, ...], that are no pairs of features and labels in 0..classes-1."""
    for name, tree in (("data", examples), ("test", test)):
        if tree is None:
            continue
        labels = tree[1]
        if labels.dtype.kind not in "iub" or labels.ndim != 1:
            raise ValueError(
                f"Expected whole numbers of classes in {name}[1] with predict, got {labels.dtype} of shape "
                f"{labels.shape}. Give one label for every example, or leave predict out."
            )
        if labels.min() < 0 or labels.max() >= classes:
            odd = labels.min() if labels.min() < 0 else labels.max()
            raise ValueError(
                f"Expected labels in {name}[1] from 0 to {classes - 1}, since predict gives {classes} classes, got "
                f"{odd}. Number the classes from 0, or let predict give more scores."
            )


def take(tree: Any, chosen: Any) -> Any:
    """Some rows of every leaf."""
    return jax.tree.map(lambda leaf: leaf[chosen], tree)


def _examples(name: str, value: Any, kind: np.dtype, like: Any = None) -> tuple[Any, int]:
    """A tree with leaves [N, ...], whose columns are in the order of those of another one, and N."""
    headings = [labels_of(leaf, axis=1) for _, leaf in leaves_of(like)]
    tree, (size,) = _arrays(name, value, kind, 1, "[examples, ...]", "Stack the examples.", headings)
    return tree, size


def leaves_of(tree: Any) -> list[tuple[Any, Any]]:
    """The leaves of a tree with their paths, tables of other libraries as those of pandas."""
    return [(path, labelled(leaf)) for path, leaf in tree_leaves_with_path(tree, is_leaf=_is_table)]


def _rows(name: str, found: list[tuple[Any, Any]]) -> tuple[Any, str]:
    """The labels of the rows of the first leaf that has some, and what that is called."""
    labels = ((labels_of(leaf), f"{name}{keystr(path)}") for path, leaf in found)
    return next((one for one in labels if one[0] is not None), (None, ""))


def _arrays(
    name: str, value: Any, kind: np.dtype, axes: int, wanted: str, remedy: str, headings: Sequence[Any] = ()
) -> tuple[Any, tuple[int, ...]]:
    """The tree with NumPy arrays of types that JAX takes, and the leading axes, which all arrays share.

    Labelled rows and columns are put into one order.
    """
    found = leaves_of(value)
    if not found:
        checks.refuse(f"{name} with at least one array", name, value, _ARRAYS)
    rows = _rows(name, found)
    headings = headings if len(headings) == len(found) else [None] * len(found)
    leaves: list[np.ndarray] = []
    for (path, leaf), heading in zip(found, headings):
        where = f"{name}{keystr(path)}"
        leaf = aligned(where, aligned(where, leaf, *rows), heading, "data", axis=1)
        array = _array(where, leaf, kind)
        if array.ndim < axes:
            raise ValueError(f"Expected {where} of shape {wanted}, got {where} of shape {array.shape}. {remedy}")
        leaves.append(array)
        shape = leaves[0].shape[:axes]
        if array.shape[:axes] != shape:
            raise ValueError(
                f"Expected {where} of shape ({', '.join(map(str, shape))}, ...), as {name}{keystr(found[0][0])} has, "
                f"got {array.shape}. Give every example an entry in every array."
            )
        if 0 in shape:
            raise ValueError(f"Expected {name} of shape {wanted} with examples, got {shape}. Leave empty arrays out.")
    return jax.tree.unflatten(jax.tree.structure(value, is_leaf=_is_table), leaves), leaves[0].shape[:axes]


def _is_table(value: Any) -> bool:
    return hasattr(value, "to_numpy") or (isinstance(value, list | tuple) and bool(value) and _is_number(value[0]))


def _is_number(value: Any) -> bool:
    return isinstance(value, bool | int | float | complex | str) or (isinstance(value, list) and _is_table(value))


def _array(name: str, leaf: Any, kind: np.dtype) -> np.ndarray:
    array = array_of(name, leaf.to_numpy() if hasattr(leaf, "to_numpy") else leaf, _ARRAYS)
    if jax.numpy.issubdtype(array.dtype, jax.numpy.floating):
        wide = array.astype(kind)
        checks.finite("Drop these examples, or fill the numbers in.", **{name: wide})
        floats_fit(name, array, kind, stacklevel=8)
        array = wide
    elif array.dtype.kind in "iu" and array.dtype.itemsize > 2:
        if array.size and (array.min() < -(2**31) or array.max() >= 2**31):
            raise ValueError(
                f"Expected whole numbers in {name} that fit 32 bits, got {max(array.max(), -array.min())}. Renumber "
                "them, or give floating-point numbers."
            )
        array = array.astype(np.int32)
    elif array.dtype.kind not in "iub":
        raise ValueError(f"Expected numbers in {name}, got dtype {array.dtype}. {_ARRAYS}")
    return array


def _shape(tree: Any) -> str:
    """The structure of a tree with the shape and type of an example in it."""
    leaves = tree_leaves_with_path(tree, is_leaf=is_ragged)
    found = {keystr(path): f"{leaf.dtype}{list(leaf.shape[1:])}" for path, leaf in leaves}
    return "{" + ", ".join(f"{path or 'array'}: {text}" for path, text in found.items()) + "}"


def weights_of(name: str, value: Any, shape: tuple[int, ...], kind: np.dtype, data: Any) -> np.ndarray:
    """Checked weights of the examples, rows in the order of the data."""
    value = aligned(name, value, *_rows("data", leaves_of(data)))
    array = array_of(name, value, "Give one number >= 0 for every example.")
    checks.shape(shape, "Give one number >= 0 for every example.", **{name: array})
    checks.not_negative("Give one number >= 0 for every example.", **{name: array})
    return array.astype(kind)


def _check_total(weights: list[np.ndarray]) -> None:
    for i, own in enumerate(weights):
        if own.sum() <= 0:
            raise ValueError(
                f"Expected positive weights at every node, got weight = 0 of every example at node {i}. Leave the node "
                "out, or give an example a positive weight."
            )


def _padded(trees: list[Any], weights: list[np.ndarray], kind: np.dtype) -> tuple[Any, np.ndarray, Blocks | None]:
    """Trees of nodes as one: padding repeats a node's first example, whose loss is finite."""
    _check_total(weights)
    numbers = sum(int(np.prod(leaf.shape[1:])) for leaf in jax.tree.leaves(trees[0]))
    blocks, *_ = blocks_of(np.array([[len(own) for own in weights]]), numbers) or [None]
    tree = jax.tree.map(lambda *leaves: stored(leaves, leaves[0].dtype, blocks, repeat=True), *trees)
    return tree, stored(weights, kind, None), blocks


def real_examples(tree: Any, weights: np.ndarray, blocks: Blocks | None) -> Any:
    """All examples of positive weight, leaves [N, ...], of what `of_nodes` gives, in any order."""
    if blocks is None:
        return take(tree, weights > 0)
    here = [part > 0 for part in blocks.cut(weights).parts]
    return jax.tree.map(
        lambda leaf: np.concatenate([part[one] for part, one in zip(leaf.parts, here)]), tree, is_leaf=is_ragged
    )
