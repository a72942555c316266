"""Which nodes are active in a round, where every node decides on its own, at random.

Axes: m nodes, n parameters.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from jdfl.algorithms.round import Round
from jdfl.base.streams import Stream, each

ACTIVE = Stream("activity", "choice")


def active(p: Any, key: Array, round: Round) -> Array:
    """[m] bool: true with probability p [], independently over nodes and rounds; always where p = 1.

    Drawn from `key`, the stream ACTIVE of the run's start. Everybody sees who is active, and an attacker reckons with
    it.
    """
    share = jnp.asarray(p, jnp.float32)
    draw = jax.vmap(lambda key: jax.random.uniform(key, (), jnp.float32) < share)  # draws lie in [0, 1)
    return draw(each(key, round.node, round.k))
