"""Which nodes are active in a round, where every node decides on its own, at random.

Axes: m nodes, n parameters.
"""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from jdfl import checks, ops
from jdfl.algorithms.gradients import Gradients
from jdfl.base import Round
from jdfl.problems import Problem
from jdfl.streams import Stream, each

ACTIVE = Stream("activity", "choice")


def check_activation(p: Any) -> None:
    """Refuse what is no probability of a round's activity: ValueError for p that is not one number in (0, 1]."""
    checks.shape((), "It is one number for all nodes.", p=p)
    checks.fraction("It is the probability that a node is active in a round.", p=p)


def gradients_of(on: Array, gradients: Gradients, x: Array, problem: Problem, round: Round, block: int | None) -> Array:
    """The gradients at x [m, n] of the nodes that are `on` [m], in rows of [m, n] whose others mean nothing.

    With `block` no others are computed, and so many at a time: less work where few nodes are active and gradients look
    at many examples. Without it all are. Both give the same but for rounding.
    """
    if block is None:
        return gradients(x, problem, round)

    def some(rows: Array, g: Array) -> Array:
        theirs = replace(round, node=round.node[rows])
        return g.at[rows].set(gradients.rows(rows)(x[rows], problem.nodes(rows), theirs), mode="drop")

    return ops.for_rows(on, min(block, round.m), some, jnp.zeros_like(x))


def active(p: Any, key: Array, round: Round) -> Array:
    """[m] bool: true with probability p [], independently over nodes and rounds; always where p = 1.

    Drawn from `key`, the stream ACTIVE of the run's start. Everybody sees who is active, and an attacker reckons with
    it.
    """
    share = jnp.asarray(p, jnp.float32)
    draw = jax.vmap(lambda key: jax.random.uniform(key, (), jnp.float32) < share)  # draws lie in [0, 1)
    return draw(each(key, round.node, round.k))
