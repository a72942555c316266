"""Other weights for the links of a round, for methods that need more than the network's own W.

Axes: m nodes, d slots.
"""

from dataclasses import replace

import jax.numpy as jnp

from jdfl.network.graph import Graph
from jdfl.network.links import equal_shares


def averaging(graph: Graph) -> Graph:
    """The same links with equal weights in every row, which sum to one: a node averages what it receives with its own.

    This is the row-stochastic matrix of methods for directed networks. Receivers can compute it themselves.
    """
    weight, own = equal_shares(jnp.sum(graph.mask, axis=1, dtype=jnp.int32))
    return replace(graph, weight=jnp.where(graph.mask, weight[:, None], 0), self_weight=own)


def adding(graph: Graph) -> Graph:
    """The same links with weight 1, and 0 for a node itself: mixing adds up what the in-neighbours send.

    `Round.pull` then computes minus the product with the Laplacian of the graph, sum_j (x_j - x_i).
    """
    return replace(graph, weight=graph.mask.astype(graph.weight.dtype), self_weight=jnp.zeros_like(graph.self_weight))
