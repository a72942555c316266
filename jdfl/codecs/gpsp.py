"""GPSP: gradient projection subspace pursuit, the decoder of one-bit compressed sensing.

Zhou, Luo, Xiu, Li: Computing One-bit Compressive Sensing via Double-Sparsity Constrained Optimization (IEEE TSP 2022).

    minimise ||A x + y - e||^2 + eta ||x||^2   with ||x||_0 <= s and at most `flips` positive y,   A = diag(c) Phi

Axes: n entries, d measurements, t entries of the working support. Everything here is one decoding; callers lift it.
Only A^T v reads the whole of Phi (n d numbers, the cost of an iteration); A x gathers t rows of Phi^T.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array, lax
from jax.scipy.linalg import cho_factor, cho_solve

from jdfl import ops

STEP = 0.6  # first trial step, in units of 1/d: removes almost all backtracking
HALVINGS = 10
TOLERANCE = 0.1  # stop when the support repeats and the objective fell by less than this share


class Decoding(NamedTuple):
    """The unit vector found, in sparse form, and the number of iterations."""

    support: Array  # [s] int32
    value: Array  # [s]
    iterations: Array  # int32 []


class _Point(NamedTuple):
    T: Array  # [t] int32 support, ascending (n, out of range, before the first step)
    x: Array  # [t] values on T
    y: Array  # [d]
    Ax: Array  # [d]
    objective: Array  # []


def working_sparsity(n: int, d: int, s: int) -> int:
    """How many entries GPSP works with before it cuts back to s (the authors' rule for few measurements)."""
    if d < 2.1 * n:
        if 0.005 <= s / n <= 0.01:
            return min(n, -(-6 * s // 5))
        if 0.01 < s / n < 0.1:
            return min(n, s + -(-s * min(d, n) // n))
    return s


def _keep_flips(y: Array, flips: int) -> Array:
    """Keep the negative entries and the `flips` largest positive ones."""
    negative = jnp.minimum(y, 0.0)
    return negative + ops.top_s(jnp.maximum(y, 0.0), flips) if flips else negative


def gpsp(
    phi_t: Array, c: Array, s: int, *, flips: int, margin: Array | float, eta: Array | float, cap: int
) -> Decoding:
    """Find x with ||x|| = 1, ||x||_0 <= s and sign(Phi x) ~ c from Phi^T [n, d] and signs c [d] of +-1.

    `margin` is e, `eta` the ridge, `flips` the number of signs that may be wrong, `cap` the most iterations.
    """
    n, d = phi_t.shape
    t = working_sparsity(n, d, s)
    dtype = phi_t.dtype

    def at(T: Array, x: Array, y: Array) -> _Point:
        Ax = c * jnp.dot(x, phi_t[T], precision=ops.HIGHEST)
        v = Ax + y - margin
        return _Point(T, x, y, Ax, jnp.vdot(v, v) + eta * jnp.vdot(x, x))

    def projected(point: _Point, v: Array, g: Array, a: Array) -> _Point:
        x = (-a * g).at[point.T].add(point.x, mode="drop")
        T = jnp.sort(ops.support(x, t)[0])
        return at(T, x[T], _keep_flips(point.y - a * v, flips))

    def newton(point: _Point) -> _Point:
        free = point.y == 0.0
        A = jnp.where(free, c, 0.0)[None, :] * phi_t[point.T]  # [t, d] rows with y = 0
        gram = jnp.dot(A, A.T, precision=ops.HIGHEST) + eta * jnp.eye(t, dtype=dtype)
        z = cho_solve(cho_factor(gram, lower=True), margin * jnp.sum(A, axis=1))
        Ax = c * jnp.dot(z, phi_t[point.T], precision=ops.HIGHEST)
        y = jnp.where(free, 0.0, _keep_flips(margin - Ax, flips))
        v = Ax + y - margin
        return _Point(point.T, z, y, Ax, jnp.vdot(v, v) + eta * jnp.vdot(z, z))

    def better(new: _Point, old: _Point) -> _Point:
        falls = new.objective < old.objective
        return _Point(*(jnp.where(falls, a, b) for a, b in zip(new, old)))

    def iterate(carry: tuple[_Point, Array, Array]) -> tuple[_Point, Array, Array]:
        point, iterations, _ = carry
        v = point.Ax + point.y - margin
        g = jnp.dot(phi_t, c * v, precision=ops.HIGHEST).at[point.T].add(eta * point.x, mode="drop")

        def rises(trial: tuple[_Point, Array, Array]) -> Array:
            return (trial[0].objective >= point.objective) & (trial[2] < HALVINGS)

        def halve(trial: tuple[_Point, Array, Array]) -> tuple[_Point, Array, Array]:
            a = trial[1] / 2
            return projected(point, v, g, a), a, trial[2] + 1

        untried = (point, jnp.asarray(2 * STEP / d, dtype), jnp.int32(0))
        trial = lax.while_loop(rises, halve, untried)[0]
        moved = better(trial, point)
        repeats = jnp.all(trial.T == point.T)
        polished = better(newton(moved), moved)
        moved = _Point(*(jnp.where(repeats, a, b) for a, b in zip(polished, moved)))
        stuck = trial.objective >= point.objective
        settled = repeats & (moved.objective > (1 - TOLERANCE) * point.objective)
        return moved, iterations + 1, stuck | settled

    start = _Point(
        jnp.full((t,), n, jnp.int32),
        jnp.zeros((t,), dtype),
        jnp.zeros((d,), dtype),
        jnp.zeros((d,), dtype),
        d * jnp.asarray(margin, dtype) ** 2,
    )
    point, iterations, _ = lax.while_loop(
        lambda carry: ~carry[2] & (carry[1] < cap), iterate, (start, jnp.int32(0), jnp.bool_(False))
    )
    kept, value = ops.support(point.x, s)
    norm = jnp.linalg.norm(value)
    return Decoding(point.T[kept], jnp.where(norm > 0, value / jnp.where(norm > 0, norm, 1.0), value), iterations)
