"""Networks that change what nodes combine: a random share of their in-neighbours, or periodically all nodes.

In a synchronised round W = (1/m) 1 1^T. No table of m - 1 neighbours is stored for it: a flag in the graph marks the
round, and `mix` takes the mean.

Axes: m nodes, d slots of the table.
"""

from dataclasses import replace
from typing import Annotated, Any

import jax.numpy as jnp
from jax import Array

from jdfl.base import struct
from jdfl.base.arguments import checked
from jdfl.base.settings import As, Count
from jdfl.base.streams import Stream
from jdfl.network.graph import Graph, Network, Share, sample_neighbours
from jdfl.network.links import INNER, Around, around, ids
from jdfl.network.tables import called

_HEARD = Stream("network.asked neighbours", "network")


@struct.dataclass
class PartialCommunication(Around):
    """A network in which each node combines a random share of its in-neighbours, redrawn in each round."""

    rate: Array  # float32 [] share of the in-neighbours
    include_self: bool = struct.field(pytree_node=False)  # whether the node's own row enters the mean

    def at(self, k: Array, key: Array) -> Graph:
        """The in-neighbours whose messages each node requests in round k []."""
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
            lossy=graph.timing is not None and graph.timing.first,  # all in-neighbours respond, not only the first ones
        )


@checked
def partial_communication(base: Network, rate: Share, *, include_self: bool = True) -> PartialCommunication:
    """Each node averages a random share of its in-neighbours, redrawn in each round (partial communication).

    A node with |N_i| in-neighbours requests ceil(rate |N_i|) messages. Sha, Zhou, Kong, Li, "Sparse Decentralized
    Federated Learning", run their baselines on such networks under the suffix "-PC". Rows of W sum to one; columns do
    so only in expectation, and only in regular networks, so the mean over nodes is not preserved. `out_degree` counts
    the nodes that request a message. On a `timed` network with `first`, a node requests all messages and combines the
    first that arrive; all of them count as sent.

    Args:
        base: The network that defines the in-neighbours; its own weights are not used.
        rate: Share of its in-neighbours that a node combines, in (0, 1], rounded up to a whole number.
        include_self: Include the node's own row in the average; otherwise a node without in-neighbours keeps its row.

    Raises:
        ValueError: For a rate out of range, and a base that is synchronised or has other weights.
    """
    inner: Any = base
    while isinstance(inner, Around):
        for name, usual in (("weights", "own"), ("include_self", True)):
            if (found := getattr(inner, name, usual)) != usual:
                raise ValueError(
                    f"Expected {name} = {usual!r} inside partial_communication, got {found!r} in {called(base)}: the "
                    "mean over the share replaces all weights. Put that wrapper around it, or leave the setting out."
                )
        inner = inner.base
    inside, name = around(base, f"partial communication(rate={rate:g})", lossless="partial_communication")
    return PartialCommunication(inside, jnp.float32(rate), include_self, name=name)


@struct.dataclass
class Synchronised(Around):
    """A network with periodic global averaging: every `every`-th round, all nodes take the mean over all nodes."""

    every: Array  # int32 [] period, in rounds, of global averaging

    def at(self, k: Array, key: Array) -> Graph:
        """The base's graph; in a synchronised round k [], own weights and `out_degree` are those of the global mean."""
        graph = self.base.at(k, key)
        now = (k + 1) % self.every == 0
        return replace(
            graph,
            self_weight=jnp.where(now, jnp.full_like(graph.self_weight, 1 / self.m), graph.self_weight),
            out_degree=jnp.where(now, jnp.full_like(graph.out_degree, self.m - 1), graph.out_degree),
            synchronised=now,
            away=None if graph.away is None else graph.away & ~now,  # all nodes take part
        )

    @property
    def largest_out_degree(self) -> int:
        """The largest number of receivers of one node in any round: all others."""
        return self.m - 1


@checked
def synchronised(base: Network, every: Annotated[Count, As(default=4)]) -> Synchronised:
    """Periodic global averaging: all nodes take the global mean in every `every`-th round, and mix as usual in between.

    The synchronised rounds are every - 1, 2 every - 1, .... In them each node sends its row to all others without loss,
    regardless of who participates in the base network. The published code of DPPS and PartPSP synchronises every 4 or 5
    rounds. Put it around other wrappers, not inside them. Doubly stochastic weights stay doubly stochastic. Algorithms
    that read the table of neighbours refuse such a network.

    Args:
        base: The network of the rounds in between.
        every: Period of global averaging, in rounds, from 1.

    Raises:
        ValueError: For `every` < 1, and for a base that is synchronised already or has late messages.
    """
    inside, name = around(base, f"synchronised(every={every})", on_time="synchronised")
    return Synchronised(inside, jnp.int32(every), name=name)
