"""Functions of arrays: projection (`top_s`, `support`), sparse rows, work on selected rows, exact totals.

Axes: m nodes, n parameters, s nonzeros of a row, d slots of the neighbour table, b rows of a block.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jdfl.arrays.projection import support as support
from jdfl.arrays.projection import top_s as top_s
from jdfl.base import struct
from jdfl.base.backend import backend
from jdfl.devices import nodes

HIGHEST = lax.Precision.HIGHEST  # TF32 or bf16 products would lose mass in mixing and accuracy in decoding


@struct.dataclass
class Nonzeros:
    """Rows [m, n] with at most s nonzeros each. A block of them is a dense array: `x[rows]`."""

    place: Array  # [m, s] int32, distinct within a row where values are not zero
    value: Array  # [m, s], including zeros where a row has fewer nonzeros
    n: int = struct.field(pytree_node=False)

    @property
    def shape(self) -> tuple[int, int]:
        """(m, n)."""
        return self.place.shape[0], self.n

    def __getitem__(self, rows: Array) -> Array:
        """The rows [b, n]; ids out of range are clipped."""
        return dense(jax.tree.map(lambda x: x[rows], self))


def largest(x: Array, s: int) -> Nonzeros:
    """The s largest entries of every row of x [m, n], the same that `top_s` keeps."""
    place, value = jax.vmap(lambda one: support(one, s))(x)
    return Nonzeros(place, value, x.shape[1])


def kept(x: Array, s: int, storage: Literal["dense", "sparse"]) -> Array | Nonzeros:
    """P_s x, the s largest entries of every row of x [m, n]; by `storage` n numbers per row ("dense") or `Nonzeros`."""
    return largest(x, s) if storage == "sparse" else top_s(x, s)


def dense(x: Array | Nonzeros) -> Array:
    """The rows of x [m, n] as one array."""
    if not isinstance(x, Nonzeros):
        return x
    return _added(x.place, x.value, x.n)


def gathered_sum(senders: Array, weight: Array, x: Nonzeros) -> Array:
    """The rows [b, n] of sum_j weight[:, j] x[senders[:, j]].

    Args:
        senders ([b, d]): Whose rows of x are added.
        weight ([b, d]): Their weights.
        x: The rows, with s stored entries each; an array [b, d, s] is made.
    """
    value = x.value[senders] * weight.astype(x.value.dtype)[:, :, None]
    b = senders.shape[0]
    return _added(x.place[senders].reshape(b, -1), value.reshape(b, -1), x.n)


def _added(place: Array, value: Array, n: int) -> Array:
    """Rows [b, n] of values [b, k] added at their positions [b, k]."""
    line = jnp.arange(place.shape[0])[:, None]
    return jnp.zeros((place.shape[0], n), value.dtype).at[line, place].add(value)


def permuted(key: Array, place: Array, size: Array) -> Array:
    """The images of positions [b] under a random permutation of 0 .. size-1; others are not computed.

    A Feistel network of eight rounds over the next even number of bits, walked until the result is below `size` (J.
    Black, P. Rogaway: Ciphers with Arbitrary Finite Domains, 2002).

    Args:
        key ([]): Key of the permutation.
        place ([b]): Positions from 0 to size - 1, whole numbers.
        size ([]): Number of positions, a whole number from 1.
    """
    size = size.astype(jnp.uint32)
    half = (33 - lax.clz(jnp.maximum(size, 2) - 1)) // 2  # bits of a half
    mask = (jnp.uint32(1) << half) - 1
    salts = jax.random.bits(key, (8,), jnp.uint32)

    def shuffle(x: Array) -> Array:
        left, right = x >> half, x & mask
        for salt in salts:
            h = (right ^ salt) * jnp.uint32(0x85EBCA6B)
            h = (h ^ (h >> 13)) * jnp.uint32(0xC2B2AE35)
            left, right = right, (left ^ h ^ (h >> 16)) & mask
        return (left << half) | right

    def walk(x: Array) -> Array:
        return jnp.where(x < size, x, shuffle(x))

    x = lax.while_loop(lambda x: jnp.any(x >= size), walk, shuffle(place.astype(jnp.uint32)))
    return x.astype(place.dtype)


def length(x: Array, norm: str, axes: tuple[int, ...] = (-1,)) -> Array:
    """The norm [...] of numbers, accurate for every magnitude: clipping relies on it.

    Plain squares become 0 below 1e-19 in float32, and infinite above 1e19, so small and large numbers are first
    multiplied by a power of two. There is no division by the largest entry: compiled, it would be a product with its
    reciprocal, which is 0 above 8e37. A norm too large for its type is infinite, and the norm of a NaN is NaN.

    Args:
        x ([...]): The numbers, of a floating type.
        norm: The norm: "l1", "l2" or "linf".
        axes: Axes of x to sum over, which the result does not have.
    """
    if norm == "l1":
        return jnp.sum(jnp.abs(x), axis=axes)
    top = jnp.max(jnp.abs(x), axis=axes, initial=0.0)
    if norm == "linf":
        return top
    bits = int(jnp.finfo(x.dtype).maxexp)
    small, large, shift = top < 2.0 ** (-bits // 4), top > 2.0 ** (bits // 4), 2.0 ** (5 * bits // 8)
    one = jnp.ones_like(top)
    if backend() != "cpu":  # all three sums in one pass, whichever is right
        plain, raised, lowered = (jnp.sum(jnp.square(x * by), axis=axes) for by in (1.0, shift, 1 / shift))
        found = jnp.where(small, raised, jnp.where(large, lowered, plain))
        return jnp.where(small, 1 / shift, jnp.where(large, shift, one)) * jnp.sqrt(found)
    up = jnp.where(small, shift, jnp.where(large, 1 / shift, one))
    down = jnp.where(small, 1 / shift, jnp.where(large, shift, one))
    return down * jnp.sqrt(jnp.sum(jnp.square(x * jnp.expand_dims(up, axes)), axis=axes))


def for_rows(wanted: Array, block: int, update: Callable[[Array, Any], Any], carry: Any) -> Any:
    """Apply a function to the rows that are wanted, one block at a time.

    The number of blocks follows from the number of wanted rows, so the others cost nothing and no burst is too large.

    Args:
        wanted ([m]): Which rows, bool.
        block: Rows per block, from 1.
        update: `update(rows [block], carry) -> carry`, from the ids of rows. An incomplete last block is filled with
            the row m, which is out of range: gathers clip it, so scatter with `mode="drop"`.
        carry: The initial value for the first block, a tree of arrays.

    Returns:
        The value after the last block.
    """
    m = wanted.shape[0]
    order = jnp.nonzero(wanted, size=-(-m // block) * block, fill_value=m)[0]
    blocks = (jnp.sum(wanted, dtype=jnp.int32) + (block - 1)) // block

    def one_block(b: Array, carry: Any) -> Any:
        return update(lax.dynamic_slice(order, (b * block,), (block,)), carry)

    with jax.named_scope(f"blocks_of_{block}"):  # what compiled programs call the loop
        return lax.fori_loop(0, blocks, one_block, carry)


def in_turn(steps: Array, body: Callable[[Array, Any], Any], carry: Any) -> Any:
    """`lax.fori_loop(0, steps, body, carry)` without work that no result needs.

    JAX removes from scans and conditions whatever no result depends on, including parts of the carry, but removes
    nothing from a loop with a traced number of iterations. Therefore these are nested scans of 32 iterations in which
    parts beyond `steps` are skipped.

    Args:
        steps ([]): Number of iterations, from 0 to 2^30.
        body: `body(k [], carry) -> carry`, one iteration, k counting from 0.
        carry: The initial value, a tree of arrays.
    """

    def part(size: int, begin: Array, carry: Any) -> Any:
        if size == 1:
            return body(begin, carry)

        def turn(carry: Any, i: Array) -> tuple[Any, None]:
            k = begin + i * (size // 32)
            return lax.cond(k < steps, partial(part, size // 32, k), lambda carry: carry, carry), None

        return lax.scan(turn, carry, jnp.arange(32, dtype=jnp.int32))[0]

    return part(32**6, jnp.int32(0), carry)


def skipped_unless(predicate: Array, function: Callable[..., Any], otherwise: Any, *operands: Any) -> Any:
    """The result of a function where a predicate holds, otherwise another value, at no cost.

    vmap turns a plain `lax.cond` whose predicate differs between lanes into one that gives every lane a copy of all
    operands, including shared ones. This computes all lanes instead and selects.

    Args:
        predicate ([]): Whether the function is computed, bool.
        function: A function of the operands, which captures no arrays.
        otherwise: The other value, a tree with the shapes and dtypes of the function's result.
        *operands: The arguments of the function, including all arrays that it needs.
    """

    @jax.custom_batching.custom_vmap
    def run(predicate: Array, otherwise: Any, *operands: Any) -> Any:
        return lax.cond(predicate, function, lambda *_: otherwise, *operands)

    @run.def_vmap
    def _(size: int, batched: Any, predicate: Array, otherwise: Any, *operands: Any) -> Any:  # pyright: ignore
        axes = jax.tree.map(lambda mapped: 0 if mapped else None, tuple(batched))

        def lane(predicate: Array, otherwise: Any, *operands: Any) -> Any:
            return jax.tree.map(lambda a, b: jnp.where(predicate, a, b), function(*operands), otherwise)

        found = jax.vmap(lane, in_axes=axes, axis_size=size)(predicate, otherwise, *operands)
        return found, jax.tree.map(lambda _: True, found)

    return run(predicate, otherwise, *operands)


def limbs(count: Array) -> Array:
    """The exact sums of a non-negative int32 count [..., m] as sums [8, ...], one per 4 bits (m up to 143 million)."""

    def added(place: Array) -> Array:
        return jnp.sum((count >> place) & 15, axis=-1, dtype=jnp.int32)

    return nodes.together(lax.map(added, _places()))  # sequential: eight sums side by side take long to compile


def product_limbs(count: Array, size: Array) -> Array:
    """The exact sum of products of two arrays of whole numbers, as partial sums [8, 8] (m up to 9 million).

    Args:
        count ([m]): The one factor, int32 and >= 0.
        size ([m]): The other factor, int32 and >= 0.
    """
    others = (size[None] >> _places()[:, None]) & 15

    def added(place: Array) -> Array:
        return jnp.sum(((count >> place) & 15)[None] * others, axis=-1, dtype=jnp.int32)

    return nodes.together(lax.map(added, _places()))


def _places() -> Array:
    """The first bit [8] of each group of 4 bits of an int32."""
    return jnp.arange(0, 32, 4, dtype=jnp.int32)


def from_limbs(partial: np.ndarray) -> int:
    """The Python int for partial [8] from `limbs`, or [8, 8] from `product_limbs` (on the host; no overflow)."""
    return sum(int(part) << (4 * sum(place)) for place, part in np.ndenumerate(np.asarray(partial)))


def largest_eigenvalue(apply: Callable[[Array], Array], start: Array, steps: int) -> Array:
    """lambda_max [] of a symmetric positive semidefinite map on vectors [n], by Lanczos with full reorthogonalisation.

    Args:
        apply: The map, from a vector [n] to a vector [n].
        start ([n]): Any nonzero vector.
        steps: Size of the Krylov space, from 1 (20-40 give four digits or more); n always suffices.
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
