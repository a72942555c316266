"""The laws that every problem keeps.

Axes: m nodes, q examples of a node, n parameters.
"""
# pyright: reportUnusedFunction=false

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jdfl import problems
from jdfl.base import checks
from jdfl.problems import Problem
from jdfl.testing.law import close, hold, laws_in, require, same

_STEP = 1e-2  # of finite differences, in parameters: float32 has seven digits
_PADDED = 3  # examples


@dataclass(frozen=True)
class _ProblemCase:
    """A problem, and the parameters that it is tried at."""

    problem: Problem

    @cached_property
    def w(self) -> Array:
        """Parameters [m, n] near those that the nodes begin with, others at every node."""
        start = self.problem.initial_params()
        noise = np.random.default_rng(3).standard_normal(start.shape) * 0.1
        return start + jnp.asarray(noise, start.dtype)


def _the_data_fit(case: _ProblemCase) -> None:
    """Data, weights, curvature and test set pass `jdfl.problems.check_problem`."""
    problems.check_problem(case.problem)


def _the_start_fits(case: _ProblemCase) -> None:
    """`n` is a whole number, and the nodes begin with finite parameters [m, n] of the problem's float type."""
    n: Any = case.problem.n
    require(isinstance(n, int) and n >= 1, f"n: expected a Python int from 1, got {n!r} of {type(n).__name__}")
    start = case.problem.initial_params()
    same("shape of the start", start.shape, (case.problem.m, n))
    same("type of the start", start.dtype, jnp.dtype(case.problem.dtype))
    require(jnp.isfinite(start).all(), "start: expected finite numbers, got others")


def _values_are_numbers_of_every_node(case: _ProblemCase) -> None:
    """`values` gives one finite number for every node, in `jax.jit` as outside."""
    found = case.problem.values(case.w)
    same("shape of the values", found.shape, (case.problem.m,))
    require(jnp.isfinite(found).all(), f"values: expected finite numbers, got {np.asarray(found).tolist()[:6]}")
    compiled = jax.jit(lambda problem, w: problem.values(w))(case.problem, case.w)
    close("values in jax.jit", compiled, found, rtol=1e-4, atol=1e-6)


def _a_node_looks_at_its_own_parameters(case: _ProblemCase) -> None:
    """A node's value and gradient do not change with the parameters of another node."""
    if case.problem.m < 2:
        return
    moved = case.w.at[-1].add(1.0)
    for name in ("values", "gradients"):
        here, there = (np.asarray(getattr(case.problem, name)(w))[:-1] for w in (case.w, moved))
        close(f"{name} of the other nodes", there, here, rtol=1e-5, atol=1e-6)


def _gradients_are_those_of_the_values(case: _ProblemCase) -> None:
    """`gradients` equals what JAX derives from `values`."""
    expected = jax.grad(lambda w: jnp.sum(case.problem.values(w)))(case.w)
    scale = float(jnp.max(jnp.abs(expected)))
    close("gradients", case.problem.gradients(case.w), expected, rtol=1e-3, atol=1e-4 * scale + 1e-6)


def _gradients_are_the_slope_of_the_values(case: _ProblemCase) -> None:
    """Along the gradient the values change as it says: a finite difference, which custom derivatives cannot deceive."""
    gradient = np.asarray(case.problem.gradients(case.w), np.float64)
    length = np.linalg.norm(gradient, axis=1)
    way = jnp.asarray(gradient / np.maximum(length, 1e-12)[:, None], case.w.dtype)
    ahead, behind, here = (
        np.asarray(case.problem.values(case.w + s * _STEP * way), np.float64) for s in (1.0, -1.0, 0.0)
    )
    slope, rounding = (ahead - behind) / (2 * _STEP), 4e-7 * np.abs(here).max() / _STEP
    bend = np.abs(ahead - 2 * here + behind) / _STEP  # how much the slope changes over the step
    off = np.abs(slope - length) - (0.02 * length + bend + rounding)
    i = int(np.argmax(off))
    require(off[i] <= 0, f"slope of node {i} along its gradient: expected {length[i]:.6g}, got {slope[i]:.6g}")


def _padding_changes_nothing(case: _ProblemCase) -> None:
    """Examples of weight zero change no value and no gradient."""
    weight = jnp.pad(case.problem.weight, [(0, 0), (0, _PADDED)])

    def longer(x: Array) -> Array:
        return jnp.concatenate([x, jnp.repeat(x[:, :1], _PADDED, axis=1)], axis=1)

    wide = replace(case.problem, data=jax.tree.map(longer, case.problem.data), weight=weight)
    for name in ("values", "gradients"):
        here, there = (np.asarray(getattr(one, name)(case.w)) for one in (case.problem, wide))
        close(f"{name} with {_PADDED} more examples of weight 0", there, here, rtol=1e-4, atol=1e-5)


def _example_gradients_average_to_the_gradient(case: _ProblemCase) -> None:
    """The weighted mean of the gradients of a node's examples, with that of the regulariser, is its gradient."""
    for i in sorted({0, case.problem.m - 1}):
        data, weight = case.problem.local(i)
        w = case.w[i]
        each = case.problem.example_gradients(w, data)
        same("shape of the example gradients", each.shape, (len(weight), case.problem.n))
        mean = jnp.sum(each * weight[:, None], axis=0) / jnp.sum(weight) + jax.grad(case.problem.regulariser)(w)
        expected = case.problem.gradient(w, data, weight)
        scale = float(jnp.max(jnp.abs(expected)))
        close(f"mean gradient of node {i}", mean, expected, rtol=1e-3, atol=1e-4 * scale + 1e-6)


def _slopes_make_the_example_gradients(case: _ProblemCase) -> None:
    """Where the problem has `slopes`, they and the features give the sum and the lengths of the example gradients."""
    data, _ = case.problem.local(0)
    w = case.w[0]
    slopes = case.problem.slopes(w, data)
    if slopes is None:
        return
    each = case.problem.example_gradients(w, data)
    scale = float(jnp.max(jnp.abs(each)))
    close("spread", case.problem.spread(slopes, data), jnp.sum(each, axis=0), rtol=1e-3, atol=1e-3 * scale)
    tall = slopes if slopes.ndim == 2 else slopes[:, None]
    lengths = case.problem.feature_lengths(data, "l2") * jnp.linalg.norm(tall, axis=1)
    close("l2 norms", lengths, jnp.linalg.norm(each, axis=1), rtol=1e-3, atol=1e-4 * scale)


def _relabelled_nodes_do_the_same(case: _ProblemCase) -> None:
    """Nodes in another order, with their data, have the same values and gradients in that order."""
    order = np.random.default_rng(4).permutation(case.problem.m)
    moved = case.problem.nodes(order)
    for name in ("values", "gradients"):
        here, there = np.asarray(getattr(case.problem, name)(case.w)), getattr(moved, name)(case.w[order])
        close(f"{name} in another order", there, here[order], rtol=1e-4, atol=1e-5)


PROBLEM_LAWS = laws_in(globals())
"""The laws of problems by their names."""


def check_problem(problem: Problem, law: str | None = None) -> None:
    """Try one law, or all of them, on a problem.

    It works on stacked data of float32 that fit in memory several times, so use a small one.

    Args:
        problem: An object of a class that inherits from `jdfl.problems.Problem`.
        law: A name in `PROBLEM_LAWS`; None: all, one after another.

    Raises:
        LawBrokenError: For the first law that does not hold.
        ValueError: For an unknown law, and an object that is no problem.
    """
    if not checks.is_a(problem, Problem):
        checks.refuse("a problem", "problem", problem, "It inherits from jdfl.problems.Problem.")
    hold(PROBLEM_LAWS, _ProblemCase(problem), problem, law)
