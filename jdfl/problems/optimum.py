"""The centralised yardsticks: what all data in one place would reach. Host only, float64.

Everything minimises mean_i f_i(w). Axes: m nodes, N examples of all nodes, p features, n parameters.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import minimize
from scipy.sparse import vstack
from scipy.special import expit, logsumexp, softmax, xlogy

from jdfl import checks
from jdfl.arguments import checked
from jdfl.problems.base import Problem
from jdfl.problems.drawn import DrawnRegression
from jdfl.problems.jagged import to_csr
from jdfl.problems.linear import LinearRegression
from jdfl.problems.logistic import LogisticRegression, SoftmaxRegression
from jdfl.problems.sparse import SparseLogisticRegression

_DRAWN = 256  # nodes whose examples are drawn at a time


@dataclass(frozen=True)
class Optimum:
    """Parameters and their objective mean_i f_i(w)."""

    w: np.ndarray  # [n] float64
    value: float  # mean_i f_i(w)


@checked
def optimum(problem: Problem, *, tolerance: float = 1e-6) -> Optimum:
    """The minimiser of mean_i f_i: normal equations for least squares, L-BFGS for logistic and softmax.

    Least squares with fewer examples than parameters gives the minimiser of least norm. RuntimeError if the gradient
    norm of the result exceeds `tolerance`, ValueError if that is not positive or data is not finite, TypeError for
    other problems. With penalty 0 and separable classes there is no minimiser, only points of ever smaller gradient:
    the result is one of them.
    """
    checks.positive(tolerance=tolerance)
    return _objective(problem).minimise(np.arange(problem.n), tolerance)


@checked
def sparse_optimum(
    problem: Problem,
    s: int,
    *,
    start: ArrayLike | None = None,
    steps: int = 1000,
    tolerance: float = 1e-6,
) -> Optimum:
    """A sparse point that all data in one place would reach: iterative hard thresholding with debiasing.

    From w, the minimiser on its support, try P_s(w - t grad) for t = 2^15/L, 2^14/L, ..., 1/L, each replaced by the
    minimiser on its own support, and move to the first that is lower; done when none is. Starts at `start` [n], else
    at the problem's truth, else at zero. The result is a stationary point of min mean_i f_i subject to
    ||w||_0 <= s (a thresholding step of length 1/L keeps its support); nothing proves it to be the global minimum.
    Minimisers on a support are found to `tolerance`, as by `optimum`. RuntimeError if the support still changes after
    `steps` moves, ValueError for settings out of range and a start of another shape.
    """
    checks.whole(most=problem.n, s=s)
    checks.whole(steps=steps)
    checks.positive(tolerance=tolerance)
    if start is not None:
        checks.real(start=start)
    smooth = _objective(problem)
    first = problem.truth if start is None else start
    w = np.zeros(problem.n) if first is None else np.array(first, dtype=np.float64)
    checks.shape((problem.n,), start=w)
    L = float(np.mean(np.asarray(problem.curvature, np.float64))) + _penalty(problem) or 1.0  # 0: constant
    free = _support(w, s)
    best = smooth.minimise(free, tolerance) if free.size else Optimum(w, smooth.value(w))
    for _ in range(steps):
        gradient = smooth.gradient(best.w)
        tried = {tuple(_support(best.w, s))}
        for t in 2.0 ** np.arange(15, -1, -1) / L:
            free = _support(best.w - t * gradient, s)
            if tuple(free) in tried or not free.size:
                continue
            tried.add(tuple(free))
            found = smooth.minimise(free, tolerance)
            if found.value < best.value - 1e-12 * abs(best.value):
                best = found
                break
        else:
            return best
    raise RuntimeError(f"The support still changed after steps = {steps}. Allow more steps.")


@checked
def value_at(problem: Problem, w: ArrayLike) -> float:
    """mean_i f_i(w) in float64, for parameters w [n]; ValueError for another shape."""
    checks.real(w=w)
    point = np.asarray(w, dtype=np.float64)
    checks.shape((problem.n,), w=point)
    return sum(float(c @ _losses(problem, point, X, y)) for X, y, c in _nodes(problem)) + _ridge(problem, point)


@checked
def value_at_truth(problem: Problem) -> float:
    """mean_i f_i at the generating parameters, in float64; ValueError where they are not known."""
    if problem.truth is None:
        raise ValueError(f"Expected a problem with known truth, got none in {problem.name!r}.")
    return value_at(problem, np.asarray(problem.truth))


@checked
def base_rate(problem: Problem) -> float:
    """The objective of always predicting the classes' frequencies: the entropy of the labels in nats, no penalty.

    A classifier that is not below it has learnt nothing. Every node counts 1/m, as in mean_i f_i. TypeError for a
    problem without classes.
    """
    if not isinstance(problem, LogisticRegression | SoftmaxRegression):
        raise TypeError(f"Expected a classification problem, got {type(problem).__name__}.")
    classes = problem.classes if isinstance(problem, SoftmaxRegression) else 2
    share = np.zeros(classes)
    for _, y, c in _nodes(problem):
        share += np.bincount(y.astype(np.int64), weights=c, minlength=classes)
    return -float(xlogy(share, share).sum())


def _support(w: np.ndarray, s: int) -> np.ndarray:
    """The places of the nonzeros among the `s` entries of w [n] largest in magnitude, ascending."""
    kept = np.argsort(-np.abs(w), kind="stable")[:s]
    return np.sort(kept[w[kept] != 0])


def _nodes(problem: Problem) -> Iterator[tuple[Any, np.ndarray, np.ndarray]]:
    """Each node's features [q_i, p], targets [q_i] and coefficients [q_i] in mean_i f_i, float64, without padding.

    The features are a numpy array, or a scipy CSR array where the problem keeps them sparse. Examples that are not
    stored are drawn for some nodes at a time. ValueError for numbers that are not finite.
    """
    if isinstance(problem, DrawnRegression):
        for first in range(0, problem.m, _DRAWN):
            part = problem.nodes(jnp.arange(first, min(problem.m, first + _DRAWN)))
            yield from ((X, y, c * (part.m / problem.m)) for X, y, c in _nodes(part.stored()))
        return
    features, targets, weights = problem.data[0], np.asarray(problem.data[1]), np.asarray(problem.weight)
    dense = None if isinstance(problem, SparseLogisticRegression) else np.asarray(features)
    for i, (target, weight) in enumerate(zip(targets, weights)):
        rows: Any = to_csr(features, i, problem.n) if dense is None else dense[i]
        real = weight > 0
        c = weight[real].astype(np.float64)
        X, y = rows[real].astype(np.float64), target[real].astype(np.float64)
        checks.finite(f"They are those of node {i}.", features=X if dense is not None else X.data, targets=y, weight=c)
        yield X, y, c / (c.sum() * problem.m)


def _ridge(problem: Problem, w: np.ndarray) -> float:
    return 0.5 * _penalty(problem) * float(w @ w)


def _penalty(problem: Problem) -> float:
    return float(problem.penalty) if isinstance(problem, LogisticRegression | SoftmaxRegression) else 0.0


def _losses(problem: Problem, w: np.ndarray, X: Any, y: np.ndarray) -> np.ndarray:
    """The losses [N] of examples (X [N, p], y [N])."""
    if isinstance(problem, LinearRegression):
        return 0.5 * (X @ w - y) ** 2
    if isinstance(problem, LogisticRegression):
        z = X @ w
        return np.logaddexp(0, z) - y * z
    if isinstance(problem, SoftmaxRegression):
        Z = X @ w.reshape(-1, problem.classes)
        return logsumexp(Z, axis=1) - Z[np.arange(len(y)), y.astype(np.int64)]
    raise TypeError(f"Expected a linear, logistic or softmax regression, got {type(problem).__name__}.")


class _Quadratic:
    """Least squares through its normal equations: w^T H w / 2 - g^T w + c."""

    def __init__(self, problem: LinearRegression) -> None:
        n = problem.n
        self.hessian, self.g, self.c = np.zeros((n, n)), np.zeros(n), 0.0
        for X, y, c in _nodes(problem):
            self.hessian += X.T @ (c[:, None] * X)
            self.g += X.T @ (c * y)
            self.c += 0.5 * float(c @ (y * y))

    def value(self, w: np.ndarray) -> float:
        return 0.5 * float(w @ self.hessian @ w) - float(self.g @ w) + self.c

    def gradient(self, w: np.ndarray) -> np.ndarray:
        return self.hessian @ w - self.g

    def minimise(self, free: np.ndarray, tolerance: float) -> Optimum:
        scale, basis = np.linalg.eigh(self.hessian[np.ix_(free, free)])
        kept = scale > scale[-1] * len(free) * np.finfo(np.float64).eps
        basis = basis[:, kept]
        w = np.zeros(len(self.g))
        w[free] = basis @ ((basis.T @ self.g[free]) / scale[kept])
        _converged(self.gradient(w)[free], tolerance, "the normal equations")
        return Optimum(w, self.value(w))


class _Linked:
    """Logistic or softmax regression through its scores."""

    def __init__(self, problem: LogisticRegression | SoftmaxRegression) -> None:
        if isinstance(problem, SparseLogisticRegression):
            X, y, c = zip(*_nodes(problem))
            features: Any = vstack(X, format="csc")  # columns are taken
        else:  # the features are the largest thing there is: once in float64, and no more
            sizes = np.asarray(problem.sizes)
            features = np.empty((sizes.sum(), problem.data[0].shape[-1]))
            rest: list[tuple[np.ndarray, np.ndarray]] = []
            for end, size, (rows, *others) in zip(np.cumsum(sizes), sizes, _nodes(problem)):
                features[end - size : end] = rows
                rest.append((others[0], others[1]))
            y, c = zip(*rest)
        self.X, self.y, self.c = features, np.concatenate(y), np.concatenate(c)
        self.problem, self.penalty = problem, _penalty(problem)
        self.scores = problem.classes if isinstance(problem, SoftmaxRegression) else 1  # per example

    def value(self, w: np.ndarray, features: Any = None) -> float:
        X = self.X if features is None else features
        return float(self.c @ _losses(self.problem, w, X, self.y)) + _ridge(self.problem, w)

    def gradient(self, w: np.ndarray, features: Any = None) -> np.ndarray:
        X = self.X if features is None else features
        if isinstance(self.problem, SoftmaxRegression):
            slope = softmax(X @ w.reshape(-1, self.scores), axis=1)
            slope[np.arange(len(self.y)), self.y.astype(np.int64)] -= 1
            return (X.T @ (self.c[:, None] * slope)).ravel() + self.penalty * w
        return X.T @ (self.c * (expit(X @ w) - self.y)) + self.penalty * w

    def minimise(self, free: np.ndarray, tolerance: float) -> Optimum:
        used = np.unique(free // self.scores)  # only these features matter while the other parameters are zero
        X = self.X if len(used) == self.X.shape[1] else self.X[:, used]
        at = np.searchsorted(used, free // self.scores) * self.scores + free % self.scores
        small = np.zeros(X.shape[1] * self.scores)

        def both(v: np.ndarray) -> tuple[float, np.ndarray]:
            small[at] = v
            return self.value(small, X), self.gradient(small, X)[at]

        options = {"maxiter": 20_000, "maxfun": 40_000, "ftol": 0.0, "gtol": tolerance / np.sqrt(len(at)), "maxcor": 30}
        found = minimize(both, np.zeros(len(at)), jac=True, method="L-BFGS-B", options=options)
        value, gradient = both(found.x)
        _converged(gradient, tolerance, "L-BFGS")
        w = np.zeros(self.problem.n)
        w[free] = found.x
        return Optimum(w, value)


def _objective(problem: Problem) -> _Quadratic | _Linked:
    if isinstance(problem, LinearRegression):
        return _Quadratic(problem)
    if isinstance(problem, LogisticRegression | SoftmaxRegression):
        return _Linked(problem)
    raise TypeError(f"Expected a linear, logistic or softmax regression, got {type(problem).__name__}.")


def _converged(gradient: np.ndarray, tolerance: float, method: str) -> None:
    norm = float(np.linalg.norm(gradient))
    if not norm <= tolerance:
        raise RuntimeError(f"Expected a gradient norm <= {tolerance:g}, got {norm:g} from {method}: no minimum found.")
