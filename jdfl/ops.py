"""Functions of arrays only: projection (`top_s`, `support`), work on a few rows, keys, exact totals.

Axes: m nodes, n parameters, d slots of the neighbour table, b rows of a block.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jdfl.projection import support as support
from jdfl.projection import top_s as top_s

HIGHEST = lax.Precision.HIGHEST  # TF32 or bf16 products would lose mass in mixing and accuracy in decoding


def node_keys(key: Array, purpose: int, node: Array) -> Array:
    """One key per node [m]: depends on the node's global id, not on its place, the device or the batch."""
    return jax.vmap(jax.random.fold_in, (None, 0))(jax.random.fold_in(key, purpose), node)


def node_normal(key: Array, purpose: int, node: Array, shape: tuple[int, ...], dtype: Any) -> Array:
    """Standard normal noise [m, *shape], each row from its own node's key."""
    return jax.vmap(lambda one: jax.random.normal(one, shape, dtype))(node_keys(key, purpose, node))


def length(x: Array, norm: str, axes: tuple[int, ...] = (-1,)) -> Array:
    """The l1, l2 or linf norm of x over `axes`."""
    if norm == "l1":
        return jnp.sum(jnp.abs(x), axis=axes)
    if norm == "linf":
        return jnp.max(jnp.abs(x), axis=axes, initial=0.0)
    return jnp.sqrt(jnp.sum(jnp.square(x), axis=axes))


def for_rows(wanted: Array, block: int, update: Callable[[Array, Any], Any], carry: Any) -> Any:
    """Run `update(rows [block], carry) -> carry` over the rows with `wanted` [m] true, `block` rows at a time.

    The number of blocks follows the number of wanted rows, so nothing is spent on the others and no burst is too
    large. A last block that is not full is filled with the row m, which lies out of range: gathers of it clip, so
    scatter with `mode="drop"`.
    """
    m = wanted.shape[0]
    order = jnp.nonzero(wanted, size=-(-m // block) * block, fill_value=m)[0]
    blocks = (jnp.sum(wanted, dtype=jnp.int32) + (block - 1)) // block

    def one_block(b: Array, carry: Any) -> Any:
        return update(lax.dynamic_slice(order, (b * block,), (block,)), carry)

    return lax.fori_loop(0, blocks, one_block, carry)


def skipped_unless(predicate: Array, function: Callable[..., Any], otherwise: Any, *operands: Any) -> Any:
    """`function(*operands)` where the predicate [] holds, else the value `otherwise`, which costs nothing.

    What vmap makes of a plain `lax.cond` with a predicate that differs between lanes gives every lane a copy of all
    operands, also of those that they share. This computes all lanes instead and picks. Arrays must be operands, not
    captured by `function`.
    """

    @jax.custom_batching.custom_vmap
    def run(predicate: Array, otherwise: Any, *operands: Any) -> Any:
        return lax.cond(predicate, function, lambda *_: otherwise, *operands)

    @run.def_vmap
    def _(size: int, batched: Any, predicate: Array, otherwise: Any, *operands: Any) -> Any:  # pyright: ignore
        axes = jax.tree.map(lambda mapped: 0 if mapped else None, tuple(batched))
        each = jax.vmap(lambda *lane: _pick(lane[0], function(*lane[2:]), lane[1]), in_axes=axes, axis_size=size)
        found = each(predicate, otherwise, *operands)
        return found, jax.tree.map(lambda _: True, found)

    return run(predicate, otherwise, *operands)


def _pick(predicate: Array, one: Any, other: Any) -> Any:
    return jax.tree.map(lambda a, b: jnp.where(predicate, a, b), one, other)


def limbs(count: Array) -> Array:
    """The exact sum of non-negative int32 counts [m] as partial sums [8], one per 4 bits (m up to 143 million)."""
    return jnp.stack([jnp.sum((count >> shift) & 15, dtype=jnp.int32) for shift in range(0, 32, 4)])


def product_limbs(count: Array, size: Array) -> Array:
    """The exact sum of count * size, both int32 [m] and >= 0, as partial sums [8, 8] (m up to 9 million)."""
    places = range(0, 32, 4)
    nibbles = [[(x >> place) & 15 for place in places] for x in (count, size)]
    return jnp.stack([jnp.stack([jnp.sum(a * b, dtype=jnp.int32) for b in nibbles[1]]) for a in nibbles[0]])


def from_limbs(partial: np.ndarray) -> int:
    """The Python int behind `limbs` or `product_limbs` (on the host; no overflow)."""
    return sum(int(part) << (4 * sum(place)) for place, part in np.ndenumerate(np.asarray(partial)))


def largest_eigenvalue(apply: Callable[[Array], Array], start: Array, steps: int) -> Array:
    """lambda_max of a symmetric positive semidefinite map on vectors [n], by Lanczos with full reorthogonalisation.

    `start` [n] is any nonzero vector, `steps` the size of the Krylov space (20-40 give four digits or more).
    """
    n = start.shape[0]
    steps = min(steps, n)

    def step(j: Array, carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        basis, alpha, beta = carry
        r = apply(basis[j])
        alpha = alpha.at[j].set(jnp.vdot(basis[j], r))
        for _ in range(2):  # twice is enough
            r = r - jnp.dot(jnp.dot(basis, r, precision=HIGHEST), basis, precision=HIGHEST)
        norm = jnp.linalg.norm(r)
        alive = norm > 1e-6 * jnp.abs(alpha[0])
        beta = beta.at[j].set(jnp.where(alive, norm, 0.0))
        return basis.at[j + 1].set(jnp.where(alive, r / norm, jnp.zeros_like(r)), mode="drop"), alpha, beta

    zeros = jnp.zeros((steps,), start.dtype)
    basis = jnp.zeros((steps, n), start.dtype).at[0].set(start / jnp.linalg.norm(start))
    _, alpha, beta = lax.fori_loop(0, steps, step, (basis, zeros, zeros))
    tridiagonal = jnp.diag(alpha) + jnp.diag(beta[:-1], 1) + jnp.diag(beta[:-1], -1)
    return jnp.linalg.eigvalsh(tridiagonal)[-1]
