"""GPSP: gradient projection subspace pursuit, the decoder of one-bit compressed sensing.

Zhou, Luo, Xiu, Li: Computing One-bit Compressive Sensing via Double-Sparsity Constrained Optimization (IEEE TSP 2022).

    minimise ||A x + y - e||^2 + eta ||x||^2   with ||x||_0 <= s and at most `flips` positive y,   A = diag(c) Phi

Axes: b messages decoded side by side, n entries, d measurements, t places of the working support. A message that is
done keeps its result while the others go on; when few are left, they are gathered and go on alone.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.scipy.linalg import cho_factor, cho_solve

from jdfl.arrays import ops
from jdfl.codecs.sensing import Sensing

STEP = 0.6  # first trial step, in units of 1/d: removes almost all backtracking
HALVINGS = 10
TOLERANCE = 0.1  # stop when the support repeats and the objective fell by less than this share
GATHER = 4  # the last b / GATHER messages go on alone
START = 2.0  # length of a given start, in units of the margin e: near that of the result


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
    """What the loop carries; `c`, `margin` and `eta` never change, but are gathered with the rest."""

    point: _Point
    iterations: Array  # [b] int32
    done: Array  # [b] bool
    c: Array  # [b, d]
    margin: Array  # [b, 1]
    eta: Array  # [b, 1]


def working_sparsity(n: int, d: int, s: int) -> int:
    """How many entries GPSP works with before it cuts back to s (the authors' rule for few measurements)."""
    if d < 2.1 * n:
        if 0.005 <= s / n <= 0.01:
            return min(n, -(-6 * s // 5))
        if 0.01 < s / n < 0.1:
            return min(n, s + -(-s * min(d, n) // n))
    return s


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
) -> Decoding:
    """Find x with ||x|| = 1, ||x||_0 <= s and sign(Phi x) ~ c from the signs c [b, d] of +-1.

    `margin` [b] or [] is e, `eta` [b] or [] the ridge, `flips` the number of signs that may be wrong, `cap` the most
    iterations. `start` [b, n] is what x may be near to; a zero row is no start.
    """
    b, d = c.shape
    t = working_sparsity(n, d, s)
    margin, eta = (jnp.broadcast_to(jnp.asarray(one, c.dtype).reshape(-1, 1), (b, 1)) for one in (margin, eta))
    zero = jnp.zeros_like(c)
    point = _Point(jnp.full((b, t), n, jnp.int32), jnp.zeros((b, t), c.dtype), zero, zero, d * margin[:, 0] ** 2)
    search = _Search(point, jnp.zeros((b,), jnp.int32), jnp.zeros((b,), jnp.bool_), c, margin, eta)
    if start is not None:
        search = search._replace(point=_started(sensing, search, start, t, flips))

    def go_on(search: _Search, sensing: Sensing, few: int) -> _Search:
        def unfinished(search: _Search) -> Array:
            return jnp.sum(~search.done & (search.iterations < cap), dtype=jnp.int32) > few

        return lax.while_loop(unfinished, lambda search: _iterate(sensing, search, n, flips, cap), search)

    few = b // GATHER if b >= 2 * GATHER else 0
    search = go_on(search, sensing, few)
    found, iterations = search.point, search.iterations
    if few:
        left = jnp.nonzero(~search.done & (iterations < cap), size=few, fill_value=b)[0]
        alone = jax.tree.map(lambda leaf: leaf.at[left].get(mode="clip"), search)
        alone = alone._replace(done=alone.done | (left == b))
        alone = go_on(alone, sensing.take(jnp.minimum(left, b - 1)), 0)
        found, iterations = jax.tree.map(
            lambda leaf, part: leaf.at[left].set(part, mode="drop"),
            (found, iterations),
            (alone.point, alone.iterations),
        )
    kept = lax.top_k(jnp.abs(found.x), s)[1]
    value = jnp.take_along_axis(found.x, kept, axis=1)
    norm = jnp.linalg.norm(value, axis=1, keepdims=True)
    support = jnp.take_along_axis(found.T, kept, axis=1)
    return Decoding(support, jnp.where(norm > 0, value / jnp.where(norm > 0, norm, 1.0), value), iterations)


def _keep_flips(y: Array, flips: int) -> Array:
    """Keep the negative entries and the `flips` largest positive ones."""
    negative = jnp.minimum(y, 0.0)
    return negative + ops.top_s(jnp.maximum(y, 0.0), flips) if flips else negative


def _at(sensing: Sensing, search: _Search, T: Array, x: Array, y: Array) -> _Point:
    Ax = search.c * sensing.combine(T, x)
    v = Ax + y - search.margin
    return _Point(T, x, y, Ax, jnp.sum(v * v, axis=1) + search.eta[:, 0] * jnp.sum(x * x, axis=1))


def _largest(x: Array, t: int) -> tuple[Array, Array]:
    """Places [b, t], ascending, and values of the t entries of x [b, n] largest in magnitude."""
    T = jnp.sort(jax.vmap(lambda one: ops.support(one, t)[0])(x), axis=1)
    return T, jnp.take_along_axis(x, T, axis=1)


def _started(sensing: Sensing, search: _Search, start: Array, t: int, flips: int) -> _Point:
    """The point near `start`, for the messages where it is not zero."""
    T, x = _largest(start, t)
    norm = jnp.linalg.norm(x, axis=1, keepdims=True)
    x = START * search.margin * x / jnp.where(norm > 0, norm, 1.0)
    y = _keep_flips(search.margin - search.c * sensing.combine(T, x), flips)
    return _where(norm[:, 0] > 0, _at(sensing, search, T, x, y), search.point)


def _where(choice: Array, one: Any, other: Any) -> Any:
    """Message by message [b], one or the other."""
    return jax.tree.map(lambda a, b: jnp.where(choice.reshape(-1, *(1,) * (a.ndim - 1)), a, b), one, other)


def _newton(sensing: Sensing, search: _Search, point: _Point, flips: int) -> _Point:
    """The minimiser over x on the support of `point`, over the rows with y = 0."""
    free = point.y == 0.0
    columns = sensing.columns(point.T)
    A = jnp.where(free, search.c, 0.0)[:, None, :] * columns  # [b, t, d]
    gram = jnp.einsum("btd,bud->btu", A, A, precision=ops.HIGHEST)
    gram = gram + search.eta[:, :, None] * jnp.eye(gram.shape[1], dtype=A.dtype)[None]
    right = search.margin * jnp.sum(A, axis=2)
    z = jax.vmap(lambda G, r: cho_solve(cho_factor(G, lower=True), r))(gram, right)
    Ax = search.c * jnp.einsum("bt,btd->bd", z, columns, precision=ops.HIGHEST)
    y = jnp.where(free, 0.0, _keep_flips(search.margin - Ax, flips))
    v = Ax + y - search.margin
    return _Point(point.T, z, y, Ax, jnp.sum(v * v, axis=1) + search.eta[:, 0] * jnp.sum(z * z, axis=1))


def _iterate(sensing: Sensing, search: _Search, n: int, flips: int, cap: int) -> _Search:
    """One iteration of every message that is not done."""
    point, c, margin, eta = search.point, search.c, search.margin, search.eta
    active = ~search.done & (search.iterations < cap)
    lane = jnp.arange(c.shape[0])[:, None]
    v = point.Ax + point.y - margin
    g = sensing.adjoint(c * v).at[lane, point.T].add(eta * point.x, mode="drop")

    def projected(a: Array) -> _Point:
        T, x = _largest((-a * g).at[lane, point.T].add(point.x, mode="drop"), point.T.shape[1])
        return _at(sensing, search, T, x, _keep_flips(point.y - a * v, flips))

    def rises(trial: _Point) -> Array:
        return active & (trial.objective >= point.objective)

    def again(carry: tuple[_Point, Array, Array]) -> Array:
        return jnp.any(rises(carry[0])) & (carry[2] < HALVINGS)

    def halve(carry: tuple[_Point, Array, Array]) -> tuple[_Point, Array, Array]:
        trial, a, halvings = carry
        a = jnp.where(rises(trial)[:, None], a / 2, a)
        return _where(rises(trial), projected(a), trial), a, halvings + 1

    first = point, jnp.full_like(margin, 2 * STEP / c.shape[1]), jnp.int32(0)
    trial = lax.while_loop(again, halve, first)[0]

    falls = trial.objective < point.objective
    moved = _where(falls, trial, point)
    repeats = jnp.all(trial.T == point.T, axis=1)

    def polish(moved: _Point) -> _Point:
        polished = _newton(sensing, search, moved, flips)
        return _where(repeats & (polished.objective < moved.objective), polished, moved)

    moved = lax.cond(jnp.any(repeats & active), polish, lambda moved: moved, moved)
    settled = repeats & (moved.objective > (1 - TOLERANCE) * point.objective)
    return search._replace(
        point=_where(active, moved, point),
        iterations=search.iterations + active.astype(jnp.int32),
        done=search.done | (active & (~falls | settled)),
    )
