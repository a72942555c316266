"""Metrics of test examples beyond accuracy and loss: of regressions and scores, and of every node's own examples.

Metrics whose names begin with `node_` evaluate every node on its own test examples (`Problem.with_own_test`): with its
own model where a method or a problem keeps one, and otherwise with the mean of the nodes' parameters. They sum the
nodes up: by their mean, by the worst node, by the node below which a tenth of them are worse, by their standard
deviation, or (`pooled`) by counting every example alike. Nodes without test examples do not count.

Axes: m nodes, n parameters, N test examples, t test examples of a node.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal, cast, get_args

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jax import Array

from jdfl.arrays.ops import HIGHEST
from jdfl.base import checks
from jdfl.base.arguments import checked
from jdfl.devices import nodes
from jdfl.problems import Problem

BINS = 15  # of the calibration error
_TENTH = 0.1
Measure = Literal["accuracy", "loss", "rmse"]
MEASURES: tuple[Measure, ...] = get_args(Measure)
SUMMARIES = ("", "worst", "tenth", "std", "pooled")


def predicts(problem: Problem) -> bool:
    """Whether the problem is a regression whose predictions are known."""
    return type(problem).predictions is not Problem.predictions


def classifies(problem: Problem) -> bool:
    """Whether the problem has scores of examples, that is, is a classification."""
    return type(problem).scores is not Problem.scores


def average(w: Array) -> Array:
    """The mean xbar [n] of the nodes' parameters w [m, n]."""
    return nodes.mean(w)


def personal(w: Array, problem: Problem) -> Array:
    """Every node's parameters [m, n] with the shared ones replaced by their mean over the nodes."""
    mean = jnp.broadcast_to(average(w)[None], w.shape)
    return jnp.where(jnp.arange(problem.n)[None] < problem.n_shared, mean, w)


def of_models(measure: Callable[[Array], Array], w: Array, problem: Problem) -> Array:
    """`measure` [] of the model that is evaluated: of the mean of the parameters, or its mean over personal models."""
    if not problem.personal:
        return measure(average(w))
    return nodes.mean(problem.each(measure, personal(w, problem)))


def rmse(w: Array, problem: Problem) -> Array:
    """The root of the mean squared error [] of the predictions of a regression on the test examples."""
    X, y = cast(Any, problem.test)

    def one(w: Array) -> Array:
        return jnp.sqrt(jnp.mean(jnp.square(problem.predictions(w, X) - y.astype(w.dtype))))

    return of_models(one, w, problem)


def mae(w: Array, problem: Problem) -> Array:
    """The mean absolute error [] of the predictions of a regression on the test examples."""
    X, y = cast(Any, problem.test)
    return of_models(lambda w: jnp.mean(jnp.abs(problem.predictions(w, X) - y.astype(w.dtype))), w, problem)


def auc(w: Array, problem: Problem) -> Array:
    """The area [] under the curve of true over false positives, of two classes; NaN where the test set has one class.

    It is the probability that an example of class 1 has a larger score than one of class 0, where equal scores count
    half (J. Hanley and B. McNeil, "The meaning and use of the area under a ROC curve", 1982, from memory).
    """
    X, y = cast(Any, problem.test)
    positive = y.astype(jnp.int32) == 1

    def one(w: Array) -> Array:
        scores = problem.scores(w, X)
        margin = scores.reshape(len(y)) if scores.size == len(y) else scores[:, 1] - scores[:, 0]
        below = jnp.sort(jnp.where(positive, jnp.inf, margin))  # negatives, and then the places of positives
        less, most = (jnp.searchsorted(below, margin, side=side) for side in ("left", "right"))
        here, others = jnp.sum(positive), jnp.sum(~positive)
        share = (less + most).astype(w.dtype) / (2 * others.astype(w.dtype))
        return jnp.sum(jnp.where(positive, share, 0)) / here.astype(w.dtype)

    return of_models(one, w, problem)


def calibration_error(w: Array, problem: Problem) -> Array:
    """The expected calibration error [] of the predicted class on the test examples, for scores that are logits.

    Examples are put into 15 bins of equal width by the probability of their predicted class; the error is the mean over
    examples of the absolute difference between accuracy and mean probability of their bin (C. Guo et al., "On
    calibration of modern neural networks", 2017, equation 3, from memory).
    """
    X, y = cast(Any, problem.test)

    def one(w: Array) -> Array:
        scores = problem.scores(w, X)
        single = scores.size == len(y)
        logits = jnp.stack([jnp.zeros(len(y), w.dtype), scores.reshape(len(y))], 1) if single else scores
        chance = jax.nn.softmax(logits, axis=1)
        sure, right = jnp.max(chance, axis=1), jnp.argmax(chance, axis=1) == y.astype(jnp.int32)
        place = jnp.clip((sure * BINS).astype(jnp.int32), 0, BINS - 1)
        gap = jnp.zeros(BINS, w.dtype).at[place].add(right.astype(w.dtype) - sure)
        return jnp.sum(jnp.abs(gap)) / len(y)

    return of_models(one, w, problem)


def node_values(measure: str, w: Array, problem: Problem) -> tuple[Array, Array]:
    """A measure [m] of every node on its own test examples, and their numbers [m]; NaN for nodes without any.

    Args:
        measure: "accuracy", "loss" (mean, without the regulariser) or "rmse".
        w: Parameters w [m, n] of the nodes.
        problem: A problem with `own_test`.
    """
    test = cast(Any, problem.own_test)

    def one(w: Array, data: Any, weight: Array) -> Array:
        if measure == "loss":
            found = test.losses(w, data)
        elif measure == "accuracy":
            found = (replace(test, test=data).predict(w, data) == data[1].astype(jnp.int32)).astype(w.dtype)
        else:
            found = jnp.square(test.predictions(w, data[0]) - data[1].astype(w.dtype))
        mean = jnp.dot(found.astype(w.dtype), weight, precision=HIGHEST) / jnp.sum(weight)
        return jnp.sqrt(mean) if measure == "rmse" else mean

    return test.each(one, personal(w, problem), *test.weighted_data), jnp.sum(test.weight, axis=1)


@checked
def per_node(result: Any, problem: Problem, measure: Measure = "accuracy") -> pd.Series:
    """A measure of every node at the end of a run, on the node's own test examples.

    Which nodes gain from exchanging models, for example, is `jdfl.per_node(a, problem) > jdfl.per_node(b, problem)` for
    a run `a` and one `b` of `jdfl.LocalOnly`.

    Args:
        result: A run.
        problem: Its problem, whose nodes have test examples of their own (`Problem.with_own_test`).
        measure: "accuracy", "loss" (mean, without the regulariser) or "rmse".

    Returns:
        The values [m], with the nodes' names or numbers as index; NaN for nodes without test examples.

    Raises:
        ValueError: For a problem without test examples of nodes, of another size, or that the measure does not fit; and
            for another one than that of the run, where the run has recorded the mean of the measure.
    """
    if not hasattr(result, "params"):
        checks.refuse("the result of a run", "result", result, "Give what jdfl.run returns.")
    checks.one_of(MEASURES, measure=measure)
    if lacked := missing(NODE_METRICS[MEASURES.index(measure) * len(SUMMARIES)], problem):
        raise ValueError(f"The measure {measure!r} needs {lacked}; see {problem.name}.")
    checks.shape((problem.m, problem.n), "Give the problem of this run.", params=result.params)
    if getattr(result.algorithm, "personal", "") == "models":
        problem = replace(problem, shared=0)
    found, _ = jax.jit(node_values, static_argnums=0)(measure, jnp.asarray(result.params), replace(problem, name=""))
    recorded, mean = result.final.get(f"node_{measure}", np.nan), float(np.nanmean(np.asarray(found, np.float64)))
    if np.isfinite(recorded) and not np.isclose(mean, recorded, rtol=1e-3, atol=1e-4):
        raise ValueError(
            f"Expected the problem of this run, whose node_{measure} was {recorded:.4g} at its end, got a problem on "
            f"which it is {mean:.4g}. Each trial of an experiment has its own: experiment.trial(key).problem"
        )
    names = range(problem.m) if problem.node_names is None else list(problem.node_names)
    return pd.Series(np.asarray(found, np.float64), index=pd.Index(names, name="node"), name=measure)


def _summed_up(measure: str, summary: str, w: Array, problem: Problem) -> Array:
    found, counts = node_values(measure, w, problem)
    here, sign = counts > 0, 1 if measure == "accuracy" else -1
    many = nodes.total(here.astype(w.dtype))

    def mean(x: Array) -> Array:
        return nodes.total(jnp.where(here, x, 0)) / many

    if summary == "worst":
        return -sign * nodes.largest(jnp.where(here, -sign * found, -jnp.inf))
    if summary == "tenth":
        every = jnp.sort(nodes.gather(jnp.where(here, sign * found, jnp.inf)))
        place = _TENTH * (many - 1)
        low = jnp.floor(place).astype(jnp.int32)
        pair = every[jnp.minimum(low + jnp.arange(2), jnp.maximum(many.astype(jnp.int32) - 1, 0))]
        return sign * (pair[0] + (place - low.astype(w.dtype)) * (pair[1] - pair[0]))
    if summary == "std":
        return jnp.sqrt(mean(jnp.square(found - mean(found))))
    if summary == "pooled":
        squared = jnp.square(found) if measure == "rmse" else found
        pooled = nodes.total(jnp.where(here, squared * counts, 0)) / nodes.total(counts)
        return jnp.sqrt(pooled) if measure == "rmse" else pooled
    return mean(found)


_WORDS = {
    "": "The mean over the nodes",
    "worst": "The worst node",
    "tenth": "The value that a tenth of the nodes do not reach (the 10 % quantile, from the worst)",
    "std": "The standard deviation over the nodes",
    "pooled": "The value over the test examples of all nodes, each counted once,",
}
_OF = {
    "accuracy": "of the accuracy on a node's own test examples",
    "loss": "of the mean loss of a node's own test examples, without the regulariser",
    "rmse": "of the root of the mean squared error on a node's own test examples",
}


def _metric(measure: str, summary: str) -> Callable[[Array, Problem], Array]:
    def metric(w: Array, problem: Problem) -> Array:
        return _summed_up(measure, summary, w, problem)

    metric.__name__ = metric.__qualname__ = f"node_{measure}{'_' * bool(summary)}{summary}"
    metric.__doc__ = f"{_WORDS[summary]} {_OF[measure]}; a scalar []."
    return metric


NODE_METRICS = tuple(_metric(measure, summary) for measure in MEASURES for summary in SUMMARIES)
COMMON = (rmse, mae, auc, calibration_error)


def missing(metric: Any, problem: Problem) -> str:
    """What a problem lacks for one of these metrics, with the remedy; empty where nothing is missing."""
    name = metric.__name__
    if metric in NODE_METRICS:
        if problem.own_test is None:
            return (
                "test examples of every node. Make the problem with test_split='nodes', or tell whose they are: "
                "problem.with_own_test(nodes)"
            )
        if getattr(problem, "examples_mix", False):
            return "a model whose output does not depend on the other examples of a batch"
        if "accuracy" in name and not classifies(problem):
            return "classes, and this is no classification"
    elif problem.test is None:
        return "test examples. Give the problem a test set"
    if "rmse" in name or metric is mae:
        return "" if predicts(problem) else "predicted numbers: a regression, from from_loss with predict"
    if metric in (auc, calibration_error):
        if not classifies(problem):
            return "classes, and this is no classification"
        if metric is auc and max(2, getattr(problem, "classes", 2)) > 2:
            return "two classes"
    return ""
