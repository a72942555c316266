"""What an algorithm with all data in one place would reach: optima and other references. Host only, float64.

Everything minimises mean_i f_i(w). Axes: m nodes, N examples of all nodes, p features, n parameters.
"""

import weakref
from dataclasses import replace
from typing import Any, TypeVar

import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike
from scipy.special import xlogy

from jdfl.base import checks
from jdfl.base.arguments import checked
from jdfl.problems.base import Problem
from jdfl.problems.linear import Averaging, LinearModel, LinearRegression
from jdfl.problems.logistic import Classifier
from jdfl.problems.minima import Linked, Minimum, Quadratic, penalty_of, shaped
from jdfl.problems.reference import Optimum

P = TypeVar("P", bound=Problem)
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
    L = float(np.mean(np.asarray(problem.curvature, np.float64))) + penalty_of(problem)
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
    checks.whole(most=problem.n, s=s)
    checks.whole(steps=steps)
    checks.positive(tolerance=tolerance)
    if start is not None:
        checks.real(start=start)
        checks.shape((problem.n,), start=start)
    smooth = _objective(problem)
    first = problem.truth if start is None else start
    w = np.zeros(problem.n) if first is None else np.array(first, dtype=np.float64)
    checks.shape((problem.n,), start=w)
    L = float(np.mean(np.asarray(problem.curvature, np.float64))) + penalty_of(problem) or 1.0  # 0: constant
    free = _support(w, s)
    best = smooth.minimise(free, tolerance) if free.size else Minimum(w, *smooth.at(w), np.nan)
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
    own = shaped(model, point)
    mean = sum(float(c @ model.exact(X @ own, y)[0]) for X, y, c in model.host_examples())
    return mean + 0.5 * penalty_of(model) * float(point @ point)


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


def _objective(problem: Problem) -> Quadratic | Linked:
    return Quadratic(problem) if isinstance(problem, LinearRegression | Averaging) else Linked(_known(problem))


def _reference(problem: Problem, found: Minimum) -> Optimum:
    """The minimum as a part of its problem."""
    rest = found.w - found.w.astype(problem.dtype)
    return Optimum(found.w, np.float64(found.value), np.float64(found.accuracy), rest, found.gradient)
