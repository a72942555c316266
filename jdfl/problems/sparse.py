"""Logistic regression with sparse rows from the file to the device: Example 2 of the CEPS paper on text.

Rows of very different lengths are arrays of fixed shape, and products use gathers alone. The rows of every node are
sorted by length, the longest first, and their slots are cut into blocks. Block b contains the rows that extend into it,
at most c_b at any node, so that little is padding. A product with the transpose uses a second table, of columns: on a
CPU a scatter-add takes several times as long, and on a GPU its order of additions varies.

Axes: m nodes, q examples (rows) per node, n parameters (columns), N test examples, block b of c_b lines and l_b slots.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import DTypeLike
from scipy.sparse import csr_array

from jdfl.arrays import ops
from jdfl.base import checks, struct
from jdfl.base.arguments import checked
from jdfl.problems.base import check_finite
from jdfl.problems.logistic import LogisticRegression, Part, check_labels
from jdfl.problems.stack import EIGEN_STEPS, checked_parts, floating, gram_eigenvalue, stack

_BLOCK = 1024  # a further block costs about as much time as this many slots of a node,
_SHARE = 1 / 64  # and it must save this share of all slots, or large data would take long to compile
_EVERY = 64  # where a block may end: at every slot up to here, then in steps of 4 %

Block = tuple[Array, Array]


@struct.dataclass
class Columns:
    """The columns of sparse rows, sorted by their number of entries, the longest first."""

    blocks: tuple[Block, ...]  # of (row int32 [m, c_b, l_b], value [m, c_b, l_b]); value 0 where a column is shorter
    place: Array  # [m, n] int32 the line of every column; c_0 for one without entries


@struct.dataclass
class SparseRows:
    """Sparse rows, the longest first; without the axis m for one node, and with scalar lines for a single row."""

    blocks: tuple[Block, ...]  # of (column int32 [m, c_b, l_b], value [m, c_b, l_b]); value 0 where a row is shorter
    columns: Columns | None = None  # the same entries again, for products with the transpose

    def times(self, x: Array) -> Array:
        """A x [q] of one node's rows A and x [n]."""
        return _times(self.blocks, x)

    def transposed_times(self, y: Array, n: int) -> Array:
        """A^T y [n] of one node's rows A and y [q]."""
        if self.columns is None:
            sums = jnp.zeros((n,), y.dtype)
            for column, value in self.blocks:
                sums = sums.at[column].add(value * y[: column.shape[0], None])
            return sums
        return jnp.pad(_times(self.columns.blocks, y), (0, 1))[self.columns.place]

    def lengths(self, norm: str) -> Array:
        """The l1, l2 or linf norms [q] of one node's rows."""
        parts = [ops.length(value, norm) for _, value in self.blocks]
        q = parts[0].shape[0]
        return ops.length(jnp.stack([jnp.pad(part, (0, q - part.shape[0])) for part in parts]), norm, (0,))

    def scaled(self, y: Array, n: int) -> Array:
        """diag(y) A as a dense array [q, n], for one node's rows A and y [q]."""
        dense = jnp.zeros((*y.shape, n), y.dtype)
        for column, value in self.blocks:
            c = column.shape[0]
            dense = dense.at[jnp.arange(c)[:, None], column].add(value * y[:c, None])
        return dense

    def take(self, chosen: Array) -> "SparseRows":
        """The rows `chosen` [b] of one node without columns; every block has b rows, zeros where one is shorter."""
        blocks: list[tuple[Array, Array]] = []
        for column, value in self.blocks:
            reaches = chosen < column.shape[0]
            line = jnp.where(reaches, chosen, 0)
            blocks.append((column[line], jnp.where(reaches[:, None], value[line], jnp.zeros((), value.dtype))))
        return SparseRows(tuple(blocks))


@struct.dataclass
class SparseLogisticRegression(LogisticRegression):
    """The objective of `LogisticRegression`; no array of size q n is ever formed for a value or a gradient.

    data = (SparseRows, labels [m, q]), test = (SparseRows, labels [N]); the longest rows of a node come first. They
    have a table of columns for gradients, but not in a minibatch, whose leaves all start with the axis of examples.
    """

    n_features: int = struct.field(pytree_node=False, default=0)  # n

    @property
    def n(self) -> int:
        return self.n_features

    def products(self, w: Array, features: Any) -> Array:
        """<a, w> [q] of a node's sparse rows, or a batch's, in a time proportional to their nonzeros and padding."""
        return features.times(w)

    def host_rows(self, i: int) -> csr_array:
        return to_csr(self.data[0], i, self.n)

    def gradient(self, w: Array, data: Any, weight: Array) -> Array:
        return self.spread(weight * self.slopes(w, data), data) / jnp.sum(weight) + jax.grad(self.regulariser)(w)

    def example_gradients(self, w: Array, data: Any) -> Array:
        return data[0].scaled(self.slopes(w, data), self.n)

    def feature_lengths(self, data: Any, norm: str) -> Array:
        return data[0].lengths(norm)

    def spread(self, slopes: Array, data: Any) -> Array:
        return data[0].transposed_times(slopes, self.n)

    def take(self, data: Any, chosen: Array) -> Any:
        return data[0].take(chosen), data[1][chosen]

    def check_data(self) -> None:
        self._check("data", self.data, self.weight.shape)

    def check_test(self) -> None:
        self._check("test", self.test, (None,))

    def _check(self, name: str, data: Any, shape: tuple[int | None, ...]) -> None:
        if not (checks.is_a(data, tuple) and len(data) == 2 and isinstance(data[0], SparseRows)):
            raise ValueError(
                f"Expected {name} = (SparseRows, labels), got {type(data).__name__}. Use sparse_logistic_regression."
            )
        checks.shape(shape, f"See {name}[1].", labels=data[1])
        if np.shape(data[0].blocks[0][0])[:-1] != data[1].shape:
            raise ValueError(f"Expected {name}[0] with a row for every label, got other rows and labels.")
        for path, leaf in jax.tree_util.tree_leaves_with_path(data):
            check_finite(name + jax.tree_util.keystr(path), leaf)


@checked
def sparse_logistic_regression(
    parts: Sequence[Part],
    *,
    penalty: float = 1e-3,
    test: Part | None = None,
    intercept: bool = False,
    name: str = "sparse logistic regression",
    dtype: DTypeLike = jnp.float32,
) -> SparseLogisticRegression:
    """Logistic regression on sparse rows of two classes, which stay sparse on the device.

    The examples of every node and of the test set are sorted by their number of nonzeros, the largest first.

    Args:
        parts: The features [q_i, p], a scipy.sparse matrix, and the labels [q_i] in {0, 1} of every node i.
        test: Features [N, p], scipy.sparse too, and labels [N] to test with; None: there are none.

    `penalty`, `intercept`, `name` and `dtype` are as for `logistic_regression`. Raises ValueError as well for dense
    features and a node without examples.
    """
    kind = floating(dtype)
    held, held_test = checked_parts(parts, test, kind, "labels", sparse=True, intercept=intercept)
    check_labels([*held, *held_test], 2, "Map the two classes to 0 and 1.")
    checks.not_negative(penalty=penalty)
    held, held_test = ([_sorted(*part) for part in some] for some in (held, held_test))
    (labels,), weight, _ = stack([(labels,) for _, labels in held], (kind,))
    tables, weight = [features for features, _ in held], jnp.asarray(weight)
    n, test_set = tables[0].shape[1], None
    if held_test:
        features, answers = held_test[0]
        several = sparse_rows([features], len(answers), n, kind, columns=False)
        test_set = jax.tree.map(lambda leaf: leaf[0], several), jnp.asarray(answers, kind)
    rows = sparse_rows(tables, len(labels[0]), n, kind, columns=True)
    return SparseLogisticRegression(
        data=(rows, jnp.asarray(labels)),
        weight=weight,
        curvature=_gram_eigenvalues(rows, weight, n) / 4,  # the logistic function's slope is at most 1/4
        test=test_set,
        name=name,
        penalty=jnp.asarray(penalty, kind),
        n_features=n,
    )


def _sorted(features: Any, labels: np.ndarray) -> tuple[csr_array, np.ndarray]:
    """Features without stored zeros, the longest row first, and their labels."""
    rows = canonical(features)
    order = longest_first(rows)
    return csr_array(rows[order]), labels[order]


@partial(jax.jit, static_argnames="n")
def _gram_eigenvalues(rows: SparseRows, weight: Array, n: int) -> Array:
    """lambda_max(A_i^T diag(weight_i) A_i) / sum_t weight[i,t] of every node [m], by Lanczos."""
    start = jax.random.normal(jax.random.key(0), (n,), weight.dtype)

    def one(node: tuple[SparseRows, Array]) -> Array:
        A, c = node
        return gram_eigenvalue(A.times, lambda y: A.transposed_times(y, n), c, start, EIGEN_STEPS)

    return lax.map(one, (rows, weight))


def sparse_rows(tables: Sequence[csr_array], q: int, n: int, dtype: np.dtype, *, columns: bool) -> SparseRows:
    """The rows of every node, padded to the same number and arranged in blocks on the device."""
    blocks = _blocks(tables, q, dtype)
    if not columns:
        return SparseRows(blocks)
    turned = [csr_array(table.T) for table in tables]
    orders = [longest_first(table) for table in turned]
    most = max(1, *(int(np.count_nonzero(np.diff(table.indptr))) for table in turned))
    place = np.full((len(tables), n), most, np.int32)
    for line, order in zip(place, orders):
        line[order[:most]] = np.arange(len(order[:most]))
    held = [table[order[:most]] for table, order in zip(turned, orders)]
    return SparseRows(blocks, Columns(_blocks(held, most, dtype), jax.device_put(place)))


def canonical(features: Any) -> csr_array:
    """Any scipy.sparse matrix as CSR with sorted columns, without duplicates and stored zeros; a copy."""
    rows = csr_array(features, copy=True)
    rows.sum_duplicates()
    rows.eliminate_zeros()
    return rows


def longest_first(table: csr_array) -> np.ndarray:
    """The order [q] of the rows of a table by their number of entries, the longest first, ties in the given order."""
    return np.argsort(-np.diff(table.indptr), kind="stable")


def to_csr(rows: SparseRows, i: int, n: int) -> csr_array:
    """One node's rows [q, n] on the host, in float64 and without stored zeros."""
    found: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
    for column, value in rows.blocks:
        here = np.asarray(value[i], np.float64)
        line, slot = np.nonzero(here)
        found.append((here[line, slot], line, np.asarray(column[i])[line, slot]))
    values, lines, columns = (np.concatenate(part) for part in zip(*found))
    return csr_array((values, (lines, columns)), shape=(rows.blocks[0][0].shape[1], n))


def _times(blocks: tuple[Block, ...], x: Array) -> Array:
    """The products [c_0] of the lines with x; scalar lines give a scalar."""
    parts = [jnp.sum(value * x[index], axis=-1) for index, value in blocks]
    total = parts[0]
    for part in parts[1:]:
        total = total + (part if part.shape == total.shape else jnp.pad(part, (0, total.size - part.size)))
    return total


def _blocks(tables: Sequence[csr_array], lines: int, dtype: np.dtype) -> tuple[Block, ...]:
    """Tables with the longest line first as blocks; the first block has all `lines`, also those without entries."""
    lengths = [np.diff(table.indptr) for table in tables]
    slots = max(1, *(int(length.max(initial=0)) for length in lengths))
    reach = np.zeros(slots, np.int64)  # the largest number of lines of a node that have an entry in a slot
    for length in lengths:
        reach = np.maximum(reach, len(length) - np.cumsum(np.bincount(length, minlength=slots))[:slots])
    reach[0] = lines
    blocks: list[tuple[Array, Array]] = []
    for low, high in _cut(reach):
        index = np.zeros((len(tables), reach[low], high - low), np.int32)
        value = np.zeros(index.shape, dtype)
        for i, (table, length) in enumerate(zip(tables, lengths)):
            slot = np.arange(table.nnz) - np.repeat(table.indptr[:-1], length)
            here = (slot >= low) & (slot < high)
            line = np.repeat(np.arange(len(length)), length)[here]
            index[i, line, slot[here] - low] = table.indices[here]
            value[i, line, slot[here] - low] = table.data[here]
        blocks.append(jax.device_put((index, value)))  # asarray would compile a program for every shape
    return tuple(blocks)


def _cut(reach: np.ndarray) -> list[tuple[int, int]]:
    """The cheapest cut of the slots into blocks (low, high), each costing reach[low] (high - low) and a price."""
    top, price = len(reach), max(_BLOCK, _SHARE * reach.sum())
    further = (_EVERY * 1.04 ** np.arange(float(np.log(top) / np.log(1.04)))).astype(np.int64)
    ends = np.union1d(np.arange(_EVERY), further)
    ends = np.append(ends[ends < top], top)
    cost, start = np.zeros(len(ends)), np.zeros(len(ends), np.int64)
    for k in range(1, len(ends)):
        whole = cost[:k] + reach[ends[:k]] * (ends[k] - ends[:k]) + price
        start[k], cost[k] = np.argmin(whole), whole.min()
    cuts: list[tuple[int, int]] = []
    k = len(ends) - 1
    while k > 0:
        cuts.append((int(ends[start[k]]), int(ends[k])))
        k = start[k]
    return cuts[::-1]
