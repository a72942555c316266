"""Classification by linear scores: logistic for two classes, softmax for more.

The logistic objective is Example 2 of S. Sha, S. Zhou, L. Kong, G. Y. Li, "Sparse Decentralized Federated Learning"
(CEPS), section V.A.
Axes: m nodes, q examples per node (padded with weight 0), p features, n parameters, N test examples.
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike, DTypeLike
from scipy.sparse import issparse

from jdfl import checks, ops, struct
from jdfl.arguments import checked
from jdfl.problems.base import Problem
from jdfl.problems.stack import floating, gram_eigenvalues, stack

Part = tuple[ArrayLike, ArrayLike]


@struct.dataclass
class LogisticRegression(Problem):
    """f_i(w) = mean_t ln(1 + e^<a_t, w>) - b_t <a_t, w> + penalty/2 ||w||^2, labels b in {0, 1}.

    data = (features [m, q, n], labels [m, q] of the parameters' floating type).
    """

    penalty: Array | float = 1e-3  # [] lambda

    @property
    def n(self) -> int:
        """The number of parameters, one per feature."""
        return self.data[0].shape[-1]

    def loss(self, w: Array, example: Any) -> Array:
        """ln(1 + e^z) - b z [] of one example (a [n], b []), z = <a, w>; finite for every finite z."""
        a, b = example
        return LogisticRegression.losses(self, w, (a[None], b[None]))[0]

    def losses(self, w: Array, data: Any) -> Array:
        """The loss of every example [q]."""
        z = self.scores(w, data[0])
        return jax.nn.softplus(z) - data[1] * z

    def regulariser(self, w: Array) -> Array:
        """penalty/2 ||w||^2 []; an intercept is penalised like every other parameter."""
        return 0.5 * self.penalty * jnp.sum(w * w)

    def scores(self, w: Array, features: Array) -> Array:
        """<a, w> [N] of features [N, n]; positive means class 1."""
        return jnp.dot(features, w, precision=ops.HIGHEST)

    def slopes(self, w: Array, data: Any) -> Array:
        """1 / (1 + e^-<a_t, w>) - b_t [q]."""
        return jax.nn.sigmoid(self.scores(w, data[0])) - data[1]

    def feature_lengths(self, data: Any, norm: str) -> Array:
        """||a_t|| [q]."""
        return ops.length(data[0], norm)

    def spread(self, slopes: Array, data: Any) -> Array:
        """A^T slopes [n]."""
        return jnp.dot(slopes, data[0], precision=ops.HIGHEST)


@struct.dataclass
class SoftmaxRegression(Problem):
    """f_i(w) = mean_t ln(sum_c e^z_tc) - z_t,b_t + penalty/2 ||w||^2, z_t = a_t W, labels b in 0..classes-1.

    W [p, classes] is `w.reshape(p, classes)`: n = p classes. data = (features [m, q, p], labels [m, q] int32).
    """

    penalty: Array | float = 1e-3  # [] lambda
    classes: int = struct.field(pytree_node=False, default=2)

    @property
    def n(self) -> int:
        """The number of parameters, one per feature and class."""
        return self.data[0].shape[-1] * self.classes

    def loss(self, w: Array, example: Any) -> Array:
        """The cross-entropy [] of one example (a [p], b [] int32)."""
        a, b = example
        z = self.scores(w, a)
        return jax.nn.logsumexp(z) - z[b]

    def regulariser(self, w: Array) -> Array:
        """penalty/2 ||w||^2 []; an intercept is penalised like every other parameter."""
        return 0.5 * self.penalty * jnp.sum(w * w)

    def scores(self, w: Array, features: Array) -> Array:
        """A W [N, classes] of features [N, p]; the largest decides."""
        return jnp.dot(features, w.reshape(-1, self.classes), precision=ops.HIGHEST)

    def slopes(self, w: Array, data: Any) -> Array:
        """The classes' probabilities, less one for the example's own [q, classes]."""
        a, b = data
        return jax.nn.softmax(self.scores(w, a), axis=1) - jax.nn.one_hot(b, self.classes, dtype=a.dtype)

    def feature_lengths(self, data: Any, norm: str) -> Array:
        """||a_t|| [q]."""
        return ops.length(data[0], norm)

    def spread(self, slopes: Array, data: Any) -> Array:
        """A^T slopes [p, classes] as [n]."""
        return jnp.dot(data[0].T, slopes, precision=ops.HIGHEST).ravel()


@checked
def logistic_regression(
    parts: Sequence[Part],
    *,
    penalty: float = 1e-3,
    test: Part | None = None,
    intercept: bool = False,
    name: str = "logistic regression",
    dtype: DTypeLike = jnp.float32,
) -> LogisticRegression:
    """Logistic regression from `parts[i]` = node i's (features [q_i, p], labels [q_i] in {0, 1}).

    `test` = (features [N, p], labels [N]). `intercept` appends a column of ones, so that n = p + 1. ValueError for
    other labels, for shapes that do not fit together and for a negative penalty.
    """
    kind = floating(dtype)
    held, held_test = _arrays(parts, test, intercept)
    check_labels([*held, held_test] if held_test else held, 2, "Map the two classes to 0 and 1.")
    checks.not_negative(penalty=penalty)
    data, weight = stack(held, (kind, kind))
    features, weight = jnp.asarray(data[0]), jnp.asarray(weight)
    return LogisticRegression(
        data=(features, jnp.asarray(data[1])),
        weight=weight,
        curvature=gram_eigenvalues(features, weight) / 4,  # the logistic function's slope is at most 1/4
        test=None if held_test is None else tuple(jnp.array(array, kind) for array in held_test),
        name=name,
        penalty=jnp.asarray(penalty, kind),
    )


@checked
def softmax_regression(
    parts: Sequence[Part],
    *,
    classes: int | None = None,
    penalty: float = 1e-3,
    test: Part | None = None,
    intercept: bool = False,
    name: str = "softmax regression",
    dtype: DTypeLike = jnp.float32,
) -> SoftmaxRegression:
    """Softmax regression from `parts[i]` = node i's (features [q_i, p], labels [q_i] in 0..classes-1).

    `classes` defaults to the largest label plus one; the rest, `intercept` and what raises ValueError among it, is as
    in `logistic_regression`.
    """
    kind = floating(dtype)
    held, held_test = _arrays(parts, test, intercept)
    everything = [*held, held_test] if held_test else held
    if classes is None:
        classes = 1 + int(max((np.max(labels, initial=1) for _, labels in everything), default=1))
    checks.whole(2, 2**31 - 1, classes=classes)
    check_labels(everything, classes, "Number the classes from 0.")
    checks.not_negative(penalty=penalty)
    data, weight = stack(held, (kind, np.dtype(np.int32)))
    features, weight = jnp.asarray(data[0]), jnp.asarray(weight)
    return SoftmaxRegression(
        data=(features, jnp.asarray(data[1])),
        weight=weight,
        curvature=gram_eigenvalues(features, weight) / 2,  # lambda_max(diag(p) - p p^T) is at most 1/2
        test=None if held_test is None else (jnp.array(held_test[0], kind), jnp.array(held_test[1], jnp.int32)),
        name=name,
        penalty=jnp.asarray(penalty, kind),
        classes=classes,
    )


def _arrays(parts: Sequence[Part], test: Part | None, intercept: bool) -> tuple[list[Any], Any]:
    """Everything as checked numpy arrays, the column of ones appended where it is asked for."""

    def one(part: Part, where: str) -> tuple[np.ndarray, np.ndarray]:
        if issparse(part[0]):
            raise ValueError(f"Expected dense features at {where}, got scipy.sparse. Use sparse_logistic_regression.")
        checks.real(f"See {where}.", features=part[0])
        checks.class_numbers(f"See {where}.", labels=part[1])
        features, labels = np.asarray(part[0]), np.asarray(part[1])
        checks.shape((None, None), f"See {where}.", features=features)
        checks.shape((len(features),), f"See {where}.", labels=labels)
        if intercept:
            features = np.concatenate([features, np.ones((len(features), 1), features.dtype)], axis=1)
        return features, labels

    held = [one(part, f"node {i}") for i, part in enumerate(parts)]
    held_test = None if test is None else one(test, "the test set")
    if held and held_test is not None:
        checks.shape((None, held[0][0].shape[1]), "See the test set.", features=held_test[0])
    return held, held_test


def check_labels(parts: Sequence[Any], classes: int, remedy: str) -> None:
    """ValueError unless the labels of every (features, labels) are among 0..classes-1."""
    for i, (_, labels) in enumerate(parts):
        good = np.isin(labels, np.arange(classes))
        if not good.all():
            wrong = labels[~good][0]
            raise ValueError(f"Expected labels in 0..{classes - 1}, got {wrong} in array {i} of labels. {remedy}")
