"""Metrics: functions (w [m, n], problem) -> scalar of the parameters of all nodes, evaluated on the device.

xbar is the mean of the nodes' parameters. Where some parameters stay with the nodes (`problem.shared`), the mean is
taken of the shared ones, and every node is evaluated with its own values of the others. Of personal methods (those with
`personal = "models"`) every node's own model is evaluated: its objective on the node's data, its accuracy and test loss
on the test set, and what is recorded is the mean over the nodes. The mean of their models, which no node has, is
evaluated by metrics whose names begin with `mean_model`.

REGISTRY has the metrics by name. `resolve` raises ValueError before anything is compiled where a problem lacks what a
metric needs: generating parameters, labelled test examples, or an optimum.
"""

import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jdfl.arrays.ops import HIGHEST
from jdfl.base import checks
from jdfl.devices import nodes
from jdfl.engine import measures
from jdfl.engine.measures import average, classifies, personal
from jdfl.problems import Problem
from jdfl.problems.yardsticks import solvable, solved

Metric = Callable[[Array, Problem], Array]
P = TypeVar("P", bound=Problem)


def of_each(measure: Callable[[Array], Array], w: Array, problem: Problem) -> Array:
    """`measure` [] of the mean of the parameters, or its mean over the nodes where some parameters stay with them."""
    if problem.n_shared < problem.n:
        return nodes.mean(jax.vmap(measure)(personal(w, problem)))
    return measure(average(w))


def objective(w: Array, problem: Problem) -> Array:
    """The objective mean_i f_i(xbar) [] at the mean xbar of the nodes' parameters.

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
        return nodes.mean(problem.each(partial(_gap, problem, at, step), *problem.weighted_data))

    def beyond(data: Any, weight: Array) -> Array:
        return jnp.sum(cast(Any, problem).divergences(at, step, data) * weight) / jnp.sum(weight)

    tangent = jnp.dot(jnp.asarray(best.gradient, w.dtype), step, precision=HIGHEST)
    return nodes.mean(problem.each(beyond, *problem.weighted_data)) + problem.regulariser(step) + tangent


def _gap(problem: Problem, at: Array, step: Array, data: Any, weight: Array) -> Array:
    """f_i(at + step) - f_i(at) [] of one node, by examples."""
    losses = problem.losses(at + step, data) - problem.losses(at, data)
    return jnp.sum(losses * weight) / jnp.sum(weight) + problem.regulariser(at + step) - problem.regulariser(at)


def gradient_norm(w: Array, problem: Problem) -> Array:
    """The l2 norm [] of the gradient of the objective at the mean of the nodes' parameters.

    With parameters that stay with the nodes it is the square root of ||mean_i grad_u f_i||^2 + mean_i ||grad_v f_i||^2
    for the shared ones u and the others v.
    """
    gradients = problem.gradients(personal(w, problem))
    shared, own = gradients[:, : problem.n_shared], gradients[:, problem.n_shared :]
    return jnp.sqrt(jnp.sum(nodes.mean(shared) ** 2) + nodes.mean(jnp.sum(own**2, axis=1)))


def distance_to_optimum(w: Array, problem: Problem) -> Array:
    """The relative distance ||xbar - x*|| / ||x*|| [] from the minimiser x*; where x* = 0, the distance itself.

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
    """The problem with its optimum without the losses of some nodes, computed on the host, where a metric needs it.

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


def objective_local(w: Array, problem: Problem) -> Array:
    """The mean of the nodes' losses f_i(w_i) on their local data, each with its own parameters; a scalar []."""
    return nodes.mean(problem.values(w))


def consensus_error(w: Array, problem: Problem) -> Array:
    """The mean squared distance (1/m) sum_i ||w_i - xbar||^2 [] of the nodes from their mean.

    It counts the shared parameters only, or all where none is shared.
    """
    w = w[:, : problem.n_shared or problem.n]
    return nodes.mean(jnp.sum((w - average(w)[None, :]) ** 2, axis=1))


def distance_to_truth(w: Array, problem: Problem) -> Array:
    """The relative distance ||xbar - w*|| / ||w*|| [] from the parameters w* that generated the data."""
    assert problem.truth is not None  # resolve
    truth = problem.truth
    return of_each(lambda x: jnp.linalg.norm(x - truth), w, problem) / jnp.linalg.norm(truth)


def support_recovery(w: Array, problem: Problem) -> Array:
    """The share of the support of the generating parameters found among the largest entries of the mean.

    A scalar []. As many entries are taken as the support has, and zeros are not found. NaN where the generating
    parameters are zero.
    """
    assert problem.truth is not None  # resolve
    true = problem.truth != 0
    size = jnp.sum(true)

    def share(x: Array) -> Array:
        rank = jnp.argsort(jnp.argsort(-jnp.abs(x)))
        return jnp.sum(true & (rank < size) & (x != 0)).astype(w.dtype) / size.astype(w.dtype)

    return of_each(share, w, problem)


def class_accuracies(w: Array, problem: Problem) -> tuple[Array, Array]:
    """The accuracies on the labelled test examples of every class, and the shares of the classes in the test set.

    Accuracies are [k, classes], with k = 1 for the mean of the parameters w [m, n], or k = m where some of the
    `problem`'s parameters stay with the nodes; shares are [classes], and sum to one. A class without examples has
    accuracy 0.
    """
    labels = cast(Any, problem.test)[1].astype(jnp.int32)
    classes = max(2, getattr(problem, "classes", 2))
    label_is = (labels[None, :] == jnp.arange(classes, dtype=jnp.int32)[:, None]).astype(w.dtype)
    size = jnp.sum(label_is, axis=1)

    def one(w_i: Array, data: Any) -> Array:
        right = (problem.predict(w_i, data) == labels).astype(w.dtype)
        return jnp.dot(label_is, right, precision=HIGHEST) / jnp.maximum(size, 1.0)

    if problem.personal:
        found = problem.each(one, personal(w, problem), problem.data)
    else:
        found = one(average(w), _first_data(problem))[None]
    return found, size / jnp.sum(size)


def _first_data(problem: Problem) -> Any:
    """The data of the first node of all, leaves [q, ...]."""
    if problem.blocks is None:
        return jax.tree.map(nodes.first, problem.data)
    return jax.tree.map(lambda leaf: nodes.first(leaf[None]), problem.local(0)[0])


def accuracy(w: Array, problem: Problem) -> Array:
    """The share of test examples that the mean of the nodes' parameters classifies correctly.

    A scalar []. Where some parameters stay with the nodes, it is the mean over the nodes.
    """
    found, share = class_accuracies(w, problem)
    return _mean(jnp.dot(found, share, precision=HIGHEST), problem)


def balanced_accuracy(w: Array, problem: Problem) -> Array:
    """The mean [] over the classes of the share of their test examples that are classified correctly."""
    found, share = class_accuracies(w, problem)
    return jnp.sum(_mean(found, problem)) / jnp.sum((share > 0).astype(w.dtype))


def accuracy_own(w: Array, problem: Problem) -> Array:
    """The mean accuracy [] of the nodes, with the classes of the test set weighted as in each node's local data."""
    found, share = class_accuracies(w, problem)
    mix = jnp.where((share > 0)[None], label_shares(problem, found.shape[1]), 0.0)
    mix = mix / jnp.maximum(jnp.sum(mix, axis=1, keepdims=True), jnp.finfo(mix.dtype).tiny)
    return nodes.mean(jnp.sum(found * mix, axis=1))


def accuracy_local(w: Array, problem: Problem) -> Array:
    """The mean accuracy [] of the nodes, each with its own parameters on its own training examples."""

    def one(w_i: Array, data: Any, weight: Array) -> Array:
        right = replace(problem, test=data).predict(w_i, data) == data[1].astype(jnp.int32)
        return jnp.dot(right.astype(weight.dtype), weight, precision=HIGHEST) / jnp.sum(weight)

    return nodes.mean(problem.each(one, w, *problem.weighted_data))


def test_loss(w: Array, problem: Problem) -> Array:
    """The mean loss [] of the test examples without penalty, at the average parameters or on average over the nodes."""
    if problem.personal:
        return nodes.mean(problem.each(problem.test_loss, personal(w, problem), problem.data))
    return problem.test_loss(average(w), _first_data(problem))


def mean_model_objective(w: Array, problem: Problem) -> Array:
    """The objective mean_i f_i(xbar) [] at the mean of all parameters, also where nodes keep models of their own."""
    return objective(w, replace(problem, shared=None))


def mean_model_accuracy(w: Array, problem: Problem) -> Array:
    """The accuracy [] of the mean of all parameters, also where nodes keep models of their own."""
    return accuracy(w, replace(problem, shared=None))


def mean_model_test_loss(w: Array, problem: Problem) -> Array:
    """The test loss [] at the mean of all parameters, also where nodes keep models of their own."""
    return test_loss(w, replace(problem, shared=None))


def _mean(found: Array, problem: Problem) -> Array:
    return nodes.mean(found) if problem.personal else found[0]


def label_shares(problem: Problem, classes: int) -> Array:
    """The shares [m, classes] of the classes in the local data of the nodes, features and labels.

    Labels are whole numbers from 0 to below `classes`, and every node of the `problem` has a labelled example.
    """

    def counts(labels: Array, weight: Array) -> Array:
        here = (weight > 0).astype(weight.dtype)
        return jnp.zeros((classes,), weight.dtype).at[labels.astype(jnp.int32)].add(here)

    count = problem.each(counts, problem.data[1], problem.weighted_data[1])
    return count / jnp.sum(count, axis=1, keepdims=True)


REGISTRY: dict[str, Metric] = {
    metric.__name__: nodes.on_every_device(metric)
    for metric in (
        objective,
        objective_local,
        suboptimality,
        gradient_norm,
        consensus_error,
        distance_to_optimum,
        distance_to_truth,
        support_recovery,
        accuracy,
        balanced_accuracy,
        accuracy_own,
        accuracy_local,
        test_loss,
        mean_model_objective,
        mean_model_accuracy,
        mean_model_test_loss,
        *measures.COMMON,
        *measures.NODE_METRICS,
    )
}
COUNTS = (  # the history's other columns
    "round",
    "messages",
    "bytes",
    "gradients",
    "examples",
    "communications",
    "releases",
    "network_seconds",
    "network_seconds_last",
)
HIGHER_IS_BETTER = frozenset(
    (
        *("accuracy", "balanced_accuracy", "accuracy_own", "accuracy_local", "mean_model_accuracy", "support_recovery"),
        *("auc", "node_accuracy", "node_accuracy_worst", "node_accuracy_tenth", "node_accuracy_pooled"),
    )
)
FINITE = (objective, objective_local, suboptimality, gradient_norm, consensus_error, distance_to_optimum, test_loss)
"""Metrics that are finite at all parameters which are not too large, in a problem that they fit."""
_NEEDS_TRUTH = (distance_to_truth, support_recovery)
_NEEDS_CLASSES = (accuracy, balanced_accuracy, accuracy_own, accuracy_local, mean_model_accuracy)


def resolve(metrics: Sequence[str | Metric], problem: Problem, name: str = "metrics") -> tuple[Metric, ...]:
    """The `metrics` as functions, checked against the `problem` before anything is compiled.

    They are names of REGISTRY, or named functions (w [m, n], problem) -> []; `name` is that of the argument in
    messages. Raises ValueError for an unknown name, a repeated one, the name of a column of the history, a function
    that does not take (w, problem), or a metric for which the problem lacks something.
    """
    if isinstance(metrics, str):
        raise ValueError(f"Expected a list of metrics, got {name} = {metrics!r}. Write [{metrics!r}].")
    found: list[Metric] = []
    for metric in metrics:
        if isinstance(metric, str):
            checks.one_of(REGISTRY, **{name: metric})
            metric = REGISTRY[metric]
        if not hasattr(metric, "__name__") or not _takes_parameters(metric):
            checks.refuse("a name or a named function (w, problem) -> number", name, metric, "Use def.")
        if metric.__name__ in COUNTS:
            raise ValueError(
                f"Expected another name than {metric.__name__!r}, which is a column of the history. Rename it."
            )
        if metric.__name__ in [other.__name__ for other in found]:
            raise ValueError(f"Expected every metric once, got {metric.__name__!r} twice. Rename or drop one.")
        if metric in _NEEDS_TRUTH and problem.truth is None:
            raise ValueError(f"The metric {metric.__name__!r} needs generating parameters, which {problem.name} lacks.")
        if metric in NEED_OPTIMUM:
            check_optimum(metric.__name__, problem)
        if metric in (test_loss, mean_model_test_loss) and problem.test is None:
            raise ValueError(
                f"The metric {metric.__name__!r} needs test examples, which {problem.name} lacks. "
                "Give the problem a test set."
            )
        if metric in _NEEDS_CLASSES and (problem.test is None or not classifies(problem)):
            raise ValueError(
                f"The metric {metric.__name__!r} needs labelled test examples, which {problem.name} lacks."
            )
        known = metric in measures.COMMON or metric in measures.NODE_METRICS
        if known and (lacked := measures.missing(metric, problem)):
            raise ValueError(f"The metric {metric.__name__!r} needs {lacked}; see {problem.name}.")
        found.append(metric)
    return tuple(found)


def worst(metric: Metric) -> float:
    """What the last record of a bad run has for a metric: no value is worse; NaN for an own metric."""
    if REGISTRY.get(metric.__name__) is not metric:
        return math.nan
    return -math.inf if metric.__name__ in HIGHER_IS_BETTER else math.inf


def _takes_parameters(metric: object) -> bool:
    """Whether it can be called with parameters and a problem; true if its signature is not known."""
    if not callable(metric) or isinstance(metric, type):
        return False
    try:
        inspect.signature(metric).bind(None, None)
    except ValueError:
        return True
    except TypeError:
        return False
    return True


def default_metrics(problem: Problem, personal: str = "") -> tuple[Metric, ...]:
    """The metrics that are recorded by default: all that the problem has data for, except gaps to an optimum.

    For methods with `personal` = "models" also the accuracy of their models on the nodes' own data.
    """
    chosen: list[Metric] = [objective, objective_local, consensus_error]
    if problem.truth is not None:
        chosen += _NEEDS_TRUTH
    if problem.test is not None and classifies(problem):
        chosen += (accuracy, balanced_accuracy, *((accuracy_local,) if personal == "models" else ()))
    elif problem.test is not None:
        chosen.append(test_loss)
    if problem.own_test is not None and not getattr(problem, "examples_mix", False):
        name = "node_accuracy" if classifies(problem) else "node_rmse" if measures.predicts(problem) else "node_loss"
        chosen += (REGISTRY[name], REGISTRY[f"{name}_worst"])
    return tuple(chosen)
