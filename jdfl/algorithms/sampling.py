"""Which of its examples a node uses in a step.

Axes: m nodes, q examples per node, b examples of one gradient.
"""

from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax import Array

from jdfl.algorithms.round import Round
from jdfl.arrays import ops
from jdfl.base.streams import Stream, each

Sampler = Literal["replacement", "subset", "poisson", "epochs", "in order"]
_BATCH = Stream("gradients.batch", "private")
PRIVATE = (_BATCH.number,)  # whose draws decide which records a gradient uses


def sample(round: Round, sampling: Sampler, batch: int) -> tuple[Any, Array, Array]:
    """Every node's examples of a local step, leaves [m, b, ...], their weights [m, b], and the divisor [m]."""
    problem = round.problem
    data, weight, total = problem.data, problem.weight, jnp.sum(problem.weight, axis=1)
    keys = round.keys(_BATCH, round.local_step)
    share = batch / problem.sizes.astype(weight.dtype)
    if sampling == "poisson":
        taken = jax.vmap(lambda key, p: jax.random.bernoulli(key, p, weight.shape[1:]))(keys, share)
        return data, jnp.where(taken, weight, 0.0), total * share
    if sampling in ("epochs", "in order"):
        place = _turn(round, batch, round.prepared.gradients.order if sampling == "epochs" else None)
        data, weight = jax.vmap(problem.take)(data, place), jnp.take_along_axis(weight, place, axis=1)
        return data, weight, jnp.sum(weight, axis=1)
    draw = problem.subset if sampling == "subset" else problem.minibatch
    data, weight = jax.vmap(draw, (0, 0, 0, None))(keys, data, weight, batch)
    return data, weight, jnp.sum(weight, axis=1) if sampling == "replacement" else total * share


def _turn(round: Round, batch: int, order: Array | None) -> Array:
    """The positions [m, b] of the examples of a local step; `order` is the key of the passes' orders."""
    sizes, step = round.problem.sizes, round.k * round.local_steps + round.local_step  # counted over all rounds
    rounds = sizes // batch  # per pass
    place = (step % rounds)[:, None] * batch + jnp.arange(batch, dtype=jnp.int32)[None]
    if order is None:
        return place
    keys = jax.vmap(jax.random.fold_in)(each(order, round.node), step // rounds)
    return jax.vmap(ops.permuted)(keys, place, sizes)
