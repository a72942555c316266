"""Messages that are late by a number of rounds, up to a bound, and how sums over neighbours are made of them.

Algorithms take them in one of two ways. Who mixes rows takes from every neighbour the newest that has come (`Past`), so
that rows of W keep their sums; push-sum adds up everything that arrives, once, whenever it does (`Mail`), so that
nothing of the sum over all nodes is lost: it is with the nodes or on its way.

Axes: m nodes, M of all devices, n parameters, d slots of the table, b rounds of the bound.
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
    """A fixed network whose messages may take some rounds."""

    p: Array  # float32 [] probability that a message is late
    bound: int = struct.field(pytree_node=False)  # the most rounds that a message takes

    def at(self, k: Array, key: Array) -> Graph:
        """The network's graph in round k [], with how long its messages take and how old those are that have come."""
        graph = self.base.at(k, key)
        links = link_keys(self.lasting, _LATE, graph, directed=True).reshape(-1)

        def takes(sent: Array) -> Array:
            keys = jax.vmap(jax.random.fold_in, (0, None))(links, sent)
            late = uniform(jax.vmap(_LATE.of)(keys)) < self.p
            rounds = jax.vmap(lambda one: jax.random.randint(_ROUNDS.of(one), (), 1, self.bound + 1))
            return jnp.where(late, rounds(keys), 0).astype(jnp.int32).reshape(graph.senders.shape)

        def older(i: Array, age: Array) -> Array:
            back = self.bound - i  # from the oldest to this round's, so that the newest is found last
            return jnp.where((takes(k - back) <= back) & (back <= k), back, age)

        never = jnp.full(graph.senders.shape, self.bound + 1, jnp.int32)
        age = lax.fori_loop(0, self.bound + 1, older, never)
        come = age <= self.bound
        return replace(graph, late=Late(takes(k), jnp.where(come, age, 0), come, self.bound))


@struct.dataclass
class Past:
    """The last messages of every node, of which receivers take the newest that has come."""

    rows: Array  # [m, b + 1, n] those of round k at k modulo b + 1

    @classmethod
    def begin(cls, graph: Graph, x: Array) -> "Past | None":
        """Nothing yet; None where messages come in the round in which they are sent.

        Args:
            graph: The graph of the first round, which says how late messages may be.
            x ([m, n]): Rows like the messages, of which shape and dtype count.
        """
        if graph.late is None:
            return None
        return cls(jnp.zeros((x.shape[0], graph.late.bound + 1, x.shape[1]), x.dtype))

    def after(self, z: Array, k: Array) -> "Past":
        """With the messages z [m, n] of round k."""
        return Past(self.rows.at[:, k % self.rows.shape[1]].set(z))

    def heard(self, graph: Graph, k: Array) -> tuple[Array, Array]:
        """The newest messages that have come, as rows of all messages that are kept.

        Args:
            graph: The graph of the round.
            k ([]): The round.

        Returns:
            Senders [m, d] as numbers of rows of what is second: all messages [M (b + 1), n].
        """
        assert graph.late is not None
        kept = self.rows.shape[1]
        all_rows = graph.gathered(self.rows)
        return graph.senders * kept + (k - graph.late.age) % kept, all_rows.reshape(-1, self.rows.shape[2])

    def mix(self, graph: Graph, x: Array, k: Array) -> Array:
        """Weighted sums [m, n] of own rows and the neighbours' newest messages; who is not known yet is missing.

        Args:
            graph: The graph of the round. The weight of neighbours who are not known yet is the receiver's own.
            x ([m, n]): The nodes' own rows.
            k ([]): The round, whose messages `after` has put in.
        """
        graph = known(graph)
        senders, rows = self.heard(graph, k)
        return graph.self_weight.astype(x.dtype)[:, None] * x + gather_sum(senders, graph.weight, rows)


def known(graph: Graph) -> Graph:
    """The graph of those of whom a message has come; the others' weight is the receiver's own."""
    if graph.late is None:
        return graph
    return replace(without(graph, graph.late.come), senders=graph.senders)  # rows of what is gathered, on any device


@struct.dataclass
class Mail:
    """What is on its way to every node, by the round in which it arrives."""

    rows: Array  # [m, b + 1, n] sums of weighted messages; those for round k at k modulo b + 1

    @classmethod
    def begin(cls, graph: Graph, x: Array) -> "Mail | None":
        """Nothing yet; None where messages come in the round in which they are sent.

        Args:
            graph: The graph of the first round, which says how late messages may be.
            x ([m, n]): Rows like the messages, of which shape and dtype count.
        """
        past = Past.begin(graph, x)
        return None if past is None else cls(past.rows)

    def mix(self, graph: Graph, x: Array, k: Array) -> tuple[Array, "Mail"]:
        """What nodes have in a round when all send: their own share and all that arrives.

        Args:
            graph: The graph of the round.
            x ([m, n]): What every node sends; links weigh it.
            k ([]): The round.

        Returns:
            The sums [m, n], and what is then still on its way.
        """
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
    """Messages of a fixed network are late by some rounds, up to a bound, all numbers of them alike.

    A late message counts as sent in its own round. Who mixes rows takes the newest message that has come of every
    neighbour, and until the first has come goes without it; push-sum adds up what arrives. Algorithms that can do
    neither refuse the network. Put it into other wrappers, not around them: what is lost on a link in a round can then
    not be used in it, of whatever age it is.

    Args:
        base: The fixed network whose messages they are.
        bound: The most rounds that a message takes, from 1 to 64; nodes keep as many messages of every other one.
        p: Probability that a message is late, in (0, 1].

    Raises:
        ValueError: For a bound or p out of range, and a network that is not fixed.
    """
    if not isinstance(base, Static):
        raise ValueError(
            f"Expected a fixed network whose messages are late, got base = {called(base)}. Put delays inside: "
            "link_loss(delays(ring(m), 3), 0.1)."
        )
    inside, name = around(base, f"delays(bound={bound}, p={p:g})")
    return Delays(inside, jnp.float32(p), bound, name=name)
