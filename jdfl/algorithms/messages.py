"""The messages of one round: how the vectors of all nodes reach their neighbours, and how they are counted.

Codecs, delayed messages and rounds without exchange are handled here, and everything that is sent is recorded in the
round's `Book`. `Round` adds everything else that a step can do.

Axes: m nodes, of all or of one device, n parameters.
"""

from dataclasses import dataclass, replace
from typing import Any, Self

import jax.numpy as jnp
from jax import Array, lax

from jdfl.algorithms.book import MODEL, Channel
from jdfl.algorithms.sending import Sending, exact
from jdfl.arrays import ops
from jdfl.base.marking import sent
from jdfl.codecs import Wire, round_trip, transmit
from jdfl.devices import nodes
from jdfl.network import Graph
from jdfl.network import mix as mix_rows
from jdfl.network.late import Mail, Past
from jdfl.robust import Rule, Weighted


@dataclass(frozen=True, kw_only=True)
class Messages(Sending):
    """What a step knows of its round's network, and the operations with which its nodes send."""

    def every(self, period: int) -> Self:
        """The round, with messages only if its number is a multiple of `period`.

        Use it with `mix`, which returns x itself in the other rounds, at no cost and without a message; the other
        sending operations would still do their work, uncounted.
        """
        return self if period == 1 else replace(self, exchanging=self.k % period == 0)

    def on(self, graph: Graph) -> Self:
        """The round with other weights on the links of its graph, such as `jdfl.network.averaging(round.graph)`.

        What is sent through it counts as sent in this round. The links and everything else must stay the same.
        """
        return replace(self, moment=replace(self.moment, graph=graph))

    def by(self, rule: Rule) -> Self:
        """The round whose `mix` and `pull` combine rows by a robust rule instead of W; see `jdfl.robust`."""
        return replace(self, rule=rule)

    def mix(self, x: Array, channel: Channel | None = MODEL) -> Array:
        """W x [m, n] for rows x [m, n] that all nodes send: a node's own row unencoded, the others' as decoded.

        In rounds without exchange it is x itself. Of delayed messages the newest that has arrived is used. In a round
        with a `rule` it is the rule's result.

        Args:
            x: The rows x [m, n] that are sent through the algorithm's codec.
            channel: The channel on which they are counted; None: all nodes know them already, like public copies, and
                nothing is sent.
        """
        graph = self.graph
        if channel is None and self.rule is not None:
            return self._combined(x, x)
        if channel is None:
            mixed = mix_rows(graph, x)
            return mixed if self.exchanging is None else jnp.where(self.exchanging, mixed, x)
        index, x = self._sent(channel, x)
        if self.rule is not None or self.lies is not None:
            return self._combined(x, *self._arriving(channel, x, index))
        if graph.late is not None:
            z = x if exact(self.codec, x) else self._received(x, jnp.ones((self.m,), jnp.bool_), channel, index)
            past = self.waiting(channel, Past, x).after(z, self.k)
            self.mail[channel.name] = past
            return past.mix(graph, x, self.k)

        def exchanged(x: Array, graph: Graph, wire: Wire, keys: Array | None) -> Array:
            if keys is None:
                return mix_rows(graph, x)
            z = transmit(wire, keys, x, graph.out_degree > 0)
            return mix_rows(graph, z) + graph.self_weight.astype(x.dtype)[:, None] * (x - z)

        operands = x, graph, self.prepared.wire, None if exact(self.codec, x) else self.shared_keys(channel, index)
        if self.exchanging is None:
            return exchanged(*operands)
        return ops.skipped_unless(self.exchanging, exchanged, x, *operands)

    def pull(self, x: Array, channel: Channel | None = MODEL) -> Array:
        """(W - I) z [m, n], z being the decoded rows x [m, n] that all nodes send.

        It is computed from differences only, so sums of it over many rounds do not accumulate the rounding of W x - x
        (1e-8 to 1e-7 relative to x). A node's own contribution is what its neighbours decode, not its x: where W is
        doubly stochastic, the rows sum to zero whatever the codec loses.

        Args:
            x: The rows x [m, n] that are sent through the algorithm's codec.
            channel: The channel on which they are counted; None: all nodes know them already, nothing is sent, and z is
                x.
        """
        graph, z = self.graph, x
        if channel is None and self.rule is not None:
            return self._combined(x, x) - x
        if channel is not None:
            index, z = self._sent(channel, x)
            if self.rule is not None or self.lies is not None:
                own = z if exact(self.codec, x) else self._received(z, graph.out_degree > 0, channel, index)
                return self._combined(own, *self._arriving(channel, z, index)) - own
            if not exact(self.codec, x):
                z = self._received(x, (graph.out_degree > 0) | (graph.in_degree > 0), channel, index)
        z = lax.optimization_barrier(z)
        z = z - nodes.first(z)[None]  # a common shift changes no difference, and makes it exact near consensus
        weight, own = graph.weight.astype(x.dtype), graph.self_weight.astype(x.dtype)
        total = own + jnp.sum(weight, axis=1)  # 1, up to rounding
        if graph.synchronised is not None:
            total = jnp.where(graph.synchronised, 1, total)
        return mix_rows(graph, z, cheap=True) - total[:, None] * z

    def publish(
        self, x: Array, copy: Array, channel: Channel = MODEL, by: Array | None = None, over: Any = None
    ) -> Array:
        """The public copies copy + C(x - copy) of x [m, n], after the nodes have sent C(x - copy) to all neighbours.

        Args:
            x: The rows x [m, n] that the copies follow.
            copy: The copies so far, copy [m, n], the same at a node and at all its neighbours.
            channel: The channel on which messages are counted; C is the algorithm's codec.
            by: The nodes that may send, by [m] bool, while other copies stay; None: all.
            over: Of these only the nodes send whose C(x - copy) has an l2 norm above it, over [] or [m]; None: all.
        """
        x = self.with_lies(channel, x)
        wanted, at = jnp.ones((self.m,), jnp.bool_) if by is None else by, self.book.uses.get(channel.name, 0)
        if over is not None:
            arrived = self._received(x - copy, wanted, channel, at)
            by = sent(wanted & (ops.length(arrived, "l2") > over), channel.name)  # observers see which nodes send
            self._sent(channel, x, by)
            return jnp.where(by[:, None], copy + arrived, copy)
        if by is not None:
            by = wanted = sent(by, channel.name)
        _, x = self._sent(channel, x, by)
        return transmit(self.prepared.wire, self.shared_keys(channel, at), x, wanted, onto=copy)

    def push(self, x: Array, weight: Array, channel: Channel) -> tuple[Array, Array]:
        """Sums [m, n] and [m] of what arrives when nodes distribute their values with the columns of W.

        Delayed messages are added to the sums of the round in which they arrive, so the sum over all nodes loses
        nothing.

        Args:
            x: The rows x [m, n], which do not go through the codec.
            weight: The push-sum weights weight [m], distributed in the same way.
            channel: The channel on which messages, each with both, are counted.

        Raises:
            ValueError: In a round with a `rule`, whose result has no push-sum weights.
        """
        graph = self.graph
        index, x = self._sent(channel, x)
        if self.rule is not None:
            raise ValueError(
                f"Expected a method without push-sum for the rule {self.rule.title}, whose result has no push-sum "
                "weights. Use a method that mixes, such as jdfl.RobustDSGD."
            )
        if self.lies is not None:
            self._refuse_late()
            z, aimed = self.lies.of(graph, x, channel.name, index)
            return Weighted()(graph, x, z, aimed=aimed), mix_rows(graph, weight[:, None])[:, 0]
        if graph.late is None:
            return mix_rows(graph, x), mix_rows(graph, weight[:, None])[:, 0]
        both = jnp.concatenate([x, weight[:, None]], axis=1)
        sums, self.mail[channel.name] = self.waiting(channel, Mail, both).mix(graph, both, self.k)
        return sums[:, :-1], sums[:, -1]

    def deliver(self, x: Array, channel: Channel) -> Array:
        """What arrives [m, n] when every row goes to one receiver, such as a server, in one message per node.

        Row i [n] is what its receiver decodes with the algorithm's codec. The network plays no part: nothing is
        weighted, delayed or lost. For messages to neighbours use `mix` and `publish`.

        Args:
            x: The rows x [m, n].
            channel: The channel on which they are counted.
        """
        x = self.with_lies(channel, x)
        self.book.send(channel, 1, 1)
        return round_trip(self.prepared.wire, self.shared_keys(channel), self.leaving(channel, x, to="one"))

    def averaged(self, x: Array, channel: Channel) -> Array:
        """The mean of the rows x [m, n] at every node [m, n], by way of a coordinator: two messages per node.

        Args:
            x: The rows x [m, n].
            channel: The channel on which both messages are counted.
        """
        mean = nodes.mean(self.deliver(x, channel))
        return self.deliver(jnp.broadcast_to(mean, x.shape), channel)
