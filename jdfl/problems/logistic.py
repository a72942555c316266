"""Classification by linear scores: logistic regression for two classes, softmax regression for more.

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
from scipy.special import expit, logsumexp, softmax

from jdfl.arrays import ops
from jdfl.base import checks, struct
from jdfl.base.arguments import checked
from jdfl.base.settings import MOST
from jdfl.problems.linear import LinearModel
from jdfl.problems.stack import checked_parts, copied, curvatures, floating, stack

Part = tuple[Any, ArrayLike]  # features [q_i, p] and labels [q_i]
_SERIES = 0.5  # |v| below which e^v - 1 - v is summed as a series
_TERMS = 10  # of the series: 0.5^12 / 12! < 1e-12 of the first term
_LARGE = 80.0  # v above which e^v is not formed


@struct.dataclass
class Classifier(LinearModel):
    """A classification by linear scores whose objective has the term penalty/2 ||w||^2."""

    penalty: Array | float = 1e-3  # [] lambda

    def regulariser(self, w: Array) -> Array:
        """penalty/2 ||w||^2 [] of parameters w [n]; an intercept is penalised like every other parameter."""
        return 0.5 * self.penalty * jnp.sum(w * w)

    def scores(self, w: Array, features: Any) -> Array:
        return self.products(w, features)


@struct.dataclass
class LogisticRegression(Classifier):
    """f_i(w) = mean_t ln(1 + e^<a_t, w>) - b_t <a_t, w> + penalty/2 ||w||^2, labels b in {0, 1}.

    data = (features [m, q, n], labels [m, q] of the parameters' floating type). A positive score means class 1.
    """

    def losses(self, w: Array, data: Any) -> Array:
        """ln(1 + e^z_t) - b_t z_t [q] of one node's data, z = A w; finite for every finite z."""
        z = self.products(w, data[0])
        return jax.nn.softplus(z) - data[1] * z

    def slopes(self, w: Array, data: Any) -> Array:
        """1 / (1 + e^-<a_t, w>) - b_t [q] of one node's data."""
        return jax.nn.sigmoid(self.products(w, data[0])) - data[1]

    def divergences(self, w: Array, step: Array, data: Any) -> Array:
        return _binary(self.products(w, data[0]), self.products(step, data[0]))

    def exact(self, scores: np.ndarray, targets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The losses and slopes [N] in float64 of scores [N] and labels in {0, 1}, without the penalty."""
        return np.logaddexp(0, scores) - targets * scores, expit(scores) - targets


@struct.dataclass
class SoftmaxRegression(Classifier):
    """f_i(w) = mean_t ln(sum_c e^z_tc) - z_t,b_t + penalty/2 ||w||^2, z_t = a_t W, labels b in 0..classes-1.

    W [p, classes] is `w.reshape(p, classes)`: n = p classes. data = (features [m, q, p], labels [m, q] int32). The
    class of the largest score is predicted.
    """

    classes: int = struct.field(pytree_node=False, default=2)

    @property
    def n(self) -> int:
        return self.data[0].shape[-1] * self.classes

    @property
    def outputs(self) -> int:
        return self.classes

    def products(self, w: Array, features: Any) -> Array:
        """The scores A W [q, classes] of features A [q, p], or [classes] of one example's [p]."""
        return jnp.dot(features, w.reshape(-1, self.classes), precision=ops.HIGHEST)

    def loss(self, w: Array, example: Any) -> Array:
        a, b = example
        z = self.products(w, a)
        return jax.nn.logsumexp(z) - z[b]

    def losses(self, w: Array, data: Any) -> Array:
        return jax.vmap(self.loss, (None, 0))(w, data)

    def slopes(self, w: Array, data: Any) -> Array:
        """The classes' probabilities, less one for the example's own [q, classes]."""
        a, b = data
        return jax.nn.softmax(self.products(w, a), axis=1) - jax.nn.one_hot(b, self.classes, dtype=a.dtype)

    def spread(self, slopes: Array, data: Any) -> Array:
        return jnp.dot(data[0].T, slopes, precision=ops.HIGHEST).ravel()

    def divergences(self, w: Array, step: Array, data: Any) -> Array:
        return _categorical(self.products(w, data[0]), self.products(step, data[0]))

    def exact(self, scores: np.ndarray, targets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The losses [N] and slopes [N, classes] in float64 of scores [N, classes], without the penalty."""
        own, slopes = (np.arange(len(targets)), targets.astype(np.int64)), softmax(scores, axis=1)
        slopes[own] -= 1
        return logsumexp(scores, axis=1) - scores[own], slopes


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
    """Logistic regression on the nodes' examples of two classes; for sparse rows see `sparse_logistic_regression`.

    Args:
        parts: The features [q_i, p] and the labels [q_i] in {0, 1} of every node i.
        penalty: Weight >= 0 of the squared norm in the objective (halved).
        test: Features [N, p] and labels [N] to test with; None: there are none.
        intercept: Add a constant feature, so that n = p + 1.

    Raises ValueError for other labels, sparse features, shapes that do not fit together and a negative penalty.
    """
    kind = floating(dtype)
    held, held_test = checked_parts(parts, test, kind, "labels", intercept=intercept)
    check_labels([*held, *held_test], 2, "Map the two classes to 0 and 1.")
    fields = _fields(held, held_test, penalty, kind, kind, 1 / 4)  # the logistic function's slope is at most 1/4
    return LogisticRegression(**fields, name=name)


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
    """Softmax regression on the nodes' examples of several classes.

    Args:
        parts: The features [q_i, p] and the labels [q_i] in 0..classes-1 of every node i.
        classes: Number of classes, at least 2; None: the largest label plus one.

    `penalty`, `test`, `intercept`, `name`, `dtype` and what is raised are as for `logistic_regression`.
    """
    kind = floating(dtype)
    held, held_test = checked_parts(parts, test, kind, "labels", intercept=intercept)
    if classes is None:
        classes = 1 + int(max((np.max(labels, initial=1) for _, labels in (*held, *held_test)), default=1))
    checks.integer(2, MOST, classes=classes)
    check_labels([*held, *held_test], classes, "Number the classes from 0.")
    # lambda_max(diag(p) - p p^T) is at most 1/2
    fields = _fields(held, held_test, penalty, kind, np.dtype(np.int32), 1 / 2)
    return SoftmaxRegression(**fields, name=name, classes=classes)


def check_labels(parts: Sequence[Any], classes: int, remedy: str) -> None:
    """Refuse labels that are not the number of a class."""
    for i, (_, labels) in enumerate(parts):
        good = np.isin(labels, np.arange(classes))
        if not good.all():
            wrong = labels[~good][0]
            raise ValueError(f"Expected labels in 0..{classes - 1}, got {wrong} in array {i} of labels. {remedy}")


def _fields(
    held: list[Any], held_test: list[Any], penalty: float, kind: np.dtype, label_kind: np.dtype, slope: float
) -> dict[str, Any]:
    """The fields of a dense classifier; `slope` bounds the curvature of the loss in its scores."""
    checks.not_negative(penalty=penalty)
    parts = stack(held, (kind, label_kind))
    data, weight, blocks = jax.device_put(parts)  # asarray would compile a program for every shape
    known = (data[0], weight, None) if blocks is None else (parts[0][0], *parts[1:])
    return {
        "data": data,
        "weight": weight,
        "blocks": blocks,
        "curvature": curvatures(*known) * slope,
        "test": (copied(held_test[0][0], kind), copied(held_test[0][1], label_kind)) if held_test else None,
        "penalty": copied(penalty, kind),
    }


# How much a loss exceeds its tangent. For a convex objective f with minimiser w*, f(w) - f(w*) is the mean of
# loss(w) - loss(w*) - loss'(w*) (w - w*) over the examples, since the gradient of f vanishes at w*. Every term is at
# least zero, so that the sum has the relative accuracy of its terms, however close w is to w*; the difference of two
# objectives has the absolute accuracy of an objective.


def _binary(scores: Array, changes: Array) -> Array:
    """How much ln(1 + e^z) exceeds its tangent at `scores` [q] where z changes by `changes` [q]; [q], at least zero."""
    both = jnp.stack([jnp.zeros_like(scores), scores], axis=-1)
    return _categorical(both, jnp.stack([jnp.zeros_like(changes), changes], axis=-1))


def _categorical(scores: Array, changes: Array) -> Array:
    """How much ln(sum_c e^z_c) exceeds its tangent at `scores` [q, c] where z changes by `changes` [q, c].

    With p = softmax(scores) and v = changes - <p, changes> it is ln(1 + sum_c p_c (e^v_c - 1 - v_c)) [q], in which no
    terms cancel.
    """
    logs = jax.nn.log_softmax(scores, axis=-1)
    p = jnp.exp(logs)
    v = changes - jnp.sum(p * changes, axis=-1, keepdims=True)
    small = jnp.log1p(jnp.sum(p * _beyond_linear(jnp.minimum(v, _LARGE)), axis=-1))
    large = jax.nn.logsumexp(logs + v, axis=-1)
    return jnp.where(jnp.max(v, axis=-1) > _LARGE, large, small)


def _beyond_linear(v: Array) -> Array:
    """e^v - 1 - v for v <= 80, at least zero."""
    total = jnp.ones_like(v)
    for k in range(_TERMS + 2, 2, -1):  # v^2/2 (1 + v/3 (1 + v/4 (...)))
        total = 1.0 + v / k * total
    near = jnp.abs(v) < _SERIES
    return jnp.where(near, 0.5 * v * v * jnp.where(near, total, 1.0), jnp.expm1(v) - v)
