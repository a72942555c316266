"""Logistic regression whose rows stay sparse, from the file to the device: Example 2 of the CEPS paper on text.

Axes: m nodes, q examples per node (padded with weight 0), n parameters, N test examples.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike, DTypeLike
from scipy.sparse import coo_array, csr_array, hstack, issparse

from jdfl import checks, ops, struct
from jdfl.arguments import checked
from jdfl.problems.base import check_finite
from jdfl.problems.jagged import Block, SparseRows, canonical, longest_first, sparse_rows
from jdfl.problems.logistic import LogisticRegression, check_labels
from jdfl.problems.stack import EIGEN_STEPS, floating

SparsePart = tuple[Any, ArrayLike]


@struct.dataclass
class SparseLogisticRegression(LogisticRegression):
    """The objective of `LogisticRegression` on sparse rows; nothing of size q n is ever formed for a value or gradient.

    data = (SparseRows, labels [m, q]), a node's examples in the order of their number of nonzeros, most first. The rows
    have a table of columns for gradients; every leaf of a minibatch has the examples' axis, so it has none.
    test = (SparseRows, labels [N]).
    """

    n_features: int = struct.field(pytree_node=False, default=0)  # n

    @property
    def n(self) -> int:
        """The number of parameters, one per feature."""
        return self.n_features

    def loss(self, w: Array, example: Any) -> Array:
        """ln(1 + e^z) - b z [] of one example (its row of every block, b []), z = <a, w>."""
        return self.losses(w, example)

    def losses(self, w: Array, data: Any) -> Array:
        """The loss of every example [q]."""
        rows, b = data
        z = rows.times(w)
        return jax.nn.softplus(z) - b * z

    def gradient(self, w: Array, data: Any, weight: Array) -> Array:
        """The gradient of f_i at w [n] from one node's data and weights."""
        rows, b = data
        slope = weight * (jax.nn.sigmoid(rows.times(w)) - b)
        return rows.transposed_times(slope, self.n) / jnp.sum(weight) + jax.grad(self.regulariser)(w)

    def example_gradients(self, w: Array, data: Any) -> Array:
        """The gradient of every single example's loss, a dense [q, n]; regulariser not included."""
        rows, b = data
        return rows.scaled(jax.nn.sigmoid(rows.times(w)) - b, self.n)

    def feature_lengths(self, data: Any, norm: str) -> Array:
        """||a_t|| [q]."""
        return data[0].lengths(norm)

    def spread(self, slopes: Array, data: Any) -> Array:
        """A^T slopes [n]."""
        return data[0].transposed_times(slopes, self.n)

    def take(self, data: Any, chosen: Array) -> Any:
        """The examples `chosen` [b] of one node's data: the same blocks with b rows each, and no columns."""
        rows, b = data
        return rows.take(chosen), b[chosen]

    def scores(self, w: Array, features: Any) -> Array:
        """<a, w> [N] of sparse rows; positive means class 1."""
        return features.times(w)

    def check_data(self) -> None:
        """Refuse blocks and labels that do not fit the weights [m, q] and one another, or hold what is not finite."""
        rows, labels = _rows_and_labels("data", self.data)
        m, q = self.weight.shape
        checks.shape((m, q), "See data[1].", labels=labels)
        check_finite("data[1]", labels)
        _check_blocks("data[0].blocks", rows.blocks, (m, q), self.n)
        if rows.columns is not None:
            checks.shape((m, self.n), "See data[0].columns.", place=rows.columns.place)
            most = np.shape(rows.columns.blocks[0][0])[1] if rows.columns.blocks else 0
            _check_range("data[0].columns.place", rows.columns.place, most + 1)
            _check_blocks("data[0].columns.blocks", rows.columns.blocks, (m, most), q)

    def check_test(self) -> None:
        """The same of the test set, whose leaves have no node axis."""
        rows, labels = _rows_and_labels("test", self.test)
        checks.shape((None,), "See test[1].", labels=labels)
        checks.finite("See test[1].", labels=labels)
        _check_blocks("test[0].blocks", rows.blocks, labels.shape, self.n)


@checked
def sparse_logistic_regression(
    parts: Sequence[SparsePart],
    *,
    penalty: float = 1e-3,
    test: SparsePart | None = None,
    intercept: bool = False,
    name: str = "sparse logistic regression",
    dtype: DTypeLike = jnp.float32,
) -> SparseLogisticRegression:
    """Logistic regression from `parts[i]` = node i's (scipy.sparse features [q_i, p], labels [q_i] in {0, 1}).

    `test` = (scipy.sparse features [N, p], labels [N]). `intercept` appends a column of ones, so that n = p + 1. A
    node's examples, and the test set's, are sorted by their number of nonzeros, most first. ValueError for dense
    features, other labels, shapes that do not fit together, a node without examples and a negative penalty.
    """
    kind = floating(dtype)
    if len(parts) == 0:
        raise ValueError("Expected the data of at least one node, got none.")
    held = [_sorted(part, f"node {i}", intercept) for i, part in enumerate(parts)]
    held_test = None if test is None else _sorted(test, "the test set", intercept)
    everything = held if held_test is None else [*held, held_test]
    n = held[0][0].shape[1]
    for i, (features, _) in enumerate(everything):
        where = f"node {i}" if i < len(held) else "the test set"
        checks.shape((None, n), f"See {where}.", features=features)
        if i < len(held) and features.shape[0] == 0:
            raise ValueError(f"Expected at least one example at every node, got none at node {i}.")
    check_labels(everything, 2, "Map the two classes to 0 and 1.")
    checks.not_negative(penalty=penalty)

    q = max(len(labels) for _, labels in held)
    labels, weight = np.zeros((len(held), q), kind), np.zeros((len(held), q), kind)
    for i, (_, own) in enumerate(held):
        labels[i, : len(own)] = own
        weight[i, : len(own)] = 1
    rows, weight = sparse_rows([features for features, _ in held], q, n, kind, columns=True), jnp.asarray(weight)
    return SparseLogisticRegression(
        data=(rows, jnp.asarray(labels)),
        weight=weight,
        curvature=_gram_eigenvalues(rows, weight, n) / 4,  # the logistic function's slope is at most 1/4
        test=None if held_test is None else _test(held_test, kind),
        name=name,
        penalty=jnp.asarray(penalty, kind),
        n_features=n,
    )


def _sorted(part: SparsePart, where: str, intercept: bool) -> tuple[Any, np.ndarray]:
    """Checked features, without stored zeros and the longest row first, and their labels."""
    if not issparse(part[0]):
        raise ValueError(
            f"Expected scipy.sparse features at {where}, got {type(part[0]).__name__}. Wrap them in "
            "scipy.sparse.csr_array(...), or use logistic_regression."
        )
    checks.shape((None, None), f"See {where}.", features=part[0])
    checks.real(f"See {where}.", features=part[0])
    checks.labels(f"See {where}.", labels=part[1])
    features: Any = canonical(part[0])
    labels = np.asarray(part[1])
    checks.shape((features.shape[0],), f"See {where}.", labels=labels)
    if intercept:
        ones = coo_array(np.ones((features.shape[0], 1), features.dtype))
        features = csr_array(hstack([features, ones], format="csr"))
    order = longest_first(features)
    return features[order], labels[order]


def _rows_and_labels(name: str, data: Any) -> tuple[SparseRows, Array]:
    if not (checks.is_a(data, tuple) and len(data) == 2 and isinstance(data[0], SparseRows)):
        raise ValueError(
            f"Expected {name} = (SparseRows, labels), got {type(data).__name__}. Use sparse_logistic_regression."
        )
    return data


def _check_blocks(name: str, blocks: tuple[Block, ...], lead: tuple[int, ...], below: int) -> None:
    """Blocks of indices in 0..below-1 and finite values, both [*lead, slots], the last of `lead` shrinking."""
    if not blocks:
        raise ValueError(f"Expected {name} with at least one block, got none.")
    *nodes, lines = lead
    for b, (index, value) in enumerate(blocks):
        found = np.shape(index)
        fits = len(found) == len(lead) + 1 and found[:-2] == tuple(nodes) and np.shape(value) == found
        if not fits or found[-2] > lines or (b == 0 and found[-2] != lines):
            wanted = f"({', '.join(map(str, (*nodes, lines)))}, slots)" + (" or with fewer lines" if b else "")
            raise ValueError(f"Expected {name}[{b}] of shape {wanted}, got {found} and {np.shape(value)}.")
        lines = found[-2]
        _check_range(f"{name}[{b}][0]", index, below)
        if not np.isfinite(value).all():
            at = tuple(int(k) for k in np.argwhere(~np.isfinite(value))[0])
            place = (f"node {at[0]}, " if nodes else "") + f"line {at[-2]}, slot {at[-1]}"
            raise ValueError(f"Expected finite numbers in {name}[{b}][1], got {np.asarray(value)[at]} at {place}.")


def _check_range(name: str, index: Array, below: int) -> None:
    """ValueError unless whole numbers in 0..below-1."""
    array = np.asarray(index)
    if not np.issubdtype(array.dtype, np.integer):
        raise ValueError(f"Expected whole numbers in {name}, got dtype = {array.dtype.name!r}.")
    least, most = int(array.min()), int(array.max())
    if least < 0 or most >= below:
        raise ValueError(f"Expected 0 to {below - 1} in {name}, got {least if least < 0 else most}.")


def _test(held: tuple[Any, np.ndarray], kind: np.dtype) -> tuple[SparseRows, Array]:
    rows = sparse_rows([held[0]], len(held[1]), held[0].shape[1], kind, columns=False)
    return jax.tree.map(lambda leaf: leaf[0], rows), jnp.asarray(held[1], kind)


@partial(jax.jit, static_argnames="n")
def _gram_eigenvalues(rows: SparseRows, weight: Array, n: int) -> Array:
    """lambda_max(A_i^T diag(weight_i) A_i) / sum_t weight[i,t] of every node [m], by Lanczos."""
    start = jax.random.normal(jax.random.key(0), (n,), weight.dtype)

    def one(node: tuple[SparseRows, Array]) -> Array:
        A, c = node

        def gram(x: Array) -> Array:
            return A.transposed_times(c * A.times(x), n)

        return ops.largest_eigenvalue(gram, start, EIGEN_STEPS) / jnp.sum(c)

    return lax.map(one, (rows, weight))
