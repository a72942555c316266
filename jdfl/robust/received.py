"""What every node has received in a round: its in-neighbours' rows, without those that are not finite.

Nothing here forms an array [m, d, n] of all nodes: what needs the rows themselves is computed for a few nodes at a
time, and what needs numbers about rows one slot after another.

Axes: m nodes, d slots of the table of in-neighbours, n parameters.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from jdfl.base import struct
from jdfl.devices.blocks import in_blocks
from jdfl.network import Graph, gather_sum

_WIDE = 64  # slots from which ranks are found by sorting


@struct.dataclass
class Aimed:
    """Rows that attackers send to single nodes: all attackers send the same row to the same node."""

    liars: Array  # [m] bool the attackers
    rows: Array  # [m, n] row i: what node i receives from each of them


@struct.dataclass
class Received:
    """The rows of a round as rules read them.

    A row that is not finite is left out, as if its sender had sent nothing.
    """

    graph: Graph
    own: Array  # [m, n] the nodes' own rows
    rows: Array  # [M, n] the rows that `graph.senders` indexes, zero where they are not finite
    here: Array  # [m, d] bool the slots with a finite row
    k: Array | int = 0  # [] the round, from 0
    aim: Array | None = None  # [m, d] bool the slots whose row is that of `aimed`; None: no slot
    aimed: Array | None = None  # [m, n]

    @staticmethod
    def of(
        graph: Graph, own: Array, sent: Array | None = None, *, aimed: Aimed | None = None, k: Any = 0
    ) -> "Received":
        """What the nodes of a graph have received.

        Args:
            graph: The network of the round, without synchronised rounds.
            own: The nodes' own rows, own [m, n].
            sent: The rows that arrive from them, sent [m, n]; None: their own.
            aimed: The rows that attackers send to single nodes; None: there are none.
            k: The number of the round.
        """
        if graph.synchronised is not None:
            raise ValueError(
                "Expected a network without synchronised rounds for robust rules, which read the table of neighbours. "
                "Use the network inside it."
            )
        rows, fine = _finite(graph.gathered(own if sent is None else sent))
        here = graph.mask & fine[graph.senders]
        if aimed is None:
            return Received(graph, own, rows, here, k)
        aim = graph.mask & graph.gathered(aimed.liars)[graph.senders]
        thrown, sound = _finite(aimed.rows)
        return Received(graph, own, rows, jnp.where(aim, sound[:, None], here), k, aim, thrown)

    @property
    def count(self) -> Array:
        """How many finite rows a node has received [m] int32."""
        return jnp.sum(self.here, axis=1, dtype=jnp.int32)

    @property
    def weight(self) -> Array:
        """The mixing weights of these rows [m, d], 0 elsewhere."""
        return jnp.where(self.here, self.graph.weight, 0).astype(self.own.dtype)

    def heaviest(self, b: Array | int) -> Array:
        """The sum [m] of the b largest weights in every row: the most weight that b attackers may have."""
        high = -jnp.sort(-self.weight, axis=1)
        return jnp.sum(jnp.where(jnp.arange(high.shape[1])[None] < b, high, 0), axis=1)

    def slots(self, function: Callable[[Array], Array]) -> Array:
        """The numbers [m, d] that `function` gives [m] for the rows [m, n] of one slot after another."""
        aim = jnp.zeros_like(self.here) if self.aim is None else self.aim

        def one(slot: tuple[Array, Array]) -> Array:
            z = self.rows.at[slot[0]].get(mode="promise_in_bounds")
            return function(z if self.aimed is None else jnp.where(slot[1][:, None], self.aimed, z))

        return lax.map(one, (self.graph.senders.T, aim.T)).T

    def distances(self) -> Array:
        """The distances ||x_j - x_i|| [m, d] of the rows from the node's own; infinite in slots without a row."""
        far = self.slots(lambda z: jnp.sqrt(jnp.sum((z - self.own) ** 2, axis=1)))
        return jnp.where(self.here, far, jnp.inf)

    def moved(self, share: Array) -> Array:
        """x_i + sum_j share_ij (x_j - x_i) [m, n] for shares [m, d]; those of slots without a row do not count."""
        share = jnp.where(self.here, share, 0).astype(self.own.dtype)
        own = (1 - jnp.sum(share, axis=1))[:, None] * self.own
        if self.aim is None or self.aimed is None:
            return own + gather_sum(self.graph.senders, share, self.rows)
        thrown = jnp.sum(jnp.where(self.aim, share, 0), axis=1)[:, None] * self.aimed
        return own + thrown + gather_sum(self.graph.senders, jnp.where(self.aim, 0, share), self.rows)

    def each(self, function: Callable[[Array, Array, Array], Array]) -> Array:
        """The rows [m, n] of `function(own [n], others [d, n], here [d]) -> [n]`, of a few nodes at a time."""
        d, n = self.here.shape[1], self.own.shape[1]
        aim = jnp.zeros_like(self.here) if self.aim is None else self.aim
        thrown = self.own if self.aimed is None else self.aimed

        def some(own: Array, senders: Array, here: Array, aim: Array, thrown: Array) -> Array:
            others = lax.optimization_barrier(self.rows.at[senders].get(mode="promise_in_bounds"))
            if self.aimed is not None:
                others = jnp.where(aim[:, :, None], thrown[:, None], others)
            return jax.vmap(function)(own, others, here)

        return in_blocks(some, self.own, self.graph.senders, self.here, aim, thrown, numbers=4 * (d + 1) * n)


def nearer(far: Array, value: Array) -> Array:
    """For every slot the sum [m, d] of `value` [m, d] over it and the slots with a smaller `far` [m, d].

    Of equal ones the earlier slot counts as smaller.
    """
    d = far.shape[1]
    if d > _WIDE:
        order = jnp.argsort(far, axis=1)
        total = jnp.cumsum(jnp.take_along_axis(value, order, axis=1), axis=1)
        return jnp.take_along_axis(total, jnp.argsort(order, axis=1), axis=1)
    slot = jnp.arange(d)

    def add(k: Array, total: Array) -> Array:
        one = far[:, k, None]
        before = (one < far) | ((one == far) & (k <= slot)[None])
        return total + jnp.where(before, value[:, k, None], 0)

    return lax.fori_loop(0, d, add, jnp.zeros_like(value))


def rank(far: Array, here: Array) -> Array:
    """The ranks [m, d] int32 of slots by `far` [m, d] among those that are `here` [m, d], from 0; d elsewhere."""
    found = nearer(jnp.where(here, far, jnp.inf), here.astype(jnp.int32)) - 1
    return jnp.where(here, found, far.shape[1])


def _finite(x: Array) -> tuple[Array, Array]:
    """The rows of x [m, n] with zeros in those that are not finite, and which are finite [m]."""
    fine = jnp.isfinite(jnp.sum(x * 0, axis=1))
    return jnp.where(fine[:, None], x, 0), fine
