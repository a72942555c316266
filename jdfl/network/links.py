"""What networks that draw links have in common: random numbers for links, weights for them, a graph without some.

Axes: m nodes, d slots of the table.
"""

from dataclasses import replace

import jax
import jax.numpy as jnp
from jax import Array, lax

from jdfl import ops
from jdfl.network.graph import Graph


def link_uniform(key: Array, purpose: int, graph: Graph, *, directed: bool) -> Array:
    """Uniform numbers in [0, 1) for all slots [m, d]: the same for both ways of a link, unless `directed`.

    They follow from the key and the two nodes, so that both know them and no other link changes them.
    """
    node = jnp.arange(graph.m, dtype=jnp.int32)
    one, other = jnp.broadcast_to(node[:, None], graph.senders.shape), graph.senders
    if not directed:
        one, other = jnp.minimum(one, other), jnp.maximum(one, other)
    keys = jax.vmap(jax.vmap(jax.random.fold_in))(ops.node_keys(key, purpose, node)[one], other)
    return jax.vmap(jax.vmap(lambda link: jax.random.uniform(link, (), jnp.float32)))(keys)


def equal_shares(count: Array) -> tuple[Array, Array]:
    """A node's row in equal parts for itself and the `count` [m] int32 that hear it: their weight, its own, both [m].

    The own one is 1 - count * weight without rounding while count < 4096: the weight is taken in two parts, whose
    products with the count are exact in float32.
    """
    number = count.astype(jnp.float32)
    weight = 1 / (1 + number)
    short = lax.reduce_precision(weight, exponent_bits=8, mantissa_bits=11)
    return weight, (1 - number * short) - number * (weight - short)


def without(graph: Graph, up: Array) -> Graph:
    """The graph with only the slots `up` [m, d]; the others' weight goes to the node's own. `out_degree` is as it was.

    Own weights are changed by what is missing, not summed anew, so that with nothing missing W stays as it is.
    """
    up = graph.mask & up
    node = jnp.arange(graph.m, dtype=graph.senders.dtype)[:, None]
    weight = jnp.where(up, graph.weight, 0)
    return replace(
        graph,
        senders=jnp.where(up, graph.senders, node),
        mask=up,
        weight=weight,
        self_weight=graph.self_weight + jnp.sum(graph.weight - weight, axis=1),
    )
