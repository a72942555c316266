"""Canaries: the record in which two neighbouring datasets differ, as an attacker would plant it.

A canary is only as good as its design. It must change the clipped gradient by as much as clipping allows, in opposite
directions in the two worlds, and where the algorithm shows it: an algorithm that reveals the s largest parameters hides
changes of the others.

- Least squares: features A e_j, labels B and -B. With a clip, B is too large for any run to fit; without one, features
  and labels have the norm of the largest in the data.
- Logistic and softmax regression: features A e_j with any A and label, the pair whose clipped gradients are farthest
  apart on the path of a pilot run.
- Where a record is present or absent, the second world has zero features instead, whose gradient is zero.
- Where whole nodes are protected, all of the node's records become the canary.

Axes: q examples per node, f features, n parameters, K candidates, T points of a pilot run.
"""

from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jdfl.algorithms.algorithm import Algorithm
from jdfl.base import checks
from jdfl.privacy import Clip, Guarantee, clipped
from jdfl.problems import LinearRegression, LogisticRegression, Problem, SoftmaxRegression

_FAR = 1e3  # labels of least squares, relative to all predictions that could occur
_SCALES = 12  # feature norms that are tried, each twice the previous one
_DIRECTIONS, _SIDE = 2, 0.2  # maximum number of directions; the smallest effect of another one relative to the first


@dataclass(frozen=True)
class Limit:
    """What scales a gradient down before noise is added."""

    clip: float | None
    norm: Clip

    @classmethod
    def of(cls, algorithm: Algorithm) -> "Limit":
        """The limit on the algorithm's updates or gradients; None for a clip that it does not have."""
        parts = [getattr(algorithm, name, None) for name in ("updates", "gradients")]
        owner = next((part for part in parts if part is not None), None)
        norm: Clip = getattr(owner, "norm", "l2")
        if owner is None and hasattr(algorithm, "dpps"):  # of a node's vector, in average consensus
            owner, norm = algorithm, "l1"
        clip = getattr(owner, "clip", None)
        return cls(None if clip is None else float(clip), norm)

    def __call__(self, gradients: Array) -> Array:
        """Gradients [..., n] as they count."""
        return gradients if self.clip is None else clipped(gradients, self.norm, self.clip)


@dataclass(frozen=True)
class Canary:
    """Two neighbouring problems, and the directions in which they differ."""

    zero: Problem  # the first world
    one: Problem  # the second
    directions: Array  # [p, n] orthonormal
    text: str  # in words


def given(problem: Problem, pair: Any) -> tuple[Any, Any]:
    """The user's pair of examples, checked against the problem's data."""
    if not checks.is_a(pair, tuple | list) or len(pair) != 2:
        raise ValueError(
            f"Expected canary = 'aligned', 'random' or a pair of examples, got canary = {pair!r}. An example has the "
            "structure of the data, without the axes of nodes and examples."
        )
    shapes = jax.tree.map(lambda leaf: np.shape(leaf)[2:], problem.data)
    for name, example in zip(("canary[0]", "canary[1]"), pair):
        if jax.tree.structure(example) != jax.tree.structure(problem.data):
            raise ValueError(f"Expected {name} with the structure of the problem's data, got another one.")
        for leaf, like in zip(jax.tree.leaves(example), jax.tree.leaves(problem.data)):
            checks.shape(np.shape(like)[2:], f"The data's examples have leaves of shapes {shapes}.", **{name: leaf})
            checks.finite(**{name: leaf})
    return pair[0], pair[1]


def designed(problem: Problem, kind: str, mean: Array, points: Array, limit: Limit, drop: bool, key: Array) -> Any:
    """A designed pair of examples, for problems with a known kind of record, and its description."""
    if not isinstance(problem, LinearRegression | LogisticRegression | SoftmaxRegression):
        raise ValueError(
            f"Expected a pair of examples for {type(problem).__name__}, got canary = {kind!r}. A record is designed "
            "for linear, logistic and softmax regression only; give canary = (example, other example)."
        )
    width, place = problem.data[0].shape[-1], int(jnp.argmax(jnp.abs(mean)))
    if kind == "random":
        along = jax.random.normal(key, (width,), problem.dtype)
        along, where = along / jnp.linalg.norm(along), "a random direction"
    else:
        j = place // problem.classes if isinstance(problem, SoftmaxRegression) else place
        along, where = jnp.zeros((width,), problem.dtype).at[j].set(1.0), f"feature {j}"
    candidates = _candidates(problem, along, points, limit)
    lengths, apart = _effects(problem, candidates, points, limit)
    if drop:
        example = problem.take(candidates, jnp.asarray(np.argmax(lengths)))
        return (example, jax.tree.map(jnp.zeros_like, example)), f"a record along {where} that is present or absent"
    first, second = np.unravel_index(np.argmax(apart), apart.shape)
    pair = tuple(problem.take(candidates, jnp.asarray(i)) for i in (first, second))
    return pair, f"a record along {where} with opposite gradients"


def planted(
    problem: Problem,
    pair: tuple[Any, Any],
    node: int,
    guarantee: Guarantee,
    points: Array,
    limit: Limit,
    words: str,
) -> Canary:
    """The two worlds: `problem` with the first or the second example in place of the node's heaviest record.

    Everything else is unchanged, including `problem.curvature`, so constants computed from it are public.
    """

    @jax.jit
    def gradients(example: Any) -> Array:
        return limit(jax.vmap(jax.grad(problem.loss), (0, None))(points, example))

    first, second = (gradients(_typed(problem, example)) for example in pair)
    gap = np.asarray(first - second, np.float64)
    if not np.all(np.isfinite(gap)) or not np.any(gap):
        raise ValueError(
            "Expected two examples with finite and different gradients, got a canary that changes nothing. Give a pair "
            "of examples that pull the parameters in opposite directions."
        )
    _, size, rows = np.linalg.svd(gap, full_matrices=False)
    directions = rows[:_DIRECTIONS][size[:_DIRECTIONS] >= _SIDE * size[0]]
    weight = np.asarray(problem.weight[node])
    places = np.flatnonzero(weight > 0) if guarantee.unit == "node" else np.array([np.argmax(weight)])
    whole = " in all its records" if guarantee.unit == "node" else ""

    def with_all(example: Any) -> Problem:
        data = jax.tree.map(lambda leaf, new: leaf.at[node, places].set(new), problem.data, _typed(problem, example))
        return replace(problem, data=data)

    zero, one = map(with_all, pair)
    return Canary(zero, one, jnp.asarray(directions, problem.dtype), f"at node {node}{whole}, {words}")


def _effects(problem: Problem, candidates: Any, points: Array, limit: Limit) -> tuple[np.ndarray, np.ndarray]:
    """The mean norm [K] of the candidates' gradients over the points, and their mean distances [K, K]."""
    lengths: list[np.ndarray] = []
    apart: list[np.ndarray] = []

    @jax.jit
    def gradients(w: Array) -> Array:
        return limit(problem.example_gradients(w, candidates))

    for w in points:
        g = np.asarray(gradients(w), np.float64)
        products = g @ g.T
        square = np.diagonal(products)
        lengths.append(np.sqrt(square))
        apart.append(np.sqrt(np.maximum(square[:, None] + square[None] - 2 * products, 0.0)))
    return np.mean(lengths, axis=0), np.mean(apart, axis=0)


def _typed(problem: Problem, example: Any) -> Any:
    return jax.tree.map(lambda leaf, new: jnp.asarray(new, leaf.dtype), problem.data, example)


def _candidates(problem: Problem, along: Array, points: Array, limit: Limit) -> tuple[Array, Array]:
    """Features [K, f] along a direction, and labels [K], that an attacker might use."""
    features, labels = problem.data
    longest = float(jnp.max(jnp.linalg.norm(features, axis=-1)))
    if isinstance(problem, LinearRegression):
        length, label = longest, float(jnp.max(jnp.abs(labels)))
        if limit.clip is not None:
            length = max(float(jnp.sqrt(jnp.mean(jnp.square(features)))), 1e-3)
            label = _FAR * (label + length * float(jnp.max(jnp.linalg.norm(points, axis=-1))) + limit.clip / length)
        return length * jnp.stack([along, along]), jnp.asarray([label, -label], labels.dtype)
    top = longest if limit.clip is None else 1.2 * 2.0 ** (_SCALES - 2) * limit.clip
    lengths = top * 2.0 ** -np.arange(_SCALES)
    known = [0, 1]
    if isinstance(problem, SoftmaxRegression):  # the classes with the largest weights on the features in question
        pull = jnp.abs(along @ jnp.mean(points, axis=0).reshape(len(along), -1))
        known = np.argsort(-np.asarray(pull))[: max(2, 64 // _SCALES)].tolist()
    signed = [(sign * length, label) for length in lengths for sign in (1.0, -1.0) for label in known]
    scales = jnp.asarray([length for length, _ in signed], features.dtype)
    return scales[:, None] * along[None], jnp.asarray([label for _, label in signed], labels.dtype)


def check_dense(problem: Problem) -> None:
    """Refuse data in which no single record can be replaced: ValueError."""
    axes = problem.weight.shape
    if any(np.shape(leaf)[:2] != axes for leaf in jax.tree.leaves(problem.data)):
        raise ValueError(
            f"Expected data with the axes of nodes and examples {axes} in front, got {type(problem).__name__}. "
            "A record is replaced in dense data only; use the dense problem of the same loss."
        )
