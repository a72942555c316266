"""Random activation: in every round, each node decides independently whether it is active.

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
    """[m] bool: true with probability p [], independently over nodes and rounds; always true for p = 1.

    Drawn from `key`, the key of the stream ACTIVE at the start of the run. Which nodes are active is public: every
    observer is assumed to know it.
    """
    share = jnp.asarray(p, jnp.float32)
    draw = jax.vmap(lambda key: jax.random.uniform(key, (), jnp.float32) < share)  # draws lie in [0, 1)
    return draw(each(key, round.node, round.k))
