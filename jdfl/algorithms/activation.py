"""Which nodes are active in a round, where every node decides on its own, at random.

Axes: m nodes.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from jdfl import checks, ops
from jdfl.base import Round

_ACTIVE = 36  # purpose of the keys


def check_activation(p: Any) -> None:
    """Refuse what is no probability of a round's activity: ValueError for p that is not one number in (0, 1]."""
    checks.shape((), "It is one number for all nodes.", p=p)
    checks.fraction("It is the probability that a node is active in a round.", p=p)


def active(p: Any, round: Round) -> Array:
    """[m] bool: true with probability p [], independently over nodes and rounds; always where p = 1."""
    share = jnp.asarray(p, jnp.float32)
    draw = jax.vmap(lambda key: jax.random.uniform(key, (), jnp.float32) < share)  # draws lie in [0, 1)
    return draw(ops.node_keys(round.key, _ACTIVE, round.node))
