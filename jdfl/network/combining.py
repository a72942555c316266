"""Whom nodes combine with: a share of those that they hear, or all nodes in some rounds, whatever the network between.

In a synchronised round W = (1/m) 1 1^T. Nobody keeps a table of m - 1 neighbours for it: the graph says in a flag that
the round is one, and `mix` takes the mean.

Axes: m nodes, d slots of the table.
"""

from dataclasses import replace
from typing import Annotated

import jax.numpy as jnp
from jax import Array

from jdfl.base import struct
from jdfl.base.arguments import checked
from jdfl.base.settings import As, Count
from jdfl.base.streams import Stream
from jdfl.network.graph import Graph, Network, Share, sample_neighbours
from jdfl.network.links import INNER, Around, around, ids

_HEARD = Stream("network.asked neighbours", "network")


@struct.dataclass
class PartialCommunication(Around):
    """A network of which a node combines a share of its in-neighbours, drawn anew in every round."""

    rate: Array  # float32 [] share of the in-neighbours
    include_self: bool = struct.field(pytree_node=False)  # a node counts among those that it asks

    def at(self, k: Array, key: Array) -> Graph:
        """The in-neighbours that the nodes ask in round k []."""
        graph = self.base.at(k, INNER.of(key))
        node = ids(self.m)
        wanted = self.rate * graph.in_degree.astype(jnp.float32)
        count = jnp.ceil(wanted - 1e-4).astype(jnp.int32)  # 0.2 * 15 is 3, not 4
        count = jnp.clip(count, jnp.minimum(graph.in_degree, 1), graph.in_degree)
        chosen = sample_neighbours(_HEARD.of(key), graph, node, count)
        parts = jnp.maximum(count + (1 if self.include_self else 0), 1).astype(jnp.float32)
        own = jnp.ones_like(parts) if self.include_self else (count == 0).astype(jnp.float32)
        return replace(
            graph,
            senders=jnp.where(chosen, graph.senders, node[:, None]),
            mask=chosen,
            weight=jnp.where(chosen, 1 / parts[:, None], 0),
            self_weight=own / parts,
            out_degree=jnp.zeros((self.m,), jnp.int32).at[graph.senders].add(graph.taken(chosen).astype(jnp.int32)),
            lossy=graph.timing is not None and graph.timing.first,  # all respond, not only who is first
        )


@checked
def partial_communication(base: Network, rate: Share, *, include_self: bool = True) -> PartialCommunication:
    """Every node asks a share of those that it hears, drawn anew in every round, and takes the plain mean.

    Of |N_i| in-neighbours it asks ceil(rate |N_i|). Sha, Zhou, Kong, Li, "Sparse Decentralized Federated Learning",
    give their baselines such networks under the suffix "-PC". Rows of W sum to one; columns do so only on average, and
    only in regular networks, so that the mean of all nodes is not kept. `out_degree` counts the nodes that ask. On a
    `timed` network with `first` a node asks all and combines the first that respond, and all messages count.

    Args:
        base: The network whose in-neighbours they are; its own weights are not used.
        rate: Share of its in-neighbours that a node asks, in (0, 1], rounded up to a whole number.
        include_self: Take the node's own row into the mean; otherwise a node without in-neighbours keeps its row.

    Raises:
        ValueError: For a rate out of range, and a base that is synchronised.
    """
    inside, name = around(base, f"partial communication(rate={rate:g})")
    return PartialCommunication(inside, jnp.float32(rate), include_self, name=name)


@struct.dataclass
class Synchronised(Around):
    """A network in which everybody takes the mean of all in every so many rounds."""

    every: Array  # int32 [] rounds from one that is synchronised to the next

    def at(self, k: Array, key: Array) -> Graph:
        """The graph inside; if round k [] is synchronised, own weights and `out_degree` are those of the mean."""
        graph = self.base.at(k, key)
        now = (k + 1) % self.every == 0
        return replace(
            graph,
            self_weight=jnp.where(now, jnp.full_like(graph.self_weight, 1 / self.m), graph.self_weight),
            out_degree=jnp.where(now, jnp.full_like(graph.out_degree, self.m - 1), graph.out_degree),
            synchronised=now,
        )

    @property
    def largest_out_degree(self) -> int:
        """The most nodes that hear one node in any round: all others."""
        return self.m - 1


@checked
def synchronised(base: Network, every: Annotated[Count, As(default=4)]) -> Synchronised:
    """All nodes take the mean of all in the rounds every - 1, 2 every - 1, ..., and mix as in a network between.

    In such a round a node sends its row to all others, lossless and whoever took part in the network. The published
    code of DPPS and PartPSP has it every 4 or 5 rounds. Put it around other wrappers, not into them. Doubly stochastic
    weights stay so. Algorithms that go by a table of neighbours refuse it.

    Args:
        base: The network of the rounds between.
        every: Rounds from one mean of all to the next, from 1.

    Raises:
        ValueError: For `every` < 1 and a base that is synchronised already, or whose messages are late.
    """
    inside, name = around(base, f"synchronised(every={every})", on_time="synchronised")
    return Synchronised(inside, jnp.int32(every), name=name)
