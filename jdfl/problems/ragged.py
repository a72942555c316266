"""Examples of nodes of very different sizes: blocks of nodes with similar numbers of examples, each padded by itself.

Axes: m nodes, q examples of the largest node, B blocks of m_b nodes with at most q_b examples each.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jdfl.base import struct

_SHARE, _FIXED = 0.05, 2**18  # what a block costs besides its examples: a share of all, and numbers
_LEAST = 64  # numbers that an example at least costs, whatever is stored of it
_RATIO = 1.5  # of padded to stored examples, below which all nodes are one block
_WIDTHS = 256  # sizes that are tried as widths
_ARRAY = "Its rows have different lengths: problem.local(i) has the examples of node i, problem.padded() those of all."


@struct.dataclass
class Ragged:
    """An array [m, q, ...] without most of its padding: parts [m_b, q_b, ...], whose rows are nodes as in `Blocks`."""

    parts: tuple[Any, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the padded array."""
        shapes = [part.shape for part in self.parts]
        return sum(shape[0] for shape in shapes), max(shape[1] for shape in shapes), *shapes[0][2:]

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return self.parts[0].ndim

    @property
    def dtype(self) -> Any:
        """The type of the numbers."""
        return self.parts[0].dtype

    def __array__(self, *_: Any, **__: Any) -> NoReturn:
        """Raise TypeError: there is no such array."""
        raise TypeError(f"Expected an array of equal rows, got Ragged of shape {self.shape}. {_ARRAY}")

    def __getitem__(self, _: Any) -> NoReturn:
        """Raise TypeError: rows belong to nodes by `Blocks`."""
        raise TypeError(f"Expected an array of equal rows, got Ragged of shape {self.shape}. {_ARRAY}")


def is_ragged(leaf: Any) -> bool:
    """Whether a part of a tree is a `Ragged`, to be taken for a leaf."""
    return isinstance(leaf, Ragged)


def any_ragged(tree: Any) -> bool:
    """Whether a tree has a `Ragged`."""
    return any(map(is_ragged, jax.tree.leaves(tree, is_leaf=is_ragged)))


def first_parts(tree: Any) -> Any:
    """The tree with one array in place of every `Ragged`, for marks about all of its records."""
    return jax.tree.map(lambda leaf: leaf.parts[0] if is_ragged(leaf) else leaf, tree, is_leaf=is_ragged)


@struct.dataclass
class Blocks:
    """Which nodes the rows of every `Ragged` of a problem belong to."""

    nodes: tuple[Any, ...]  # [m_b] int32 for every block
    place: Any  # [m] int32: a node's row, blocks one after another
    widths: tuple[int, ...] = struct.field(pytree_node=False, default=())  # q_b, increasing

    @property
    def stored(self) -> int:
        """The number of examples, padding of the blocks included."""
        return sum(nodes.shape[0] * width for nodes, width in zip(self.nodes, self.widths))

    def take(self, tree: Any, b: int) -> Any:
        """The rows of the nodes of block b, of arrays [m, ...] and ragged ones."""
        return jax.tree.map(lambda x: x.parts[b] if is_ragged(x) else _at(x, self.nodes[b]), tree, is_leaf=is_ragged)

    def each(self, run: Callable[..., Any], function: Callable[..., Any], stacked: Any) -> Any:
        """`run(function, *rows)` block by block, and the rows [m, ...] of all; results of a block's width are padded.

        `run` is `jax.vmap` or what a problem has in its place.
        """
        found = [run(function, *self.take(stacked, b)) for b in range(len(self.widths))]
        return jax.tree.map(lambda *parts: self._padded(parts), *found)

    def one_by_one(self, function: Callable[..., Any], stacked: Any) -> Any:
        """As `each`, one node after another, whose results are written where they belong and nowhere else."""

        def rows(b: int, j: Any) -> Any:
            i = self.nodes[b][j]
            return i, jax.tree.map(lambda x: x.parts[b][j] if is_ragged(x) else x[i], stacked, is_leaf=is_ragged)

        shapes = [jax.eval_shape(lambda b=b: function(*rows(b, 0)[1])) for b in range(len(self.widths))]
        found = jax.tree.map(
            lambda *of: jnp.zeros((len(self.place), *max(one.shape for one in of)), of[0].dtype), *shapes
        )
        for b, nodes in enumerate(self.nodes):

            def one(j: Array, found: Any, b: int = b) -> Any:
                i, given = rows(b, j)

                def put(all: Array, new: Array) -> Array:
                    return all.at[i, : len(new)].set(new) if new.shape != all.shape[1:] else all.at[i].set(new)

                return jax.tree.map(put, found, function(*given))

            found = lax.fori_loop(0, len(nodes), one, found)
        return found

    def per_example(self, function: Callable[..., Any], stacked: Any) -> Any:
        """The results of a function of single nodes with a row for each of their examples, as ragged arrays."""
        found = [jax.vmap(function)(*self.take(stacked, b)) for b in range(len(self.widths))]
        return jax.tree.map(lambda *parts: Ragged(parts), *found)

    def cut(self, x: Array | np.ndarray) -> Ragged:
        """The array [m, q, ...] without the padding that the examples do not have."""
        return Ragged(tuple(_at(x[:, :width], nodes) for nodes, width in zip(self.nodes, self.widths)))

    def padded(self, x: Ragged) -> Array:
        """The array [m, q, ...], in which copies of a node's first example are the padding."""
        return _at(jnp.concatenate([_longer(jnp.asarray(part), x.shape[1], 1) for part in x.parts]), self.place)

    def rows(self, x: Ragged, i: Array | np.ndarray | int) -> Array:
        """The rows [..., q, ...] of the nodes i [...], padded as in `padded`; ids out of range are clipped."""
        place: Any = jnp.asarray(self.place)[i]
        first, found = 0, jnp.zeros((*place.shape, *x.shape[1:]), x.dtype)
        for part in x.parts:
            count = part.shape[0]
            inside = (place >= first) & (place < first + count)
            row = _longer(jnp.asarray(part)[jnp.clip(place - first, 0, count - 1)], x.shape[1], place.ndim)
            found = jnp.where(inside.reshape(*place.shape, *[1] * (row.ndim - place.ndim)), row, found)
            first += count
        return found

    def host_rows(self, x: Ragged) -> Iterator[np.ndarray]:
        """The row [q_b, ...] of every node in turn, on the host."""
        parts, ends = [np.asarray(part) for part in x.parts], np.cumsum([len(nodes) for nodes in self.nodes])
        for place in np.asarray(self.place):
            b = int(np.searchsorted(ends, place, side="right"))
            yield parts[b][place - ends[b]]  # counted from the end

    def _padded(self, parts: Sequence[Array]) -> Array:
        if len({part.shape[1:] for part in parts}) > 1:
            q = max(part.shape[1] for part in parts)
            parts = [jnp.pad(part, [(0, 0), (0, q - part.shape[1]), *[(0, 0)] * (part.ndim - 2)]) for part in parts]
        return _at(jnp.concatenate(parts), self.place)


def _longer(x: Array, q: int, axis: int) -> Array:
    """An array with q entries along an axis: copies of the first one follow, whose loss is finite."""
    first = lax.slice_in_dim(x, 0, 1, axis=axis)
    return jnp.concatenate([x, jnp.repeat(first, q - x.shape[axis], axis=axis)], axis=axis)


def _at(x: Any, rows: Any) -> Any:
    """The rows of an array, whose numbers are those of rows that it has."""
    return x[rows] if isinstance(x, np.ndarray) else x.at[rows].get(mode="promise_in_bounds", unique_indices=True)


def widths_of(sizes: np.ndarray, numbers: int) -> tuple[int, ...]:
    """The widths of the cheapest blocks for nodes of these sizes [m], whose examples have so many `numbers`.

    The cheapest are those with the fewest stored examples, where each block costs more: 5 % of all examples, and the
    number of examples that have 2^18 numbers, at most 2^12. There is one width if blocks would save less than a third.
    """
    found, count = np.unique(sizes, return_counts=True)
    below, total, most = np.concatenate([[0], np.cumsum(count)]), float(sizes.sum()), int(found[-1])
    tried = np.arange(len(found))
    if len(found) > _WIDTHS:
        tried = np.unique(np.searchsorted(found, np.geomspace(found[0], most, _WIDTHS)).clip(max=len(found) - 1))
    ends = np.concatenate([[0], below[tried + 1]])  # nodes that are at most as large
    cost, before = np.zeros(len(ends)), np.zeros(len(ends), int)
    each = _SHARE * total + _FIXED / max(numbers, _LEAST)
    for k in range(1, len(ends)):
        every = cost[:k] + (ends[k] - ends[:k]) * found[tried[k - 1]]
        before[k] = np.argmin(every)
        cost[k] = every[before[k]] + each
    chosen, k = list[int](), len(ends) - 1
    while k > 0:
        chosen.append(int(found[tried[k - 1]]))
        k = before[k]
    worth = len(sizes) * most > _RATIO * (cost[-1] - each * len(chosen))
    return tuple(reversed(chosen)) if worth else (most,)


def blocks_of(sizes: np.ndarray, numbers: int) -> list[Blocks] | None:
    """The cheapest blocks for nodes of these sizes [g, m], whose examples have so many `numbers`; None: one would do.

    All g groups of nodes have blocks of the same shapes.
    """
    order = np.argsort(sizes, axis=1, kind="stable")
    largest = np.take_along_axis(sizes, order, axis=1).max(axis=0)
    widths = widths_of(largest, numbers)
    if len(widths) == 1 or jax.process_count() > 1:
        return None
    ends = np.searchsorted(largest, widths, side="right")[:-1]
    every = [[np.sort(one).astype(np.int32) for one in np.split(row, ends)] for row in order]
    return [Blocks(tuple(nodes), np.argsort(np.concatenate(nodes)).astype(np.int32), widths) for nodes in every]


def alike(problems: Sequence[Any]) -> list[Any]:
    """The problems with blocks of the same shapes, or with arrays [m, q, ...] if one of them has these."""
    if any(one.blocks is None for one in problems) or len({one.m for one in problems}) > 1:
        return [one.padded() for one in problems]
    sizes = np.maximum(np.stack([np.asarray(one.sizes) for one in problems]), 1)
    found = blocks_of(sizes, _numbers(problems[0]))
    if found is None:
        return [one.padded() for one in problems]
    made: list[Any] = []
    for one, blocks in zip(problems, found):
        data, blocks = jax.device_put((_moved(one, np.arange(one.m), blocks), blocks))
        beyond = blocks.widths[-1] - one.weight.shape[1]
        made.append(replace(one, data=data, blocks=blocks, weight=jnp.pad(one.weight, ((0, 0), (0, beyond)))))
    return made


def dealt(problem: Any, place: np.ndarray) -> Any:
    """The problem with the rows of nodes as devices need them, for the nodes place [devices, rows] of each.

    Blocks count the rows of a device. Everything but data and blocks stays as it is.
    """
    if problem.own_test is not None:
        problem = replace(problem, own_test=dealt(problem.own_test, place))
    if problem.blocks is None:
        return problem
    found = blocks_of(np.maximum(np.asarray(problem.sizes), 1)[place], _numbers(problem))
    if found is None:
        return problem.padded()
    parts = [_moved(problem, some, blocks) for some, blocks in zip(place, found)]
    data, blocks = (jax.tree.map(lambda *rows: np.concatenate(rows), *one) for one in (parts, found))
    return replace(problem, data=data, blocks=blocks)


def _numbers(problem: Any) -> int:
    """The numbers of an example."""
    leaves = jax.tree.leaves(problem.data, is_leaf=is_ragged)
    return sum(int(np.prod(leaf.shape[2:])) for leaf in leaves)


def _moved(problem: Any, some: np.ndarray, blocks: Blocks) -> Any:
    """The data of some nodes, on the host, in other blocks."""
    sizes = np.asarray(problem.sizes)

    def moved(leaf: Ragged) -> Ragged:
        rows = [row[:size] for row, size in zip(problem.blocks.host_rows(leaf), sizes)]
        return stored([rows[i] for i in some], leaf.dtype, blocks, repeat=True)

    return jax.tree.map(moved, problem.data, is_leaf=is_ragged)


def stored(rows: Sequence[np.ndarray], kind: Any, blocks: Blocks | None, *, repeat: bool = False) -> Any:
    """The rows of all nodes, arrays [q_i, ...], as an array [m, q, ...] or as a ragged one.

    Padding is zero, or with `repeat` a node's first example.
    """

    def part(some: Sequence[np.ndarray], width: int) -> np.ndarray:
        found = np.zeros((len(some), width, *rows[0].shape[1:]), kind)
        for target, row in zip(found, some):
            target[: len(row)] = row
            if repeat and len(row):
                target[len(row) :] = row[:1]
        return found

    if blocks is None:
        return part(rows, max(1, *(len(row) for row in rows)))
    some = zip(blocks.nodes, blocks.widths)
    return Ragged(tuple(part([rows[int(i)] for i in nodes], width) for nodes, width in some))
