"""Minimisers of mean_i f_i on the host, in float64, with all data in one place, and bounds on what they leave.

Axes: N examples of all nodes, p features, n parameters.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize
from scipy.sparse import issparse, vstack

from jdfl.problems.linear import Averaging, LinearModel, LinearRegression
from jdfl.problems.logistic import Classifier
from jdfl.problems.sparse import SparseLogisticRegression

_EPS = float(np.finfo(np.float64).eps)
_ROUNDING = 16 * _EPS  # of a gradient, relative to the largest terms that are added up in it
_NEWTON, _INNER = 8, 250  # steps of Newton's method, and of conjugate gradients in each
_DENSE = 2000  # parameters up to which the smallest curvature is computed where no penalty bounds it


class Minimum(NamedTuple):
    """A minimiser and what is known about it."""

    w: np.ndarray  # [n]
    value: float
    gradient: np.ndarray  # [n]
    accuracy: float  # bound on value - minimum; NaN where there is none


class Quadratic:
    """w^T H w / 2 - g^T w + c: least squares through its normal equations, and averaging."""

    def __init__(self, problem: LinearRegression | Averaging) -> None:
        n = problem.n
        if isinstance(problem, Averaging):
            vectors = np.asarray(problem.data, np.float64)[:, 0]
            self.hessian, self.g, self.c = np.eye(n), vectors.mean(axis=0), 0.5 * float((vectors**2).sum(1).mean())
            return
        self.hessian, self.g, self.c = np.zeros((n, n)), np.zeros(n), 0.0
        for X, y, c in problem.host_examples():
            self.hessian += X.T @ (c[:, None] * X)
            self.g += X.T @ (c * y)
            self.c += 0.5 * float(c @ (y * y))

    def at(self, w: np.ndarray) -> tuple[float, np.ndarray]:
        """The objective and its gradient [n] at w [n]."""
        return 0.5 * float(w @ self.hessian @ w) - float(self.g @ w) + self.c, self.hessian @ w - self.g

    def minimise(self, free: np.ndarray, tolerance: float, *, proven: bool = False) -> Minimum:
        """The minimiser whose entries outside `free` are zero; a bound on what it leaves comes at no cost."""
        scale, basis = np.linalg.eigh(self.hessian[np.ix_(free, free)])
        kept = scale > scale[-1] * len(free) * _EPS
        scale, basis = scale[kept], basis[:, kept]
        w = np.zeros(len(self.g))
        w[free] = basis @ ((basis.T @ self.g[free]) / scale)
        w[free] -= basis @ ((basis.T @ self.at(w)[1][free]) / scale)  # what the first solution has lost to rounding
        value, gradient = self.at(w)
        _converged(gradient[free], tolerance, "the normal equations")
        size = float(scale[-1] * np.linalg.norm(w) + np.linalg.norm(self.g)) if len(scale) else 0.0
        return Minimum(w, value, gradient, _left(gradient[free], size, float(scale[0]) if len(scale) else np.inf))


class Linked:
    """Logistic or softmax regression through its scores."""

    def __init__(self, problem: LinearModel) -> None:
        nodes, rest = problem.host_examples(), list[tuple[np.ndarray, np.ndarray]]()
        if isinstance(problem, SparseLogisticRegression):
            X, *others = zip(*nodes)
            features: Any = vstack(X, format="csc")  # columns are taken
            rest.extend(zip(*others))
        else:  # the features are the largest thing there is: once in float64, and no more
            ends = np.cumsum(np.asarray(problem.sizes))
            features = np.empty((ends[-1], problem.n // problem.outputs))
            for end, (rows, y, c) in zip(ends, nodes):
                features[end - len(y) : end] = rows
                rest.append((y, c))
        self.X, self.problem, self.penalty = features, problem, penalty_of(problem)
        self.y, self.c = (np.concatenate(arrays) for arrays in zip(*rest))

    def at(self, w: np.ndarray, features: Any = None) -> tuple[float, np.ndarray]:
        """The objective and its gradient [n] at w [n], for some of the features, or all."""
        X = self.X if features is None else features
        losses, slopes = self.problem.exact(X @ shaped(self.problem, w), self.y)
        gradient = X.T @ (self._each(slopes) * slopes)
        value = float(self.c @ losses) + 0.5 * self.penalty * float(w @ w)
        return value, gradient.ravel() + self.penalty * w

    def minimise(self, free: np.ndarray, tolerance: float, *, proven: bool = False) -> Minimum:
        """The minimiser whose entries outside `free` are zero; `proven`: as exact as float64 allows, and bounded."""
        each = self.problem.outputs
        used = np.unique(free // each)  # only these features matter while the other parameters are zero
        X = self.X if len(used) == self.X.shape[1] else self.X[:, used]
        at = np.searchsorted(used, free // each) * each + free % each
        small = np.zeros(X.shape[1] * each)

        def both(v: np.ndarray) -> tuple[float, np.ndarray]:
            small[at] = v
            value, gradient = self.at(small, X)
            return value, gradient[at]

        options = {"maxiter": 20_000, "maxfun": 40_000, "ftol": 0.0, "gtol": tolerance / np.sqrt(len(at)), "maxcor": 30}
        found: np.ndarray = minimize(both, np.zeros(len(at)), jac=True, method="L-BFGS-B", options=options).x
        w = np.zeros(self.problem.n)
        if proven and len(free) == self.problem.n:
            found = self._refined(found)
        w[free] = found
        value, gradient = self.at(w)
        _converged(gradient[free], tolerance, "L-BFGS")
        return Minimum(w, value, gradient, self._accuracy(w, gradient) if proven else np.nan)

    def _each(self, x: np.ndarray) -> np.ndarray:
        """The examples' coefficients [N] as factors of x [N] or [N, outputs]."""
        return self.c if x.ndim == 1 else self.c[:, None]

    def _hessian(self, w: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
        """The product of the Hessian at w [n] with v [n]."""
        _, slopes = self.problem.exact(self.X @ shaped(self.problem, w), self.y)
        if slopes.ndim == 1:
            p = slopes + self.y

            def curved(u: np.ndarray) -> np.ndarray:
                return p * (1 - p) * u
        else:
            p = slopes.copy()
            p[np.arange(len(p)), self.y.astype(np.int64)] += 1

            def curved(u: np.ndarray) -> np.ndarray:
                return p * (u - (p * u).sum(axis=1, keepdims=True))

        def times(v: np.ndarray) -> np.ndarray:
            u = curved(self.X @ shaped(self.problem, v))
            return (self.X.T @ (self._each(u) * u)).ravel() + self.penalty * v

        return times

    def _refined(self, w: np.ndarray) -> np.ndarray:
        """The minimiser [n] by Newton's method from w [n] close to it, until the gradient does not fall any more."""
        gradient = self.at(w)[1]
        for _ in range(_NEWTON):
            if np.linalg.norm(gradient) <= _EPS * self._size(w):
                break
            new = w - _solved(self._hessian(w), gradient)
            after = self.at(new)[1]
            if not np.linalg.norm(after) < 0.5 * np.linalg.norm(gradient):
                break
            w, gradient = new, after
        return w

    def _size(self, w: np.ndarray) -> float:
        """The length of the terms that are added up in the gradient at w [n]."""
        _, slopes = self.problem.exact(self.X @ shaped(self.problem, w), self.y)
        steepness = np.abs(slopes) if slopes.ndim == 1 else np.linalg.norm(slopes, axis=1)
        return float((self.c * steepness) @ self._lengths()) + self.penalty * float(np.linalg.norm(w))

    def _lengths(self) -> np.ndarray:
        """||a_t|| [N] of every example."""
        squares = self.X.multiply(self.X) if issparse(self.X) else None
        return np.sqrt(np.einsum("ij,ij->i", self.X, self.X) if squares is None else np.asarray(squares.sum(1)).ravel())

    def _accuracy(self, w: np.ndarray, gradient: np.ndarray) -> float:
        """A bound on the objective at w [n] less the minimum; NaN where none is known.

        With a penalty f is strongly convex. Without one it is so near w: a logistic loss's curvature changes by a
        factor of at most e within r = 1 / max ||a_t|| of w, and a gradient shorter than mu r / (2 e) keeps the
        minimiser within r (compare f on the sphere of radius r with f(w)).
        """
        size = self._size(w)
        if self.penalty > 0:
            return _left(gradient, size, self.penalty)
        if self.problem.outputs > 1 or self.problem.n > _DENSE:
            return np.nan
        p = self.problem.exact(self.X @ w, self.y)[1] + self.y
        curved = self.c * p * (1 - p)
        dense = self.X.T @ (self.X.multiply(curved[:, None]) if issparse(self.X) else curved[:, None] * self.X)
        scale = np.linalg.eigvalsh(dense.toarray() if issparse(dense) else dense)
        mu, radius = float(scale[0]) - _ROUNDING * float(scale[-1]), 1 / float(self._lengths().max())
        close = np.linalg.norm(gradient) + _ROUNDING * size < mu * radius / (2 * np.e)
        return _left(gradient, size, mu / np.e) if close else np.nan


def penalty_of(problem: Any) -> float:
    """The weight of ||w||^2 / 2 in the objective of a problem."""
    return float(problem.penalty) if isinstance(problem, Classifier) else 0.0


def shaped(problem: LinearModel, w: np.ndarray) -> np.ndarray:
    """Parameters w [n] as what features [N, p] are multiplied by to give scores."""
    return w if problem.outputs == 1 else w.reshape(-1, problem.outputs)


def _left(gradient: np.ndarray, size: float, convexity: float) -> float:
    """||gradient||^2 / (2 mu), a bound on f minus its minimum, with the gradient's rounding added to the gradient."""
    return float((np.linalg.norm(gradient) + _ROUNDING * size) ** 2 / (2 * convexity))


def _solved(times: Callable[[np.ndarray], np.ndarray], b: np.ndarray) -> np.ndarray:
    """The x [n] with times(x) = b [n], by conjugate gradients, to four digits or as far as they come."""
    x, rest, along = np.zeros_like(b), b.copy(), b.copy()
    squared = first = float(rest @ rest)
    for _ in range(_INNER):
        image = times(along)
        step = squared / float(along @ image)
        x, rest = x + step * along, rest - step * image
        before, squared = squared, float(rest @ rest)
        if squared <= 1e-8 * first:
            break
        along = rest + (squared / before) * along
    return x


def _converged(gradient: np.ndarray, tolerance: float, method: str) -> None:
    norm = float(np.linalg.norm(gradient))
    if not norm <= tolerance:
        raise RuntimeError(f"Expected a gradient norm <= {tolerance:g}, got {norm:g} from {method}: no minimum found.")
