"""Logistic regression with sparse rows from the file to the device: Example 2 of the CEPS paper on text.

Axes: m nodes, q examples per node (padded with weight 0), n parameters, N test examples.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import DTypeLike
from scipy.sparse import csr_array

from jdfl.base import checks, struct
from jdfl.base.arguments import checked
from jdfl.problems.jagged import Block, SparseRows, canonical, longest_first, sparse_rows, to_csr
from jdfl.problems.logistic import LogisticRegression, Part, check_labels, checked_parts
from jdfl.problems.rows import check_finite
from jdfl.problems.stack import EIGEN_STEPS, floating, gram_eigenvalue, stack


@struct.dataclass
class SparseLogisticRegression(LogisticRegression):
    """The objective of `LogisticRegression` on sparse rows; no array of size q n is ever formed for a value or
    gradient.

    data = (SparseRows, labels [m, q]); the examples of a node are sorted by their number of nonzeros, the largest
    first. The rows have a table of columns for gradients. A minibatch has none, since all its leaves start with the
    axis of examples.
    test = (SparseRows, labels [N]).
    """

    n_features: int = struct.field(pytree_node=False, default=0)  # n

    @property
    def n(self) -> int:
        """The number of parameters, one per feature."""
        return self.n_features

    def products(self, w: Array, features: Any) -> Array:
        """<a, w> [q] of sparse rows and parameters w [n], for a node's rows or those of a batch.

        They gather the entries of w at the nonzeros of a row, so the time is proportional to the number of nonzeros,
        including padding, and not to q n.
        """
        return features.times(w)

    def host_rows(self, i: int) -> csr_array:
        """The rows of node i [q, n] on the host: CSR of SciPy, in float64 and without stored zeros.

        The rows with the most nonzeros come first, and padded rows are empty. `jdfl.problems.optimum` and `value_at`
        read them without forming a dense array.
        """
        return to_csr(self.data[0], i, self.n)

    def gradient(self, w: Array, data: Any, weight: Array) -> Array:
        """The gradient of f_i at w [n] from one node's data and weights."""
        return self.spread(weight * self.slopes(w, data), data) / jnp.sum(weight) + jax.grad(self.regulariser)(w)

    def example_gradients(self, w: Array, data: Any) -> Array:
        """The gradient of every single example's loss, a dense [q, n]; regulariser not included."""
        return data[0].scaled(self.slopes(w, data), self.n)

    def feature_lengths(self, data: Any, norm: str) -> Array:
        """The norms ||a_t|| [q] of one node's rows."""
        return data[0].lengths(norm)

    def spread(self, slopes: Array, data: Any) -> Array:
        """A^T slopes [n] for one node's rows A and slopes [q]."""
        return data[0].transposed_times(slopes, self.n)

    def take(self, data: Any, chosen: Array) -> Any:
        """The examples `chosen` [b] of one node's data: the same blocks with b rows each, and no columns."""
        return data[0].take(chosen), data[1][chosen]

    def check_data(self) -> None:
        """Refuse blocks and labels that do not fit the weights [m, q] and each other, or are not finite."""
        m, q = self.weight.shape
        rows = self._checked_rows("data", self.data, (m, q))
        check_finite("data[1]", self.data[1])
        if rows.columns is not None:
            checks.shape((m, self.n), "See data[0].columns.", place=rows.columns.place)
            most = np.shape(rows.columns.blocks[0][0])[1] if rows.columns.blocks else 0
            _check_range("data[0].columns.place", rows.columns.place, most + 1)
            _check_blocks("data[0].columns.blocks", rows.columns.blocks, (m, most), q)

    def check_test(self) -> None:
        """The same of the test set, whose leaves have no node axis."""
        self._checked_rows("test", self.test, (None,))
        checks.finite("See test[1].", labels=cast(Any, self.test)[1])

    def _checked_rows(self, name: str, data: Any, lead: tuple[int | None, ...]) -> SparseRows:
        """The rows of data whose labels have the shape `lead`."""
        if not (checks.is_a(data, tuple) and len(data) == 2 and isinstance(data[0], SparseRows)):
            raise ValueError(
                f"Expected {name} = (SparseRows, labels), got {type(data).__name__}. Use sparse_logistic_regression."
            )
        checks.shape(lead, f"See {name}[1].", labels=data[1])
        _check_blocks(f"{name}[0].blocks", data[0].blocks, data[1].shape, self.n)
        return data[0]


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
        penalty: Weight >= 0 of the squared norm in the objective (halved).
        test: Features [N, p], scipy.sparse too, and labels [N] to test with; None: there are none.
        intercept: Add a constant feature, so that n = p + 1.
        name: Name of the problem in reports.
        dtype: Type of all numbers, float32 or float64; the latter needs JAX_ENABLE_X64=1.

    Raises ValueError for dense features, other labels, shapes that do not fit together, a node without examples and a
    negative penalty.
    """
    kind = floating(dtype)
    held, held_test = checked_parts(parts, test, intercept, kind, sparse=True)
    check_labels([*held, *held_test], 2, "Map the two classes to 0 and 1.")
    checks.not_negative(penalty=penalty)
    held, held_test = ([_sorted(*part) for part in some] for some in (held, held_test))
    (labels,), weight = stack([(labels,) for _, labels in held], (kind,))
    tables, weight = [features for features, _ in held], jnp.asarray(weight)
    n = tables[0].shape[1]
    rows = sparse_rows(tables, len(labels[0]), n, kind, columns=True)
    return SparseLogisticRegression(
        data=(rows, jnp.asarray(labels)),
        weight=weight,
        curvature=_gram_eigenvalues(rows, weight, n) / 4,  # the logistic function's slope is at most 1/4
        test=_test(*held_test[0], kind) if held_test else None,
        name=name,
        penalty=jnp.asarray(penalty, kind),
        n_features=n,
    )


def _sorted(features: Any, labels: np.ndarray) -> tuple[csr_array, np.ndarray]:
    """Features without stored zeros, the longest row first, and their labels."""
    rows = canonical(features)
    order = longest_first(rows)
    return csr_array(rows[order]), labels[order]


def _test(features: csr_array, labels: np.ndarray, kind: np.dtype) -> tuple[SparseRows, Array]:
    """The test set on the device, without an axis of nodes."""
    rows = sparse_rows([features], len(labels), features.shape[1], kind, columns=False)
    return jax.tree.map(lambda leaf: leaf[0], rows), jnp.asarray(labels, kind)


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


@partial(jax.jit, static_argnames="n")
def _gram_eigenvalues(rows: SparseRows, weight: Array, n: int) -> Array:
    """lambda_max(A_i^T diag(weight_i) A_i) / sum_t weight[i,t] of every node [m], by Lanczos."""
    start = jax.random.normal(jax.random.key(0), (n,), weight.dtype)

    def one(node: tuple[SparseRows, Array]) -> Array:
        A, c = node
        return gram_eigenvalue(A.times, lambda y: A.transposed_times(y, n), c, start, EIGEN_STEPS)

    return lax.map(one, (rows, weight))
