"""Synchronisation: in some rounds all nodes take the mean of all, whatever the network between them.

In a synchronised round W = (1/m) 1 1^T. Nobody keeps a table of m - 1 neighbours for it: the graph says in a flag that
the round is one, and `mix` takes the mean.

Axes: m nodes.
"""

from dataclasses import replace

import jax.numpy as jnp
from jax import Array

from jdfl import checks, struct
from jdfl.arguments import checked
from jdfl.network.arcs import called
from jdfl.network.graph import Graph, Network
from jdfl.network.wrapping import base_is_network, refuse_late, wrapped


@struct.dataclass
class Synchronised:
    """A network in which everybody takes the mean of all in every so many rounds."""

    base: Network
    every: Array  # int32 [] rounds from one that is synchronised to the next
    name: str = struct.field(pytree_node=False, default="network")

    @property
    def m(self) -> int:
        """The number of nodes."""
        return self.base.m

    def at(self, k: Array, key: Array) -> Graph:
        """The graph of the network in it; in synchronised rounds own weights and `out_degree` are those of the mean."""
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
def synchronised(base: Network, every: int) -> Synchronised:
    """Everybody takes the mean of all nodes in the rounds every - 1, 2 every - 1, ..., and mixes as in `base` between.

    In such a round a node sends its row to all others, lossless and whoever took part in `base`. The published code of
    DPPS and PartPSP has it every 4 or 5 rounds. Put it around other wrappers, not into them. Doubly stochastic weights
    stay so. Algorithms that go by a table of neighbours refuse it. Raises `ValueError` for `every` < 1 and a base that
    is synchronised already, or whose messages are late.
    """
    base_is_network(base)
    refuse_late(base, "synchronised")
    checks.whole(most=2**31 - 1, remedy="It is the number of rounds from one mean of all to the next.", every=every)
    return Synchronised(wrapped(base), jnp.int32(every), f"synchronised(every={every}) of {called(base)}")
