"""GPSP: gradient projection subspace pursuit, the decoder of one-bit compressed sensing.

Zhou, Luo, Xiu, Li: Computing One-bit Compressive Sensing via Double-Sparsity Constrained Optimization (IEEE TSP 2022).

    minimise ||A x + y - e||^2 + eta ||x||^2   with ||x||_0 <= s and at most `flips` positive y,   A = diag(c) Phi

Axes: b messages decoded side by side, n entries, d measurements, t entries of the working support. A message that has
converged keeps its result while the others continue; when few are left, they are gathered and continue alone.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.scipy.linalg import cho_factor, cho_solve

from jdfl.arrays import ops
from jdfl.arrays.ops import largest
from jdfl.base import struct
from jdfl.base.backend import backend
from jdfl.codecs.sensing import Sensing

STEP = 0.6  # first trial step, in units of 1/d: removes almost all backtracking
HALVINGS = 10
TOLERANCE = 0.1  # stop when the support repeats and the objective fell by less than this fraction
GATHER = 4  # the last b / GATHER messages continue alone
START = 2.0  # norm of a given start, in units of the margin e: close to that of the result

# Fraction of the support that GPSP recovers with Gaussian Phi, by d / (s ln(n / s)); measured by
# experiments.gpsp_quality.
# Where it works with no more than s entries, it needs more signs: 1 / NO_SPARE times as many.
RECOVERY = ((0.6, 0.11), (1.1, 0.18), (2.2, 0.46), (3.3, 0.69), (4.3, 0.83), (5.4, 0.92), (6.5, 0.955), (8.7, 0.985))
NO_SPARE = 0.8


class Decoding(NamedTuple):
    """The unit vectors found, in sparse form, and the numbers of iterations."""

    support: Array  # [b, s] int32
    value: Array  # [b, s]
    iterations: Array  # [b] int32


class _Point(NamedTuple):
    T: Array  # [b, t] int32 support, ascending (n, out of range, before the first step)
    x: Array  # [b, t] values on T
    y: Array  # [b, d]
    Ax: Array  # [b, d]
    objective: Array  # [b]


class _Search(NamedTuple):
    point: _Point
    iterations: Array  # [b] int32
    done: Array  # [b] bool


@struct.dataclass
class _Problem:
    """The objective, and one iteration that minimises it."""

    sensing: Sensing
    c: Array = struct.field(per_node=True)  # [b, d]
    margin: Array = struct.field(per_node=True)  # [b, 1]
    eta: Array = struct.field(per_node=True)  # [b, 1]
    flips: int = struct.field(pytree_node=False)
    cap: int = struct.field(pytree_node=False)
    n: int = struct.field(pytree_node=False)
    step: Array | None = struct.field(per_node=True, default=None)  # [b, 1] first trial step; None: from d
    most: Array | None = struct.field(per_node=True, default=None)  # [b, 1] size of the working support; None: t

    def active(self, search: _Search) -> Array:
        """Which messages [b] continue."""
        return ~search.done & (search.iterations < self.cap)

    def solved(self, search: _Search, few: int) -> _Search:
        """The search once at most `few` messages continue."""
        return lax.while_loop(lambda search: jnp.sum(self.active(search), dtype=jnp.int32) > few, self.iterate, search)

    def there(self, v: Array) -> Array:
        """The entries of v [b, d], zero for measurements that do not exist, whose sign is zero."""
        return v if self.step is None else jnp.where(self.c == 0, 0.0, v)

    def point(self, T: Array, x: Array, y: Array, Ax: Array) -> _Point:
        v = self.there(Ax + y - self.margin)
        return _Point(T, x, y, Ax, jnp.sum(v * v, axis=1) + self.eta[:, 0] * jnp.sum(x * x, axis=1))

    def at(self, T: Array, x: Array, y: Array) -> _Point:
        return self.point(T, x, y, self.c * self.sensing.combine(T, x))

    def kept(self, y: Array) -> Array:
        """The negative entries of y [b, d] and the `flips` largest positive ones."""
        negative = jnp.minimum(y, 0.0)
        return negative + ops.top_s(jnp.maximum(y, 0.0), self.flips) if self.flips else negative

    def started(self, start: Array, zero: _Point) -> _Point:
        """The point near `start` [b, n], for messages whose start is not zero."""
        T, x = _largest(start, zero.T.shape[1], self.most)
        norm = jnp.linalg.norm(x, axis=1, keepdims=True)
        x = START * self.margin * x / jnp.where(norm > 0, norm, 1.0)
        y = self.kept(self.there(self.margin - self.c * self.sensing.combine(T, x)))
        return _where(norm[:, 0] > 0, self.at(T, x, y), zero)

    def newton(self, point: _Point) -> _Point:
        """The minimiser over x on the support of `point`, for the rows with y = 0."""
        free = point.y == 0.0
        columns, empty = self.sensing.columns(point.T), None
        if self.most is not None:
            empty = self.n <= point.T  # places in T that are not used
            columns = jnp.where(empty[:, :, None], 0.0, columns)
        signs = jnp.where(free, self.c, 0.0)[:, None, :]  # A = signs * columns, and a square of signs is 0 or 1
        gram, right = _products(jnp.where(signs == 0, 0.0, columns), signs, columns)
        gram = gram + self.eta[:, :, None] * jnp.eye(gram.shape[1], dtype=gram.dtype)[None]
        if empty is not None:  # whatever is on their diagonal, their values are zero
            gram = jnp.where(empty[:, :, None] & jnp.eye(gram.shape[1], dtype=bool)[None], 1.0, gram)
        right = self.margin * right
        z = jax.vmap(lambda G, r: cho_solve(cho_factor(G, lower=True), r))(gram, right)
        Ax = self.c * jnp.einsum("bt,btd->bd", z, columns, precision=ops.HIGHEST)
        return self.point(point.T, z, jnp.where(free, 0.0, self.kept(self.there(self.margin - Ax))), Ax)

    def iterate(self, search: _Search) -> _Search:
        """One iteration for every message that has not converged."""
        point, active = search.point, self.active(search)
        lane = jnp.arange(len(active))[:, None]
        v = self.there(point.Ax + point.y - self.margin)
        g = self.sensing.adjoint(self.c * v).at[lane, point.T].add(self.eta * point.x, mode="drop")

        def projected(a: Array) -> _Point:
            moved = (-a * g).at[lane, point.T].add(point.x, mode="drop")
            T, x = _largest(moved, point.T.shape[1], self.most)
            return self.at(T, x, self.kept(point.y - a * v))

        def rises(trial: _Point) -> Array:
            return active & (trial.objective >= point.objective)

        def again(carry: tuple[_Point, Array, Array]) -> Array:
            return jnp.any(rises(carry[0])) & (carry[2] < HALVINGS)

        def halve(carry: tuple[_Point, Array, Array]) -> tuple[_Point, Array, Array]:
            trial, a, halvings = carry
            a = jnp.where(rises(trial)[:, None], a / 2, a)
            return _where(rises(trial), projected(a), trial), a, halvings + 1

        step = jnp.full_like(self.margin, 2 * STEP / v.shape[1]) if self.step is None else self.step
        trial = lax.while_loop(again, halve, (point, step, jnp.int32(0)))[0]

        falls = trial.objective < point.objective
        moved = _where(falls, trial, point)
        repeats = jnp.all(trial.T == point.T, axis=1)

        def polish(moved: _Point) -> _Point:
            polished = self.newton(moved)
            return _where(repeats & (polished.objective < moved.objective), polished, moved)

        if backend() == "cpu":
            moved = lax.cond(jnp.any(repeats & active), polish, lambda moved: moved, moved)
        else:  # of many messages some repeat
            moved = polish(moved)
        settled = repeats & (moved.objective > (1 - TOLERANCE) * point.objective)
        return _Search(
            _where(active, moved, point),
            search.iterations + active.astype(jnp.int32),
            search.done | (active & (~falls | settled)),
        )


def gpsp(
    sensing: Sensing,
    c: Array,
    s: int,
    n: int,
    *,
    flips: int = 0,
    margin: Array | float = 0.01,
    eta: Array | float = 1e-4,
    cap: int = 12,
    start: Array | None = None,
    sizes: tuple[int, ...] = (),
    group: Array | None = None,
) -> Decoding:
    """Find x with ||x|| = 1, ||x||_0 <= s and sign(Phi x) ~ c from the signs c, for b messages side by side.

    Args:
        sensing: The matrices Phi [d, n] of the messages.
        c ([b, d]): The signs, +1 or -1, of a floating type.
        s: Largest number of nonzeros of x, from 1 to n.
        n: Entries of x.
        flips: Number of signs of a message that may be wrong, from 0.
        margin ([b]): The margin e > 0 of every message, or one for all.
        eta ([b]): Weight >= 0 of ||x||^2, the ridge, of every message, or one for all.
        cap: Maximum number of iterations.
        start ([b, n]): A guess for x; a zero row is no guess. None: there is none for any message.
        sizes: The different numbers of measurements of the messages, each from 1 to d; (): all have d.
        group ([b]): Which of `sizes` a message has. Only its first sizes[group] measurements exist, and the result is
            that of Phi and c without the others.

    Returns:
        Positions and values [b, s] of the vectors found, and the iterations [b] that the messages took.
    """
    b, d = c.shape
    spare = [working_sparsity(n, size, s) for size in sizes or (d,)]
    t = max(spare)
    margin, eta = (jnp.broadcast_to(jnp.asarray(one, c.dtype).reshape(-1, 1), (b, 1)) for one in (margin, eta))
    count, step, most = d, None, None
    if sizes:
        count = jnp.asarray(sizes, c.dtype)[group]
        c = jnp.where(jnp.arange(d, dtype=c.dtype)[None, :] < count[:, None], c, 0.0)
        step = jnp.asarray([2 * STEP / size for size in sizes], c.dtype)[group][:, None]
        most = jnp.asarray(spare, jnp.int32)[group][:, None] if min(spare) < t else None
    problem, zero = _Problem(sensing, c, margin, eta, flips, cap, n, step, most), jnp.zeros_like(c)
    point = _Point(jnp.full((b, t), n, jnp.int32), jnp.zeros((b, t), c.dtype), zero, zero, count * margin[:, 0] ** 2)
    point = point if start is None else problem.started(start, point)
    few = b // GATHER if b >= 2 * GATHER and backend() == "cpu" else 0  # elsewhere few messages take as long as many
    search = problem.solved(_Search(point, jnp.zeros((b,), jnp.int32), jnp.zeros((b,), jnp.bool_)), few)
    if few:
        left = jnp.nonzero(problem.active(search), size=few, fill_value=b)[0]
        alone = jax.tree.map(lambda leaf: leaf.at[left].get(mode="clip"), search)
        alone = alone._replace(done=alone.done | (left == b))
        alone = struct.each_row(lambda x: x.at[left].get(mode="clip"), problem).solved(alone, 0)
        search = jax.tree.map(lambda leaf, part: leaf.at[left].set(part, mode="drop"), search, alone)
    found = search.point
    kept = lax.top_k(jnp.abs(found.x), s)[1]
    value = jnp.take_along_axis(found.x, kept, axis=1)
    norm = jnp.linalg.norm(value, axis=1, keepdims=True)
    support = jnp.take_along_axis(found.T, kept, axis=1)
    return Decoding(support, jnp.where(norm > 0, value / jnp.where(norm > 0, norm, 1.0), value), search.iterations)


def working_sparsity(n: int, d: int, s: int) -> int:
    """How many entries GPSP works with before it reduces them to s (the authors' rule for few measurements)."""
    if d < 2.1 * n:
        if 0.005 <= s / n <= 0.01:
            return min(n, -(-6 * s // 5))
        if 0.01 < s / n < 0.1:
            return min(n, s + -(-s * min(d, n) // n))
    return s


def recovery(n: int, d: int, s: int) -> float:
    """The fraction of a support that GPSP recovers from Gaussian signs, as measured, within about 0.06."""
    ratio, share = zip(*RECOVERY)
    return float(np.interp(d / unit(n, d, s), ratio, share))


def unit(n: int, d: int, s: int) -> float:
    """The unit of the numbers of signs in `RECOVERY`."""
    spare = working_sparsity(n, d, s) > s
    return s * np.log(max(n / s, np.e)) / (1.0 if spare else NO_SPARE)


def _largest(x: Array, t: int, most: Array | None = None) -> tuple[Array, Array]:
    """Positions [b, t], ascending, and values of the t entries of x [b, n] of largest magnitude."""
    T = jnp.sort(largest(x, t).place, axis=1)
    value = jnp.take_along_axis(x, T, axis=1)
    if most is None:
        return T, value
    rank = jnp.argsort(jnp.argsort(-jnp.abs(value), axis=1), axis=1).astype(jnp.int32)
    n = x.shape[1]
    T = jnp.sort(jnp.where(rank < most, T, n), axis=1)
    return T, jnp.where(n > T, jnp.take_along_axis(x, jnp.minimum(T, n - 1), axis=1), 0.0)


def _products(A: Array, signs: Array, columns: Array) -> tuple[Array, Array]:
    """A columns^T [b, t, t] and columns signs [b, t], for A and columns [b, t, d] and signs [b, 1, d]."""
    right = jnp.sum(signs * columns, axis=2)
    if backend() == "gpu":  # A is formed nowhere
        return jnp.sum(A[:, :, None, :] * columns[:, None, :, :], axis=3), right
    return jnp.einsum("btd,bud->btu", A, columns, precision=ops.HIGHEST), right


def _where(choice: Array, one: Any, other: Any) -> Any:
    """Message by message [b], one or the other."""
    return jax.tree.map(lambda a, b: jnp.where(choice.reshape(-1, *(1,) * (a.ndim - 1)), a, b), one, other)
