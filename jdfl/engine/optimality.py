"""Metrics of progress: the objective at the mean of the nodes' parameters, its gradient, and gaps to the optimum.

Axes: m nodes, n parameters, q examples of a node.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jdfl.arrays.ops import HIGHEST
from jdfl.devices import nodes
from jdfl.problems import Problem
from jdfl.problems.yardsticks import solvable, solved

Metric = Callable[[Array, Problem], Array]
P = TypeVar("P", bound=Problem)


def average(w: Array) -> Array:
    """The mean xbar [n] of the nodes' parameters w [m, n]."""
    return nodes.mean(w)


def personal(w: Array, problem: Problem) -> Array:
    """Every node's parameters [m, n] with the shared ones replaced by their mean over the nodes."""
    mean = jnp.broadcast_to(average(w)[None], w.shape)
    return jnp.where(jnp.arange(problem.n)[None] < problem.n_shared, mean, w)


def of_each(measure: Callable[[Array], Array], w: Array, problem: Problem) -> Array:
    """`measure` [] of the mean of the parameters, or its mean over the nodes where some parameters stay with them."""
    if problem.n_shared < problem.n:
        return nodes.mean(jax.vmap(measure)(personal(w, problem)))
    return measure(average(w))


def objective(w: Array, problem: Problem) -> Array:
    """The objective mean_i f_i(xbar) at the mean xbar of the nodes' parameters.

    Of personal models it is mean_i f_i(x_i), each node's model x_i on its own data.
    """
    if problem.n_shared < problem.n:
        return nodes.mean(problem.values(personal(w, problem)))
    return nodes.mean(problem.values_at(average(w)))


def suboptimality(w: Array, problem: Problem) -> Array:
    """The gap f(xbar) - f* between the objective at the mean of the nodes' parameters and its minimum.

    f* is the value of `problem.optimum`: the minimum over all parameters, also for methods that keep parameters sparse,
    unless the problem was given another reference, such as one of `jdfl.problems.sparse_optimum`.

    For linear models the gap, a scalar [], is computed from the tangent at the optimum (see `jdfl.problems.logistic`)
    instead of two objectives, and has about six digits in float32 down to the accuracy of the optimum. For other
    problems it is the mean over examples of differences of losses, or the objective less the value where the reference
    has no parameters; its error is then about the rounding unit times the size of the losses. Of personal models it is
    their objective less f*, which is negative where they fit their own data better than one model for all nodes can.
    """
    best = problem.optimum
    assert best is not None  # resolve
    if best.w is None or problem.n_shared < problem.n:
        return objective(w, problem) - jnp.asarray(best.value, w.dtype)
    step, at = nodes.mean(best.step(w)), best.head(w.dtype)
    if best.gradient is None or not hasattr(problem, "divergences"):
        return nodes.mean(problem.each(partial(_gap, problem, at, step), problem.data, problem.weight))

    def beyond(data: Any, weight: Array) -> Array:
        return jnp.sum(cast(Any, problem).divergences(at, step, data) * weight) / jnp.sum(weight)

    tangent = jnp.dot(jnp.asarray(best.gradient, w.dtype), step, precision=HIGHEST)
    return nodes.mean(problem.each(beyond, problem.data, problem.weight)) + problem.regulariser(step) + tangent


def _gap(problem: Problem, at: Array, step: Array, data: Any, weight: Array) -> Array:
    """f_i(at + step) - f_i(at) [] of one node, by examples."""
    losses = problem.losses(at + step, data) - problem.losses(at, data)
    return jnp.sum(losses * weight) / jnp.sum(weight) + problem.regulariser(at + step) - problem.regulariser(at)


def gradient_norm(w: Array, problem: Problem) -> Array:
    """The l2 norm of the gradient of the objective at the mean of the nodes' parameters.

    With parameters that stay with the nodes it is the square root of ||mean_i grad_u f_i||^2 + mean_i ||grad_v f_i||^2
    for the shared ones u and the others v.
    """
    gradients = problem.gradients(personal(w, problem))
    shared, own = gradients[:, : problem.n_shared], gradients[:, problem.n_shared :]
    return jnp.sqrt(jnp.sum(nodes.mean(shared) ** 2) + nodes.mean(jnp.sum(own**2, axis=1)))


def distance_to_optimum(w: Array, problem: Problem) -> Array:
    """The relative distance ||xbar - x*|| / ||x*|| from the minimiser x*; where x* = 0, the distance itself.

    x* is the `w` of `problem.optimum`. For nodes that start at zero it is the residual that papers on exact methods
    plot, relative to that of the start. Of personal models it is the mean over the nodes.
    """
    best = problem.optimum
    assert best is not None  # resolve
    size, step = jnp.linalg.norm(best.head(w.dtype)), best.step(w)
    far = nodes.mean(jnp.linalg.norm(step, axis=1)) if problem.n_shared == 0 else jnp.linalg.norm(nodes.mean(step))
    return far / jnp.where(size > 0, size, 1)


NEED_OPTIMUM = (suboptimality, distance_to_optimum)


def referenced(metrics: Sequence[Metric], problem: P, without: Sequence[int] = ()) -> P:
    """The problem with its optimum, computed on the host, where one of the metrics needs it.

    Args:
        metrics: Functions that `resolve` has checked.
        problem: The problem; the optimum is kept with it (see `jdfl.problems.solved`).
        without: The nodes whose losses do not count.

    Raises ValueError where the problem has no unique minimum, or an optimum of other data.
    """
    if not any(metric in NEED_OPTIMUM for metric in metrics):
        return problem
    if not without:
        return solved(problem)
    some = problem.nodes(np.delete(np.arange(problem.m), list(without)))
    return replace(problem, optimum=solved(replace(some, optimum=None)).optimum)


def check_optimum(name: str, problem: Problem) -> None:
    """Refuse a metric where the problem neither has the optimum that it needs nor can be solved: ValueError."""
    best = problem.optimum
    if best is None and not solvable(problem):
        raise ValueError(
            f"The metric {name!r} needs an optimum, which is not known of {problem.name}: only convex problems of "
            "jdfl.problems whose parameters are all shared are solved. Give a reference: "
            "problem.replace(optimum=jdfl.problems.Optimum(w, value))."
        )
    if best is not None and best.w is None and name == distance_to_optimum.__name__:
        raise ValueError(f"The metric {name!r} needs the parameters of the optimum, which {problem.name} lacks.")
    if best is not None and best.w is not None and problem.n_shared < problem.n:
        raise ValueError(
            f"The metric {name!r} compares with parameters that all nodes share, but those of {problem.name} stay "
            "partly with the nodes. Give the value alone: jdfl.problems.Optimum(None, value)."
        )
