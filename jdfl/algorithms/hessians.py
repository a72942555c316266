"""Hessians as functions of vectors: products, and linear systems that conjugate gradients solve.

No matrix is formed. A product reads the same examples as a gradient and costs about as much, so it counts as one.

Axes: m nodes, n parameters.
"""

from collections.abc import Callable
from typing import Annotated

import jax
import jax.numpy as jnp
from jax import Array, lax

from jdfl.algorithms.gradients import Gradients
from jdfl.algorithms.round import Round
from jdfl.base.settings import Only

Product = Callable[[Array], Array]
Smooth = Annotated[Gradients, Only(("batch", "sampling"))]


def check_smooth(method: str, gradients: Gradients) -> None:
    """Raise ValueError for gradients that are clipped or noisy, and so not those of a function with a Hessian."""
    if gradients.clip is not None or gradients.mechanism is not None:
        raise ValueError(
            f"Expected gradients without clip and noise for {method}, which takes their derivatives, got clip = "
            f"{gradients.clip!r} and mechanism = {gradients.mechanism!r}. Leave them out, or use DSGT."
        )


def derivatives(gradients: Gradients, x: Array, round: Round) -> tuple[Array, Product]:
    """The gradients [m, n] at x [m, n], and v [m, n] -> H_i v_i [m, n], on the same examples.

    One gradient is counted, and none for the products.
    """
    round.book.grads = round.book.grads + 1
    sample = gradients.sample(round)
    return jax.linearize(lambda w: gradients.exact(round.problem, w, *sample), x)


def solve(times: Product, b: Array, steps: int, round: Round) -> Array:
    """The z [m, n] with A_i z_i = b_i for every node, after some steps of conjugate gradients from z = 0.

    In exact arithmetic z is right after as many steps as A_i has distinct eigenvalues, at most n. A node stops where
    its A_i is not positive in the direction of the step.
    """
    round.book.grads = round.book.grads + steps

    def step(_: Array, carry: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
        z, r, p, rr = carry
        Ap = times(p)
        a = _ratio(rr, _dot(p, Ap))
        r = r - a * Ap
        new = _dot(r, r)
        return z + a * p, r, r + _ratio(new, rr) * p, new

    return lax.fori_loop(0, steps, step, (jnp.zeros_like(b), b, b, _dot(b, b)))[0]


def _dot(a: Array, b: Array) -> Array:
    """The inner products [m, 1] of rows."""
    return jnp.sum(a * b, axis=1, keepdims=True)


def _ratio(a: Array, b: Array) -> Array:
    """A / b [m, 1], and 0 where b is not above zero."""
    return jnp.where(b > 0, a / jnp.where(b > 0, b, 1), 0)
