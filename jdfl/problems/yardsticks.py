"""The centralised yardsticks: what all data in one place would reach. Host only, float64.

Everything minimises mean_i f_i(w). Axes: m nodes, N examples of all nodes, p features, n parameters.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import minimize
from scipy.sparse import vstack
from scipy.special import xlogy

from jdfl.base import checks
from jdfl.base.arguments import checked
from jdfl.problems.base import Problem
from jdfl.problems.linear import LinearModel, LinearRegression
from jdfl.problems.logistic import Classifier
from jdfl.problems.sparse import SparseLogisticRegression


@dataclass(frozen=True)
class Optimum:
    """Parameters [n] in float64 and their objective mean_i f_i(w), found with all data in one place.

    `optimum` and `sparse_optimum` give it. Its `value` is what the `objective` of a run is compared with, and `w` what
    its parameters are; no node of a decentralised run could compute either.
    """

    w: np.ndarray  # [n] float64
    value: float  # mean_i f_i(w)


@checked
def optimum(problem: Problem, *, tolerance: float = 1e-6) -> Optimum:
    """The minimiser of mean_i f_i: normal equations for least squares, L-BFGS for logistic and softmax.

    Least squares with fewer examples than parameters gives the minimiser of least norm. With penalty 0 and separable
    classes there is no minimiser, only points of ever smaller gradient: the result is one of them.

    Args:
        problem: A linear, logistic or softmax regression.
        tolerance: Largest gradient norm > 0 of the result.

    Raises RuntimeError if the gradient norm of the result exceeds `tolerance`, ValueError if that is not positive or
    data is not finite, TypeError for other problems.
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
    minimiser on its own support, and move to the first that is lower; done when none is. The result is a stationary
    point of min mean_i f_i subject to ||w||_0 <= s (a thresholding step of length 1/L keeps its support); nothing
    proves it to be the global minimum.

    Args:
        problem: A linear, logistic or softmax regression.
        s: Most nonzeros, 1 to n.
        start: Parameters [n] to start from; None: the problem's truth, or zero where that is not known.
        steps: Most moves, at least 1.
        tolerance: Largest gradient norm > 0 of the minimisers on a support, as for `optimum`.

    Raises RuntimeError if the support still changes after `steps` moves, ValueError for settings out of range and a
    start of another shape, TypeError for other problems.
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
    best = smooth.minimise(free, tolerance) if free.size else Optimum(w, smooth.at(w)[0])
    for _ in range(steps):
        gradient = smooth.at(best.w)[1]
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
    """mean_i f_i(w) in float64.

    Computed on the host from all nodes' examples, penalty included. The metric `objective` of a run is the same at the
    average of the nodes' parameters, in the type and with the rounding of the device.

    Args:
        problem: A linear, logistic or softmax regression.
        w: Parameters [n].

    Raises ValueError for parameters of another shape, TypeError for other problems.
    """
    model = _known(problem)
    checks.real(w=w)
    point = np.asarray(w, dtype=np.float64)
    checks.shape((model.n,), w=point)
    shaped = _shaped(model, point)
    mean = sum(float(c @ model.exact(X @ shaped, y)[0]) for X, y, c in model.host_examples())
    return mean + 0.5 * _penalty(model) * float(point @ point)


@checked
def value_at_truth(problem: Problem) -> float:
    """mean_i f_i at the generating parameters, in float64.

    It says what noise in the data leaves, and is no minimum: the value of `optimum` is no larger, up to its tolerance.

    Args:
        problem: A linear, logistic or softmax regression.

    Raises ValueError where its `truth` is not known, TypeError for other problems.
    """
    if problem.truth is None:
        raise ValueError(f"Expected a problem with known truth, got none in {problem.name!r}.")
    return value_at(problem, np.asarray(problem.truth))


@checked
def base_rate(problem: Problem) -> float:
    """The objective of always predicting the classes' frequencies: the entropy of the labels in nats, no penalty.

    A classifier that is not below it has learnt nothing. Every node counts 1/m, as in mean_i f_i.

    Args:
        problem: A logistic or softmax regression.

    Raises TypeError for a problem without classes.
    """
    if not isinstance(problem, Classifier):
        raise TypeError(f"Expected a classification problem, got {type(problem).__name__}.")
    share = np.zeros(max(2, problem.outputs))
    for _, y, c in problem.host_examples():
        share += np.bincount(y.astype(np.int64), weights=c, minlength=len(share))
    return -float(xlogy(share, share).sum())


def _support(w: np.ndarray, s: int) -> np.ndarray:
    """The places of the nonzeros among the `s` entries of w [n] largest in magnitude, ascending."""
    kept = np.argsort(-np.abs(w), kind="stable")[:s]
    return np.sort(kept[w[kept] != 0])


def _known(problem: Problem) -> LinearModel:
    if not isinstance(problem, LinearModel):
        raise TypeError(f"Expected a linear, logistic or softmax regression, got {type(problem).__name__}.")
    return problem


def _shaped(problem: LinearModel, w: np.ndarray) -> np.ndarray:
    """Parameters [n] as what features [N, p] are multiplied by to give scores."""
    return w if problem.outputs == 1 else w.reshape(-1, problem.outputs)


def _penalty(problem: Problem) -> float:
    return float(problem.penalty) if isinstance(problem, Classifier) else 0.0


class _Quadratic:
    """Least squares through its normal equations: w^T H w / 2 - g^T w + c."""

    def __init__(self, problem: LinearRegression) -> None:
        n = problem.n
        self.hessian, self.g, self.c = np.zeros((n, n)), np.zeros(n), 0.0
        for X, y, c in problem.host_examples():
            self.hessian += X.T @ (c[:, None] * X)
            self.g += X.T @ (c * y)
            self.c += 0.5 * float(c @ (y * y))

    def at(self, w: np.ndarray) -> tuple[float, np.ndarray]:
        """The objective and its gradient [n] at w [n]."""
        return 0.5 * float(w @ self.hessian @ w) - float(self.g @ w) + self.c, self.hessian @ w - self.g

    def minimise(self, free: np.ndarray, tolerance: float) -> Optimum:
        """The minimiser whose entries outside `free` are zero."""
        scale, basis = np.linalg.eigh(self.hessian[np.ix_(free, free)])
        kept = scale > scale[-1] * len(free) * np.finfo(np.float64).eps
        basis = basis[:, kept]
        w = np.zeros(len(self.g))
        w[free] = basis @ ((basis.T @ self.g[free]) / scale[kept])
        value, gradient = self.at(w)
        _converged(gradient[free], tolerance, "the normal equations")
        return Optimum(w, value)


class _Linked:
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
        self.X, self.problem, self.penalty = features, problem, _penalty(problem)
        self.y, self.c = (np.concatenate(arrays) for arrays in zip(*rest))

    def at(self, w: np.ndarray, features: Any = None) -> tuple[float, np.ndarray]:
        """The objective and its gradient [n] at w [n], for some of the features, or all."""
        X = self.X if features is None else features
        losses, slopes = self.problem.exact(X @ _shaped(self.problem, w), self.y)
        gradient = X.T @ ((self.c if slopes.ndim == 1 else self.c[:, None]) * slopes)
        value = float(self.c @ losses) + 0.5 * self.penalty * float(w @ w)
        return value, gradient.ravel() + self.penalty * w

    def minimise(self, free: np.ndarray, tolerance: float) -> Optimum:
        """The minimiser whose entries outside `free` are zero."""
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
        found = minimize(both, np.zeros(len(at)), jac=True, method="L-BFGS-B", options=options)
        value, gradient = both(found.x)
        _converged(gradient, tolerance, "L-BFGS")
        w = np.zeros(self.problem.n)
        w[free] = found.x
        return Optimum(w, value)


def _objective(problem: Problem) -> _Quadratic | _Linked:
    return _Quadratic(problem) if isinstance(problem, LinearRegression) else _Linked(_known(problem))


def _converged(gradient: np.ndarray, tolerance: float, method: str) -> None:
    norm = float(np.linalg.norm(gradient))
    if not norm <= tolerance:
        raise RuntimeError(f"Expected a gradient norm <= {tolerance:g}, got {norm:g} from {method}: no minimum found.")
