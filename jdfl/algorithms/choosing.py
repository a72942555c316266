"""Who takes part: nodes that are active at random, and neighbours that a node weights or selects by its own data.

Axes: m nodes, n parameters, d slots of the neighbour table.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from jdfl.algorithms.round import MODEL, Round
from jdfl.base.streams import Stream, each
from jdfl.network import mix

ACTIVE = Stream("activity", "choice")


def active(p: Any, key: Array, round: Round) -> Array:
    """[m] bool: true with probability p [], independently over nodes and rounds; always true for p = 1.

    Drawn from `key`, the key of the stream ACTIVE at the start of the run. Which nodes are active is public: every
    observer is assumed to know it.
    """
    share = jnp.asarray(p, jnp.float32)
    draw = jax.vmap(lambda key: jax.random.uniform(key, (), jnp.float32) < share)  # draws lie in [0, 1)
    return draw(each(key, round.node, round.k))


def by_neighbour(function: Callable[[Array], Array], x: Array, round: Round) -> Array:
    """`function` of the rows of x [m, n] that each in-neighbour sends, [m, d]; padding has the value of the own row.

    One slot of all nodes is processed at a time, so no array [m, d, n] is formed.
    """
    rows = round.graph.gathered(x)
    return lax.map(lambda senders: function(rows[senders]), round.graph.senders.T).T


def largest(score: Array, among: Array, count: Any) -> Array:
    """The `count` entries of every row with the largest score [m, d], among [m, d] some; the first of equal ones."""
    order = jnp.argsort(jnp.where(among, -score, jnp.inf), axis=1)
    return among & (jnp.argsort(order, axis=1).astype(jnp.int32) < count)


def sent_to(takers: Array, x: Array, round: Round) -> Array:
    """The rows x [m, n], marked and counted as sent to the nodes that take them: the slots takers [m, d]."""
    takers = round.leaving(MODEL, takers)  # observers see which nodes are asked
    taken = jnp.any(takers, axis=1).astype(jnp.int32)
    round.trace.send(MODEL, round.graph.asked(takers), taken)
    return round.leaving(MODEL, x, to="asked")


def combined(weight: Array, own: Array, x: Array, round: Round) -> Array:
    """own_i x_i + sum_j weight_ij x_j [m, n] for x [m, n] that has been sent, weight [m, d], own [m]."""
    return mix(replace(round.graph, weight=weight, self_weight=own), x)
