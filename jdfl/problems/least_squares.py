"""Least squares from arrays, or from a function that draws examples.

Axes: m nodes, q examples per node (padded with weight 0), n parameters, N test examples.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike, DTypeLike

from jdfl import checks
from jdfl.arguments import checked
from jdfl.problems.drawn import Draw, drawn_regression
from jdfl.problems.linear import LinearRegression, build
from jdfl.problems.stack import floating, stack

Arrays = Array | np.ndarray | Sequence[ArrayLike]


@checked
def linear_regression(
    features: Arrays | Draw,
    targets: Arrays,
    *,
    truth: ArrayLike | None = None,
    test: tuple[ArrayLike, ArrayLike] | None = None,
    storage: Literal["stored", "generated"] = "stored",
    key: int | Array = 0,
    name: str = "linear regression",
    dtype: DTypeLike = jnp.float32,
) -> LinearRegression:
    """Least squares from the nodes' features and targets.

    `features` is a list of m arrays [q_i, n], or one array [m, q, n]; `targets` correspondingly [q_i] or [m, q].
    `truth` [n] are the generating parameters, `test` = (features [N, n], targets [N]).

    `features` may also be a function draw(key) -> (features [n], target []) of one example, as for `drawn_regression`;
    then `targets` [m] are the nodes' numbers of examples, and `key` decides what is drawn. With `storage="generated"`
    examples are drawn whenever they are looked at, and only their weights are in memory.

    Raises ValueError for shapes that do not fit together, and for arrays that are to be generated.
    """
    kind = floating(dtype)
    checks.one_of(("stored", "generated"), storage=storage)
    if callable(features):
        sizes: Any = targets
        problem = drawn_regression(features, sizes, key=key, truth=truth, name=name, dtype=kind)
        found = problem if storage == "generated" else problem.stored()
        return found if test is None else replace(found, test=_test(test, found.n, kind))
    if storage == "generated":
        raise ValueError(
            "Expected a function as features with storage = 'generated', got arrays, which are in memory already. Give "
            "draw(key) -> (features [n], target []), and every node's number of examples as targets."
        )
    for given, words in ((features, "features"), (targets, "targets")):
        if not hasattr(given, "__len__") or isinstance(given, str | bytes) or getattr(given, "shape", None) == ():
            checks.refuse(f"{words} to be a list of arrays, one for every node", words, given)
    if len(features) != len(targets):
        raise ValueError(f"Expected targets of {len(features)} nodes, got {len(targets)}.")
    data, weight = _together(features, targets, kind)
    n = data[0].shape[-1]
    if truth is not None:
        checks.shape((n,), truth=truth)
    return build(data, weight, truth, None if test is None else _test(test, n, kind), name, kind)


def _test(test: tuple[ArrayLike, ArrayLike], n: int, kind: np.dtype) -> tuple[Array, ...]:
    """The test set as arrays, its shapes looked at."""
    checks.real("See the test set.", features=test[0], targets=test[1])
    checks.shape((None, n), "See the test set.", features=test[0])
    checks.shape(np.shape(test[0])[:1], "See the test set.", targets=test[1])
    return tuple(jnp.asarray(array, kind) for array in test)


def _together(features: Arrays, targets: Arrays, kind: np.dtype) -> tuple[tuple[Any, ...], Any]:
    """Features [m, q, n] and targets [m, q], and the weights [m, q]; what is one array stays one."""
    if isinstance(features, Array | np.ndarray) and isinstance(targets, Array | np.ndarray):
        checks.real(features=features, targets=targets)
        checks.shape((None, None, None), "It is an array of all nodes.", features=features)
        checks.shape(features.shape[:2], "It is an array of all nodes.", targets=targets)
        if 0 in features.shape:
            raise ValueError(f"Expected features of nodes with examples, got an array of shape {features.shape}.")
        return (features, targets), np.ones(features.shape[:2], kind)
    for i, part in enumerate(zip(features, targets)):
        checks.real(f"See node {i}.", features=part[0], targets=part[1])
    parts = [(np.asarray(A), np.asarray(b)) for A, b in zip(features, targets)]
    for i, (A, b) in enumerate(parts):
        checks.shape((None, None), f"See node {i}.", features=A)
        checks.shape((len(A),), f"See node {i}.", targets=b)
    return stack(parts, (kind, kind))
