"""Spanning trees of a graph, for methods that send along one.

Axes: m nodes, d slots.
"""

from dataclasses import replace

import jax.numpy as jnp
from jax import Array, lax

from jdfl.devices import nodes
from jdfl.network.graph import Graph


def parents(graph: Graph, node: Array) -> Array:
    """The ids [m] of the nodes' parents in a breadth-first spanning tree from node 0, which has the parent -1.

    A parent is the neighbour with the smallest id of those nearest to node 0, so the tree depends on ids alone.
    """
    most = jnp.int32(nodes.count(node.shape[0]))

    def nearer(carry: tuple[Array, Array]) -> tuple[Array, Array]:
        near = jnp.where(graph.mask, graph.gathered(carry[0])[graph.senders] + 1, most)
        new = jnp.minimum(carry[0], near.min(axis=1, initial=most))
        return new, nodes.total((new != carry[0]).astype(jnp.int32)) > 0

    start = jnp.where(node == 0, jnp.int32(0), most)
    far, _ = lax.while_loop(lambda carry: carry[1], nearer, (start, jnp.bool_(True)))
    before = graph.mask & (graph.gathered(far)[graph.senders] == far[:, None] - 1)
    ids = jnp.where(before, graph.gathered(node)[graph.senders], most)
    return jnp.where(node == 0, jnp.int32(-1), ids.min(axis=1, initial=most))


def branches(graph: Graph, node: Array, parent: Array) -> tuple[Graph, Graph]:
    """The graph with the links of a tree alone, and weights with which mixing gives every node the row of its parent.

    The second has weights that give the sum of its children's rows. The `parent` [m] is the result of `parents`.
    """
    above = graph.mask & (graph.gathered(node)[graph.senders] == parent[:, None])
    below = graph.mask & (graph.gathered(parent)[graph.senders] == node[:, None])
    mask, own = above | below, jnp.zeros_like(graph.self_weight)
    tree = replace(graph, mask=mask, self_weight=own, out_degree=jnp.sum(mask, axis=1, dtype=jnp.int32))
    first, second = (replace(tree, weight=slots.astype(graph.weight.dtype)) for slots in (above, below))
    return first, second
