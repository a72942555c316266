"""D-PSGD on least squares with single, clipped, noisy examples: a whole round in one kernel (`jdfl.kernels.one_round`).

The kernel has the noise of the other form, number for number up to rounding, from the same keys, and the same clipping.
What a round sends, computes and releases is counted by that form, which is traced in any case; where the kernel takes
its place, the compiler leaves it out.

Axes: m nodes, n parameters.
"""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from jdfl.algorithms.gradients import NOISE, Gradients
from jdfl.algorithms.round import LOOKS, Round
from jdfl.algorithms.sending import exact
from jdfl.arrays import ops
from jdfl.base import keys
from jdfl.kernels import one_round
from jdfl.privacy import Gaussian, factor
from jdfl.problems import LinearRegression


def fits(gradients: Gradients, x: Array, round: Round) -> bool:
    """Whether a round that mixes x [m, n] and adds a step along `gradients` at x fits the kernel."""
    settings = gradients.batch, gradients.per, gradients.norm, gradients.noisy
    graph, problem = round.graph, round.problem
    return (
        type(problem) is LinearRegression
        and one_round.fits(x, problem.data[0])
        and settings == (1, "example", "l2", "always")
        and gradients.clip is not None
        and gradients.sampling != "poisson"
        and type(gradients.mechanism) is Gaussian
        and (round.rows, round.exchanging, graph.late, graph.synchronised, graph.halo) == (None,) * 5
        and graph.format == "padded"
        and exact(round.codec, x)
    )


def mixed_and_descended(gradients: Gradients, x: Array, lr: Any, round: Round) -> Array:
    """W x - lr g [m, n] with clipped gradients g of one example per node and their noise, for what fits."""
    problem, graph = round.problem, round.graph
    A, b = problem.data
    places = jnp.broadcast_to(jnp.arange(b.shape[1], dtype=jnp.int32), b.shape)
    place, weight, total = gradients.sample(replace(round, problem=replace(problem, data=places)))
    mechanism: Any = gradients.mechanism
    scale = mechanism.multiplier * gradients.sensitivities(problem)
    words = jax.random.key_data(round.keys(NOISE, round.local_step * LOOKS))

    def move(w: Array, a: Array, place: Array, *node: Any) -> Array:
        b, weight, total, clip, scale, lr, key = node
        slope = jnp.sum(w * a) - b[place]
        share = weight[0] * factor(ops.length(a, "l2") * jnp.abs(slope), clip[0])
        clipped = jnp.where(share > 0, slope, 0.0) * share * a / total[0]
        return -lr[0] * (clipped + scale[0] * keys.normal((key[0], key[1]), a.shape[0]))

    of_all = (jnp.asarray(one, x.dtype).reshape(-1) for one in (gradients.clip, scale, lr))
    rest = b, weight[:, 0], total, *of_all, words
    table = graph.senders, graph.weight, graph.self_weight
    return one_round.mixed_and_moved(x, table, A, place[:, 0], rest, move)
