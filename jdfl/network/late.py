"""Messages that arrive a bounded number of rounds late, and sums over neighbours with them.

Algorithms use them in one of two ways. Those that mix rows take the newest message that has arrived from each neighbour
(`Past`), so the row sums of W are kept. Push-sum adds each arriving message exactly once, whenever it arrives (`Mail`),
so the sum over all nodes is conserved: it is either at the nodes or in transit.

Axes: m nodes, M on all devices, n parameters, d slots of the table, b rounds of the bound.
"""

from dataclasses import replace
from typing import Annotated

import jax
import jax.numpy as jnp
from jax import Array, lax

from jdfl.base import struct
from jdfl.base.arguments import checked
from jdfl.base.settings import Bound
from jdfl.base.streams import Stream
from jdfl.network.graph import Graph, Late, Network, Share, Static
from jdfl.network.links import Lasting, around, link_keys, uniform, without
from jdfl.network.sums import gather_sum
from jdfl.network.tables import called

_LATE, _ROUNDS = Stream("network.late", "network"), Stream("network.late rounds", "network")


@struct.dataclass
class Delays(Lasting):
    """A fixed network whose messages may arrive some rounds late."""

    p: Array  # float32 [] probability that a message is late
    bound: int = struct.field(pytree_node=False)  # largest delay in rounds

    def at(self, k: Array, key: Array) -> Graph:
        """The graph of round k [], with the delays of its messages and the ages of those that have arrived."""
        graph = self.base.at(k, key)
        links = link_keys(self.lasting, _LATE, graph, directed=True).reshape(-1)

        def takes(sent: Array) -> Array:
            keys = jax.vmap(jax.random.fold_in, (0, None))(links, sent)
            late = uniform(jax.vmap(_LATE.of)(keys)) < self.p
            rounds = jax.vmap(lambda one: jax.random.randint(_ROUNDS.of(one), (), 1, self.bound + 1))
            return jnp.where(late, rounds(keys), 0).astype(jnp.int32).reshape(graph.senders.shape)

        def older(i: Array, age: Array) -> Array:
            back = self.bound - i  # from oldest to newest, so the newest is found last
            return jnp.where((takes(k - back) <= back) & (back <= k), back, age)

        never = jnp.full(graph.senders.shape, self.bound + 1, jnp.int32)
        age = lax.fori_loop(0, self.bound + 1, older, never)
        come = age <= self.bound
        return replace(graph, late=Late(takes(k), jnp.where(come, age, 0), come, self.bound))


@struct.dataclass
class Past:
    """Recent messages of each node, from which receivers take the newest that has arrived."""

    rows: Array  # [m, b + 1, n], with round k's messages at k modulo b + 1

    @classmethod
    def begin(cls, graph: Graph, x: Array) -> "Past | None":
        """No messages like x [m, n] yet; None where messages arrive in the round in which they are sent."""
        if graph.late is None:
            return None
        return cls(jnp.zeros((x.shape[0], graph.late.bound + 1, x.shape[1]), x.dtype))

    def after(self, z: Array, k: Array) -> "Past":
        """The record with the messages z [m, n] of round k added."""
        return Past(self.rows.at[:, k % self.rows.shape[1]].set(z))

    def heard(self, graph: Graph, k: Array) -> tuple[Array, Array]:
        """The newest messages that have arrived: indices [m, d] into all recorded messages [M (b + 1), n]."""
        assert graph.late is not None
        kept = self.rows.shape[1]
        all_rows = graph.gathered(self.rows)
        return graph.senders * kept + (k - graph.late.age) % kept, all_rows.reshape(-1, self.rows.shape[2])

    def mix(self, graph: Graph, x: Array, k: Array) -> Array:
        """Weighted sums [m, n] of own rows x [m, n] and the newest messages, those of round k among them."""
        graph = known(graph)
        senders, rows = self.heard(graph, k)
        return graph.self_weight.astype(x.dtype)[:, None] * x + gather_sum(senders, graph.weight, rows)


def known(graph: Graph) -> Graph:
    """The graph of neighbours from which a message has arrived; the others leave their weight to the receiver."""
    if graph.late is None:
        return graph
    return replace(without(graph, graph.late.come), senders=graph.senders)  # row indices after gathering, on any device


@struct.dataclass
class Mail:
    """Messages in transit to each node, by the round of their arrival."""

    rows: Array  # [m, b + 1, n] sums of weighted messages, with those for round k at k modulo b + 1

    @classmethod
    def begin(cls, graph: Graph, x: Array) -> "Mail | None":
        """No messages like x [m, n] yet; None where messages arrive in the round in which they are sent."""
        past = Past.begin(graph, x)
        return None if past is None else cls(past.rows)

    def mix(self, graph: Graph, x: Array, k: Array) -> tuple[Array, "Mail"]:
        """What each node holds after it has sent its row of x [m, n] in round k: its own share and what arrives."""
        assert graph.late is not None
        takes, kept, sent = graph.late.takes, self.rows.shape[1], graph.gathered(x)

        def send(rounds: Array, rows: Array) -> Array:
            part = gather_sum(graph.senders, jnp.where(takes == rounds, graph.weight, 0), sent)
            return rows.at[:, (k + rounds) % kept].add(part)

        rows = lax.fori_loop(0, kept, send, self.rows)
        now = k % kept
        own = graph.self_weight.astype(x.dtype)[:, None] * x
        return own + rows[:, now], Mail(rows.at[:, now].set(0))


@checked
def delays(base: Annotated[Network, Static], bound: Annotated[int, Bound("[1, 64]")], p: Share = 0.5) -> Delays:
    """Messages of a fixed network arrive late with probability p, by 1 to `bound` rounds, uniformly distributed.

    A late message counts as sent in its own round. Algorithms that mix rows use the newest message that has arrived
    from each neighbour, and do without that neighbour until its first message arrives; push-sum adds up whatever
    arrives. Algorithms that support neither refuse the network. Put delays inside other wrappers, not around them: a
    message that a lossy link drops in a round cannot be used in that round, whatever its age.

    Args:
        base: The fixed network whose messages are delayed.
        bound: Largest delay in rounds, from 1 to 64; each node's last `bound` + 1 messages are stored.
        p: Probability that a message is late, in (0, 1].

    Raises:
        ValueError: For a bound or p out of range, and a network that is not fixed.
    """
    if not isinstance(base, Static):
        raise ValueError(
            f"Expected a fixed network to delay messages on, got base = {called(base)}. Put delays inside: "
            "link_loss(delays(ring(m), 3), 0.1)."
        )
    inside, name = around(base, f"delays(bound={bound}, p={p:g})")
    return Delays(inside, jnp.float32(p), bound, name=name)
