"""What an algorithm with all data in one place would reach: minimisers of mean_i f_i and other references.

Host only, float64. Axes: m nodes, N examples of all nodes, p features, n parameters.
"""

import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

import jax.numpy as jnp
import numpy as np
import scipy
from numpy.typing import ArrayLike
from scipy.sparse import issparse, vstack
from scipy.sparse.linalg import LinearOperator, cg
from scipy.special import xlogy

from jdfl.base import checks
from jdfl.base.arguments import checked
from jdfl.problems.base import Optimum, Problem
from jdfl.problems.linear import Averaging, LinearModel, LinearRegression
from jdfl.problems.logistic import Classifier
from jdfl.problems.sparse import SparseLogisticRegression

P = TypeVar("P", bound=Problem)
_EPS = float(np.finfo(np.float64).eps)
_ROUNDING = 16 * _EPS  # of a gradient, relative to the largest terms that are added up in it
_NEWTON, _INNER = 8, 250  # steps of Newton's method, and of conjugate gradients in each
_DENSE = 2000  # parameters up to which the smallest curvature is computed where no penalty bounds it
_known_optima: dict[int, tuple[weakref.ref[Any], Optimum]] = {}  # of problems that are still there, by id


@checked
def optimum(problem: Problem, *, tolerance: float = 1e-6) -> Optimum:
    """The minimiser of mean_i f_i: normal equations for least squares, L-BFGS and Newton for logistic and softmax.

    Its `accuracy` bounds value - min f by strong convexity, ||gradient||^2 / (2 mu), the rounding of the gradient
    included: mu is the least curvature of least squares, and the penalty of a classification; of a logistic regression
    without penalty it is the curvature at the result, which bounds that near it. NaN: nothing is proven.

    Least squares with fewer examples than parameters gives the minimiser of least norm. With penalty 0 and separable
    classes there is no minimiser, only points of ever smaller gradient: the result is one of them.

    Args:
        problem: A linear, logistic or softmax regression, or one of `averaging`.
        tolerance: Largest gradient norm > 0 of the result.

    Raises RuntimeError if the gradient norm of the result exceeds `tolerance`, ValueError if that is not positive or
    data is not finite, TypeError for other problems.
    """
    checks.positive(tolerance=tolerance)
    return _reference(problem, _objective(problem).minimise(np.arange(problem.n), tolerance, proven=True))


@checked
def solved(problem: P) -> P:
    """The problem with its `optimum`, from which the metrics `suboptimality` and `distance_to_optimum` are computed.

    Runs that are asked for these metrics by name do this themselves. The result is kept for as long as the problem is,
    so that another run on the same problem does not compute it again. A problem that has an optimum keeps it, if it
    fits the data.

    Args:
        problem: A linear, logistic or softmax regression with a unique minimum, or one of `averaging`, whose parameters
            are common to all nodes. Of any other problem a value that is known is given as
            `problem.replace(optimum=jdfl.problems.Optimum(w, value))`.

    Raises ValueError for problems whose minimum is not known to be one, and for an optimum of other data.
    """
    checks.able(("data", "weight", "value"), "a problem", "jdfl.problems builds one.", problem=problem)
    known = _known_optima.get(id(problem))
    if known is None or known[0]() is not problem:
        place = id(problem)
        known = weakref.ref(problem, lambda _: _known_optima.pop(place, None)), _found(problem)
        _known_optima[place] = known
    return problem if problem.optimum is not None else replace(problem, optimum=known[1])


def _found(problem: Problem) -> Optimum:
    """The optimum that a problem has or should have; ValueError where there is none, or another one."""
    given = problem.optimum
    if given is not None:
        if given.gradient is not None and isinstance(problem, LinearModel):
            value = value_at(problem, np.asarray(given.w))
            if not np.isclose(value, float(given.value), rtol=1e-6, atol=1e-12):
                raise ValueError(
                    f"Expected an optimum of these data, got one with objective {float(given.value):g}, which is "
                    f"{value:g} here. Drop it: problem.replace(optimum=None)."
                )
        return given
    if not solvable(problem):
        raise ValueError(
            f"Expected a convex problem of jdfl.problems whose parameters are common to all nodes, got {problem.name}, "
            "whose optimum is not known. Give a reference: problem.replace(optimum=jdfl.problems.Optimum(w, value))."
        )
    best = optimum(problem)
    if np.isnan(best.accuracy):
        raise ValueError(
            f"Expected a problem with one minimum, got {problem.name} with penalty = 0, which may have none, or many. "
            "Give it a penalty > 0."
        )
    return best


def solvable(problem: Problem) -> bool:
    """Whether `solved` knows how to find the optimum: linear models and averaging, all parameters in common."""
    return isinstance(problem, LinearModel | Averaging) and problem.n_shared == problem.n


@checked
def suboptimality_floor(problem: Problem) -> float:
    """The suboptimality below which a run on this problem says nothing: where axes and fits of rates should end.

    It is the larger one of the accuracy of `problem.optimum` and of what parameters in the problem's type can reach:
    those next to w* leave about L (u ||w*||)^2 / 2, with the rounding unit u and the mean curvature L of the nodes.
    Where the objective's gradient at the reference is not known, losses are subtracted, and it is u times their size.

    Args:
        problem: A problem with an optimum, such as `solved` gives.

    Raises ValueError for a problem without one.
    """
    best = problem.optimum
    if best is None:
        raise ValueError(f"Expected a problem with an optimum, got {problem.name}. Use jdfl.problems.solved(problem).")
    unit = 0.5 * float(jnp.finfo(problem.dtype).eps)
    proven = float(np.nan_to_num(best.accuracy, nan=0.0))
    if best.w is None or best.gradient is None:
        return max(proven, unit * abs(float(best.value)))
    L = float(np.mean(np.asarray(problem.curvature, np.float64))) + _penalty_of(problem)
    return max(proven, 0.5 * L * (unit * float(np.linalg.norm(best.w))) ** 2)


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
    point of min mean_i f_i subject to ||w||_0 <= s (a thresholding step of size 1/L keeps its support); nothing
    proves it to be the global minimum, and its `accuracy` is NaN.

    The metric `suboptimality` refers to the minimum over all w unless the problem has this point as its reference:
    `problem.replace(optimum=sparse_optimum(problem, s))`. It is then the gap to the sparse point, below zero for
    parameters with more nonzeros that are better.

    Args:
        problem: A linear, logistic or softmax regression.
        s: Most nonzeros, 1 to n.
        start: Parameters [n] to start from; None: the problem's truth, or zero where that is not known.
        steps: Most moves, at least 1.
        tolerance: Largest gradient norm > 0 of the minimisers on a support, as for `optimum`.

    Raises RuntimeError if the support still changes after `steps` moves, ValueError for settings out of range and a
    start of another shape, TypeError for other problems.
    """
    checks.integer(most=problem.n, s=s)
    checks.integer(steps=steps)
    checks.positive(tolerance=tolerance)
    if start is not None:
        checks.real(start=start)
        checks.shape((problem.n,), start=start)
    smooth = _objective(problem)
    first = problem.truth if start is None else start
    w = np.zeros(problem.n) if first is None else np.array(first, dtype=np.float64)
    checks.shape((problem.n,), start=w)
    L = float(np.mean(np.asarray(problem.curvature, np.float64))) + _penalty_of(problem) or 1.0  # 0: constant
    free = _support(w, s)
    best = smooth.minimise(free, tolerance) if free.size else _Minimum(w, *smooth.at(w), np.nan)
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
            return _reference(problem, best._replace(accuracy=np.nan))
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
    checks.shape((model.n,), w=np.asarray(w))
    point = np.asarray(w, dtype=np.float64)
    own = _shaped(model, point)
    mean = sum(float(c @ model.exact(X @ own, y)[0]) for X, y, c in model.host_examples())
    return mean + 0.5 * _penalty_of(model) * float(point @ point)


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
    largest = np.argsort(-np.abs(w), kind="stable")[:s]
    return np.sort(largest[w[largest] != 0])


def _known(problem: Problem) -> LinearModel:
    if not isinstance(problem, LinearModel):
        raise TypeError(f"Expected a linear, logistic or softmax regression, got {type(problem).__name__}.")
    return problem


def _objective(problem: Problem) -> "_Quadratic | _Linked":
    return _Quadratic(problem) if isinstance(problem, LinearRegression | Averaging) else _Linked(_known(problem))


def _reference(problem: Problem, found: "_Minimum") -> Optimum:
    rest = found.w - found.w.astype(problem.dtype)
    return Optimum(found.w, np.float64(found.value), np.float64(found.accuracy), rest, found.gradient)


class _Minimum(NamedTuple):
    w: np.ndarray  # [n]
    value: float
    gradient: np.ndarray  # [n]
    accuracy: float  # bound on value - minimum; NaN where there is none


class _Quadratic:
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

    def minimise(self, free: np.ndarray, tolerance: float, *, proven: bool = False) -> _Minimum:
        """The minimiser whose entries outside `free` are zero; a bound on what it leaves comes at no cost."""
        scale, basis = np.linalg.eigh(self.hessian[np.ix_(free, free)])
        positive = scale > scale[-1] * len(free) * _EPS
        scale, basis = scale[positive], basis[:, positive]
        w = np.zeros(len(self.g))
        w[free] = basis @ ((basis.T @ self.g[free]) / scale)
        w[free] -= basis @ ((basis.T @ self.at(w)[1][free]) / scale)  # what the first solution has lost to rounding
        value, gradient = self.at(w)
        _converged(gradient[free], tolerance, "the normal equations")
        size = float(scale[-1] * np.linalg.norm(w) + np.linalg.norm(self.g)) if len(scale) else 0.0
        return _Minimum(w, value, gradient, _left(gradient[free], size, float(scale[0]) if len(scale) else np.inf))


class _Linked:
    """Logistic or softmax regression, as a function of its scores."""

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
        self.X, self.problem, self.penalty = features, problem, _penalty_of(problem)
        self.y, self.c = (np.concatenate(arrays) for arrays in zip(*rest))

    def at(self, w: np.ndarray, features: Any = None) -> tuple[float, np.ndarray]:
        """The objective and its gradient [n] at w [n], for some of the features, or all."""
        X = self.X if features is None else features
        losses, slopes = self.problem.exact(X @ _shaped(self.problem, w), self.y)
        gradient = X.T @ (self._each(slopes) * slopes)
        value = float(self.c @ losses) + 0.5 * self.penalty * float(w @ w)
        return value, gradient.ravel() + self.penalty * w

    def minimise(self, free: np.ndarray, tolerance: float, *, proven: bool = False) -> _Minimum:
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
        found: np.ndarray = scipy.optimize.minimize(
            both, np.zeros(len(at)), jac=True, method="L-BFGS-B", options=options
        ).x
        w = np.zeros(self.problem.n)
        if proven and len(free) == self.problem.n:
            found = self._refined(found)
        w[free] = found
        value, gradient = self.at(w)
        _converged(gradient[free], tolerance, "L-BFGS")
        return _Minimum(w, value, gradient, self._accuracy(w, gradient) if proven else np.nan)

    def _each(self, x: np.ndarray) -> np.ndarray:
        """The examples' coefficients [N] as factors of x [N] or [N, outputs]."""
        return self.c if x.ndim == 1 else self.c[:, None]

    def _hessian(self, w: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
        """The product of the Hessian at w [n] with v [n]."""
        _, slopes = self.problem.exact(self.X @ _shaped(self.problem, w), self.y)
        if slopes.ndim == 1:
            p = slopes + self.y
        else:
            p = slopes.copy()
            p[np.arange(len(p)), self.y.astype(np.int64)] += 1

        def times(v: np.ndarray) -> np.ndarray:
            u = self.X @ _shaped(self.problem, v)
            u = p * (1 - p) * u if p.ndim == 1 else p * (u - (p * u).sum(axis=1, keepdims=True))
            return (self.X.T @ (self._each(u) * u)).ravel() + self.penalty * v

        return times

    def _refined(self, w: np.ndarray) -> np.ndarray:
        """The minimiser [n] by Newton's method from w [n] close to it, until the gradient does not fall any more."""
        gradient = self.at(w)[1]
        for _ in range(_NEWTON):
            if np.linalg.norm(gradient) <= _EPS * self._size(w):
                break
            hessian = LinearOperator((len(w), len(w)), self._hessian(w), dtype=float)  # pyright: ignore[reportCallIssue]
            new = w - cg(hessian, gradient, rtol=1e-4, maxiter=_INNER)[0]  # as far as it comes
            after = self.at(new)[1]
            if not np.linalg.norm(after) < 0.5 * np.linalg.norm(gradient):
                break
            w, gradient = new, after
        return w

    def _size(self, w: np.ndarray) -> float:
        """The length of the terms that are added up in the gradient at w [n]."""
        _, slopes = self.problem.exact(self.X @ _shaped(self.problem, w), self.y)
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


def _penalty_of(problem: Any) -> float:
    """The weight of ||w||^2 / 2 in the objective of a problem."""
    return float(problem.penalty) if isinstance(problem, Classifier) else 0.0


def _shaped(problem: LinearModel, w: np.ndarray) -> np.ndarray:
    """Parameters w [n] as what features [N, p] are multiplied by to give scores."""
    return w if problem.outputs == 1 else w.reshape(-1, problem.outputs)


def _left(gradient: np.ndarray, size: float, convexity: float) -> float:
    """||gradient||^2 / (2 mu), a bound on f minus its minimum, with the gradient's rounding added to the gradient."""
    return float((np.linalg.norm(gradient) + _ROUNDING * size) ** 2 / (2 * convexity))


def _converged(gradient: np.ndarray, tolerance: float, method: str) -> None:
    norm = float(np.linalg.norm(gradient))
    if not norm <= tolerance:
        raise RuntimeError(f"Expected a gradient norm <= {tolerance:g}, got {norm:g} from {method}: no minimum found.")
