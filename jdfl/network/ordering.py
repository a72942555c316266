"""Networks with their nodes in the order of given names, on the host.

Axes: m nodes.
"""

from dataclasses import fields, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jdfl.base import struct
from jdfl.base.names import Names, NodeNames, order_of
from jdfl.network.graph import Graph
from jdfl.network.matching import Matchings
from jdfl.network.sequences import Periodic, RandomChoice
from jdfl.network.tables import called, relabel


def in_order_of(network: Any, names: Names) -> Any:
    """The network with its nodes, and all that it has per node, in the order of these names; ValueError for others."""
    order = order_of(names, network.node_names, ("problem", "network"))
    return network if order is None else _moved(struct.each_row(lambda x: x[order], network), order, names)


def _moved(network: Any, order: np.ndarray, names: Names) -> Any:
    """Everything that is not marked as `per_node`: tables of neighbours, matchings, and the base of a wrapper."""
    if hasattr(network, "base"):
        ours = type(network).__module__.partition(".")[0] == __name__.partition(".")[0]
        marked = {one.name for one in fields(network) if one.name == "base" or one.metadata.get("per_node")}
        own = {one.name: getattr(network, one.name) for one in fields(network) if one.name not in marked}
        if not ours and any(np.ndim(leaf) and len(leaf) == network.m for leaf in jax.tree.leaves(own)):
            _refuse_to_move(network)
        return replace(network, base=_moved(network.base, order, names))
    if isinstance(getattr(network, "graph", None), Graph):
        return replace(network, graph=_sorted(relabel(network.graph, order)))
    if isinstance(network, Periodic | RandomChoice):
        turns = [_sorted(relabel(network.turn(j), order)) for j in range(network.size)]
        return replace(network, graphs=jax.tree.map(lambda *leaves: jnp.stack(leaves), *turns))
    if isinstance(network, Matchings):
        partner = np.argsort(order)[np.asarray(network.partner)[order]]
        return replace(network, partner=jnp.asarray(partner, jnp.int32), names=NodeNames(names))
    return _refuse_to_move(network)


def _sorted(graph: Graph) -> Graph:
    """The same graph with every row's slots sorted by sender: the order in which nodes were given leaves no trace."""
    mask, senders = np.asarray(graph.mask), np.asarray(graph.senders)
    place = np.argsort(np.where(mask, senders, graph.m), axis=1, kind="stable")
    parts = {"senders": senders, "mask": mask, "weight": np.asarray(graph.weight)}
    return replace(graph, **{name: jnp.asarray(np.take_along_axis(x, place, axis=1)) for name, x in parts.items()})


def _refuse_to_move(network: Any) -> Any:
    raise ValueError(
        f"Expected a network whose nodes can be put in the order of the problem's, got {called(network)}, a "
        f"{type(network).__name__}. Build it for the nodes in this order, network.named(problem.node_names), or mark "
        "its arrays with a row per node by jdfl.base.struct.field(per_node=True)."
    )
