"""The messages of one round: how the vectors of all nodes reach their neighbours, and how they are counted.

Codecs, delayed messages and rounds without exchange are handled here, and everything that is sent is recorded in the
round's `Book`. `Round` adds everything else that a step can do.

Axes: m nodes, of all or of one device, n parameters.
"""

from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self

import jax.numpy as jnp
from jax import Array, lax

from jdfl.algorithms.book import MODEL, Book, Channel
from jdfl.algorithms.moment import Moment
from jdfl.arrays import ops
from jdfl.base import struct
from jdfl.base.streams import Stream
from jdfl.codecs import Codec, Dense, Wire, round_trip, transmit
from jdfl.devices import nodes
from jdfl.network import Graph, Mail, Past
from jdfl.network import mix as mix_rows
from jdfl.privacy.flow import sent
from jdfl.robust import Aimed, Rule, Weighted
from jdfl.robust.attack import Lies

To = Literal["neighbours", "one", "asked"]


@struct.dataclass
class Prepared:
    """What follows from settings, data and network, computed once before the first round."""

    gradients: Any = None  # result of `Gradients.prepare`
    wire: Any = None  # result of `Codec.prepare`
    own: Any = None  # result of the algorithm's own `prepare`


@dataclass(frozen=True, kw_only=True)
class Messages:
    """What a step knows of its round's network, and the operations with which its nodes send."""

    moment: Moment
    prepared: Prepared
    book: Book = field(default_factory=Book)
    mail: dict[str, Any] = field(default_factory=dict)  # delayed messages, by channel
    exchanging: Array | None = None  # [] whether this round exchanges messages; None: all rounds do
    rule: Rule | None = None  # how rows are combined; None: by W
    lies: Lies | None = None  # what attackers send; None: all nodes are honest

    @property
    def k(self) -> Array:
        """The number of the round, int32 [], from 0; also 0 before the first round.

        It is traced by JAX: choose by `jnp.where` or `lax.cond`, never by a Python `if`. Nodes that were offline or
        silent count rounds like all others.
        """
        return self.moment.k

    @property
    def graph(self) -> Graph:
        """The links of this round and their mixing weights.

        Read it, for example for degrees [m] or a choice of neighbours, but send through `mix`, `pull`, `publish`,
        `push` or `deliver`, which count messages. Within `each_of` it remains the graph of all nodes.
        """
        return self.moment.graph

    @property
    def node(self) -> Array:
        """The global ids [m] of the nodes, int32.

        Use them rather than array positions to distinguish nodes: on several devices they are the ids of one device's
        nodes, and within `each_of` those of a block [b].
        """
        return self.moment.node

    @property
    def m(self) -> int:
        """The number of nodes, or of this device's nodes where they are sharded over several devices.

        Arrays of a step have this number of rows. For the size of the whole network use `jdfl.nodes.count(round.m)`,
        and for means over it `jdfl.nodes.mean`.
        """
        return self.moment.m

    @property
    def codec(self) -> Codec:
        """The algorithm's codec.

        For an algorithm without one it is a lossless `Dense` of the parameters' type. `mix`, `pull`, `publish` and
        `deliver` apply it; `push` sends numbers unencoded.
        """
        return self.prepared.wire.codec

    def keys(self, stream: Stream, index: Array | int = 0) -> Array:
        """A key of a stream for every node [m] in this round; `index` [] distinguishes several draws of one round.

        Keys follow from the run's key, the round, the stream and the nodes' ids, so they do not depend on the number of
        devices. Within `repeat` pass `local_step` as the index; otherwise all local steps draw the same numbers.
        """
        return self.moment.keys(stream, index)

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
        if channel is None:
            return mix_rows(graph, x) if self.rule is None else self._combined(x, x)
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
        x = self._altered(channel, x)
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
        """What arrives when every row of x [m, n] goes to one receiver, such as a server, in one message per node.

        Row i [n] is what its receiver decodes with the algorithm's codec. The network plays no part: nothing is
        weighted, delayed or lost. For messages to neighbours use `mix` and `publish`.
        """
        x = self._altered(channel, x)
        self.book.send(channel, 1, 1)
        return round_trip(self.prepared.wire, self.shared_keys(channel), self.leaving(channel, x, to="one"))

    def leaving(self, channel: Channel, x: Array, by: Array | None = None, *, to: To = "neighbours") -> Array:
        """The rows x [m, n], marked as leaving the nodes on a channel.

        Everything that leaves a node passes through here, and privacy is derived from these marks.

        Args:
            channel: Where the rows are counted.
            x: The rows x [m, n] before encoding.
            by: The nodes that send, by [m] bool; None: all.
            to: The receivers of a row: all out-"neighbours", "one" receiver per row, or those that "asked".
        """
        return sent(x, channel.name)

    def _sent(self, channel: Channel, x: Array, by: Array | None = None) -> tuple[int, Array]:
        """Count a message x [m, n] to all out-neighbours, from all nodes or from those in `by` [m].

        Returns how often the step has already sent on the channel, and x, marked.
        """
        times: Any = 1 if self.exchanging is None else self.exchanging.astype(jnp.int32)
        sender = times if by is None else times * by.astype(jnp.int32)
        heard = (self.graph.in_degree > 0).astype(jnp.int32)
        index = self.book.send(channel, sender * self.graph.out_degree, times * heard)
        return index, self.leaving(channel, x, by)

    def _arriving(self, channel: Channel, x: Array, index: int) -> tuple[Array, Aimed | None]:
        """What receivers decode from the rows x [m, n] of all nodes, and from those that attackers send instead.

        Rows that attackers send to single nodes are not encoded.
        """
        x, aimed = (x, None) if self.lies is None else self.lies.of(self.graph, x, channel.name, index)
        z = x if exact(self.codec, x) else self._received(x, self.graph.out_degree > 0, channel, index)
        return z, aimed

    def _combined(self, own: Array, z: Array, aimed: Aimed | None = None) -> Array:
        """The rows [m, n] by the rule, or by W, of the nodes' own rows [m, n] and those that arrive, z [m, n]."""
        self._refuse_late()
        rule, problem = self.rule or Weighted(), getattr(self, "problem", None)
        losses = None if problem is None else problem.values
        result = rule(self.graph, own, z, aimed=aimed, k=self.k, losses=losses)
        return result if self.exchanging is None else jnp.where(self.exchanging, result, own)

    def _altered(self, channel: Channel, x: Array) -> Array:
        """The rows x [m, n] with those that attackers send instead, the same to all receivers."""
        if self.lies is None:
            return x
        x, aimed = self.lies.of(self.graph, x, channel.name, self.book.uses.get(channel.name, 0))
        if aimed is None:
            return x
        raise ValueError(
            f"Expected a method that mixes for the attack {self.lies.attack.title}, which sends every neighbour "
            f"another row, got one whose rows on the channel {channel.name!r} are the same for all receivers. Use "
            "another attack, such as jdfl.robust.ALIE()."
        )

    def _refuse_late(self) -> None:
        if self.graph.late is not None:
            raise ValueError(
                "Expected a network without delayed messages for robust rules and attacks. Leave out network.delays."
            )

    def _received(self, x: Array, wanted: Array, channel: Channel, index: int) -> Array:
        """What receivers decode from the rows of x [m, n] that are `wanted` [m]."""
        return transmit(self.prepared.wire, self.shared_keys(channel, index), x, wanted)

    def shared_keys(self, channel: Channel, index: int = 0) -> Array:
        """The sender's keys [m], from which both ends of a channel draw; `index` distinguishes messages.

        `mix`, `pull`, `publish` and `deliver` use them internally; a method that calls a codec itself needs them. The
        channel must have a stream. Never draw noise from them, because receivers know them.
        """
        assert channel.stream is not None  # true of channels on which vectors go through a codec
        return self.keys(channel.stream, index)

    def waiting(self, channel: Channel, kind: Any, x: Array) -> Any:
        """Delayed messages of a channel; the first time, an empty `kind` (`Past` or `Mail`) for rows like x [m, n].

        Only for networks with delayed messages. The caller stores the updated value in `mail` under the channel's name,
        as `mix` and `push` do, and the next round starts with it.
        """
        if channel.name not in self.mail:
            self.mail[channel.name] = kind.begin(self.graph, x)
        return self.mail[channel.name]


def exact(codec: Codec, x: Array) -> bool:
    """Whether the codec transmits vectors of the type of x [m, n] without loss."""
    return isinstance(codec, Dense) and codec.precision == x.dtype.name
