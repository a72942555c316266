"""Partial communication: in every round a node combines only some of those that it hears.

Axes: m nodes, d slots of the table.
"""

from dataclasses import replace
from typing import Any

import jax.numpy as jnp
from jax import Array

from jdfl import checks, struct
from jdfl.arguments import checked
from jdfl.network.arcs import called
from jdfl.network.graph import Graph, Network, sample_neighbours
from jdfl.network.wrapping import INNER, Around, base_is_network, wrapped
from jdfl.streams import Stream

_HEARD = Stream("network.asked neighbours", "network")


@struct.dataclass
class PartialCommunication(Around):
    """A network of which a node combines a share of its in-neighbours, drawn anew in every round."""

    base: Network
    rate: Array  # float32 [] share of the in-neighbours
    include_self: bool = struct.field(pytree_node=False)  # a node counts among those that it asks
    name: str = struct.field(pytree_node=False, default="network")

    def at(self, k: Array, key: Array) -> Graph:
        """The in-neighbours that the nodes ask in this round."""
        graph = self.base.at(k, INNER.of(key))
        node = jnp.arange(self.m, dtype=jnp.int32)
        wanted = self.rate * graph.in_degree.astype(jnp.float32)
        count = jnp.ceil(wanted - 1e-4).astype(jnp.int32)  # 0.2 * 15 is 3, not 4
        count = jnp.clip(count, jnp.minimum(graph.in_degree, 1), graph.in_degree)
        chosen = sample_neighbours(_HEARD.of(key), graph, node, count)
        parts = jnp.maximum(count + (1 if self.include_self else 0), 1).astype(jnp.float32)
        weight = jnp.where(chosen, 1 / parts[:, None], 0)
        own = jnp.ones_like(parts) if self.include_self else (count == 0).astype(jnp.float32)
        return replace(
            graph,
            senders=jnp.where(chosen, graph.senders, node[:, None]),
            mask=chosen,
            weight=weight,
            self_weight=own / parts,
            out_degree=jnp.zeros((self.m,), jnp.int32).at[graph.senders].add(graph.taken(chosen).astype(jnp.int32)),
            lossy=graph.timing is not None and graph.timing.first,  # all respond, not only who is first
        )


@checked
def partial_communication(base: Network, rate: Any, *, include_self: bool = True) -> PartialCommunication:
    """Every node asks ceil(rate |N_i|) of the in-neighbours N_i that it has in `base`, drawn anew in every round.

    It takes the plain mean of what they send and of its own row (without `include_self`, of what they send only; a
    node without in-neighbours keeps its row). Sha, Zhou, Kong, Li, "Sparse Decentralized Federated Learning", give
    their baselines such networks under the suffix "-PC". Rows of W sum to one; columns do so only on average, and only
    in regular networks, so that the mean of all nodes is not kept. `out_degree` counts the nodes that ask. On a `timed`
    network with `first` a node asks all and combines the first that respond, and all messages count.

    Raises `ValueError` for a rate outside (0, 1].
    """
    base_is_network(base)
    checks.fraction("It is the share of its in-neighbours that a node asks.", rate=rate)
    checks.shape((), "It is one number for all nodes.", rate=rate)
    checks.one_of((False, True), include_self=include_self)
    name = f"partial communication(rate={float(rate):g}) of {called(base)}"
    return PartialCommunication(wrapped(base), jnp.float32(rate), include_self, name)
